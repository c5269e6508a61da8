// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Schedules the periodic checks of a loop's connections: a timer wheel, and the one timer of the
// loop that drives it. If a check is scheduled, either the timer is set for its time or earlier, or
// must_not_sleep() returns true.

#include <cstddef>
#include <optional>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/loop/loop_connection.h"
#include "conn/rdma/loop/tick_wheel.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class TickDispatch {
 public:
  explicit TickDispatch(ae::EventLoop& loop) noexcept : loop_(loop) {}
  /// Schedules the connection's next periodic check, a call of its on_tick(), at `due` or a little
  /// later (TickWheel::kWidth). Replaces the time scheduled before.
  void look_at(LoopConnection& user, ae::TimePoint due) noexcept;
  void remove(LoopConnection& user) noexcept { wheel_.remove(user); }
  /// Calls on_tick() of the connections whose checks are due, at most 256 in one call. `now`: the
  /// time of this iteration, or a later time.
  void run_due(ae::TimePoint now) {
    if (timer_ == 0 || wheel_.has_due() || wakes_ <= now) run_some(now);
  }
  /// Finds the connections whose periodic checks are due, so that run_due() can call their
  /// on_tick(). For LoopState::pump(), in which the loop's timers do not run.
  void collect(ae::TimePoint now) noexcept;
  /// Returns the time at which the next check may be due; no value if no check is scheduled.
  std::optional<ae::TimePoint> next(ae::TimePoint now) const noexcept { return wheel_.next(now); }
  bool has_due() const noexcept { return wheel_.has_due(); }
  /// Returns true if the loop must not sleep: a check is due, or the timer could not be created for
  /// lack of memory.
  bool must_not_sleep() const noexcept {
    return wheel_.has_due() || (timer_ == 0 && wheel_.scheduled() != 0);
  }
  bool empty() const noexcept { return wheel_.size() == 0; }
  /// Removes the timer of the periodic checks from the loop; call it before the loop is destroyed.
  void stop() noexcept;

 private:
  void run_some(ae::TimePoint now);
  void wake_at(ae::TimePoint when) noexcept;
  ae::Duration on_timer();

  ae::EventLoop& loop_;
  TickWheel wheel_;
  ae::TimerId timer_ = 0;
  ae::TimePoint wakes_{};
};

}}}  // namespace conn::rdma
