// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: how a new path is found, by connections, blocking operations and Redial.

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conn/redial.h"
#include "tests/simulation/resume_kit.h"
#include "tests/support/names.h"

using namespace simulation;
using testing::Contains;

TEST_CASE("resume: a listener follows an address that moves to another device",
          "[simulation][resume]") {
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp || !profile->address_events) continue;
    const bool away = GENERATE(false, true);  // for a while no device has the address
    CAPTURE(profile->name, away);
    Pair pair(*profile);
    World& world = pair.room.world;
    Talker client(*pair.client, 1, 2, 100'000), server(*pair.server, 2, 1, 100'000);
    pair.room.run_for(50ms);
    Device& old = *pair.room.near;
    world.set_address(old, false);
    world.set_path(old, *pair.room.far, false);
    if (away) pair.room.run_for(2s);
    pair.room.near = &world.add_device("sim2", "10.77.0.1", *profile);
    client.more(1000);
    server.more(1000);
    testing::run_until(
        pair.room.loop,
        [&] {
          return (client.received() == 101'000 && server.received() == 101'000) ||
                 !client.ending().empty() || !server.ending().empty();
        },
        "all bytes", 30s);
    CHECK(client.ending() == "");
    CHECK(server.ending() == "");
    CHECK(pair.counted("resumes") == 2);
    // Another client finds the listener there, too.
    const conn::ConnectionPtr another = pair.room.dial(kResume);
    RUN_UNTIL(pair.room.loop, another->state() != conn::State::kConnecting);
    INFO(another->last_error());
    CHECK(another->state() == conn::State::kConnected);
  }
}

namespace {
enum class Answer { kLater, kLaterAndShuts, kBefore };  // when the rest is written, and its end
}

// The end that has shut down still reads, so its peer must not take the disconnect that comes with
// the loss of the path for a close.
TEST_CASE("resume: an end that has shut down gets the rest over another path",
          "[simulation][resume]") {
  const bool server_shuts = GENERATE(false, true);
  const int loss = GENERATE(0, 1, 2, 3);
  const Answer answer = GENERATE(Answer::kLater, Answer::kLaterAndShuts, Answer::kBefore);
  const bool both_shut = answer != Answer::kLater;
  const bool end_unread = GENERATE(false, true);
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name, server_shuts, loss, static_cast<int>(answer), end_unread);
    Pair pair(*profile);
    World& world = pair.room.world;
    testing::AnyLoop other;
    conn::Connection& shuts = server_shuts ? *pair.server : *pair.client;
    conn::Connection& answers = server_shuts ? *pair.client : *pair.server;
    Talker asking(shuts, 1, 2, 100), answering(answers, 2, 1, 100);
    const auto run_until = [&](auto what) {
      for (int turn = 0; turn < 200'000 && !what(); ++turn) {
        testing::turns(other, 1);
        pair.room.run_for(100us);
      }
      CHECK(what());
    };
    run_until([&] { return asking.received() == 100 && answering.received() == 100; });
    answering.set_reads(!end_unread);
    REQUIRE(shuts.shutdown() == 0);
    if (end_unread)
      pair.room.run_for(20ms);
    else
      run_until([&] { return !answering.ending().empty(); });
    const auto replace = [&](Device*& device, const char* name, const char* address) {
      world.remove_device(*device);
      pair.room.run_for(300ms);
      device = &world.add_device(name, address, *profile);
    };
    const auto finish = [&] {
      answering.more(1000);
      pair.room.run_for(20ms);
      if (both_shut) CHECK(answers.shutdown() == 0);
    };
    if (answer == Answer::kBefore) {
      asking.set_reads(false);
      finish();
      pair.room.run_for(20ms);
    }
    if (loss == 0) {
      replace(pair.room.far, "sim1", "10.77.0.2");
    } else if (loss == 1) {
      replace(pair.room.near, "sim0", "10.77.0.1");
    } else if (loss == 2) {
      flap(pair.room, 3s);
    } else {
      CHECK(shuts.rebind(other));
    }
    answering.set_reads(true);
    run_until([&] { return !answering.ending().empty(); });
    CHECK(answering.ending() == "end of stream");
    if (answer != Answer::kBefore) finish();
    asking.set_reads(true);
    run_until([&] { return asking.received() == 1100 || !asking.ending().empty(); });
    if (both_shut) run_until([&] { return !asking.ending().empty(); });
    CHECK(asking.ending() == (both_shut ? "end of stream" : ""));
    CHECK(asking.received() == 1100);
    run_until([&] { return pair.counted("paths_lost") == 0; });
    // The close that follows is one.
    (server_shuts ? pair.server : pair.client).reset();
    if (both_shut) continue;
    answering.more(100'000'000);
    run_until([&] { return answers.state() != conn::State::kConnected; });
    CHECK_THAT(answers.last_error(), Contains("closed"));
  }
}

