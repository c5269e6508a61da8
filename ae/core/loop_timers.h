// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: the time events of one loop, and whether some are due. They run at the end of
// an iteration, a bounded number of them, after the file events: any number of timers due at once
// delays nobody's I/O for long. How the loop is woken for the next of them is its own business.

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

  // As in EventLoop; `When` is a Duration or a TimePoint.
  template <class When>
  TimerId add(When when, TimeHandler& handler) {
    changed_ = true;
    return queue_.add(when, handler);
  }
  template <class When>
  bool again(TimerId id, When when) noexcept {
    changed_ = true;
    return queue_.again(id, when);
  }
  bool remove(TimerId id) {
    changed_ = true;
    return queue_.remove(id);
  }

  bool has_due() const noexcept { return expired_ || queue_.has_ready(); }
  /// Runs at most `limit` of the timers that are due. Passes on what a handler throws; that timer
  /// is then gone.
  void run_due(std::size_t limit);
  void clear() {
    queue_.clear();
    changed_ = true;
  }

 protected:
  LoopCore& core_;
  TimerQueue queue_;
  bool changed_ = false;  // since the loop last looked when the next one is due
  bool expired_ = false;  // something that waited may be due
};

}}  // namespace ae
