// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: close() while there is no path. The connecting end asks the other to end the session,
// so that no session waits for the rest of resume-time, and what was delivered is told from what
// was not.

#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/protocol/wire.h"
#include "tests/simulation/resume_kit.h"
#include "tests/support/raw_peer.h"
#include "tests/support/tls_kit.h"

using namespace simulation;
using conn::rdma::Hello;
using testing::Contains;

namespace {

// A resume-time that no test waits for.
const std::string kLong = "resume=yes&resume-time=10m&keepalive=100ms";

/// A pair whose path is away; both ends know it.
struct LostPair : Pair {
  explicit LostPair(const Profile& profile = chosen_profile(), const std::string& client_more = "",
                    const std::string& server_more = "")
      : Pair(profile, {}, kLong + server_more, kLong + client_more) {}
  void lose() {
    room.world.set_path(*room.near, *room.far, false);
    RUN_UNTIL(room.loop, counted("paths_lost") == 2);
  }
  void come_back() { room.world.set_path(*room.near, *room.far, true); }
  std::size_t open() { return room.type.counters(room.loop).open; }
};

constexpr Nanoseconds kSoon = 1500ms;  // an attempt, and the pause before it

}  // namespace

TEST_CASE("resume: who closes without a path is forgotten when there is one",
          "[simulation][resume][forget]") {
  const bool lingers = GENERATE(true, false);
  const bool unread = GENERATE(true, false);
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name, lingers, unread);
    LostPair pair(*profile, lingers ? "" : "&linger=0");
    Talker client(*pair.client, 1, 2, 1000), server(*pair.server, 2, 1, 1000);
    if (unread) server.set_reads(false);
    RUN_UNTIL(pair.room.loop, client.received() == 1000 && (unread || server.received() == 1000));
    pair.room.run_for(300ms);
    pair.lose();
    pair.client.reset();
    if (lingers) pair.room.run_for(700ms);
    CHECK(pair.counted("sessions_forgotten") == 0);
    pair.come_back();
    const Nanoseconds begin = pair.room.world.now();
    RUN_UNTIL(pair.room.loop, pair.counted("sessions_forgotten") == 1);
    CHECK(pair.room.world.now() - begin < kSoon);
    server.set_reads(true);
    RUN_UNTIL(pair.room.loop, !server.ending().empty());
    CHECK(server.ending() == "end of stream");
    CHECK(server.received() == 1000);
    RUN_UNTIL(pair.room.loop, pair.open() == 1);  // the server's end, which its program holds
    CHECK(pair.counted("paths_lost") == 0);
    CHECK(pair.counted("resumes") == 0);
    CHECK(pair.counted("resumes_refused") == 0);
    errno = 0;
    CHECK(pair.server->write("x", 1) == -1);
    CHECK(errno == EPIPE);
  }
}

TEST_CASE("resume: a server that has not noticed the loss forgets as well",
          "[simulation][resume][forget]") {
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name);
    LostPair pair(*profile);
    Talker client(*pair.client, 1, 2, 1000), server(*pair.server, 2, 1, 1000);
    RUN_UNTIL(pair.room.loop, client.received() == 1000 && server.received() == 1000);
    pair.room.run_for(300ms);
    pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
    pair.room.world.set_address(*pair.room.far, false);
    RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 1);
    pair.room.world.set_address(*pair.room.far, true);
    pair.client.reset();
    pair.come_back();
    RUN_UNTIL(pair.room.loop, !server.ending().empty());
    CHECK(server.ending() == "end of stream");
    CHECK(pair.counted("sessions_forgotten") == 1);
    CHECK(pair.counted("resumes") == 0);
  }
}