namespace {
/// A connection to the first of two addresses of the server.
struct TwoRails : Pair {
  TwoRails() {
    RUN_UNTIL(room.loop, (client.reset(), server.reset(), type_open() == 0));
    room.address.hosts = {{"10.77.0.1"}, {"10.77.0.3"}};
    client = room.dial(kResume);
    RUN_UNTIL(room.loop, server && client->state() != conn::State::kConnecting);
    REQUIRE(client->peer_address() == at("10.77.0.1"));
  }
  std::string at(const std::string& host) const {
    return host + ":" + std::to_string(room.address.port);
  }
  std::uint64_t type_open() { return room.type.counters(room.loop).open; }
  void set_paths(bool work) {
    for (Device* each : {room.near, &second}) room.world.set_path(*each, *room.far, work);
  }

  Device& second = room.world.add_device("sim2", "10.77.0.3", chosen_profile());
  conn::ListenerPtr more = room.type.listen(
      room.loop, conn::Endpoint::parse("rdma://" + at("10.77.0.3") + "?" + kResume),
      [](conn::ConnectionPtr) {});
};
}  // namespace

TEST_CASE("resume: each attempt begins with another address", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  TwoRails pair;
  // Both paths are back before the second attempt begins.
  const auto resolved = [&] { return pair.room.far->costs.slow["rdma_resolve_addr"]; };
  const std::int64_t before = resolved();
  pair.set_paths(false);
  RUN_UNTIL(pair.room.loop, resolved() == before + 2);
  pair.room.run_for(100ms);
  pair.set_paths(true);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
  CHECK(pair.client->peer_address() == pair.at("10.77.0.1"));
}

TEST_CASE("resume: after a loss the other address is asked first", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  TwoRails pair;
  for (const bool second : {true, false}) {
    Device& gone = second ? *pair.room.near : pair.second;
    pair.room.world.set_path(gone, *pair.room.far, false);
    pair.client->write("x", 1);
    RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") != 0);
    // An address that is silent would take half a second.
    pair.room.run_for(250ms);
    CHECK(pair.counted("paths_lost") == 0);
    CHECK(pair.client->peer_address() == pair.at(second ? "10.77.0.3" : "10.77.0.1"));
    pair.room.world.set_path(gone, *pair.room.far, true);
  }
}

TEST_CASE("resume: other servers of the URL that refuse do not end the wait for a path",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  const bool rejects = GENERATE(true, false);  // false: nobody listens at the other addresses
  CAPTURE(rejects);
  Several pair(6, rejects);
  Talker client(*pair.client, 1, 2, 1000), server(*pair.server, 2, 1, 1000);
  RUN_UNTIL(pair.room.loop, client.received() == 1000 && server.received() == 1000);
  pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
  client.more(1000);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
  pair.room.run_for(6s);  // longer than a session waits at an address where nobody listens
  pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
  CHECK(client.ending() == "");
  RUN_UNTIL(pair.room.loop, server.received() == 2000);
  CHECK(pair.counted("resumes") == 2);
}

TEST_CASE("resume: a client learns at once that no address knows its session",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  Several pair(2, true);
  pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
  pair.server.release()->abort();
  pair.room.world.set_path(*pair.room.near, *pair.room.far, true);
  CHECK(pair.room.until_failed(*pair.client) < 1500ms);  // an attempt, and the pause before it
  CHECK_THAT(pair.client->last_error(), Contains("the peer has ended it"));
}

