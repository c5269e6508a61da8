// SPDX-License-Identifier: BSD-3-Clause
// Loops on processors of their own, in simulated time: the load of one must not slow down the
// other.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/core/connection_set.h"
#include "conn/listener_group.h"
#include "conn/rdma/loop/loop_state.h"
#include "conn/transports/transports.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/stepped_loops.h"
#include "tests/simulation/walk.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;
using conn::State;

namespace {

// CPU time of a handshake, which the simulation performs in no time.
constexpr Nanoseconds kArithmetic = 200us;
constexpr std::size_t kRequests = 4000;

/// Two loops serve. A client on a loop of its own sends requests to one of them; other clients make
/// handshakes, ten at a time, with the flooded loop.
class Flood {
 public:
  Flood(std::size_t asked, std::optional<std::size_t> flooded) : asked_(asked), flooded_(flooded) {
    world_.add_device("sim0", "10.77.0.1");
    world_.add_device("sim1", "10.77.0.2");
    registry_.require("tls+rdma").configure(testing::test_tls_options("localhost"));
    loops_ = std::make_unique<SteppedLoops>(world_, 2, 2, choices_);
    listener_ = conn::listen(
        registry_, *loops_, "tls+rdma://10.77.0.1:0",
        [this](ae::EventLoop&, std::size_t) {
          return [this](ConnectionPtr next) { accept(std::move(next)); };
        },
        conn::Spread::by([this](const conn::Arriving&) { return goes_to_; }));
    to_ = listener_->endpoints().front();
    to_.options = to_.options.merged_with(conn::Options::parse("source=10.77.0.2"));
  }

  /// The 99th percentile of the requests' time; counts the handshakes made meanwhile.
  Nanoseconds p99() {
    goes_to_ = asked_;
    client_ = dial(2, [this](Connection&) { ask(); });
    while (times_.empty()) loops_->step_beside();
    goes_to_ = flooded_.value_or(asked_);
    for (int i = 0; flooded_ && i < 10; ++i) shake_hands();
    while (times_.size() < kRequests) loops_->step_beside();
    finished_ = true;
    std::sort(times_.begin(), times_.end());
    return times_[times_.size() * 99 / 100];
  }
  std::size_t handshakes() const { return handshakes_; }

 private:
  ConnectionPtr dial(std::size_t loop, conn::Connection::Handler connected) {
    ConnectionPtr made = registry_.require("tls+rdma").create(*loops_->loop(loop));
    made->connect(to_, std::move(connected));
    return made;
  }
  void accept(ConnectionPtr next) {
    Connection& here = *next;
    if (!times_.empty()) world_.spend(kArithmetic);
    served_[&here] = std::move(next);
    here.set_read_handler([this](Connection& c) {
      std::array<char, 64> bytes;
      const ssize_t n = c.read(bytes.data(), bytes.size());
      if (n > 0) (void)c.write(bytes.data(), static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno != EAGAIN)) served_.erase(&c);
    });
  }
  void ask() {
    begun_ = world_.now();
    REQUIRE(client_->write("?", 1) == 1);
    client_->set_read_handler([this](Connection& c) {
      char byte;
      if (c.read(&byte, 1) != 1) return;
      times_.push_back(world_.now() - begun_);
      if (times_.size() < kRequests) ask();
    });
  }
  void shake_hands() {
    if (finished_) return;
    ConnectionPtr made = dial(3, [this](Connection& c) {
      REQUIRE(c.state() == State::kConnected);
      ++handshakes_;
      hands_.erase(&c);
      shake_hands();
    });
    hands_[made.get()] = std::move(made);
  }

  const std::size_t asked_;
  const std::optional<std::size_t> flooded_;
  Choices choices_{1};
  World world_{{.seed = 1, .system_call = 2us}};
  conn::Registry registry_ = conn::all_transports();
  std::unique_ptr<SteppedLoops> loops_;
  std::size_t goes_to_ = 0;
  std::map<const Connection*, ConnectionPtr> served_, hands_;
  conn::ListenerGroupPtr listener_;
  conn::Endpoint to_;
  ConnectionPtr client_;
  Nanoseconds begun_{};
  std::vector<Nanoseconds> times_;
  std::size_t handshakes_ = 0;
  bool finished_ = false;
};

