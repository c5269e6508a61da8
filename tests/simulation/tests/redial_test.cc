// SPDX-License-Identifier: BSD-3-Clause
// Long-lived clients over an unreliable network: lists of schemes, flaps and storms, in simulated
// time. Measured times are exact: the same seed gives the same times.

#include "conn/redial.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "tests/simulation/freed.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;
using conn::Redial;
using conn::SkipReason;

namespace {

/// A tcp server at 127.0.0.1, and an rdma server if wanted; a device has that address as well.
struct Both {
  explicit Both(bool with_device = true) {
    if (with_device) device = &world.add_device("sim0", "127.0.0.1");
    registry.on_fallback([this](const conn::Fallback& one) { told.push_back(one); });
  }
  ~Both() {
    servers.clear();
    listener.reset();
    loop.reset();
    check_all_freed(world);
  }
  void listen(const std::string& schemes) {
    listener = registry.listen(*loop, schemes + "://127.0.0.1:0",
                               [this](ConnectionPtr next) { servers.push_back(std::move(next)); });
  }
  ConnectionPtr connect(const std::string& options = {}) {
    conn::Endpoint to = listener->endpoints().back();
    to.scheme = "rdma|tcp";
    to.options = conn::Options::parse(options);
    done = false;
    begun = world.now();
    return registry.connect(*loop, to.to_string(), [this](Connection&) {
      done = true;
      took = world.now() - begun;
    });
  }

  World world;
  conn::Registry registry = conn::all_transports();
  std::unique_ptr<ae::EventLoop> loop = testing::make_loop();
  Device* device = nullptr;
  std::vector<ConnectionPtr> servers;
  conn::ListenerPtr listener;
  std::vector<conn::Fallback> told;
  bool done = false;
  Nanoseconds begun{}, took{};
};

std::string carrier_of(const ConnectionPtr& connection) {
  for (const auto& [key, value] : connection->info()) {
    if (key == "carrier") return value;
  }
  return {};
}

}  // namespace

TEST_CASE("simulation: rdma|tcp takes rdma where it works", "[simulation][fallback]") {
  Both both;
  both.listen("rdma|tcp");
  REQUIRE(both.listener->endpoints().size() == 2);
  REQUIRE(both.listener->endpoints()[0].port == both.listener->endpoints()[1].port);
  REQUIRE(both.listener->not_served().empty());
  const ConnectionPtr client = both.connect();
  RUN_UNTIL(*both.loop, both.done && both.servers.size() == 1);
  INFO(client->last_error());
  REQUIRE(carrier_of(client) == "rdma");
  REQUIRE(both.told.empty());
  testing::send(*both.loop, *client, "through the facade");
  REQUIRE(testing::receive(*both.loop, *both.servers[0], 18) == "through the facade");
}

TEST_CASE("simulation: rdma|tcp without a device is tcp at once, on both ends",
          "[simulation][fallback]") {
  Both both(false);
  both.listen("rdma|tcp");
  REQUIRE(both.listener->not_served().size() == 1);
  REQUIRE(both.listener->not_served()[0].scheme == "rdma");
  const ConnectionPtr client = both.connect("fallback-delay=1h");
  RUN_UNTIL(*both.loop, both.done);
  REQUIRE(carrier_of(client) == "tcp");
  REQUIRE(both.told.at(0).not_taken.at(0).kind == SkipReason::kNoDevice);
  REQUIRE(both.took < 100ms);
}

TEST_CASE("simulation: without descriptors for rdma, lists and tls report EMFILE",
          "[simulation][fallback]") {
  const bool blocking = GENERATE(false, true);
  std::vector<std::string> all{"tcp|rdma"};
#if AECONN_TLS
  all.emplace_back("tls+rdma");
  all.emplace_back("tls|tls+rdma");
#endif
  for (const std::string& schemes : all) {
    CAPTURE(schemes, blocking);
    bool failed = false;
    for (std::uint64_t call = 1; !failed; ++call) {
      REQUIRE(call < 50);
      Both both;
      both.listen("tcp");
      conn::Endpoint to = both.listener->endpoints().back();
      both.listener.reset();
      to.scheme = schemes;
      both.world.fail_call(call);
      const ConnectionPtr client = both.registry.create(*both.loop, to);
      if (blocking) {
        CHECK_FALSE(client->connect_blocking(to, 10s));
        CHECK(errno == client->error_code().value());
      } else {
        client->connect(to, [&](Connection&) { both.done = true; });
        RUN_UNTIL(*both.loop, both.done);
      }
      // The first call that creates something of rdma_cm for this loop.
      failed = both.world.last_failed() == "rdma_create_event_channel";
      if (!failed) continue;
      CHECK(client->error_code() == std::errc::too_many_files_open);
      CHECK_THAT(client->last_error(), testing::Contains("rdma_create_event_channel"));
    }
  }
}