TEST_CASE("resume: a connection that is moved keeps its address", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  TwoRails pair;
  REQUIRE(pair.client->leave());
  REQUIRE(pair.client->join(pair.room.loop));
  RUN_UNTIL(pair.room.loop, pair.counted("resumes") == 2);
  CHECK(pair.client->peer_address() == pair.at("10.77.0.1"));
}

TEST_CASE("resume: a blocking operation goes on over the new path", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  const bool server_blocks = GENERATE(true, false);
  // Whether the loss is noticed, and an attempt to connect under way, when the operation begins.
  const bool noticed = GENERATE(true, false);
  const bool writes = GENERATE(true, false);
  CAPTURE(server_blocks, noticed, writes);
  Pair pair;
  Room& room = pair.room;
  conn::Connection& here = server_blocks ? *pair.server : *pair.client;
  conn::Connection& there = server_blocks ? *pair.client : *pair.server;
  room.world.set_path(*room.near, *room.far, false);
  room.world.after(3s, [&] { room.world.set_path(*room.near, *room.far, true); });
  REQUIRE(there.write("later", 5) == 5);
  if (noticed) RUN_UNTIL(room.loop, pair.counted("paths_lost") == 2);
  const Nanoseconds begin = room.world.now();
  if (writes) {
    CHECK(here.sync_write("too", 3, 9s) == 3);
    CHECK(here.sync_write(nullptr, 0, 9s) == 0);  // what was written is delivered
  }
  char bytes[5];
  CHECK(here.sync_read(bytes, sizeof bytes, 9s) == 5);
  CHECK(here.last_error() == "");
  CHECK(room.world.now() - begin < 5s);
  CHECK(pair.counted("resumes") == 2);
}

TEST_CASE("resume: a blocking flush waits for the new path, and fails if there is none",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  const bool server_blocks = GENERATE(true, false);
  const bool noticed = GENERATE(true, false);  // before the flush begins
  CAPTURE(server_blocks, noticed);
  Pair pair;
  Room& room = pair.room;
  conn::Connection& here = server_blocks ? *pair.server : *pair.client;
  conn::Connection& there = server_blocks ? *pair.client : *pair.server;
  const auto write = [&] {
    if (noticed) {
      room.world.set_path(*room.near, *room.far, false);
      RUN_UNTIL(room.loop, pair.counted("paths_lost") == 2);
      REQUIRE(here.write("bytes", 5) == 5);
      errno = 0;
      CHECK(here.sync_write(nullptr, 0, 0s) == -1);
      CHECK(errno == ETIMEDOUT);
      return std::size_t{5};
    }
    // The peer does not read: the flush has to wait, and the path goes meanwhile.
    const std::string block(1000, 'x');
    std::size_t written = 0;
    for (ssize_t n = 0; (n = here.write(block.data(), block.size())) > 0; room.run_for(1ms))
      written += static_cast<std::size_t>(n);
    room.run_for(100ms);
    room.world.after(1s, [&] { room.world.set_path(*room.near, *room.far, false); });
    return written;
  };
  SECTION("the path comes back") {
    const std::size_t written = write();
    const Nanoseconds begin = room.world.now();
    room.world.after(4s, [&] { room.world.set_path(*room.near, *room.far, true); });
    if (noticed) {
      CHECK(here.sync_write(nullptr, 0, 9s) == 0);
      CHECK(room.world.now() - begin > 3s);
    } else {
      errno = 0;
      CHECK(here.sync_write(nullptr, 0, 9s) == -1);  // the peer still does not read
      CHECK(errno == ETIMEDOUT);
    }
    CHECK(here.state() == conn::State::kConnected);
    CHECK(testing::receive(room.loop, there, written).size() == written);
    CHECK(here.sync_write(nullptr, 0, 9s) == 0);
  }
  SECTION("there is none") {
    (void)write();
    errno = 0;
    CHECK(here.sync_write(nullptr, 0, 100s) == -1);
    CHECK(errno == ETIMEDOUT);
    CHECK(here.why_ended().code == std::errc::timed_out);
    CHECK_THAT(here.why_ended().text, Contains("no new path in"));
  }
}