/// Two loops serve, a third has the clients.
class Pair {
 public:
  explicit Pair(const std::string& transport, const std::string& options = {},
                conn::Spread spread = conn::Spread::round_robin())
      : type_(registry_.require(transport)), is_rdma_(transport.ends_with("rdma")) {
    near_ = &add_near();
    world_.add_device("sim1", "10.77.0.2", profile_named("mlx5"));
    if (transport.starts_with("tls"))
      type_.configure(testing::test_tls_options(is_rdma_ ? "localhost" : ""));
    loops_ = std::make_unique<SteppedLoops>(world_, 2, 1, choices_);
    if (is_rdma_) {
      auto& state = conn::rdma::LoopState::of(*loops_->loop(1), registry_.require("rdma"));
      watcher_.ended = [this, &state] { rejected_at_end = state.statistics().rejected; };
      conn::ConnectionSet::of(*loops_->loop(1)).add(watcher_);  // runs after the group
    }
    listener_ = conn::listen(
        registry_, *loops_, transport + (is_rdma_ ? "://10.77.0.1:0" : "://127.0.0.1:0") + options,
        [this](ae::EventLoop&, std::size_t index) {
          return [this, index](ConnectionPtr next) { served[index].push_back(std::move(next)); };
        },
        std::move(spread));
    to_ = listener_->endpoints().front();
    if (is_rdma_) to_.options = to_.options.merged_with(conn::Options::parse("source=10.77.0.2"));
  }
  ~Pair() {
    watcher_.stop_watching();
    for (auto& each : served) each.clear();
    listener_.reset();
  }

  ConnectionPtr dial() {
    ConnectionPtr made = type_.create(*loops_->loop(2));
    made->connect(to_, [](Connection&) {});
    loops_->wake();
    return made;
  }
  template <class Condition>
  bool run_until(Condition condition, Nanoseconds span = 10s) {
    const Nanoseconds limit = world_.now() + span;
    while (!condition() && world_.now() < limit) loops_->step(limit);
    return condition();
  }
  /// The value of a counter of loop `index`.
  std::uint64_t count(std::string_view name, std::size_t index) const {
    const conn::ConnectionType& type = is_rdma_ ? registry_.require("rdma") : type_;
    for (const auto& [each, value] : type.statistics(*loops_->loop(index)))
      if (each == name) return value;
    return 0;
  }
  std::set<int> vectors() const {
    std::set<int> all;
    for (const auto& [number, qp] : world_.queue_pairs)
      if (&qp->device_of() == near_) all.insert(static_cast<const Queue*>(qp->send_cq)->vector);
    return all;
  }
  /// Adds the device of the two loops, also after it was removed.
  Device& add_near() { return world_.add_device("sim0", "10.77.0.1", profile_named("mlx5")); }
  /// Clients of which each loop serves two.
  std::vector<ConnectionPtr> crowd() {
    std::vector<ConnectionPtr> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(dial());
      REQUIRE(run_until([&] { return clients.back()->state() == State::kConnected; }));
    }
    REQUIRE(run_until([&] { return served[0].size() >= 2 && served[1].size() >= 2; }));
    return clients;
  }
  World& world() { return world_; }
  Device& near() { return *near_; }
  conn::ListenerGroup& listener() { return *listener_; }
  SteppedLoops& loops() { return *loops_; }

  std::array<std::vector<ConnectionPtr>, 2> served;
  std::uint64_t rejected_at_end = 0;  // of loop 1

 private:
  struct Watcher final : conn::LoopEndWatcher {
    void on_loop_end() noexcept override { ended(); }
    std::function<void()> ended;
  };
  Choices choices_{1};
  World world_{{.seed = 1}};
  conn::Registry registry_ = conn::all_transports();
  conn::ConnectionType& type_;
  const bool is_rdma_;
  Device* near_ = nullptr;
  std::unique_ptr<SteppedLoops> loops_;
  Watcher watcher_;
  conn::ListenerGroupPtr listener_;
  conn::Endpoint to_;
};

}  // namespace

TEST_CASE("simulation: what a group refuses is counted as what one loop's listener refuses",
          "[simulation][loops]") {
  prepare_walks();
  const std::string transport = GENERATE("rdma", "tls+rdma");
  CAPTURE(transport);
  SECTION("beyond max-connections") {
    Pair pair(transport, "?max-connections=1");
    const ConnectionPtr first = pair.dial();
    REQUIRE(pair.run_until([&] { return first->state() == State::kConnected; }));
    const ConnectionPtr second = pair.dial();
    REQUIRE(pair.run_until([&] { return second->state() == State::kError; }));
    CHECK(pair.count("refused", 0) + pair.count("refused", 1) == 1);
    CHECK(pair.count("rejected", 0) + pair.count("rejected", 1) == 1);
  }
}

