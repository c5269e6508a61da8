// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: one loop's idle periods, from the moment it has nothing to do until work comes.
// Each is spun, slept, or first the one and then the other; SpinGovernor says how long, this keeps
// the books, and asks the system what sleeping costs and whether there is room to spin.

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

/// Between two looks of a loop that spins.
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

  /// From now on `spin` counts; kNo: nothing is measured any more.
  void ask(const Spin& spin, TimePoint now) noexcept;
  const Spin& asked() const noexcept { return asked_; }
  bool on() const noexcept { return asked_.mode != Spin::Mode::kNo; }

  /// An idle period has begun, and nothing has come yet.
  bool spinning() const noexcept { return phase_ == Phase::kSpinning; }
  bool waits() const noexcept { return phase_ != Phase::kBusy; }
  /// There is nothing to do. No new idle period if the loop was woken and nothing came.
  void begin(TimePoint now) noexcept;
  /// The loop that spins looks for work at `now`. What it missed since its last look is somebody
  /// else's time, if that is `long_time` or more: no handler ran in between. True: it is.
  bool looks(TimePoint now, Duration long_time = SpinRoom::kTaken) noexcept {
    const TimePoint before = std::exchange(last_look_, now);
    if (now - before < long_time) return false;
    lost_ += now - before;
    lost_after_ += now - std::min(now, until_);
    return true;
  }
  /// When this spin is over. TimePoint::max(): never.
  TimePoint spins_until() const noexcept { return until_; }
  /// Nothing has come up to `now`: the loop is about to arm and sleep, or to sleep on.
  void end_spin(TimePoint now) noexcept;
  /// It does not: work came while it armed.
  void vetoed() noexcept;
  /// The loop looked at its descriptors, or wakes.
  void looked(TimePoint now) noexcept;
  /// Work was found, by the last look or at `now`.
  void work_came() noexcept {
    if (waits()) found();
  }
  void work_came(TimePoint now) noexcept {
    looked_ = now;
    work_came();
  }
  /// Whether work came will not be known.
  void drop() noexcept;
  void drop_spin() noexcept {
    if (spinning()) drop();
  }

  LoopTimes times() const noexcept;

 private:
  enum class Phase : std::uint8_t { kBusy, kSpinning, kSleeping };
  static constexpr std::size_t kSamples = 16;  // the cost of a sleep is the median of so many

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
  bool slept_ = false;  // kSleeping: it really did
  TimePoint busy_since_{}, began_{}, until_{}, looked_{}, slept_since_{}, last_look_{};
  LoopTimes times_;
  Duration lost_{}, lost_after_{};  // while it spun; and of that, after the spin's end
  std::array<std::int64_t, kSamples> samples_{};
  std::size_t sampled_ = 0;
  unsigned sleeps_ = 0;
  std::int64_t cpu_before_ = -1;  // of this thread, as it went to sleep; -1: not asked for
};

}}  // namespace ae
