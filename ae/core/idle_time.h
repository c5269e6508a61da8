// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: measures the idle periods of one loop. An idle period lasts from the moment the
// loop has no more work until new work arrives. During it the loop spins, sleeps, or spins and then
// sleeps. SpinGovernor decides how long it spins; this class measures the times, the CPU cost of a
// sleep, and whether the system leaves enough CPU to spin.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ae/abi.h"
#include "ae/spin.h"
#include "ae/spin/spin_environment.h"
#include "ae/spin/spin_governor.h"

namespace ae { inline namespace AECONN_ABI {

/// Tells the processor that this thread is busy-waiting. Executed between two polls of a spinning
/// loop.
inline void relax_processor() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class IdleTime {
 public:
  using Duration = std::chrono::nanoseconds;
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Sets how the loop waits for work from now on. With Spin::Mode::kNo it does not spin, and its
  /// waiting is not measured.
  void ask(const Spin& spin, TimePoint now) noexcept;
  const Spin& asked() const noexcept { return asked_; }
  bool on() const noexcept { return asked_.mode != Spin::Mode::kNo; }

  /// Whether the loop is spinning now: it is in an idle period and has not gone to sleep yet.
  bool spinning() const noexcept { return phase_ == Phase::kSpinning; }
  bool waits() const noexcept { return phase_ != Phase::kBusy; }
  /// Begins an idle period, in which the loop waits for work. If the loop has only been woken
  /// without work, continues the current idle period.
  void begin(TimePoint now) noexcept;
  /// Records that the spinning loop polls for work at `now`. No handler has run since the previous
  /// poll; if that was at least `long_time` ago, another thread had the processor, and the time in
  /// between is counted as lost. Returns whether it was counted as lost.
  bool looks(TimePoint now, Duration long_time = SpinRoom::kTaken) noexcept {
    const TimePoint before = std::exchange(last_look_, now);
    if (now - before < long_time) return false;
    lost_ += now - before;
    lost_after_ += now - std::min(now, until_);
    return true;
  }
  /// The time at which the current spin must end; TimePoint::max(): the loop spins without limit.
  TimePoint spins_until() const noexcept { return until_; }
  /// Records that no work has arrived up to `now`: the loop is about to prepare its sources for the
  /// sleep and to sleep, or was woken without work and is about to sleep again.
  void end_spin(TimePoint now) noexcept;
  /// Records that the loop does not sleep after all, because new work arrived while the loop called
  /// the sources' arm().
  void vetoed() noexcept;
  /// Records that at time `now` the loop polled its descriptors or woke up.
  void looked(TimePoint now) noexcept;
  /// Records that work was found, and ends the idle period at the time of the last looked() call.
  /// The overload with `now` ends it at that time.
  void work_came() noexcept {
    if (waits()) found();
  }
  void work_came(TimePoint now) noexcept {
    looked_ = now;
    work_came();
  }
  /// Ends the idle period without recording whether work arrived. For an idle period whose end was
  /// not observed.
  void drop() noexcept;
  void drop_spin() noexcept {
    if (spinning()) drop();
  }

  LoopTimes times() const noexcept;

 private:
  enum class Phase : std::uint8_t { kBusy, kSpinning, kSleeping };
  // The CPU time of a sleep is the median of this many measurements.
  static constexpr std::size_t kSamples = 16;

  bool governed() const noexcept {
    return asked_.mode == Spin::Mode::kAuto || asked_.mode == Spin::Mode::kFast;
  }
  void found() noexcept;
  void set_prices() noexcept;
  void take_sample(std::int64_t cost) noexcept;

  Spin asked_;
  SpinGovernor governor_;
  SpinRoom room_;
  SpinEnvironment environment_;
  Phase phase_ = Phase::kBusy;
  bool slept_ = false;  // true if the loop has slept since phase_ became Phase::kSleeping
  TimePoint busy_since_{}, began_{}, until_{}, looked_{}, slept_since_{}, last_look_{};
  LoopTimes times_;
  // Time of spins in which another thread had the CPU. lost_after_ is the part of it that lies
  // after the time at which the spin should have ended.
  Duration lost_{}, lost_after_{};
  std::array<std::int64_t, kSamples> samples_{};
  std::size_t sampled_ = 0;
  unsigned sleeps_ = 0;
  // CPU time of the thread before the current sleep, in ns; -1: this sleep is not measured.
  std::int64_t cpu_before_ = -1;
};

}}  // namespace ae
