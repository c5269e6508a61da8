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
  using Duration = std::chrono::nanoseconds;  ///< the unit of all durations in struct Spin
  /// The rule for how long the loop spins. If several are requested, the one that comes later in
  /// this enumeration applies.
  enum class Mode : std::uint8_t {
    kNo,     ///< never spin: sleep as soon as there is no work
    kAuto,   ///< spin before a sleep if that takes no more CPU time than sleeping
    kFast,   ///< like kAuto, but also spin if saving 1 us of latency costs at most 3 us of CPU time
    kFixed,  ///< spin for the time `time` before each sleep, whatever it costs
    kAlways,  ///< spin until there is work; never sleep
  };
  Mode mode = Mode::kNo;  ///< how the loop waits for work
  Duration time{};        ///< length of each spin with mode kFixed
  /// Length of the longest spin with modes kAuto and kFast.
  Duration most = std::chrono::microseconds(100);
  Duration sleep_cost{};  ///< CPU time that one sleep and its wake-up cost; 0: the loop measures it
  Duration sleep_latency{};  ///< latency that a sleep adds; 0: twice `sleep_cost`

  /// Whether all members of both objects are equal.
  friend bool operator==(const Spin&, const Spin&) = default;
  /// Combines two requests: the mode that comes later in Mode, and the longer of each time. If one
  /// request has mode kNo, returns the other one.
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
  using Duration = std::chrono::nanoseconds;  ///< the unit of all durations in LoopTimes
  Duration busy{};                            ///< time spent in handlers, and in the loop itself
  Duration spun{};                            ///< time spent spinning, while waiting for work
  Duration slept{};                           ///< time spent asleep in the kernel
  std::uint64_t spin_hits = 0;                ///< number of spins that ended because work was found
  /// Number of spins that found no work, so that the loop went to sleep.
  std::uint64_t spin_misses = 0;
  /// Number of probes: series of spins that test whether spinning pays.
  std::uint64_t spin_probes = 0;
  Duration spin_budget{};  ///< allowed length of the next spin; 0: the loop sleeps at once
  Duration sleep_cost{};   ///< CPU time of one sleep and its wake-up, as requested or measured
};

}}  // namespace ae
