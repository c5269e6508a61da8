// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// OneShotTimer: a timer that keeps working when memory runs out, and after its handler has thrown.

#include <algorithm>
#include <chrono>
#include <functional>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace conn { inline namespace AECONN_ABI {

/// Calls a handler once, at the time given to set(), and can then be set again. set() allocates no
/// memory. An exception that the handler throws leaves the loop, and the timer stays usable.
///
/// A loop removes a time event whose handler has thrown. Therefore this timer adds its next time
/// event before it calls the handler.
class OneShotTimer {
 public:
  /// Makes a timer that is not set. `handler`, which it calls, may set or destroy the timer. The
  /// loop must outlive the timer. Throws std::bad_alloc.
  OneShotTimer(ae::EventLoop& loop, std::function<void()> handler);
  ~OneShotTimer() { loop_.remove_time_event(event_); }
  OneShotTimer(const OneShotTimer&) = delete;
  OneShotTimer& operator=(const OneShotTimer&) = delete;

  /// Makes the handler run `delay` from now, in place of an earlier call of set() that has not
  /// expired yet. A delay above one year counts as one year. If there is no memory for the next
  /// time event when the timer expires, the handler runs later, after kRetry.
  void set(ae::Duration delay) noexcept {
    due_ = Clock::now() + std::min(delay, kLongest);
    (void)loop_.again(event_, due_);
  }
  /// Cancels set(): the handler does not run.
  void clear() noexcept {
    due_ = kNotSet;
    (void)loop_.again(event_, kLongest);
  }
  /// Returns whether the handler is going to run. False while it runs, unless it has set the timer
  /// again.
  bool is_set() const noexcept { return due_ != kNotSet; }
  /// Returns the time until the handler runs; 0 if it is overdue. To be called only if is_set() is
  /// true.
  ae::Duration left() const noexcept { return std::max(due_ - Clock::now(), ae::Duration::zero()); }

  static constexpr ae::Duration kRetry = std::chrono::milliseconds(50);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr ae::Duration kLongest = std::chrono::hours(24 * 365);
  static constexpr ae::TimePoint kNotSet = ae::TimePoint::max();

  ae::TimerId add_event();
  ae::Duration expire();

  ae::EventLoop& loop_;
  const std::function<void()> handler_;
  ae::TimePoint due_ = kNotSet;
  // The loop's time event, which always exists: it expires at the time passed to set(). While the
  // timer is not set, it expires once a year, and does nothing then.
  ae::TimerId event_;
};

}}  // namespace conn