TEST_CASE("simulation: an arrival that no loop is left for is counted as rejected",
          "[simulation][loops]") {
  prepare_walks();
  Pair pair("tls+rdma", {}, conn::Spread::by([](const conn::Arriving&) { return 1; }));
  const ConnectionPtr client = pair.dial();
  REQUIRE(pair.run_until([&] { return pair.listener().shares()[1].assigned == 1; }));
  pair.listener().pause();
  (void)pair.run_until([] { return false; }, 5ms);
  pair.loops().end(0);
  pair.loops().end(1);
  CHECK(pair.rejected_at_end == 1);
  CHECK(pair.run_until([&] { return client->state() == State::kError; }));
}

TEST_CASE("simulation: a paused loop that ends gives back what waits", "[simulation][loops]") {
  prepare_walks();
  const std::string transport = GENERATE("tcp", "tls", "rdma", "tls+rdma");
  CAPTURE(transport);
  Pair pair(transport, {}, conn::Spread::by([](const conn::Arriving&) { return 1; }));
  const ConnectionPtr client = pair.dial();
  // Assigned to loop 1, which has not accepted it yet.
  const auto assigned = [&](std::size_t loop) { return pair.listener().shares()[loop].assigned; };
  REQUIRE(pair.run_until([&] { return assigned(1) == 1; }));
  pair.listener().pause();
  (void)pair.run_until([] { return false; }, 5ms);
  REQUIRE(assigned(1) == 1);
  pair.loops().end(1);
  pair.listener().resume();
  pair.loops().wake();
  CHECK(assigned(0) == 1);
  CHECK(assigned(1) == 0);
  CHECK(pair.run_until([&] { return !pair.served[0].empty(); }));
  CHECK(client->state() == State::kConnected);
}

TEST_CASE("simulation: each loop of a group has a completion vector of its own",
          "[simulation][loops]") {
  prepare_walks();
  const auto vectors = [](Pair& pair) {
    const std::array<ConnectionPtr, 2> clients{pair.dial(), pair.dial()};
    REQUIRE(pair.run_until([&] { return !pair.served[0].empty() && !pair.served[1].empty(); }));
    return pair.vectors();
  };
  for (int again = 0; again < 3; ++again) {  // independent of earlier assignments
    Pair pair("rdma");
    CHECK(vectors(pair) == std::set<int>{0, 1});
  }
  Pair pair("rdma", "?comp-vector=5");
  CHECK(vectors(pair) == std::set<int>{5});
}

TEST_CASE(
    "simulation: a device that is removed ends the connections of every loop, and serves all "
    "again",
    "[simulation][loops]") {
  prepare_walks();
  const std::string transport = GENERATE("rdma", "tls+rdma");
  CAPTURE(transport);
  Pair pair(transport);
  std::vector<ConnectionPtr> clients = pair.crowd();
  pair.world().remove_device(pair.near());
  pair.loops().wake();
  const auto told = [](const std::vector<ConnectionPtr>& all) {
    return std::all_of(all.begin(), all.end(), [](const ConnectionPtr& each) {
      char byte;
      return each->read(&byte, 1) == -1 && each->state() == State::kError &&
             each->last_error().find("was removed") != std::string::npos;
    });
  };
  for (const std::size_t loop : {0u, 1u}) {
    CAPTURE(loop, pair.served[loop].front()->last_error());
    CHECK(pair.run_until([&] { return told(pair.served[loop]); }, 1s));
    pair.served[loop].clear();
  }
  // Neither loop has the device open any more.
  CHECK(pair.run_until([&] { return pair.near().handles.empty(); }, 1s));
  clients.clear();
  (void)pair.add_near();
  (void)pair.run_until([] { return false; }, 1s);  // the listener looks for it twice per second
  clients = pair.crowd();
}

TEST_CASE("simulation: an address that is taken away ends the connections of every loop",
          "[simulation][loops]") {
  prepare_walks();
  Pair pair("rdma");
  const std::vector<ConnectionPtr> clients = pair.crowd();
  pair.world().set_address(pair.near(), false);
  pair.loops().wake();
  for (const std::size_t loop : {0u, 1u}) {
    CAPTURE(loop);
    for (const ConnectionPtr& each : pair.served[loop]) {
      CHECK(pair.run_until([&] { return each->state() == State::kError; }, 1s));
      CHECK_THAT(each->last_error(), testing::Contains("no longer on this machine"));
    }
  }
}

