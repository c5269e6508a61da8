// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Race: decides when each of several candidates for one endpoint is tried. They are tried in order,
// each as soon as the candidate before it has failed, or has been tried for the time `delay` (its
// head start). The race ends when one candidate is ready, when all have failed, or when the
// deadline has passed. Pure logic: no clock, no I/O.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI {

class Race {
 public:
  enum class Step : std::uint8_t {
    kWait,   ///< the caller must wait until a candidate is ready or has failed, or until wake()
    kStart,  ///< the caller must start `candidate`, then call next() again
    kWon,    ///< `candidate` has won the race; later calls return the same
    kLost,   ///< every candidate has failed, or the deadline has passed
  };
  struct Move {
    Step step;
    std::size_t candidate = 0;
  };

  /// Begins a race of `count` candidates, at least one. Each candidate is tried for the time
  /// `delay` (its head start) before the next one starts as well.
  Race(std::size_t count, ae::Duration delay, ae::TimePoint deadline)
      : failed_(count), delay_(delay), deadline_(deadline) {}

  /// Returns what the caller must do now. If that is kStart, the caller must then call next()
  /// again.
  Move next(ae::TimePoint now);
  /// Reports that a started candidate is ready for data (ready()) or has failed (failed()). Calls
  /// after the first ready() have no effect.
  void ready(std::size_t candidate);
  void failed(std::size_t candidate);
  /// Returns when next() must be called if no candidate is reported ready or failed before that;
  /// never later than the deadline.
  ae::TimePoint wake() const;

  bool started(std::size_t candidate) const { return candidate < started_; }
  bool has_failed(std::size_t candidate) const { return failed_[candidate]; }
  ae::TimePoint deadline() const noexcept { return deadline_; }

 private:
  static constexpr std::size_t kNone = SIZE_MAX;
  std::vector<bool> failed_;  // for each candidate, whether it has failed
  ae::Duration delay_;
  ae::TimePoint deadline_;
  // Time at which the head start of the candidate that was started last ends; the next candidate
  // starts then.
  ae::TimePoint head_start_ends_ = ae::TimePoint::min();
  std::size_t started_ = 0;
  std::size_t winner_ = kNone;
};

}}  // namespace conn
