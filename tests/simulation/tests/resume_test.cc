// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: a connection whose path is lost goes on over another one, and its bytes arrive once
// and in order, whatever happened to the path.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/memory.h"
#include "tests/simulation/resume_kit.h"
#include "tests/support/tls_kit.h"

using namespace simulation;
using testing::Contains;

namespace {

struct Fault {
  const char* name;
  std::function<void(Room&)> happens;
  /// Whether completions that nobody has seen may be gone with the device: the connection then ends
  /// with an error, and no byte is wrong.
  bool takes_completions = false;
};

void replace(Room& room, Device*& device, const std::string& name, const std::string& address) {
  const Profile& profile = device->profile;
  room.world.remove_device(*device);
  room.run_for(300ms);
  device = &room.world.add_device(name, address, profile);
}

// The device carries out no request any more of the queue pairs that it has now, and says nothing.
void get_stuck(Room& room, const Device& device) {
  for (auto& [number, qp] : room.world.queue_pairs)
    if (&qp->device_of() == &device) qp->stuck = true;
}

/// tls+rdma with resume=yes, both ends on one loop. `accepted` is called for each server's end.
struct TlsRoom {
  explicit TlsRoom(
      std::function<void()> accepted = [] {}, const std::string& version = "1.3",
      const conn::Options& more = {}) {
    conn::Options options = testing::test_tls_options("localhost").merged_with(more);
    options.set("max-version", version);
    type.configure(options);
    listener = type.listen(loop, conn::Endpoint::parse("tls+rdma://10.77.0.1:0?" + kResume),
                           [this, accepted](conn::ConnectionPtr next) {
                             server = std::move(next);
                             accepted();
                           });
    to = listener->endpoints().front();
    to.options = to.options.merged_with(conn::Options::parse("source=10.77.0.2&" + kResume));
  }
  /// Opens or closes the path between the two devices.
  void set_path(bool open) { world.set_path(near, far, open); }
  /// Number of connections without a path.
  std::uint64_t lost() const {
    for (const auto& [key, value] : registry.require("rdma").statistics(loop))
      if (key == "paths_lost") return value;
    return 0;
  }
  World world;
  Device& near = world.add_device("sim0", "10.77.0.1");
  Device& far = world.add_device("sim1", "10.77.0.2");
  const conn::Registry registry = conn::all_transports();
  conn::ConnectionType& type = registry.require("tls+rdma");
  mutable testing::AnyLoop loop;
  conn::ConnectionPtr server, client;
  conn::ListenerPtr listener;
  conn::Endpoint to;
};

}  // namespace

TEST_CASE("resume: the bytes of a connection survive its path", "[simulation][resume]") {
  const Fault faults[] = {
      {"nothing", [](Room&) {}},
      {"a short flap of the link", [](Room& room) { flap(room, 20ms); }},
      {"a long flap of the link", [](Room& room) { flap(room, 3s); }},
      {"a path that is closed for a while",
       [](Room& room) {
         room.world.set_path(*room.near, *room.far, false);
         room.run_for(3s);
         room.world.set_path(*room.near, *room.far, true);
       }},
      {"the client's device removed",
       [](Room& room) { replace(room, room.far, "sim1", "10.77.0.2"); }, true},
      {"the server's device removed",
       [](Room& room) { replace(room, room.near, "sim0", "10.77.0.1"); }, true},
      {"two losses",
       [](Room& room) {
         flap(room, 2s);
         room.run_for(30ms);
         flap(room, 2s);
       }},
      {"the client's queue pair gets stuck", [](Room& room) { get_stuck(room, *room.far); }},
      {"the server's queue pair gets stuck", [](Room& room) { get_stuck(room, *room.near); }},
  };
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    for (const auto& [name, happens, takes_completions] : faults) {
      for (const bool busy : {true, false}) {
        CAPTURE(profile->name, name, busy);
        Pair pair(*profile);
        Talker client(*pair.client, 1, 2, busy ? kBytes : 100);
        Talker server(*pair.server, 2, 1, busy ? kBytes : 100);
        pair.room.run_for(busy ? 300us : 50ms);
        happens(pair.room);
        if (!busy) {
          client.more(1000);
          server.more(1000);
        }
        testing::run_until(
            pair.room.loop,
            [&] {
              return (client.wrote_all() && server.wrote_all() &&
                      client.received() == server.written() &&
                      server.received() == client.written()) ||
                     !client.ending().empty() || !server.ending().empty();
            },
            "all bytes", 60s);
        if (takes_completions && busy && !(client.ending() + server.ending()).empty()) {
          CHECK_THAT(client.ending() + server.ending(), Contains("bytes that the peer misses"));
          continue;
        }
        CHECK(client.ending() == "");
        CHECK(server.ending() == "");
        CHECK(client.received() == server.written());
        CHECK(server.received() == client.written());
        CHECK(pair.counted("paths_lost") == 0);
        CAPTURE(pair.counted("resumes"), pair.counted("bytes_resent"));
        pair.client.reset();
        RUN_UNTIL(pair.room.loop, !server.ending().empty());
        CHECK(server.ending() == "end of stream");
      }
    }
  }
}