TEST_CASE("simulation: after an address moved every loop is served as before",
          "[simulation][loops]") {
  prepare_walks();
  const std::string transport = GENERATE("rdma", "tls+rdma");
  CAPTURE(transport);
  Pair pair(transport);
  const std::vector<ConnectionPtr> before = pair.crowd();
  pair.world().move_address(pair.near());
  pair.loops().wake();
  (void)pair.run_until([] { return false; }, 20ms);
  for (auto& each : pair.served) each.clear();
  const std::vector<ConnectionPtr> after = pair.crowd();
  CHECK(pair.listener().shares()[0].assigned == 4);
  CHECK(pair.listener().shares()[1].assigned == 4);
}

TEST_CASE("simulation: a group says near which processors the device of its listener is",
          "[simulation][loops]") {
  prepare_walks();
  using Lists = std::vector<std::vector<int>>;
  Choices choices{1};
  World world{{.seed = 1}};
  world.add_device("sim0", "10.77.0.1").near = {4, 5, 6, 7};
  world.add_device("sim1", "10.77.0.2").near = {0, 1};
  world.add_device("sim2", "10.77.0.3");
  const conn::Registry registry = conn::all_transports();
  SteppedLoops loops(world, 2, 0, choices);
  const auto said = [&] {
    Lists all;
    for (const auto& [whose, processors] : loops.near()) all.push_back(processors);
    return all;
  };
  const auto listen = [&](const std::string& url) {
    return conn::listen(registry, loops, url,
                        [](ae::EventLoop&, std::size_t) { return [](ConnectionPtr) {}; });
  };
  {
    const auto one = listen("rdma://10.77.0.1:0");
    CHECK(said() == Lists{{4, 5, 6, 7}});
  }
  CHECK(said().empty());  // withdrawn
  {
    const auto several = listen("rdma://10.77.0.1,10.77.0.2:0");
    CHECK(said() == Lists{{-1}});
  }
  const auto unknown = listen("rdma://10.77.0.3:0");
  const auto none = listen("tcp://127.0.0.1:0");
  CHECK(said().empty());
}

TEST_CASE("simulation: the kernel spreads no connections of rdma, and one sentence says so",
          "[simulation][loops]") {
  prepare_walks();
  const std::string transport = GENERATE("rdma", "tls+rdma");
  Choices choices{1};
  World world{{.seed = 1}};
  world.add_device("sim0", "10.77.0.1");
  conn::Registry registry = conn::all_transports();
  if (transport == "tls+rdma")
    registry.require(transport).configure(testing::test_tls_options("localhost"));
  SteppedLoops loops(world, 2, 0, choices);
  CHECK_THROWS_WITH(
      (void)conn::listen(
          registry, loops, transport + "://10.77.0.1:0",
          [](ae::EventLoop&, std::size_t) { return [](ConnectionPtr) {}; }, conn::Spread::kernel()),
      transport + "://10.77.0.1:0: the kernel does not spread connections of " + transport +
          "; let the listener do it");
  CHECK(world.listeners.empty());
}

TEST_CASE("simulation: one loop's flood of handshakes does not slow the other's requests",
          "[simulation][loops]") {
  prepare_walks();
  const std::size_t asked = GENERATE(0u, 1u);
  const auto measure = [&](std::optional<std::size_t> flooded) {
    Flood flood(asked, flooded);
    const Nanoseconds p99 = flood.p99();
    return std::pair(p99, flood.handshakes());
  };
  const auto [alone, none] = measure({});
  const auto [beside, handshakes] = measure(1 - asked);
  const auto [together, more] = measure(asked);
  const auto us = [](Nanoseconds span) { return static_cast<double>(span.count()) / 1e3; };
  std::printf(
      "p99 of loop %zu, which %s: %.1f us alone, %.1f us beside %zu handshakes of the other, %.1f "
      "us "
      "beside %zu of its own\n",
      asked, asked == 0 ? "listens" : "does not listen", us(alone), us(beside), handshakes,
      us(together), more);
  CHECK(none == 0);
  CHECK(handshakes > 160);
  CHECK(beside <= alone * 11 / 10);
  CHECK(together > alone * 2);  // the measurement detects a slow-down
}