TEST_CASE("resume: bytes that a close without a path leaves behind are an error",
          "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  const bool by_server = GENERATE(false, true);  // who wrote them
  CAPTURE(by_server);
  LostPair pair(chosen_profile(), "&linger=0");
  Talker server(*pair.server, 2, 1, by_server ? 100 : 0);
  pair.room.run_for(300ms);
  pair.lose();
  if (by_server)
    server.more(77);
  else
    REQUIRE(pair.client->write("last", 4) == 4);
  pair.room.run_for(1ms);
  pair.client.reset();
  pair.come_back();
  RUN_UNTIL(pair.room.loop, !server.ending().empty());
  CHECK_THAT(server.ending(), Contains(by_server ? "before it took the last 77 bytes"
                                                 : "the last 4 bytes of its stream did not"));
  CHECK(pair.server->why_ended().code == std::errc::connection_reset);
  CHECK(pair.counted("sessions_forgotten") == 1);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
}

TEST_CASE("resume: bytes that may still arrive need a path", "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  LostPair pair;
  Talker server(*pair.server, 2, 1, 0), client(*pair.client, 1, 2, 0);
  pair.lose();
  client.more(1000);
  pair.room.run_for(1ms);
  pair.client.reset();
  pair.room.run_for(100ms);
  pair.come_back();
  RUN_UNTIL(pair.room.loop, !server.ending().empty());
  CHECK(server.received() == 1000);
  CHECK(server.ending() == "end of stream");
  CHECK(pair.counted("sessions_forgotten") == 0);
  CHECK(pair.counted("resumes") == 2);
}

TEST_CASE("resume: a close without a path asks no longer than it may",
          "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  const std::string linger = GENERATE("0", "1s");
  const bool aborts = GENERATE(false, true);
  CAPTURE(linger, aborts);
  LostPair pair(chosen_profile(), "&linger=" + linger);
  Talker server(*pair.server, 2, 1, 0);
  pair.lose();
  const Nanoseconds begin = pair.room.world.now();
  if (aborts)
    pair.client.release()->abort();
  else
    pair.client.reset();
  CHECK(pair.room.world.now() - begin < 10us);
  RUN_UNTIL(pair.room.loop, pair.open() == 1);
  const Nanoseconds patience = aborts ? 0ms : linger == "0" ? 500ms : 1s;
  CHECK(pair.room.world.now() - begin >= patience);
  CHECK(pair.room.world.now() - begin < patience + 200ms);
  pair.come_back();
  pair.room.run_for(10s);
  CHECK(pair.counted("sessions_forgotten") == 0);  // nobody is there to ask
  CHECK(pair.counted("paths_lost") == 1);
  CHECK(server.ending() == "");
}

TEST_CASE("resume: a path that returns late finds the server waiting no longer than before",
          "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  Pair pair;
  Talker server(*pair.server, 2, 1, 0);
  pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
  pair.client.reset();
  RUN_UNTIL(pair.room.loop, !server.ending().empty());
  CHECK_THAT(server.ending(), Contains("no new path in"));
}

TEST_CASE("resume: a forgotten session gives its place back", "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  LostPair pair(chosen_profile(), "", "&max-connections=1");
  pair.server->set_read_handler([&pair](conn::Connection& here) {
    char byte = 0;
    if (here.read(&byte, 1) == 0) pair.server.reset();
  });
  pair.lose();
  pair.client.reset();
  pair.come_back();
  RUN_UNTIL(pair.room.loop, pair.open() == 0);
  pair.client = pair.room.dial(kLong);
  RUN_UNTIL(pair.room.loop, pair.client->state() != conn::State::kConnecting);
  CHECK(pair.client->state() == conn::State::kConnected);
}

TEST_CASE("resume: a loop that ends asks for its closed connections to be forgotten",
          "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  LostPair pair;
  auto other = testing::make_loop();
  Talker server(*pair.server, 2, 1, 0);
  pair.lose();
  REQUIRE(pair.client->rebind(*other));
  testing::turns(*other, 3);
  REQUIRE(pair.client->loop() == other.get());
  pair.come_back();
  // The path is there, but the server's loop does not run meanwhile.
  pair.client.reset();
  const Nanoseconds begin = pair.room.world.now();
  other.reset();
  CHECK(pair.room.world.now() - begin <= 150ms);  // end-linger
  RUN_UNTIL(pair.room.loop, !server.ending().empty());
  CHECK(server.ending() == "end of stream");
  CHECK(pair.counted("sessions_forgotten") == 1);
}

