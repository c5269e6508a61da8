// SPDX-License-Identifier: BSD-3-Clause
// A slow end is not a dead end. Two processes, each with a loop on a processor of its own: one
// computes for long in its handlers or is stopped as by SIGSTOP, the other is punctual. No
// connection may be ended for that where completions prove that the peer's device is alive; on
// iWARP a stopped process counts as dead when its keepalives are missed.

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "conn/transports/transports.h"
#include "tests/simulation/cm.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/processors.h"
#include "tests/simulation/room.h"
#include "tests/support/catch.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;
using testing::Contains;

namespace {

struct TwoProcesses {
  TwoProcesses(std::size_t connections, const std::string& options) {
    world.add_device("sim0", "10.77.0.1");
    world.add_device("sim1", "10.77.0.2");
    listener = registry.require("rdma").listen(
        server(), conn::Endpoint::parse("rdma://10.77.0.1:0?" + options),
        [this](ConnectionPtr next) {
          watch(*next);
          served.push_back(std::move(next));
        });
    conn::Endpoint to = listener->endpoints().front();
    to.options = to.options.merged_with(conn::Options::parse("source=10.77.0.2&" + options));
    for (std::size_t i = 0; i < connections; ++i) {
      clients.push_back(registry.require("rdma").create(client()));
      clients.back()->connect(to, {});
      watch(*clients.back());
    }
    processors.take_turns_until([this] {
      return served.size() == clients.size() &&
             std::all_of(clients.begin(), clients.end(), [](const ConnectionPtr& each) {
               return each->state() == conn::State::kConnected;
             });
    });
  }
  ~TwoProcesses() {
    processors.end();
    clients.clear();
    served.clear();
    listener.reset();
  }
  TwoProcesses(const TwoProcesses&) = delete;
  TwoProcesses& operator=(const TwoProcesses&) = delete;

  ae::EventLoop& server() { return processors.loop(0); }
  ae::EventLoop& client() { return processors.loop(1); }
  /// Counts received bytes and answers them by `on_bytes`; records how the connection ends.
  void watch(Connection& here) {
    here.set_read_handler([this](Connection& same) {
      char bytes[4096];
      const ssize_t n = same.read(bytes, sizeof bytes);
      if (n > 0) {
        if (on_bytes) on_bytes(same);
        return;
      }
      if (n < 0 && errno == EAGAIN) return;
      endings.push_back(n == 0 ? "end of stream" : same.last_error());
      same.set_read_handler(nullptr);
    });
  }
  bool is_served(const Connection& here) const {
    return std::any_of(served.begin(), served.end(),
                       [&](const ConnectionPtr& each) { return each.get() == &here; });
  }
  /// Runs for `span`, or until a connection has ended.
  void run_for(Nanoseconds span) {
    const Nanoseconds until = world.now() + span;
    bool over = false;
    server().post([&] { server().add_time_event(span, [&] { return over = true, ae::kNoMore; }); });
    processors.run_until([&, until] { return over || world.now() >= until + 1s; });
  }
  /// Each client sends one more request and gets its answer.
  bool all_answer() {
    std::set<const Connection*> answered;
    on_bytes = [&](Connection& here) {
      if (is_served(here))
        (void)here.write("!", 1);
      else
        answered.insert(&here);
    };
    client().post([this] {
      for (const ConnectionPtr& each : clients) (void)each->write("?", 1);
    });
    const Nanoseconds limit = world.now() + 60s;
    processors.run_until([&, limit] {
      return answered.size() == clients.size() || !endings.empty() || world.now() > limit;
    });
    on_bytes = nullptr;
    return answered.size() == clients.size();
  }

  World world;
  conn::Registry registry = conn::all_transports();
  Processors processors{world, 2};
  conn::ListenerPtr listener;
  std::vector<ConnectionPtr> clients, served;
  std::vector<std::string> endings;
  std::function<void(Connection&)> on_bytes;
};

bool completions_prove() { return !chosen_profile().iwarp; }

}  // namespace

