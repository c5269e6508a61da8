// SPDX-License-Identifier: BSD-3-Clause
// resume=yes: a connection whose path is lost goes on over another one, and its bytes arrive once
// and in order, whatever happened to the path.

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conn/redial.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"
#include "tests/support/tls_kit.h"

using namespace simulation;
using testing::Contains;

namespace {

/// One end: writes a stream of known bytes, and checks those of the peer.
class Talker {
 public:
  Talker(conn::Connection& connection, std::uint64_t seed, std::uint64_t peers_seed,
         std::uint64_t most)
      : connection_(connection), mine_(seed), theirs_(peers_seed), most_(most) {
    connection.set_read_handler([this](conn::Connection&) { read(); });
    connection.set_write_handler([this](conn::Connection&) { write(); });
  }
  std::uint64_t written() const noexcept { return written_; }
  std::uint64_t received() const noexcept { return received_; }
  /// "": all bytes so far were right, and the peer's stream goes on.
  const std::string& ending() const noexcept { return ending_; }
  bool wrote_all() const noexcept { return written_ == most_; }
  void more(std::uint64_t bytes) {
    most_ += bytes;
    connection_.set_write_handler([this](conn::Connection&) { write(); });
  }

 private:
  void read() {
    char bytes[8192];
    const ssize_t n = connection_.read(bytes, sizeof bytes);
    if (n > 0) {
      for (std::string_view left(bytes, static_cast<std::size_t>(n)); !left.empty();) {
        const std::string_view known = theirs_.at(received_).substr(0, left.size());
        if (left.substr(0, known.size()) != known)
          ending_ = "wrong bytes at " + std::to_string(received_);
        received_ += known.size();
        left.remove_prefix(known.size());
      }
      return;
    }
    if (n < 0 && errno == EAGAIN) return;
    if (ending_.empty()) ending_ = n == 0 ? "end of stream" : connection_.last_error();
    connection_.set_read_handler(nullptr);
  }
  void write() {
    while (written_ != most_) {
      const std::string_view next =
          mine_.at(written_).substr(0, std::min<std::uint64_t>(most_ - written_, 6000));
      const ssize_t n = connection_.write(next.data(), next.size());
      if (n < 0) break;
      written_ += static_cast<std::uint64_t>(n);
    }
    if (written_ == most_) connection_.set_write_handler(nullptr);
  }
  conn::Connection& connection_;
  const testing::Pattern mine_, theirs_;
  std::uint64_t most_, written_ = 0, received_ = 0;
  std::string ending_;
};

const std::string kResume = "resume=yes&resume-time=10s&keepalive=100ms";

/// A room whose server holds its connections, and a client.
struct Pair {
  explicit Pair(const Profile& profile = chosen_profile(), Config config = {},
                const std::string& server_options = kResume,
                const std::string& client_options = kResume)
      : room(config, "?" + server_options, profile, profile) {
    room.listener =
        room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?" + server_options),
                         [this](conn::ConnectionPtr next) { server = std::move(next); });
    room.address = room.listener->endpoints().front();
    room.address.options =
        room.address.options.merged_with(conn::Options::parse("source=10.77.0.2"));
    client = room.dial(client_options);
    RUN_UNTIL(room.loop, server != nullptr && client->state() != conn::State::kConnecting);
    INFO(client->last_error());
    REQUIRE(client->state() == conn::State::kConnected);
  }
  std::uint64_t counted(const std::string& name) {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == name) return value;
    return ~std::uint64_t{0};
  }
  ~Pair() {
    client.reset();
    server.reset();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  Room room;
  conn::ConnectionPtr server, client;
};

constexpr std::uint64_t kBytes = 3'000'000;

struct Fault {
  const char* name;
  std::function<void(Room&)> happens;
  /// Whether completions that nobody has seen may be gone with the device: the connection then ends
  /// with an error, and no byte is wrong.
  bool takes_completions = false;
};

void flap(Room& room, Nanoseconds span) {
  room.world.set_link(*room.far, false);
  room.run_for(span);
  room.world.set_link(*room.far, true);
}

void replace(Room& room, Device*& device, const std::string& name, const std::string& address) {
  const Profile& profile = device->profile;
  room.world.remove_device(*device);
  room.run_for(300ms);
  device = &room.world.add_device(name, address, profile);
}

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
    client->set_path_handler([&](conn::Connection& here) {
      for (const auto& [key, value] : here.info())
        if (key == "path-state") told.push_back(value);
    });
    Talker one(*client, 1, 2, kBytes), other(*server, 2, 1, kBytes);
    for (int i = 0; i < 200; ++i) (void)loop.process_events(ae::kFullIteration);
    world.set_path(*near, *far, false);
    RUN_UNTIL(loop, told.size() == 1);
    world.set_path(*near, *far, true);
    RUN_UNTIL(loop, one.received() == kBytes && other.received() == kBytes);
    CHECK(told == std::vector<std::string>{"lost", "up"});
    CHECK(one.ending() + other.ending() == "");
    // The same between loops.
    testing::AnyLoop second;
    REQUIRE(server->rebind(second));
    one.more(1000);
    for (int turn = 0; turn < 100'000 && other.received() != kBytes + 1000; ++turn) {
      testing::turns(loop, 1);
      testing::turns(second, 1);
      world.advance(world.now() + 10us);
    }
    CHECK(other.received() == kBytes + 1000);
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

TEST_CASE("resume: each attempt begins with another address", "[simulation][resume]") {
  if (chosen_profile().iwarp) return;
  Pair pair;
  World& world = pair.room.world;
  Device& second = world.add_device("sim2", "10.77.0.3", chosen_profile());
  const auto more = pair.room.type.listen(
      pair.room.loop,
      conn::Endpoint::parse("rdma://10.77.0.3:" + std::to_string(pair.room.address.port) + "?" +
                            kResume),
      [](conn::ConnectionPtr) {});
  pair.client.reset();
  pair.server.reset();
  RUN_UNTIL(pair.room.loop, pair.room.type.counters(pair.room.loop).open == 0);
  pair.room.address.hosts = {{"10.77.0.1"}, {"10.77.0.3"}};
  pair.client = pair.room.dial(kResume);
  RUN_UNTIL(pair.room.loop, pair.server && pair.client->state() != conn::State::kConnecting);
  REQUIRE(pair.client->peer_address() ==
          pair.room.address.hosts.front().name + ":" + std::to_string(pair.room.address.port));
  // Both paths are back before the second attempt begins.
  const auto resolved = [&] { return pair.room.far->costs.slow["rdma_resolve_addr"]; };
  const std::int64_t before = resolved();
  for (Device* each : {pair.room.near, &second}) world.set_path(*each, *pair.room.far, false);
  RUN_UNTIL(pair.room.loop, resolved() == before + 2);
  pair.room.run_for(100ms);
  for (Device* each : {pair.room.near, &second}) world.set_path(*each, *pair.room.far, true);
  RUN_UNTIL(pair.room.loop, pair.counted("paths_lost") == 0);
  CHECK(pair.client->peer_address() == "10.77.0.3:" + std::to_string(pair.room.address.port));
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

TEST_CASE("resume: nothing is disconnected where Soft-RoCE has lost its route",
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