TEST_CASE("resume: a server that closes without a path says so on the next one",
          "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  const bool lingers = GENERATE(true, false);
  CAPTURE(lingers);
  LostPair pair(chosen_profile(), "", lingers ? "" : "&linger=0");
  Talker client(*pair.client, 1, 2, 0);
  pair.lose();
  pair.server.reset();
  pair.room.run_for(100ms);
  CHECK(pair.open() == (lingers ? 2 : 1));
  pair.come_back();
  RUN_UNTIL(pair.room.loop, !client.ending().empty());
  if (lingers)
    CHECK(client.ending() == "end of stream");
  else
    CHECK_THAT(client.ending(), Contains("the peer has ended it"));
}

TEST_CASE("resume: both ends close without a path", "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  LostPair pair;
  pair.lose();
  pair.server.reset();
  pair.client.reset();
  pair.room.run_for(100ms);
  pair.come_back();
  const Nanoseconds begin = pair.room.world.now();
  RUN_UNTIL(pair.room.loop, pair.open() == 0);
  CHECK(pair.room.world.now() - begin < kSoon);
  CHECK(pair.counted("sessions_forgotten") == 1);
  CHECK(pair.counted("paths_lost") == 0);
}

TEST_CASE("resume: a close while a request for a path is under way ends on that path",
          "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  const bool lingers = GENERATE(true, false);
  CAPTURE(lingers);
  LostPair pair(chosen_profile(), lingers ? "" : "&linger=0");
  Talker server(*pair.server, 2, 1, 0);
  pair.lose();
  pair.come_back();
  const auto connecting = [&] {
    for (const auto& [key, value] : pair.client->info())
      if (key == "phase") return value == "connecting";
    return false;
  };
  RUN_UNTIL(pair.room.loop, connecting());
  pair.client.reset();
  RUN_UNTIL(pair.room.loop, !server.ending().empty());
  CHECK(server.ending() == "end of stream");
  CHECK(pair.counted("resumes") + pair.counted("sessions_forgotten") != 0);
}

TEST_CASE("resume: a session under TLS is forgotten", "[simulation][resume][forget]") {
  World world;
  Device* near = &world.add_device("sim0", "10.77.0.1");
  Device* far = &world.add_device("sim1", "10.77.0.2");
  if (near->profile.iwarp) return;
  // TLS says goodbye in bytes: a program that has shut down has sent them before.
  const bool shut_down = GENERATE(true, false);
  CAPTURE(shut_down);
  const conn::Registry registry = conn::all_transports();
  conn::ConnectionType& type = registry.require("tls+rdma");
  type.configure(testing::test_tls_options("localhost"));
  {
    testing::AnyLoop loop;
    conn::ConnectionPtr server;
    const conn::ListenerPtr listener =
        type.listen(loop, conn::Endpoint::parse("tls+rdma://10.77.0.1:0?" + kLong),
                    [&](conn::ConnectionPtr next) { server = std::move(next); });
    conn::Endpoint to = listener->endpoints().front();
    to.options = to.options.merged_with(conn::Options::parse("source=10.77.0.2&linger=0&" + kLong));
    conn::ConnectionPtr client = type.create(loop);
    client->connect(to, [](conn::Connection&) {});
    RUN_UNTIL(loop, server != nullptr && client->state() != conn::State::kConnecting);
    REQUIRE(client->last_error() == "");
    Talker one(*client, 1, 2, 1000), other(*server, 2, 1, 1000);
    RUN_UNTIL(loop, one.received() == 1000 && other.received() == 1000);
    const auto counted = [&](const std::string& name) {
      for (const auto& [key, value] : registry.require("rdma").statistics(loop))
        if (key == name) return value;
      return ~std::uint64_t{0};
    };
    if (shut_down) {
      REQUIRE(client->shutdown() == 0);
      RUN_UNTIL(loop, other.ending() == "end of stream");
      testing::turns(loop, 200);
    }
    world.set_path(*near, *far, false);
    RUN_UNTIL(loop, counted("paths_lost") == 2);
    client.reset();
    world.set_path(*near, *far, true);
    RUN_UNTIL(loop, counted("sessions_forgotten") == 1);
    RUN_UNTIL(loop, counted("paths_lost") == 0 && !other.ending().empty());
    if (!shut_down) CHECK_THAT(other.ending(), Contains("bytes of its stream did not arrive"));
    server.reset();
    RUN_UNTIL(loop, type.counters(loop).open == 0);
  }
  world.advance(world.now() + 110s);
  world.let_orphans_go();
}

