// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/wall_clock.h"

#include <dlfcn.h>
#include <sys/time.h>

#include <atomic>
#include <ctime>

namespace {

std::atomic<long> wall_shift{0};  // seconds

}  // namespace

/// Replaces clock_gettime() for libev and libstdc++; only the wall clock is shifted. Weak: another
/// file of the tests may define it, too.
extern "C" __attribute__((weak)) int clock_gettime(clockid_t clock, timespec* now) noexcept {
  using Function = int (*)(clockid_t, timespec*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += wall_shift;
  return result;
}

extern "C" __attribute__((weak)) int gettimeofday(timeval* now, void* zone) noexcept {
  using Function = int (*)(timeval*, void*);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = real(now, zone);
  if (result == 0) now->tv_sec += wall_shift;
  return result;
}

namespace testing {

WallClock::~WallClock() { wall_shift = 0; }
void WallClock::jump(std::chrono::seconds by) { wall_shift += by.count(); }

}  // namespace testing
