// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Settings and statistics for how an idle loop waits: whether it spins (polls repeatedly) before it
// sleeps, and how it has spent its time. docs/spin.md describes the rule and when spinning pays.

#include <chrono>
#include <cstdint>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

/// How a loop should wait. Requested by the loop's owner (EventLoop::set_spin) or by a source.
struct Spin {
  using Duration = std::chrono::nanoseconds;  ///< unit of all times in this struct
  /// The rule for how long the loop spins. If there are several requests, the one that is listed
  /// last applies.
  enum class Mode : std::uint8_t {
    kNo,      ///< sleep at once
    kAuto,    ///< spin if that takes no more CPU time than sleeping
    kFast,    ///< like kAuto, but also if saving 1 us of latency costs at most 3 us of CPU time
    kFixed,   ///< spin for `time` before each sleep, whatever it costs
    kAlways,  ///< never sleep
  };
  Mode mode = Mode::kNo;                           ///< how the loop waits
  Duration time{};                                 ///< for kFixed: length of each spin
  Duration most = std::chrono::microseconds(100);  ///< for kAuto and kFast: longest spin
  Duration sleep_cost{};     ///< CPU time of one sleep and wake-up; 0: the loop measures it
  Duration sleep_latency{};  ///< delay of a wake-up; 0: twice the sleep cost

  friend bool operator==(const Spin&, const Spin&) = default;  ///< whether all members are equal
  /// Combines two requests: the mode that is listed later, and the longer of each time. If one of
  /// them has mode kNo, returns the other one.
  static Spin both(const Spin& one, const Spin& other) noexcept {
    const auto longest = [](Duration a, Duration b) { return a < b ? b : a; };
    if (one.mode == Mode::kNo) return other;
    if (other.mode == Mode::kNo) return one;
    return {one.mode < other.mode ? other.mode : one.mode, longest(one.time, other.time),
            longest(one.most, other.most), longest(one.sleep_cost, other.sleep_cost),
            longest(one.sleep_latency, other.sleep_latency)};
  }
};

/// How a loop has spent its time since it was first asked to spin; all 0 before. The CPU usage of a
/// loop that spins does not show its load; busy / (busy + spun + slept) does.
struct LoopTimes {
  using Duration = std::chrono::nanoseconds;  ///< unit of all times in this struct
  Duration busy{};                            ///< running handlers, and the overhead of the loop
  Duration spun{};                            ///< spinning
  Duration slept{};                           ///< blocked in the kernel
  std::uint64_t spin_hits = 0;                ///< spins that found work
  std::uint64_t spin_misses = 0;              ///< spins after which the loop slept
  std::uint64_t spin_probes = 0;              ///< number of series of trial spins
  Duration spin_budget{};                     ///< length of the next spin; 0: sleep at once
  Duration sleep_cost{};  ///< CPU time of one sleep and wake-up, as requested or measured
};

}}  // namespace ae