TEST_CASE("resume: another server of the URL does not keep a session from being forgotten",
          "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  const bool rejects = GENERATE(true, false);  // false: nobody listens at the other address
  CAPTURE(rejects);
  Several pair(1, rejects, kLong);
  Talker server(*pair.server, 2, 1, 0);
  pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
  pair.client.reset();
  pair.room.run_for(1500ms);
  CHECK(pair.counted("sessions_forgotten") == 0);
  if (rejects) CHECK(pair.rejected() > 1);
  pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
  RUN_UNTIL(pair.room.loop, pair.counted("sessions_forgotten") == 1);
  RUN_UNTIL(pair.room.loop, server.ending() == "end of stream");
  // The session is over, so nobody is asked any more.
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
  const std::size_t before = pair.rejected();
  pair.room.run_for(10s);
  CHECK(pair.rejected() == before);
}

// A server of a release that does not know the request gets what it got before.
TEST_CASE("resume: only a server that says so is asked to forget", "[simulation][resume][forget]") {
  if (chosen_profile().iwarp) return;
  const bool forgets = GENERATE(true, false);
  CAPTURE(forgets);
  Room room({.strangers = true});
  setenv("AECONN_RDMA_ADDRESS", "10.77.0.1", 1);
  testing::RawNet net(room.loop);
  Hello hello{.flags = Hello::kFinishes | Hello::kResumes | (forgets ? Hello::kForgets : 0),
              .resume_ms = 10000};
  hello.grant.session = 77;
  hello.grant.key[0] = std::byte{9};
  const auto bytes = encode(hello, conn::rdma::HelloKind::kAnswer);
  testing::RawOptions options;
  options.private_data = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  const conn::Endpoint to = net.listen(options);
  conn::ConnectionPtr client = room.type.create(room.loop);
  client->connect(conn::Endpoint::parse("rdma://10.77.0.1:" + std::to_string(to.port) +
                                        "?source=10.77.0.2&linger=1s&" + kLong),
                  [](conn::Connection&) {});
  RUN_UNTIL(room.loop, client->state() == conn::State::kConnected && net.accepted.size() == 1 &&
                           net.accepted.front()->established);
  REQUIRE(client->write("12345", 5) == 5);
  net.accepted.front()->stream("abc");
  RUN_UNTIL(room.loop, net.accepted.front()->received == "12345");
  room.run_for(300ms);
  char read[10];
  REQUIRE(client->read(read, sizeof read) == 3);
  net.accepted.front()->disconnect();
  const auto is_lost = [&] {
    for (const auto& [key, value] : client->info())
      if (key == "path-state") return value == "lost";
    return false;
  };
  RUN_UNTIL(room.loop, is_lost());
  const std::size_t before = net.requests;
  client.reset();
  RUN_UNTIL(room.loop, net.requests > before);
  const auto asked = conn::rdma::decode_resume(std::as_bytes(std::span(net.request_data)));
  REQUIRE(asked);
  CHECK(asked->reason ==
        (forgets ? conn::rdma::ResumeReason::kForget : conn::rdma::ResumeReason::kPathLost));
  CHECK(asked->received == 3);
  CHECK(asked->total == (forgets ? 5 : 0));
  // Whoever accepts such a request has not understood it: there is no new path.
  RUN_UNTIL(room.loop, room.type.counters(room.loop).open == 0);
  room.run_for(1s);
}
