// SPDX-License-Identifier: BSD-3-Clause
// Preparation by itself (conn/rdma/loop/preparation.h): when queue pairs are made for future
// connections, how many, and when they are destroyed. The test is the listener.

#include "conn/rdma/loop/preparation.h"

#include <netinet/in.h>

#include "conn/rdma/loop/loop_state.h"
#include "tests/simulation/refuse_timers.h"
#include "tests/simulation/room.h"

using namespace simulation;
using namespace conn::rdma;

namespace {

struct Wishes final : LoopListener {
  explicit Wishes(const std::string& options)
      : its(Settings::from(conn::Options::parse("isolation=none&" + options))) {}
  const Settings& settings() const noexcept override { return its; }
  bool wishes_prepared() const noexcept override { return wishes; }
  bool is_on(const std::string& name) const override { return name == device; }
  void retry_if_down() noexcept override {}
  ae::TimePoint retry_if_due(ae::TimePoint) noexcept override { return ae::TimePoint::max(); }
  void follow_addresses() noexcept override {}
  void drop_request(const rdma_cm_id*) noexcept override {}
  void loop_gone() noexcept override {}

  const Settings its;
  bool wishes = true;
  std::string device = "sim0";
};

struct Bed {
  explicit Bed(const std::string& options = "prepared=5", Config config = {})
      : world(config), listener(options) {
    world.add_device("sim0", "10.77.0.1", profile_named("mlx5"));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, "10.77.0.1", &address.sin_addr);
    const conn::rdma::CmId id = channel.create_id(nullptr);
    REQUIRE(rdma_bind_addr(id.get(), reinterpret_cast<sockaddr*>(&address)) == 0);
    device = devices.context(id, listener.its);
    listeners.add(listener);
    loop.add_before_sleep([this] { iteration.begin(); });
  }
  ~Bed() {
    fail_allocation(Allocator::kNew, 0);
    preparation.stop();
    cleanup.stop();
    wheel.stop();
    device.reset();
    devices.leave_loop();
  }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;
  void run_for(Nanoseconds span) { simulation::run_for(loop, span); }
  std::size_t prepared() const { return devices.prepared(); }

  World world;
  testing::AnyLoop loop;
  CmChannel channel;
  LoopListeners listeners{loop};
  Devices devices{loop, channel, listeners};
  DueConnections users;
  TickDispatch wheel{loop};
  PeriodicCleanup cleanup{loop, devices, users, wheel, listeners};
  IterationBudget iteration;
  Preparation preparation{loop, devices, listeners, iteration, cleanup};
  Wishes listener;
  std::shared_ptr<DeviceContext> device;
};

}  // namespace

TEST_CASE("rdma preparation: after a quiet time there are as many as are wished",
          "[simulation][preparation]") {
  Bed bed;
  bed.run_for(1s);
  CHECK(bed.prepared() == 0);  // nobody has said that a listener came
  bed.preparation.soon();
  bed.run_for(9ms);
  CHECK(bed.prepared() == 0);
  CHECK(bed.cleanup.due() == ae::TimePoint::max());
  bed.run_for(20ms);
  CHECK(bed.prepared() == 5);
  CHECK(bed.cleanup.due() != ae::TimePoint::max());
  CHECK(bed.preparation.used() == 0);
}

TEST_CASE("rdma preparation: connections that come put it off, for a second at most",
          "[simulation][preparation]") {
  Bed bed;
  for (int i = 0; i < 190; ++i) {
    bed.preparation.soon();
    bed.run_for(5ms);
  }
  CHECK(bed.prepared() == 0);
  for (int i = 0; i < 20; ++i) {
    bed.preparation.soon();
    bed.run_for(5ms);
  }
  CHECK(bed.prepared() == 5);
}

TEST_CASE("rdma preparation: each iteration makes some, and the loop goes on in between",
          "[simulation][preparation]") {
  Bed bed("prepared=40", {.system_call = 200us});
  bed.preparation.soon();
  std::size_t most = 0, iterations = 0;
  for (std::size_t before = 0; bed.prepared() < 40;) {
    (void)bed.loop.process_events(ae::kFullIteration);
    if (bed.prepared() == before) continue;
    most = std::max(most, bed.prepared() - before);
    before = bed.prepared();
    REQUIRE(++iterations <= 40);
  }
  CHECK(most >= 1);
  CHECK(most <= 6);  // a step takes some calls, and the share is a millisecond
  CHECK(iterations >= 7);
}