TEST_CASE("resume: a connection moves to another loop, under load and idle",
          "[simulation][resume]") {
  const bool server_moves = GENERATE(true, false);
  const bool busy = GENERATE(true, false);
  const bool in_two_steps = GENERATE(true, false);
  CAPTURE(server_moves, busy, in_two_steps);
  {
    if (chosen_profile().iwarp) return;
    Pair pair;
    testing::AnyLoop other;
    Talker client(*pair.client, 1, 2, busy ? kBytes : 100);
    Talker server(*pair.server, 2, 1, busy ? kBytes : 100);
    pair.room.run_for(busy ? 300us : 50ms);
    conn::Connection& moves = server_moves ? *pair.server : *pair.client;
    const auto run_both = [&] {
      testing::turns(pair.room.loop, 1);
      testing::turns(other, 1);
      pair.room.world.advance(pair.room.world.now() + 10us);
    };
    for (int i = 0; i < 4; ++i) {
      ae::EventLoop& to = i % 2 == 0 ? static_cast<ae::EventLoop&>(other) : pair.room.loop;
      if (in_two_steps) {
        REQUIRE(moves.leave());
        testing::turns(pair.room.loop, 1);
        REQUIRE(moves.join(to));
      } else {
        REQUIRE(moves.rebind(to));
      }
      REQUIRE(moves.loop() == &to);
      if (!busy) client.more(1000), server.more(1000);
      for (int turn = 0; turn < (busy ? 300 : 3000); ++turn) run_both();
    }
    for (int turn = 0; turn < 200'000; ++turn) {
      const bool done = client.wrote_all() && server.wrote_all() &&
                        client.received() == server.written() &&
                        server.received() == client.written();
      if (done || !client.ending().empty() || !server.ending().empty()) break;
      run_both();
    }
    CHECK(client.ending() == "");
    CHECK(server.ending() == "");
    CHECK(client.received() == server.written());
    CHECK(server.received() == client.written());
    pair.client.reset();
    for (int turn = 0; turn < 20'000 && server.ending().empty(); ++turn) run_both();
    CHECK(server.ending() == "end of stream");
    pair.server.reset();
    for (int turn = 0; turn < 20'000; ++turn) run_both();
  }
}

TEST_CASE("resume: a loop sleeps while a handshake of TLS has no path", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  TlsRoom room;
  room.client = room.type.create(room.loop);
  std::vector<std::string> ran;
  room.client->connect(room.to, [&](conn::Connection&) { ran.push_back("connect"); });
  room.client->set_path_handler([&](conn::Connection&) { ran.push_back("path"); });
  // The connection of rdma is there, and the handshake is not over.
  RUN_UNTIL(room.loop, room.world.messages != 0);
  room.set_path(false);
  RUN_UNTIL(room.loop, room.lost() != 0);
  REQUIRE(room.client->state() == conn::State::kConnecting);
  const std::uint64_t before = room.world.waits;
  run_for(room.loop, 2s);
  CHECK(room.world.waits - before < 2000);
  CHECK(room.client->state() == conn::State::kConnecting);
  CHECK(ran.empty());
  room.set_path(true);
  RUN_UNTIL(room.loop, ran.size() >= 2);
  CHECK(room.client->state() == conn::State::kConnected);
  CHECK(ran == std::vector<std::string>{"connect", "path"});
}

TEST_CASE("resume: a listener comes back while another connection of its loop blocks",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  Pair pair;
  Room& room = pair.room;
  const Profile& profile = room.near->profile;
  Device& third = room.world.add_device("sim2", "10.77.0.3", profile);
  room.world.set_path(third, *room.far, false);
  room.world.remove_device(*room.near);
  room.world.after(100ms,
                   [&] { room.near = &room.world.add_device("sim0", "10.77.0.1", profile); });
  const conn::ConnectionPtr blocks = room.type.create(room.loop);
  CHECK_FALSE(
      blocks->connect_blocking(conn::Endpoint::parse("rdma://10.77.0.3:1?source=10.77.0.2"), 4s));
  CHECK(pair.client->last_error() == "");
  CHECK(pair.counted("resumes") == 2);
}

TEST_CASE("resume: under TLS, too, with a key that never went over the wire",
          "[simulation][resume]") {
  World world;
  Device* near = &world.add_device("sim0", "10.77.0.1");
  Device* far = &world.add_device("sim1", "10.77.0.2");
  if (near->profile.iwarp) return;
  const conn::Registry registry = conn::all_transports();
  conn::ConnectionType& type = registry.require("tls+rdma");
  type.configure(testing::test_tls_options("localhost"));
  {
    testing::AnyLoop loop;
    conn::ConnectionPtr server;
    const conn::ListenerPtr listener =
        type.listen(loop, conn::Endpoint::parse("tls+rdma://10.77.0.1:0?" + kResume),
                    [&](conn::ConnectionPtr next) { server = std::move(next); });
    conn::Endpoint to = listener->endpoints().front();
    to.options = to.options.merged_with(conn::Options::parse("source=10.77.0.2&" + kResume));
    conn::ConnectionPtr client = type.create(loop);
    client->connect(to, [](conn::Connection&) {});
    RUN_UNTIL(loop, server != nullptr && client->state() != conn::State::kConnecting);
    REQUIRE(client->last_error() == "");
    std::vector<std::string> told;
    const auto tell = [&](conn::Connection& here) {
      for (const auto& [key, value] : here.info())
        if (key == "path-state") told.push_back(value);
    };
    client->set_path_handler(tell);
    Talker one(*client, 1, 2, kBytes), other(*server, 2, 1, kBytes);
    for (int i = 0; i < 200; ++i) (void)loop.process_events(ae::kFullIteration);
    world.set_path(*near, *far, false);
    RUN_UNTIL(loop, told.size() == 1);
    world.set_path(*near, *far, true);
    RUN_UNTIL(loop, one.received() == kBytes && other.received() == kBytes);
    CHECK(told == std::vector<std::string>{"lost", "up"});
    CHECK(one.ending() + other.ending() == "");
    // The same between loops. The end that moves is told on its new loop that it has lost its path.
    testing::AnyLoop second;
    client->set_path_handler(nullptr);
    server->set_path_handler(tell);
    told.clear();
    REQUIRE(server->rebind(second));
    one.more(1000);
    // If rdma_cm does not know the new path yet, no disconnect can be sent, and the client notices
    // when its device's retries are used up.
    for (int turn = 0; turn < 500'000 && other.received() != kBytes + 1000; ++turn) {
      testing::turns(loop, 1);
      testing::turns(second, 1);
      world.advance(world.now() + 10us);
    }
    CHECK(other.received() == kBytes + 1000);
    CHECK(told == std::vector<std::string>{"lost", "up"});
    CHECK(one.ending() + other.ending() == "");
    client.reset();
    for (int turn = 0; turn < 20'000 && other.ending().empty(); ++turn) {
      testing::turns(loop, 1);
      testing::turns(second, 1);
      world.advance(world.now() + 10us);
    }
    CHECK(other.ending() == "end of stream");
    server.reset();
    for (int turn = 0; turn < 20'000; ++turn) {
      testing::turns(loop, 1);
      testing::turns(second, 1);
      world.advance(world.now() + 10us);
    }
  }
  world.advance(world.now() + 110s);
  world.let_orphans_go();
}

TEST_CASE("resume: the path may be lost with the last message of TLS's handshake",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  const std::string version = GENERATE("1.2", "1.3");
  const bool reused = GENERATE(false, true);
  const bool client_ends_it = GENERATE(false, true);
  CAPTURE(version, reused, client_ends_it);
  bool lose = false;
  std::function<void(bool client)> over;
  TlsRoom room([&] { over(false); }, version);
  // Called when the handshake is over for an end: what that has sent last is lost.
  over = [&](bool client) {
    if (!lose || client != client_ends_it) return;
    lose = false;
    room.set_path(false);
  };
  const auto connect = [&] {
    room.server.reset();
    room.client = room.type.create(room.loop);
    room.client->connect(room.to, [&](conn::Connection&) { over(true); });
  };
  const auto is_over = [&] {
    const conn::State state = room.client->state();
    return (room.server != nullptr && state == conn::State::kConnected) ||
           state == conn::State::kError;
  };
  if (reused) {  // the first connection gets a ticket
    connect();
    RUN_UNTIL(room.loop, is_over());
    Talker one(*room.client, 1, 2, 100), other(*room.server, 2, 1, 100);
    RUN_UNTIL(room.loop, one.received() == 100 && other.received() == 100);
  }
  lose = true;
  connect();
  RUN_UNTIL(room.loop, !lose && room.lost() != 0);
  room.set_path(true);
  RUN_UNTIL(room.loop, is_over());
  REQUIRE(room.client->last_error() == "");
  Talker one(*room.client, 1, 2, kBytes), other(*room.server, 2, 1, kBytes);
  RUN_UNTIL(room.loop, one.received() == kBytes && other.received() == kBytes);
  // Now both have the secret.
  room.set_path(false);
  one.more(1000);
  RUN_UNTIL(room.loop, room.lost() != 0);
  room.set_path(true);
  RUN_UNTIL(room.loop, other.received() == kBytes + 1000);
  CHECK(one.ending() + other.ending() == "");
}

TEST_CASE("resume: a client under TLS waits for a silent server that is between two loops",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  TlsRoom room([] {}, "1.3", {{"resumption", "no"}});
  testing::AnyLoop second;
  room.client = room.type.create(room.loop);
  room.client->connect(room.to, [](conn::Connection&) {});
  RUN_UNTIL(room.loop, room.server && room.client->state() == conn::State::kConnected);
  const auto run_both = [&](int milliseconds) {
    for (int turn = 0; turn < milliseconds; ++turn) {
      testing::turns(room.loop, 1);
      testing::turns(second, 1);
      room.world.advance(room.world.now() + 1ms);
    }
  };
  REQUIRE(room.server->leave());
  run_both(3000);
  CHECK(room.client->last_error() == "");
  REQUIRE(room.server->join(second));
  run_both(3000);
  CHECK(room.client->last_error() == "");
  REQUIRE(room.client->write("y", 1) == 1);
  run_both(100);
  char byte = 0;
  CHECK(room.server->read(&byte, 1) == 1);
  room.client.reset();
  room.server.reset();
  run_both(100);
}

TEST_CASE("resume: on the new path both ends know the receives of the other",
          "[simulation][resume]") {
  // With few receives of its own for each connection, a sender that did not count them would run
  // into an empty receive queue.
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name);
    const std::string few = kResume + "&isolation=connection&receive-queue=16&send-queue=64";
    Pair pair(*profile, {}, few, few);
    flap(pair.room, 3s);
    RUN_UNTIL(pair.room.loop, pair.counted("resumes") == 2 && pair.counted("paths_lost") == 0);
    const std::uint64_t before = pair.room.world.receives_missing;
    std::size_t got = 0;
    const auto take = [&got](conn::Connection& here) {
      char bytes[4096];
      for (ssize_t n = 0; (n = here.read(bytes, sizeof bytes)) > 0;)
        got += static_cast<std::size_t>(n);
    };
    pair.client->set_read_handler(take);
    pair.server->set_read_handler(take);
    // A message for each byte, all of one iteration.
    constexpr std::size_t kMessages = 60;
    for (conn::Connection* each : {pair.client.get(), pair.server.get()})
      for (std::size_t i = 0; i < kMessages; ++i) {
        REQUIRE(each->write("x", 1) == 1);
        each->flush();
      }
    // The devices deliver while neither end polls and posts receives again.
    const Nanoseconds until = pair.room.world.now() + 1ms;
    while (pair.room.world.advance(until)) pair.room.world.run_due();
    RUN_UNTIL(pair.room.loop, got == 2 * kMessages);
    CHECK(pair.room.world.receives_missing == before);
  }
}

