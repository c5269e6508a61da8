// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: the time events of one loop, and whether any of them are due. At the end of
// each iteration, after the file events, a bounded number of them runs, so that many timers due at
// once do not delay I/O for long. Each implementation of a loop decides how it wakes up for its
// next timer.

#include <cstddef>

#include "ae/abi.h"
#include "ae/core/loop_core.h"
#include "ae/core/timer_queue.h"

namespace ae { inline namespace AECONN_ABI {

class LoopTimers {
 public:
  explicit LoopTimers(LoopCore& core) : core_(core) {}
  LoopTimers(const LoopTimers&) = delete;
  LoopTimers& operator=(const LoopTimers&) = delete;

  // Adds a timer like EventLoop::add_time_event(). `When` is a Duration or a TimePoint, as in
  // again().
  template <class When>
  TimerId add(When when, TimeHandler& handler) {
    change();
    return queue_.add(when, handler);
  }
  template <class When>
  bool again(TimerId id, When when) noexcept {
    change();
    return queue_.again(id, when);
  }
  bool remove(TimerId id) {
    change();
    return queue_.remove(id);
  }

  bool has_due() const noexcept { return expired_ || queue_.has_ready(); }
  /// Runs the handlers of at most `limit` expired timers. Propagates an exception that a handler
  /// throws; the handler's timer is then removed.
  void run_due(std::size_t limit);
  void clear() {
    queue_.clear();
    change();
  }

 protected:
  void change() noexcept {
    changed_ = true;
    core_.stir();
  }
  /// Records that a timer in the queue's heap may have expired.
  void expire() noexcept {
    expired_ = true;
    core_.stir();
  }

  LoopCore& core_;
  TimerQueue queue_;
  // True if timers were added, moved or removed since the loop last asked when the next timer
  // expires.
  bool changed_ = false;
  bool expired_ = false;  // true if a timer in the queue's heap may have expired
};

}}  // namespace ae