TEST_CASE("simulation: rdma|tcp to a server on tcp alone is tcp once rdma was refused",
          "[simulation][fallback]") {
  Both both;
  both.listen("tcp");
  const ConnectionPtr client = both.connect("fallback-delay=1h");
  RUN_UNTIL(*both.loop, both.done);
  REQUIRE(carrier_of(client) == "tcp");
  REQUIRE(both.told.at(0).not_taken.at(0).kind == SkipReason::kRefused);
}

TEST_CASE("simulation: rdma|tcp over a path that hangs is tcp after the head start",
          "[simulation][fallback]") {
  Both both;
  both.listen("rdma|tcp");
  both.world.set_path(*both.device, *both.device, false);
  const ConnectionPtr client = both.connect();
  RUN_UNTIL(*both.loop, both.done);
  REQUIRE(carrier_of(client) == "tcp");
  REQUIRE(both.told.at(0).not_taken.at(0).kind == SkipReason::kSlower);
  REQUIRE(both.took >= 250ms);
  REQUIRE(both.took < 300ms);
  REQUIRE(both.registry.require("rdma").counters(*both.loop).open == 0);
}

namespace {

/// The address where RawNet listens while this exists; the other tests use another one.
class AddressOfRdma {
 public:
  explicit AddressOfRdma(const char* address) : usual_(std::getenv(kName)) {
    setenv(kName, address, 1);
  }
  ~AddressOfRdma() { setenv(kName, usual_.c_str(), 1); }
  AddressOfRdma(const AddressOfRdma&) = delete;
  AddressOfRdma& operator=(const AddressOfRdma&) = delete;

 private:
  static constexpr const char* kName = "AECONN_RDMA_ADDRESS";
  const std::string usual_;  // set by world_listener.cc
};

}  // namespace

TEST_CASE(
    "simulation: rdma|tcp, and rdma that never has room for data, is tcp after the head start",
    "[simulation][fallback]") {
  const bool blocking = GENERATE(false, true);
  const bool redials = !blocking && GENERATE(false, true);
  CAPTURE(blocking, redials);
  Both both;
  const AddressOfRdma address("127.0.0.1");
  testing::RawNet servers(*both.loop);
  testing::RawOptions mute;
  mute.announce = false;
  // One port for both; for tcp it is a real one.
  const conn::ListenerPtr tcp =
      both.registry.listen(*both.loop, "tcp://127.0.0.1:0",
                           [&](ConnectionPtr next) { both.servers.push_back(std::move(next)); });
  const std::uint16_t port = testing::address_of(*tcp).port;
  servers.listen(mute, testing::RawNet::Answer::kAccept, port);
  const std::string to = "rdma|tcp://127.0.0.1:" + std::to_string(port) + "?connect-timeout=2s";
  if (redials) {
    conn::Redial::Handlers handlers;
    std::string carrier;
    handlers.up = [&](Connection& here) { carrier = here.type().name(); };
    const Redial redial(both.registry, *both.loop, conn::Endpoint::parse(to), std::move(handlers));
    RUN_UNTIL(*both.loop, !carrier.empty());
    REQUIRE(carrier == "tcp");
  } else if (blocking) {
    const ConnectionPtr client = both.registry.require("rdma|tcp").create(*both.loop);
    REQUIRE(client->connect_blocking(conn::Endpoint::parse(to), 2s));
    REQUIRE(carrier_of(client) == "tcp");
  } else {
    bool done = false;
    const Nanoseconds begun = both.world.now();
    const ConnectionPtr client =
        both.registry.connect(*both.loop, to, [&](Connection&) { done = true; });
    RUN_UNTIL(*both.loop, done);
    INFO(client->last_error());
    REQUIRE(carrier_of(client) == "tcp");
    REQUIRE(both.world.now() - begun >= 250ms);
    REQUIRE(both.world.now() - begun < 300ms);
    RUN_UNTIL(*both.loop, both.servers.size() == 1);
    testing::send(*both.loop, *client, "it moves");
    REQUIRE(testing::receive(*both.loop, *both.servers[0], 8) == "it moves");
  }
  both.servers.clear();
}