TEST_CASE("resume: who closes waits for a path no longer than linger", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  const bool before = GENERATE(true, false);  // whether close() comes before the loss is noticed
  CAPTURE(before);
  Pair pair(chosen_profile(), {}, kResume, kResume + "&linger=1s");
  pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
  if (!before) RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") != 0);
  const Nanoseconds begin = pair.room.world.now();
  REQUIRE(pair.client->write("last", 4) == 4);
  pair.client.reset();
  RUN_UNTIL(pair.room.loop, pair.room.type.counters(pair.room.loop).open == 1);
  // Linger, and what the end of a connection waits for the peer's answers.
  CHECK(pair.room.world.now() - begin < 2500ms);
}

TEST_CASE("resume: what arrives at another loop without memory fails there, and is freed",
          "[torture][resume]") {
  if (chosen_profile().iwarp) return;
  for (std::uint64_t number = 1;; ++number) {
    CAPTURE(number);
    REQUIRE(number < 200);
    Pair pair;
    testing::AnyLoop other;
    REQUIRE(pair.server->leave());
    fail_allocation(Allocator::kNew, number);
    (void)pair.server->join(other);
    const bool failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    if (pair.server->loop() == nullptr || pair.server->state() == conn::State::kError)
      CHECK(failed);
    pair.server.reset();
    pair.client.reset();
    for (int turn = 0; turn < 3000; ++turn) {
      testing::turns(pair.room.loop, 1);
      testing::turns(other, 1);
      pair.room.world.advance(pair.room.world.now() + 1ms);
    }
    if (!failed) break;
  }
}