TEST_CASE("simulation: clients whose handlers compute for long are not cut off, however many",
          "[simulation][faults][slow]") {
  constexpr std::size_t kClients = 40;
  constexpr Nanoseconds kComputes = 350ms;
  TwoProcesses two(kClients, "window=4096&send-buffer=8192");
  const std::string busy_with = GENERATE("connections", "timers", "posts");
  CAPTURE(busy_with);
  std::size_t computed = 0;
  if (busy_with == "connections") {
    two.on_bytes = [&](Connection& here) {
      if (!two.is_served(here)) {
        two.world.spend(kComputes);
        ++computed;
      }
      (void)here.write("x", 1);  // there is always more to do
    };
    two.server().post([&] {
      for (const ConnectionPtr& each : two.served) (void)each->write("x", 1);
    });
  } else {
    for (std::size_t i = 0; i < kClients; ++i) {
      const auto work = [&] {
        two.world.spend(kComputes);
        ++computed;
      };
      if (busy_with == "timers")
        two.client().add_time_event(0ms, [work] { return work(), ae::Duration::zero(); });
      else
        for (int times = 0; times < 3; ++times) two.client().post(work);
    }
  }
  const Nanoseconds limit = two.world.now() + 300s;
  two.processors.run_until(
      [&] { return computed >= 3 * kClients || !two.endings.empty() || two.world.now() > limit; });
  CHECK(two.endings == std::vector<std::string>{});
  CHECK(computed >= 3 * kClients);
  two.on_bytes = nullptr;
}

TEST_CASE("simulation: a process that is stopped for a minute is still connected",
          "[simulation][faults][slow]") {
  const bool server_stops = GENERATE(false, true);
  const std::string before = GENERATE("idle", "writing", "asking");
  // With 40, many connections share the receives of the stopped process.
  const std::size_t connections = GENERATE(1, 40);
  CAPTURE(server_stops, before, connections);
  TwoProcesses two(connections, "window=4096&send-buffer=8192");
  REQUIRE(two.all_answer());
  ae::EventLoop& stopped = server_stops ? two.server() : two.client();
  ae::EventLoop& awake = server_stops ? two.client() : two.server();
  const std::vector<ConnectionPtr>& ours = server_stops ? two.clients : two.served;
  bool goes_on = false;
  stopped.post([&] {
    two.world.spend(60s);
    goes_on = true;
  });
  if (before != "idle")
    awake.add_time_event(100ms, [&] {
      const std::string bytes(before == "writing" ? 100000 : 1, 'w');
      for (const ConnectionPtr& each : ours) (void)each->write(bytes.data(), bytes.size());
      return ae::kNoMore;
    });
  const Nanoseconds limit = two.world.now() + 80s;
  two.processors.run_until(
      [&, limit] { return two.world.now() > limit || (!two.endings.empty() && goes_on); });
  if (completions_prove()) {
    CHECK(two.endings == std::vector<std::string>{});
    CHECK(two.all_answer());
  } else {
    REQUIRE_FALSE(two.endings.empty());
    CHECK_THAT(two.endings.front(), Contains("silent"));
  }
}

TEST_CASE("simulation: a machine that is lost is noticed in time beside a process that is stopped",
          "[simulation][faults][slow]") {
  TwoProcesses two(4, "window=4096&send-buffer=8192");
  REQUIRE(two.all_answer());
  two.client().post([&] { two.world.spend(60s); });
  if (!completions_prove()) return;
  bool is_lost = false, is_over = false;
  Nanoseconds lost{}, noticed{};
  two.server().add_time_event(20s, [&] {
    two.world.set_path(*two.world.find_device("sim0"), *two.world.find_device("sim1"), false);
    is_lost = true;
    lost = two.world.now();
    CHECK(two.endings.empty());
    two.server().add_time_event(30s, [&] { return is_over = true, ae::kNoMore; });
    return ae::kNoMore;
  });
  two.processors.run_until([&] {
    noticed = two.world.now();
    return two.endings.size() >= 4 || is_over;
  });
  CHECK(is_lost);
  REQUIRE(two.endings.size() >= 4);
  CHECK(noticed - lost < 10s);
}