TEST_CASE("simulation: rdma|tcp over a link that is down is tcp", "[simulation][fallback]") {
  Both both;
  both.listen("rdma|tcp");
  both.world.set_link(*both.device, false);
  const ConnectionPtr client = both.connect();
  RUN_UNTIL(*both.loop, both.done);
  REQUIRE(carrier_of(client) == "tcp");
  REQUIRE(both.told.at(0).taken == "tcp");
  REQUIRE(both.took < 1s);
}

TEST_CASE("simulation: rdma|tcp with resume redials by tcp once resume-time is over",
          "[simulation][redial][resume]") {
  Both both;
  if (both.device->profile.iwarp) return;
  const std::string resume = "resume=yes&resume-time=1s&keepalive=100ms";
  both.listener =
      both.registry.listen(*both.loop, "rdma|tcp://127.0.0.1:0?" + resume,
                           [&](ConnectionPtr next) { both.servers.push_back(std::move(next)); });
  conn::Endpoint to = both.listener->endpoints().back();
  to.scheme = "rdma|tcp";
  to.options = conn::Options::parse(resume);
  conn::Redial::Handlers handlers;
  std::vector<std::string> carriers;
  handlers.up = [&](Connection& here) { carriers.emplace_back(here.type().name()); };
  const Redial redial(both.registry, *both.loop, to, std::move(handlers));
  RUN_UNTIL(*both.loop, carriers.size() == 1);
  const Nanoseconds begin = both.world.now();
  both.world.set_path(*both.device, *both.device, false);
  RUN_UNTIL(*both.loop, carriers.size() == 2);
  CHECK(carriers == std::vector<std::string>{"rdma", "tcp"});
  CHECK(both.world.now() - begin >= 1s);
  CHECK(both.world.now() - begin < 6s);
}

// --- flaps ---------------------------------------------------------------------------------------

namespace {

/// A client that sends one request after the other as long as it is connected.
struct Asker {
  Asker(Room& room, conn::DialLimit& limit, std::uint64_t seed)
      : room_(room),
        timer_(room.loop.add_time_event(kBetween,
                                        [this]() -> ae::Duration {
                                          if (redial.connection() != nullptr &&
                                              redial.unconfirmed() == 0)
                                            ask(*redial.connection());
                                          return kBetween;
                                        })),
        redial(room.registry, room.loop, room.address,
               {.up = [this](Connection& connection) { begin(connection); },
                .down =
                    [this](Connection&, const Redial::Loss& loss) {
                      in_doubt += loss.unconfirmed;
                      lost = room_.world.now();
                      why = loss.why.text;
                    },
                .prove = {},
                .changed = {}},
               settings(limit, seed)) {}
  ~Asker() { room_.loop.remove_time_event(timer_); }
  Asker(const Asker&) = delete;
  Asker& operator=(const Asker&) = delete;
  static Redial::Settings settings(conn::DialLimit& limit, std::uint64_t seed) {
    Redial::Settings all;
    all.limit = &limit;
    all.seed = seed;
    return all;
  }
  void begin(Connection& connection) {
    connection.set_read_handler([this](Connection& from) {
      std::array<char, 256> bytes;
      const ssize_t n = from.read(bytes.data(), bytes.size());
      if (n <= 0) return;
      redial.confirm(static_cast<std::uint64_t>(n));
      if (redial.unconfirmed() != 0) return;
      ++answers;
      room_.loop.again(timer_, kBetween);
    });
    ask(connection);
  }
  void ask(Connection& connection) {
    const std::array<char, 100> question{};
    (void)connection.write(question.data(), question.size());
  }
  std::uint64_t answers = 0, in_doubt = 0;
  std::string why;
  Nanoseconds lost{};

 private:
  static constexpr ae::Duration kBetween = 2ms;
  Room& room_;
  ae::TimerId timer_;

