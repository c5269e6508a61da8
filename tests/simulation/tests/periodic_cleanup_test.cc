// SPDX-License-Identifier: BSD-3-Clause
// The work that a loop does about once a second (conn/rdma/loop/periodic_cleanup.h), on the loop of
// simulated machines. The objects here are the test's own, beside those of the loop.

#include "conn/rdma/loop/periodic_cleanup.h"
#include "conn/rdma/loop/loop_state.h"
#include "tests/simulation/refuse_timers.h"
#include "tests/simulation/room.h"

using namespace simulation;
using namespace conn::rdma;

namespace {

/// A connection that waits for memory, and counts how often it is asked to try again.
struct Waiting final : LoopConnection {
  void post_due() noexcept override {}
  void on_tick(ae::TimePoint /*now*/, ae::Duration /*late*/) noexcept override {}
  ae::TimePoint next_tick() const noexcept override { return ae::TimePoint::max(); }
  void on_memory() noexcept override { ++woken; }
  void reap() override {}
  std::optional<ae::TimePoint> pace_at() const noexcept override { return {}; }
  int woken = 0;
};

struct Cleaned {
  explicit Cleaned(Room& room) : loop(room.loop), listeners(loop) {}
  ~Cleaned() {
    cleanup.stop();
    devices.leave_loop();
  }
  ae::EventLoop& loop;
  CmChannel channel;
  LoopListeners listeners;
  Devices devices{loop, channel, listeners};
  DueConnections users;
  TickDispatch wheel{loop};
  PeriodicCleanup cleanup{loop, devices, users, wheel, listeners};
};

ae::TimePoint now() { return std::chrono::steady_clock::now(); }

}  // namespace

TEST_CASE("rdma cleanup: its timer runs once a second while a connection holds resources",
          "[simulation][rdma]") {
  Room room;
  Cleaned cleaned(room);
  Waiting user;
  cleaned.users.make_room(1);
  CHECK(cleaned.cleanup.due() == ae::TimePoint::max());

  // Nothing is left to clean up: the timer runs once.
  cleaned.cleanup.start();
  CHECK(cleaned.cleanup.due() - now() <= 1s);
  room.run_for(1500ms);
  CHECK(cleaned.cleanup.due() == ae::TimePoint::max());

  cleaned.users.attach(user);
  cleaned.cleanup.start();
  const ae::TimePoint due = cleaned.cleanup.due();
  cleaned.cleanup.start();  // it runs already
  CHECK(cleaned.cleanup.due() == due);
  for (int i = 0; i < 5; ++i) {
    room.run_for(1s);
    CHECK(cleaned.cleanup.due() - now() > 0s);
    CHECK(cleaned.cleanup.due() - now() <= 1s);
  }
  cleaned.users.forget(user);
  room.run_for(1500ms);
  CHECK(cleaned.cleanup.due() == ae::TimePoint::max());

  cleaned.cleanup.start();
  cleaned.cleanup.stop();
  CHECK(cleaned.cleanup.due() == ae::TimePoint::max());
}

TEST_CASE("rdma cleanup: connections that wait for memory try again each time",
          "[simulation][rdma]") {
  Room room;
  Cleaned cleaned(room);
  Waiting user;
  cleaned.users.make_room(1);
  cleaned.users.attach(user);
  cleaned.users.wait_for_memory(user);
  cleaned.cleanup.start();
  CHECK_FALSE(cleaned.users.has_to_wake());
  SECTION("by the timer") { room.run_for(1500ms); }
  SECTION("where the timers do not run") {
    const ae::TimePoint due = cleaned.cleanup.due();
    cleaned.cleanup.run_if_due(due - 1ms);
    CHECK_FALSE(cleaned.users.has_to_wake());
    cleaned.cleanup.run_if_due(due);
    CHECK(cleaned.cleanup.due() != due);
  }
  CHECK(cleaned.users.has_to_wake());
  cleaned.users.wake_some();
  CHECK(user.woken == 1);
  cleaned.users.forget(user);
}

TEST_CASE("rdma cleanup: a device that nothing uses is closed, one with a listener is not",
          "[simulation][rdma]") {
  const bool ids_wait = GENERATE(false, true);
  CAPTURE(ids_wait);
  Room room;
  LoopState& state = LoopState::of(room.loop, room.type);
  conn::ConnectionPtr client = room.connected();
  const std::size_t open = state.devices().contexts().size();
  REQUIRE(open != 0);
  client.reset();
  room.run_for(30s);
  CHECK(state.devices().contexts().size() == open);  // the listener is there
  room.log.clients.clear();
  // Some of rdma_cm's ids cannot be destroyed before the kernel's time-outs are over.
  if (!ids_wait) room.run_for(200s);
  room.listener.reset();
  testing::run_until(
      room.loop, [&] { return state.devices().contexts().empty(); }, "the device to be closed",
      1000s);
}

TEST_CASE("rdma cleanup: a connection without a path delays the end of an idle device",
          "[simulation][rdma]") {
  Room room;
  LoopState& state = LoopState::of(room.loop, room.type);
  conn::ConnectionPtr client = room.connected();
  client.reset();
  room.log.clients.clear();
  room.run_for(200s);
  REQUIRE_FALSE(state.devices().contexts().empty());
  // Like a connection that came here from another loop and has no path: it holds nothing of a
  // device, but its checks are scheduled.
  Waiting lost;
  state.look_at(lost, now() + 20s);
  room.listener.reset();
  room.run_for(10s);
  CHECK_FALSE(state.devices().contexts().empty());
  testing::run_until(
      room.loop, [&] { return state.devices().contexts().empty(); }, "the device to be closed",
      100s);
}

TEST_CASE("rdma cleanup: it begins when memory is back, without another listener or connection",
          "[simulation][rdma]") {
  const bool at_once = GENERATE(true, false);
  CAPTURE(at_once);
  Room room;
  LoopState& state = LoopState::of(room.loop, room.type);
  REQUIRE_FALSE(state.devices().contexts().empty());
  if (at_once) {
    refuse_timers(room.loop);
    room.listener.reset();
  } else {
    room.listener.reset();
    // Without memory for the timer of the cleanup, which another timer starts.
    refuse_timers(room.loop);
  }
  const ae::TimePoint until = now() + 100ms;
  do (void)room.loop.process_events(ae::kFullIteration);
  while (now() < until && (at_once || !allocation_failed()));
  const bool failed = allocation_failed();
  fail_allocation(Allocator::kNew, 0);
  CHECK(failed);
  testing::run_until(
      room.loop, [&] { return state.devices().contexts().empty(); }, "the device to be closed",
      1000s);
}