// A device may retry without end; then its silence proves nothing about the peer.
TEST_CASE("simulation: a machine that is lost is noticed, however often the device tries",
          "[simulation][faults][slow]") {
  const int retries = GENERATE(0, 1, 6, 7);
  const std::string before = GENERATE("idle", "writing", "a window that is full");
  CAPTURE(retries, before);
  TwoProcesses two(2, "window=4096&send-buffer=8192&retry-count=" + std::to_string(retries));
  REQUIRE(two.all_answer());
  bool is_over = false;
  Nanoseconds lost{}, noticed{};
  two.server().post([&] {
    two.world.set_path(*two.world.find_device("sim0"), *two.world.find_device("sim1"), false);
    lost = two.world.now();
    const std::string bytes(before == "writing" ? 1 : 100000, 'w');
    if (before != "idle")
      for (const ConnectionPtr& each : two.served) (void)each->write(bytes.data(), bytes.size());
    two.server().add_time_event(60s, [&] { return is_over = true, ae::kNoMore; });
  });
  two.processors.run_until([&] {
    noticed = two.world.now();
    return two.endings.size() >= 4 || is_over;
  });
  CHECK(two.endings.size() >= 4);
  CHECK(noticed - lost < 30s);
}

// Soft-RoCE at times carries out no request of a queue pair any more and reports nothing, while the
// peer's requests are still answered: both ends look alive.
TEST_CASE("simulation: a device that carries out nothing more is noticed", "[simulation][faults]") {
  const bool at_server = GENERATE(false, true);
  const std::string load = GENERATE("idle", "small writes", "large writes");
  const std::string server_keepalive = GENERATE("300ms", "3s");
  const std::string keepalive = GENERATE("300ms", "3s");
  const auto phase = GENERATE(100ms, 1100ms, 2100ms);
  CAPTURE(at_server, load, server_keepalive, keepalive, phase.count());
  if (!completions_prove()) return;
  Room room({}, "?keepalive=" + server_keepalive);
  const auto client = room.connected("keepalive=" + keepalive);
  room.run_for(phase);
  const Device& stuck = at_server ? *room.near : *room.far;
  const std::string bytes(load == "large writes" ? 10'000'000 : 100, 'x');
  if (load != "idle") (void)client->write(bytes.data(), bytes.size());
  for (auto& [number, qp] : room.world.queue_pairs)
    if (&qp->device_of() == &stuck) qp->stuck = true;
  for (int i = 0; load != "idle" && i < 3000; ++i) {
    (void)client->write(bytes.data(), bytes.size());
    room.run_for(1ms);
  }
  CHECK(room.until_failed(*client) < 40s);
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
}