TEST_CASE("resume: a loop that ends waits for a new path for the bytes that are left",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  const bool back = GENERATE(true, false);    // the path comes back
  const bool writes = GENERATE(true, false);  // while there is no path
  CAPTURE(back, writes);
  const std::string options = kResume + "&linger=8s&end-linger=8s";
  Pair pair(chosen_profile(), {}, options, options);
  Room& room = pair.room;
  auto other = testing::make_loop();
  room.run_for(100ms);
  room.world.set_path(*room.near, *room.far, false);
  RUN_UNTIL(room.loop, pair.counted("paths_lost") == 2);
  REQUIRE(pair.client->rebind(*other));
  testing::turns(*other, 3);
  if (writes) REQUIRE(pair.client->write("bytes", 5) == 5);
  if (back) room.world.after(1s, [&] { room.world.set_path(*room.near, *room.far, true); });
  // The server's loop runs meanwhile.
  bool over = false;
  const std::function<void()> serve = [&] {
    if (over) return;
    (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
    room.world.after(1ms, serve);
  };
  room.world.after(1ms, serve);
  const Nanoseconds begin = room.world.now();
  other.reset();
  over = true;
  const Nanoseconds took = room.world.now() - begin;
  room.run_for(2ms);  // the last call of serve()
  if (!writes) CHECK(took < 100ms);
  if (writes && back) {
    CHECK(took < 4s);
    CHECK(testing::receive(room.loop, *pair.server, 5) == "bytes");
  }
  if (writes && !back) {
    CHECK(took >= 8s);
    CHECK(took < 8100ms);
  }
}

TEST_CASE("resume: a loop that ends waits for no path for its accepted connections",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  Pair pair;
  auto other = testing::make_loop();
  pair.room.world.set_path(*pair.room.near, *pair.room.far, false);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 2);
  REQUIRE(pair.server->rebind(*other));
  testing::turns(*other, 3);
  REQUIRE(pair.server->write("bytes", 5) == 5);
  const Nanoseconds begin = pair.room.world.now();
  other.reset();  // no request for a new path can reach a loop that ends
  CHECK(pair.room.world.now() - begin < 50ms);
}

TEST_CASE("resume: nothing is disconnected where soft-RoCE has lost its route",
          "[simulation][resume]") {
  Pair pair(profile_named("rxe"));
  Talker client(*pair.client, 1, 2, 100), server(*pair.server, 2, 1, 100);
  pair.room.run_for(50ms);
  pair.room.near->has_route = false;  // its port is still active
  client.more(1000);
  server.more(1000);
  pair.room.run_for(30ms);
  CHECK(pair.room.world.violations().empty());
  CHECK(pair.counted("paths_lost") == 1);  // the peer was not told
  pair.room.near->has_route = true;
  RUN_UNTIL(pair.room.loop, client.received() == 1100 && server.received() == 1100);
  CHECK(client.ending() + server.ending() == "");
  CHECK(pair.counted("resumes") == 2);
}

TEST_CASE("resume: an attempt waits for the name service", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  testing::Names names;
  Room room;
  room.world.add_device("sim2", "127.0.0.1", chosen_profile());  // what such names resolve to
  conn::ConnectionPtr server;
  const auto listener =
      room.type.listen(room.loop, conn::Endpoint::parse("rdma://127.0.0.1:0?" + kResume),
                       [&](conn::ConnectionPtr next) { server = std::move(next); });
  room.address = listener->endpoints().front();
  room.address.hosts = {{"server.test"}};
  // The answer comes from a real thread, for which simulated time has to stand still.
  const auto tries_address = [&](std::int64_t number) {
    for (int i = 0; i < 1'000'000; ++i) {
      testing::turns(room.loop, 1);
      if (room.far->costs.slow["rdma_resolve_addr"] == number) return true;
      std::this_thread::yield();
    }
    return false;
  };
  const std::int64_t tried = room.far->costs.slow["rdma_resolve_addr"];
  const conn::ConnectionPtr client = room.dial("source=10.77.0.2");
  REQUIRE(tries_address(tried + 1));
  RUN_UNTIL(room.loop, server && client->state() != conn::State::kConnecting);
  REQUIRE(client->last_error() == "");
  names.hold("server.test");
  room.world.set_link(*room.far, false);
  const auto lost = [&] {
    const auto facts = client->info();
    return std::find(facts.begin(), facts.end(),
                     std::pair<std::string, std::string>("path-state", "lost")) != facts.end();
  };
  RUN_UNTIL(room.loop, lost());
  room.world.set_link(*room.far, true);
  room.run_for(900ms);  // an attempt may take a second
  names.release("server.test");
  CHECK(tries_address(tried + 2));
  CHECK(names.asked("server.test") == 2);  // the first attempt's look-up was not given up
  RUN_UNTIL(room.loop, !lost());
  REQUIRE(client->write("on", 2) == 2);
  char bytes[2];
  RUN_UNTIL(room.loop, server->read(bytes, 2) == 2);
}