 public:
  Redial redial;
};

}  // namespace

TEST_CASE("simulation: a client that redials is back two seconds after any flap",
          "[simulation][redial]") {
  const std::string flap = GENERATE("address", "link", "device", "server", "path");
  const char* const wanted = std::getenv("AECONN_FLAPS");
  int times = wanted != nullptr ? std::atoi(wanted) : 15;
  if (flap == "device") times = std::min(times, 60);  // limit of a world's queue pair numbers
  DYNAMIC_SECTION(flap) {
    Room room;
    conn::DialLimit limit(32);
    std::vector<std::unique_ptr<Asker>> clients;
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      clients.push_back(std::make_unique<Asker>(room, limit, seed));
    const auto answers = [&] {
      std::uint64_t sum = 0;
      for (const auto& each : clients) sum += each->answers;
      return sum;
    };
    const auto all_answer = [&] {
      std::vector<std::uint64_t> before;
      for (const auto& each : clients) before.push_back(each->answers);
      RUN_UNTIL(room.loop, std::equal(clients.begin(), clients.end(), before.begin(),
                                      [](const auto& each, std::uint64_t had) {
                                        return each->answers > had + 2;
                                      }));
    };
    const auto rate = [&] {
      const std::uint64_t before = answers();
      room.run_for(200ms);
      return answers() - before;
    };
    all_answer();
    const std::uint64_t rate_before = rate();
    conn::Endpoint at = room.listener->endpoints().front();
    Nanoseconds slowest{};
    for (int time = 1; time <= times; ++time) {
      CAPTURE(time, clients[0]->why, clients[0]->redial.describe());
      const auto gone = std::chrono::milliseconds(1 + ((time - 1) % 15 + 1) * 193);
      if (flap == "address") {
        room.world.set_address(*room.near, false);
        room.run_for(gone);
        room.world.set_address(*room.near, true);
      } else if (flap == "link") {
        room.world.set_link(*room.near, false);
        room.run_for(gone);
        room.world.set_link(*room.near, true);
      } else if (flap == "device") {
        room.world.remove_device(*room.near);
        room.run_for(gone);
        room.near = &room.world.add_device("sim0", "10.77.0.1");
      } else if (flap == "path") {
        room.world.set_path(*room.near, *room.far, false);
        room.run_for(gone);
        room.world.set_path(*room.near, *room.far, true);
      } else {
        room.listener.reset();
        room.log.clients.clear();
        room.run_for(gone);
        room.listener = room.type.listen(room.loop, at, room.log.handler());
      }
      Nanoseconds from = room.world.now();
      all_answer();
      // A connection that saw only silence and no event may learn later that its bytes are lost for
      // good.
      const Profile& kind = room.near->profile;
      if (flap == "path" || (flap == "link" && !kind.port_events) ||
          (flap == "address" && !kind.address_events)) {
        for (const auto& each : clients) from = std::max(from, each->lost);
      }
      slowest = std::max(slowest, room.world.now() - from);
    }
    const std::uint64_t rate_after = rate();
    WARN(times << " flaps, " << flap << ": the slowest return took "
               << std::chrono::duration_cast<std::chrono::milliseconds>(slowest).count()
               << " ms; answers in 200 ms before " << rate_before << ", after " << rate_after);
    CHECK(slowest < 2s);
    CHECK(rate_after * 10 > rate_before * 9);
    clients.clear();
    REQUIRE(limit.taken() == 0);
  }
}

TEST_CASE("simulation: a server that is full asks for patience, and is given it",
          "[simulation][redial]") {
  Room room({}, "?max-connections=1");
  const ConnectionPtr first = room.connected();
  conn::DialLimit limit(32);
  Asker second(room, limit, 1);
  RUN_UNTIL(room.loop, second.redial.counters().failures == 1);
  REQUIRE(second.redial.last_failure().retry_after == 1000ms);
  const Nanoseconds refused = room.world.now();
  RUN_UNTIL(room.loop, second.redial.counters().attempts == 2);
  REQUIRE(room.world.now() - refused >= 1s);
  REQUIRE(room.world.now() - refused < 1600ms);
}

// --- storms --------------------------------------------------------------------------------------

