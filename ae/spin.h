// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How a loop that has nothing to do waits: whether it spins, that is looks again and again, before
// it sleeps. And what that came to. docs/spin.md has the rule and when it pays.

#include <chrono>
#include <cstdint>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

/// What a loop is asked for, by its owner (EventLoop::set_spin) or by a source.
struct Spin {
  using Duration = std::chrono::nanoseconds;  ///< of all times here
  /// Where several ask, the last one in this order counts.
  enum class Mode : std::uint8_t {
    kNo,      ///< sleep at once
    kAuto,    ///< spin where that takes no more CPU than to sleep
    kFast,    ///< and where a microsecond of latency is saved for three of CPU
    kFixed,   ///< spin for `time` before each sleep, whatever it costs
    kAlways,  ///< never sleep
  };
  Mode mode = Mode::kNo;                           ///< how it waits
  Duration time{};                                 ///< kFixed
  Duration most = std::chrono::microseconds(100);  ///< kAuto, kFast: no spin is longer
  Duration sleep_cost{};     ///< CPU of one sleep and its wake-up; 0: measured
  Duration sleep_latency{};  ///< how late a sleeping loop hears of work; 0: twice the cost

  friend bool operator==(const Spin&, const Spin&) = default;  ///< whether all is alike
  /// What both asked for: the last mode, the longest times.
  static Spin both(const Spin& one, const Spin& other) noexcept {
    const auto longest = [](Duration a, Duration b) { return a < b ? b : a; };
    if (one.mode == Mode::kNo) return other;
    if (other.mode == Mode::kNo) return one;
    return {one.mode < other.mode ? other.mode : one.mode, longest(one.time, other.time),
            longest(one.most, other.most), longest(one.sleep_cost, other.sleep_cost),
            longest(one.sleep_latency, other.sleep_latency)};
  }
};

/// What a loop did with its time since it was first asked to spin; all 0 before. CPU says nothing
/// of the load of a loop that spins: busy / (busy + spun + slept) does.
struct LoopTimes {
  using Duration = std::chrono::nanoseconds;  ///< of all times here
  Duration busy{};                            ///< in handlers, and on the way to them
  Duration spun{};                            ///< looking for work
  Duration slept{};                           ///< in the kernel
  std::uint64_t spin_hits = 0;                ///< spins that found work
  std::uint64_t spin_misses = 0;              ///< spins after which the loop slept
  std::uint64_t spin_probes = 0;              ///< runs of spins that tried whether it pays
  Duration spin_budget{};                     ///< of the next spin; 0: it sleeps at once
  Duration sleep_cost{};                      ///< CPU of one sleep, as asked for or measured
};

}}  // namespace ae