TEST_CASE("rdma preparation: one that is taken is replaced, and counted",
          "[simulation][preparation]") {
  Bed bed;
  bed.preparation.soon();
  bed.run_for(50ms);
  REQUIRE(bed.device->drop_one_prepared());
  bed.run_for(1s);
  CHECK(bed.prepared() == 4);
  bed.preparation.on_taken();
  CHECK(bed.preparation.used() == 1);
  bed.run_for(50ms);
  CHECK(bed.prepared() == 5);
  bed.preparation.on_taken();
  CHECK(bed.preparation.used() == 2);
}

TEST_CASE("rdma preparation: they are destroyed once nobody wishes any",
          "[simulation][preparation]") {
  Bed bed;
  bed.preparation.soon();
  bed.run_for(50ms);
  REQUIRE(bed.prepared() == 5);
  Wishes other("prepared=2");
  SECTION("the listener has gone") { bed.listeners.remove(bed.listener); }
  SECTION("its connections are set up on another loop now") { bed.listener.wishes = false; }
  bed.preparation.soon();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 0);
  bed.listeners.remove(bed.listener);
  bed.listeners.add(other);
  bed.preparation.soon();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 2);
  bed.listeners.remove(other);
}

TEST_CASE("rdma preparation: a listener on another device makes none here, and destroys none",
          "[simulation][preparation]") {
  Bed bed;
  bed.listener.device = "sim1";
  bed.preparation.soon();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 0);
  bed.listener.device = "sim0";
  bed.preparation.soon();
  bed.run_for(50ms);
  REQUIRE(bed.prepared() == 5);
  bed.listener.device = "sim1";
  bed.preparation.soon();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 5);
}

TEST_CASE("rdma preparation: after stop() nothing happens", "[simulation][preparation]") {
  Bed bed;
  bed.preparation.soon();
  bed.preparation.stop();
  bed.preparation.stop();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 0);
  bed.preparation.soon();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 5);
}

TEST_CASE("rdma preparation: without memory for its timer it begins when there is some",
          "[simulation][preparation][memory]") {
  Bed bed;
  bed.preparation.retry();  // nothing was late
  bed.run_for(50ms);
  CHECK(bed.prepared() == 0);
  REQUIRE_FALSE(bed.listeners.retry_if_asked());
  refuse_timers(bed.loop);
  bed.preparation.soon();
  const bool failed = allocation_failed();
  fail_allocation(Allocator::kNew, 0);
  CHECK(failed);
  CHECK(bed.listeners.retry_if_asked());  // asks for the next iteration
  bed.run_for(50ms);
  CHECK(bed.prepared() == 0);
  bed.preparation.retry();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 5);
}

TEST_CASE("rdma preparation: without memory for the cleanup it tries again",
          "[simulation][preparation][memory]") {
  Bed bed;
  bed.preparation.soon();
  bool over = false;
  bed.loop.add_time_event(25ms, [&] {
    over = true;
    return ae::kNoMore;
  });
  refuse_timers(bed.loop);
  while (!over) (void)bed.loop.process_events(ae::kFullIteration);
  const bool failed = allocation_failed();
  fail_allocation(Allocator::kNew, 0);
  CHECK(failed);
  CHECK(bed.cleanup.due() == ae::TimePoint::max());
  bed.run_for(15ms);
  CHECK(bed.cleanup.due() != ae::TimePoint::max());
  CHECK(bed.prepared() == 5);
}

TEST_CASE("rdma preparation: a device that refuses is not asked again until the next change",
          "[simulation][preparation]") {
  Bed bed;
  bed.preparation.soon();
  bed.run_for(9ms);
  bed.world.fail_call(1, 1'000'000);
  bed.run_for(50ms);
  const std::uint64_t refused = bed.world.failed_calls();
  CHECK(refused >= 1);
  bed.run_for(500ms);
  CHECK(bed.world.failed_calls() == refused);
  bed.world.fail_call(0);
  bed.run_for(500ms);
  CHECK(bed.prepared() == 0);
  bed.preparation.soon();
  bed.run_for(50ms);
  CHECK(bed.prepared() == 5);
}