TEST_CASE("simulation: five hundred clients of a restarted server are back within three seconds",
          "[simulation][redial][storm]") {
  constexpr std::size_t kMany = 500;
  Config config;
  config.weather.most_cm_delay = 100us;
  Room room(config, "?window=4096&send-buffer=8192&backlog=1000");
  conn::DialLimit limit(32);
  std::vector<std::unique_ptr<Asker>> clients;
  for (std::uint64_t seed = 1; seed <= kMany; ++seed)
    clients.push_back(std::make_unique<Asker>(room, limit, seed));
  const auto all_answer = [&] {
    return std::all_of(clients.begin(), clients.end(),
                       [](const auto& each) { return each->answers > 0; });
  };
  const auto forget = [&] {
    for (const auto& each : clients) each->answers = 0;
  };
  room.world.config.system_call = 20us;
  const Nanoseconds begun = room.world.now();
  RUN_UNTIL(room.loop, all_answer());
  const Nanoseconds first = room.world.now() - begun;

  const conn::Endpoint at = room.listener->endpoints().front();
  const conn::Options options = conn::Options::parse("window=4096&send-buffer=8192&backlog=1000");
  room.listener.reset();
  room.log.clients.clear();
  room.run_for(100ms);
  conn::Endpoint again = at;
  again.options = options;
  std::uint64_t failures = 0;
  for (const auto& each : clients) failures += each->redial.counters().failures;
  room.listener = room.type.listen(room.loop, again, room.log.handler());
  forget();
  const Nanoseconds returned = room.world.now();
  RUN_UNTIL(room.loop, all_answer());
  const Nanoseconds second = room.world.now() - returned;
  std::uint64_t timed_out = 0;
  for (const auto& each : clients)
    if (each->redial.last_failure().code == std::errc::timed_out) ++timed_out;
  room.world.config.system_call = 0us;
  const auto in_ms = [](Nanoseconds time) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  };
  WARN(kMany << " clients: all answered after " << in_ms(first) << " ms, after a restart "
             << in_ms(second) << " ms; " << failures << " attempts failed while it was away");
  CHECK(first < 3s);
  CHECK(second < 3s);
  CHECK(timed_out == 0);
  clients.clear();
}

TEST_CASE("simulation: who waits in line to dial has a turn, also where memory ran out meanwhile",
          "[simulation][redial][torture]") {
  std::uint64_t number = 1;
  for (bool failed = true; failed; ++number) {
    CAPTURE(number);
    World world;
    const auto loop = testing::make_loop();
    conn::DialLimit limit(1);
    int turns = 0;
    auto first = limit.enter(*loop, [] {});
    auto second = limit.enter(*loop, [&] { ++turns; });
    fail_allocation(Allocator::kNew, number);
    first.reset();
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    CHECK(limit.taken() + limit.waiting() == 1);
    const auto third = limit.enter(*loop, [&] { turns += 10; });
    CHECK_FALSE(third->holds());
    RUN_UNTIL(*loop, turns != 0);
    CHECK(turns == 1);  // in the order of the requests
    CHECK(second->holds());
    second.reset();
    RUN_UNTIL(*loop, turns == 11);
  }
  CHECK(number > 2);
}

TEST_CASE("simulation: a Redial without memory for words still knows what its list has skipped",
          "[simulation][redial][torture]") {
  std::uint64_t number = 1;
  for (bool failed = true; failed; ++number) {
    CAPTURE(number);
    Both both;
    both.listen("tcp");
    conn::Endpoint to = both.listener->endpoints().front();
    to.scheme = "rdma|tcp";
    std::optional<Redial> redial;
    redial.emplace(both.registry, *both.loop, to, Redial::Handlers{});
    fail_allocation(Allocator::kNew, number);
    for (int turns = 0; turns < 1000 && redial->phase() != Redial::Phase::kUp; ++turns) {
      try {
        both.loop->process_events(ae::kFullIteration);
      } catch (const std::bad_alloc&) {
        // thrown by the test's own handlers
      }
    }
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    REQUIRE(redial->phase() == Redial::Phase::kUp);
    CHECK(redial->connection()->type().name() == "tcp");
    REQUIRE(redial->not_taken().size() == 1);
    CHECK(redial->not_taken().front().scheme == "rdma");
  }
  CHECK(number > 20);
}