namespace {

/// A client that redials, and a server that holds what it accepts. Both ends of each connection
/// write a stream of known bytes and check the other's.
struct Redialled {
  explicit Redialled(const Profile& profile, const std::string& options)
      : room({}, "?" + options, profile, profile) {
    room.listener = room.type.listen(
        room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?" + options),
        [this](conn::ConnectionPtr next) {
          servers.push_back(std::move(next));
          const std::uint64_t seed = 2 * servers.size();
          answers.push_back(std::make_unique<Talker>(*servers.back(), seed + 1, seed, kBytes));
        });
    conn::Endpoint to = room.listener->endpoints().front();
    to.options = conn::Options::parse("source=10.77.0.2&" + options);
    conn::Redial::Handlers handlers;
    handlers.up = [this](conn::Connection& here) {
      const std::uint64_t seed = 2 * (questions.size() + 1);
      questions.push_back(std::make_unique<Talker>(here, seed, seed + 1, kBytes));
    };
    handlers.down = [this](conn::Connection&, const conn::Redial::Loss& loss) {
      lost_at = room.world.now();
      why = loss.why.text;
    };
    redial = std::make_unique<conn::Redial>(room.registry, room.loop, to, std::move(handlers));
    RUN_UNTIL(room.loop, questions.size() == 1 && answers.size() == 1);
    room.run_for(300us);
  }
  ~Redialled() {
    redial.reset();
    servers.clear();
  }
  Redialled(const Redialled&) = delete;
  Redialled& operator=(const Redialled&) = delete;
  /// Whether both ends of the latest connection have all bytes of the other.
  bool all_there() const {
    return questions.back()->received() == kBytes && answers.back()->received() == kBytes;
  }
  std::uint64_t resumes() {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == "resumes") return value;
    return 0;
  }
  Room room;
  std::vector<conn::ConnectionPtr> servers;
  std::vector<std::unique_ptr<Talker>> questions, answers;
  std::unique_ptr<conn::Redial> redial;
  Nanoseconds lost_at{};
  std::string why;
};

}  // namespace

TEST_CASE("resume: a Redial does not dial again if the path is back in time",
          "[simulation][resume][redial]") {
  const std::pair<const char*, std::function<void(Room&)>> faults[] = {
      {"the link", [](Room& room) { flap(room, 3s); }},
      {"the path",
       [](Room& room) {
         room.world.set_path(*room.near, *room.far, false);
         room.run_for(3s);
         room.world.set_path(*room.near, *room.far, true);
       }},
  };
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    for (const auto& [name, happens] : faults) {
      CAPTURE(profile->name, name);
      Redialled pair(*profile, kResume);
      REQUIRE_FALSE(pair.all_there());  // the loss is in the middle
      happens(pair.room);
      testing::run_until(
          pair.room.loop, [&] { return pair.all_there() || !pair.why.empty(); }, "all bytes", 60s);
      CHECK(pair.why == "");
      CHECK(pair.all_there());
      CHECK(pair.questions.back()->ending() + pair.answers.back()->ending() == "");
      CHECK(pair.resumes() == 2);  // one at each end
      CHECK(pair.redial->phase() == conn::Redial::Phase::kUp);
      CHECK(pair.redial->counters().attempts == 1);
      CHECK(pair.redial->counters().connected == 1);
      CHECK(pair.redial->counters().lost == 0);
    }
  }
}

