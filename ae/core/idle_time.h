// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: the idle periods of one loop, each from the moment the loop runs out of work
// until new work arrives. In each period the loop spins, sleeps, or spins and then sleeps.
// SpinGovernor decides for how long; this class measures the times, the CPU cost of a sleep, and
// whether the system leaves enough CPU to spin.

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

/// Executed between two polls of a spinning loop.
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

  /// Applies `spin` from now on; with kNo, measuring ends.
  void ask(const Spin& spin, TimePoint now) noexcept;
  const Spin& asked() const noexcept { return asked_; }
  bool on() const noexcept { return asked_.mode != Spin::Mode::kNo; }

  /// Whether the loop spins in an idle period: no work has arrived yet and it has not gone to
  /// sleep.
  bool spinning() const noexcept { return phase_ == Phase::kSpinning; }
  bool waits() const noexcept { return phase_ != Phase::kBusy; }
  /// Begins an idle period. Continues the present one if the loop was woken without work.
  void begin(TimePoint now) noexcept;
  /// Records that the spinning loop polls for work at `now`. No handler ran since its last poll, so
  /// if that is `long_time` or more ago, another thread had the processor meanwhile: the time is
  /// counted as lost. Returns whether it is.
  bool looks(TimePoint now, Duration long_time = SpinRoom::kTaken) noexcept {
    const TimePoint before = std::exchange(last_look_, now);
    if (now - before < long_time) return false;
    lost_ += now - before;
    lost_after_ += now - std::min(now, until_);
    return true;
  }
  /// The end of this spin. TimePoint::max(): never.
  TimePoint spins_until() const noexcept { return until_; }
  /// No work has arrived up to `now`: the loop is about to arm and sleep, or to go on sleeping.
  void end_spin(TimePoint now) noexcept;
  /// The loop does not sleep after all, because work arrived while it armed.
  void vetoed() noexcept;
  /// The loop polled its descriptors, or has woken up.
  void looked(TimePoint now) noexcept;
  /// Work was found: by the last looked(), or at `now`.
  void work_came() noexcept {
    if (waits()) found();
  }
  void work_came(TimePoint now) noexcept {
    looked_ = now;
    work_came();
  }
  /// Ends the idle period without recording whether work arrived, because that is unknown.
  void drop() noexcept;
  void drop_spin() noexcept {
    if (spinning()) drop();
  }

  LoopTimes times() const noexcept;

 private:
  enum class Phase : std::uint8_t { kBusy, kSpinning, kSleeping };
  static constexpr std::size_t kSamples = 16;  // a sleep's cost is their median

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
  bool slept_ = false;  // in kSleeping: the sleep has taken place
  TimePoint busy_since_{}, began_{}, until_{}, looked_{}, slept_since_{}, last_look_{};
  LoopTimes times_;
  Duration lost_{}, lost_after_{};  // CPU lost while spinning; the part after until_
  std::array<std::int64_t, kSamples> samples_{};
  std::size_t sampled_ = 0;
  unsigned sleeps_ = 0;
  std::int64_t cpu_before_ = -1;  // thread CPU time in ns before the sleep; -1: not sampled
};

}}  // namespace ae
