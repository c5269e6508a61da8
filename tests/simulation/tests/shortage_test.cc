// SPDX-License-Identifier: BSD-3-Clause
// A device that goes while memory runs out: whichever allocation fails then, its connections end,
// the loop goes on, and when the device is back its listener serves again.

#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"

using namespace simulation;

TEST_CASE("simulation: a device that goes while memory runs out is found again",
          "[simulation][torture]") {
  std::uint64_t number = 1;
  for (bool failed = true; failed; ++number) {
    CAPTURE(number);
    REQUIRE(number < 500);
    Room room;
    const auto client = room.connected();
    const auto other = room.connected();
    for (const conn::ConnectionPtr& each : room.log.clients) each->set_read_handler(nullptr);
    bool over = false;
    room.loop.add_time_event(1s, [&] {
      over = true;
      return ae::kNoMore;
    });
    fail_allocation(Allocator::kNew, number);
    {
      const Below below;
      room.world.remove_device(*room.near);
    }
    while (!over) (void)room.loop.process_events(ae::kFullIteration);
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    CHECK(room.log.clients.front()->state() != conn::State::kConnected);
    room.log.clients.clear();
    room.near = &room.world.add_device("sim0", "10.77.0.1");
    room.run_for(1500ms);
    (void)room.connected();
  }
  WARN(number - 2 << " allocations failed in turn while a device went");
  CHECK(number > 3);
}