TEST_CASE("resume: a Redial dials again when resume-time is over", "[simulation][resume][redial]") {
  for (const Profile* profile : serving_profiles()) {
    if (profile->iwarp) continue;
    CAPTURE(profile->name);
    Redialled pair(*profile, "resume=yes&resume-time=1s&keepalive=100ms");
    Room& room = pair.room;
    const Nanoseconds begin = room.world.now();
    room.world.set_path(*room.near, *room.far, false);
    RUN_UNTIL(room.loop, pair.redial->counters().lost == 1);
    CHECK_THAT(pair.why, Contains("no new path in 1"));
    CHECK(pair.lost_at - begin >= 1s);
    CHECK(pair.lost_at - begin < 5s);
    room.run_for(2s);
    CHECK(pair.redial->counters().failures > 0);
    room.world.set_path(*room.near, *room.far, true);
    RUN_UNTIL(room.loop, pair.questions.size() == 2 && pair.answers.size() == 2);
    testing::run_until(
        room.loop, [&] { return pair.all_there(); }, "all bytes", 60s);
    CHECK(pair.questions.back()->ending() + pair.answers.back()->ending() == "");
    CHECK(pair.redial->counters().connected == 2);
    CHECK(pair.redial->counters().lost == 1);
    CHECK(pair.resumes() == 0);
    // The server gives the lost connection up by itself, somewhat later than the client.
    RUN_UNTIL(room.loop, !pair.answers.front()->ending().empty());
    CHECK_THAT(pair.answers.front()->ending(), Contains("no new path"));
  }
}

// While a blocking operation runs, no accept handler does. A connection that arrives meanwhile is
// already established for its client, so it resumes like any other.
TEST_CASE("resume: a connection that waits for its accept handler keeps its session",
          "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  const bool removed = GENERATE(false, true);
  const bool servers = GENERATE(false, true);  // whose device fails
  const bool back_in_time = GENERATE(true, false);
  CAPTURE(removed, servers, back_in_time);
  conn::ConnectionPtr server;
  const std::string options = "?resume=yes&resume-time=2s&keepalive=100ms";
  Room room({}, options, chosen_profile(), chosen_profile());
  World& world = room.world;
  room.listener = room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0" + options),
                                   [&](conn::ConnectionPtr next) { server = std::move(next); });
  conn::Endpoint address = room.listener->endpoints().front();
  address.options = address.options.merged_with(conn::Options::parse("source=10.77.0.2"));
  const conn::ConnectionPtr client = room.type.create(room.loop);
  INFO(client->last_error());
  REQUIRE(client->connect_blocking(address, 1s));
  REQUIRE(client->write("early", 5) == 5);
  Device*& failing = servers ? room.near : room.far;
  const Nanoseconds away = back_in_time ? 100ms : 5s;
  world.after(10ms,
              [&] { removed ? world.remove_device(*failing) : world.set_link(*failing, false); });
  world.after(10ms + away, [&] {
    if (removed)
      failing = &world.add_device(servers ? "sim0" : "sim1", servers ? "10.77.0.1" : "10.77.0.2",
                                  chosen_profile());
    else
      world.set_link(*failing, true);
  });
  char byte = 0;
  errno = 0;
  CHECK(client->sync_read(&byte, 1, back_in_time ? 1500ms : 7s) < 0);
  CHECK(server == nullptr);
  if (!back_in_time) {
    RUN_UNTIL(room.loop, client->state() == conn::State::kError);
    room.run_for(100ms);
    CHECK_THAT(client->last_error(), Contains("no new path in"));
    return;
  }
  CHECK(errno == ETIMEDOUT);
  RUN_UNTIL(room.loop, server != nullptr);
  std::string got;
  server->set_read_handler([&](conn::Connection& here) {
    char bytes[16];
    const ssize_t n = here.read(bytes, sizeof bytes);
    if (n > 0) got.append(bytes, static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno != EAGAIN)) here.set_read_handler(nullptr);
  });
  RUN_UNTIL(room.loop, got == "early" || server->state() != conn::State::kConnected);
  CHECK(got == "early");
  CHECK(server->last_error() == "");
  CHECK(server->write("late", 4) == 4);
  char late[4];
  CHECK(client->sync_read(late, sizeof late, 1s) == 4);
  CHECK(std::string_view(late, 4) == "late");
}
