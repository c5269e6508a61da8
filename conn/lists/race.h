// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which of several ways to one place is tried when: in order, each as soon as the one before has
// failed or has had its head start, until one is ready or the time is over. Pure: no clock, no I/O.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

class Race {
 public:
  enum class Step : std::uint8_t {
    kWait,   ///< for ready(), failed() or wake()
    kStart,  ///< begin to try `way`, and ask again
    kWon,    ///< `way` is the one; nothing changes any more
    kLost,   ///< every way has failed, or the time is over
  };
  struct Move {
    Step step;
    std::size_t way = 0;
  };

  /// Of `count` ways, at least one; each has a head start of `delay` before the next.
  Race(std::size_t count, ae::Duration delay, ae::TimePoint deadline)
      : ways_(count), delay_(delay), deadline_(deadline) {}

  /// What to do now: call it until it does not say kStart.
  Move next(ae::TimePoint now);
  /// Of a way that was started. What comes after the first ready() changes nothing.
  void ready(std::size_t way);
  void failed(std::size_t way);
  /// When to call next() although nothing was told; the deadline at the latest.
  ae::TimePoint wake() const;

  bool started(std::size_t way) const { return way < started_; }
  bool has_failed(std::size_t way) const { return ways_[way]; }
  ae::TimePoint deadline() const noexcept { return deadline_; }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  std::vector<bool> ways_;  // true: failed
  ae::Duration delay_;
  ae::TimePoint deadline_;
  ae::TimePoint head_start_ends_ = ae::TimePoint::min();  // of the last that was started
  std::size_t started_ = 0;
  std::size_t winner_ = kNone;
};

}}  // namespace conn