// Goal: what rdma_cm suspects about the network ends no working connection. Method: each event that
// a kernel may queue on an established id, at either end.
TEST_CASE("simulation: a guess of rdma_cm ends no connection that works", "[simulation][faults]") {
  const auto type =
      GENERATE(RDMA_CM_EVENT_UNREACHABLE, RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_CONNECT_ERROR,
               RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  const bool path_is_there = GENERATE(true, false);
  const bool early = GENERATE(true, false);  // before the last message of the set-up has arrived
  CAPTURE(rdma_event_str(type), path_is_there, early);
  Room room;
  const auto client = room.connected();
  if (!early) room.run_for(100ms);
  if (!path_is_there) room.world.set_path(*room.near, *room.far, false);
  for (const auto& [key, id] : std::map(room.world.ids))
    if (id->state == CmState::kConnected || id->state == CmState::kAnswered)
      cm::queue_event(*id, type, type == RDMA_CM_EVENT_UNREACHABLE ? -ETIMEDOUT : 0);
  if (path_is_there) {
    room.run_for(1s);
    CHECK(client->state() == conn::State::kConnected);
    CHECK(room.log.endings.empty());
    room.echoes(*client, 100000);
    return;
  }
  // The queue pair is probed, and fails as soon as its retries are used up.
  const bool asked = completions_prove() && type != RDMA_CM_EVENT_TIMEWAIT_EXIT;
  CHECK(room.until_failed(*client) < (asked ? 3s : 12s));
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
}

TEST_CASE("simulation: a peer that does not know the connection ends it", "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  room.run_for(100ms);
  for (const auto& [key, id] : std::map(room.world.ids))
    if (id->state == CmState::kConnected && id->device == room.near)
      cm::queue_event(*id, RDMA_CM_EVENT_REJECTED, 4);
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  CHECK(room.until_failed(*client) < 3s);
}

// Goal: no event of rdma_cm during a connect blocks a loop. Method: each event that leaves the
// connect in progress, while the peer is silent: with a waiting client, a client that was given up,
// and after the loop's end. rdma_destroy_id() of iWARP waits for the end of the connect.
TEST_CASE("simulation: no news of a connect that is under way holds a loop up",
          "[simulation][faults]") {
  const auto type =
      GENERATE(RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ROUTE_ERROR,
               RDMA_CM_EVENT_TIMEWAIT_EXIT, RDMA_CM_EVENT_MULTICAST_ERROR);
  const std::string whose = GENERATE("waits", "was given up", "its loop has gone");
  CAPTURE(rdma_event_str(type), static_cast<int>(type), whose);
  for (const Profile* profile : serving_profiles()) {
    if (!profile->iwarp && profile != &chosen_profile()) continue;
    CAPTURE(profile->name);
    Room room({}, "?keepalive=0ms", *profile, *profile);
    const auto other = room.connected("keepalive=0ms");
    auto loop = testing::make_loop();
    auto client = room.type.create(*loop);
    client->connect(room.address, {});
    Nanoseconds longest{};
    const auto turn = [&] {
      for (ae::EventLoop* each : {&room.loop, loop.get()}) {
        const Nanoseconds before = room.world.now();
        if (each != nullptr) (void)each->process_events(ae::kAllEvents | ae::kDontWait);
        longest = std::max(longest, room.world.now() - before);
      }
      (void)room.world.advance(room.world.now() + 100us);
    };
    while (room.far->costs.slow["rdma_connect"] != 2) turn();
    room.world.set_path(*room.near, *room.far, false);
    if (whose != "waits") client.reset();
    turn();
    if (whose == "its loop has gone") loop.reset();
    for (const auto& [key, id] : std::map(room.world.ids))
      if (id->state == CmState::kRequested) cm::queue_event(*id, type);
    const Nanoseconds until = room.world.now() + 1500ms;
    while (room.world.now() < until) turn();
    CHECK(longest < 1s);
    CHECK(other->state() == conn::State::kConnected);
    room.world.set_path(*room.near, *room.far, true);
    client.reset();
    const Nanoseconds begin = room.world.now();
    loop.reset();
    CHECK(room.world.now() - begin < 1s);
  }
}

// Goal: a silent but living peer is not declared dead because the probe of its device found the
// send queue full. Method: a client that does not run, and a send queue of the server's that is
// full for a while, starting at different times of the silence.
TEST_CASE("simulation: the question to a silent peer's device is asked until it was posted",
          "[simulation][faults][slow]") {
  if (!completions_prove()) return;
  const Nanoseconds begins = GENERATE(1000ms, 1300ms, 1400ms, 1500ms, 1600ms);
  CAPTURE(begins.count());
  Room room({}, "?keepalive=0ms");
  auto loop = testing::make_loop();
  conn::Endpoint to = room.address;
  to.options.set("keepalive", "400ms");
  auto client = room.type.create(*loop);
  client->connect(to, {});
  const auto run = [&](Nanoseconds span, ae::EventLoop* other) {
    const Nanoseconds until = room.world.now() + span;
    while (room.world.now() < until) {
      (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
      if (other != nullptr) (void)other->process_events(ae::kAllEvents | ae::kDontWait);
      (void)room.world.advance(room.world.now() + 500us);
    }
  };
  run(3s, loop.get());
  REQUIRE(room.log.clients.size() == 1);
  run(begins, nullptr);
  for (auto& [number, qp] : room.world.queue_pairs) qp->used += qp->cap.max_send_wr;
  run(250ms, nullptr);
  for (auto& [number, qp] : room.world.queue_pairs) qp->used -= qp->cap.max_send_wr;
  run(5s, nullptr);
  CHECK(room.log.endings.empty());
  client.reset();
  run(4s, loop.get());
}
