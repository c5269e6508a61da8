// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A wall clock that tests set. In this program clock_gettime() and gettimeofday() return the
// shifted time; monotonic clocks are not shifted.

#include <chrono>

namespace testing {

/// While an instance exists, the wall clock may be set. Its destructor sets it right.
struct WallClock {
  WallClock() = default;
  WallClock(const WallClock&) = delete;
  WallClock& operator=(const WallClock&) = delete;
  ~WallClock();
  /// Sets the clock forward, or back if `by` is negative.
  static void jump(std::chrono::seconds by);
};

}  // namespace testing
