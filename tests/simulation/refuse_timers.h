// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A loop that can make no timer, for lack of memory.

#include <chrono>
#include <new>

#include "ae/event_loop.h"
#include "tests/simulation/memory.h"

namespace simulation {

/// From now on there is no memory, and the loop has no room for another timer.
inline void refuse_timers(ae::EventLoop& loop) {
  const auto nothing = [] { return ae::kNoMore; };
  fail_allocation(Allocator::kNew, 1, 1'000'000'000);
  for (;;) {
    try {
      loop.add_time_event(std::chrono::hours(24), nothing);
    } catch (const std::bad_alloc&) {
      break;
    }
  }
  fail_allocation(Allocator::kNew, 1, 1'000'000'000);
}

}  // namespace simulation
