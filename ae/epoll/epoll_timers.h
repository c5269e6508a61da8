// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The timers of an EpollLoop, and the timerfd that signals the next one. Below a host the timerfd
// is always used; in the loop's own run(), once a timer has outlasted so many sleeps that a
// time-out for each sleep costs more.

#include <sys/timerfd.h>

#include <chrono>
#include <ctime>
#include <utility>

#include "ae/abi.h"
#include "ae/core/loop_timers.h"

namespace ae { inline namespace AECONN_ABI {

inline timespec to_timespec(Duration duration) noexcept {
  const auto whole = std::chrono::floor<std::chrono::seconds>(duration);
  timespec result{};
  result.tv_sec = static_cast<time_t>(whole.count());
  result.tv_nsec = static_cast<long>((duration - whole).count());
  return result;
}

/// The loop's timers, and the time the timerfd is set for.
class EpollTimers : public LoopTimers {
 public:
  using LoopTimers::LoopTimers;

  /// Checks whether the next timer is due.
  void look() {
    if (!queue_.has_waiting()) {
      expired_ = false;
    } else if (!expired_) {
      looked_ = std::chrono::steady_clock::now();
      next_ = queue_.next();
      expired_ = next_ <= looked_;
    }
  }
  /// As look(), but does not read the clock if the timerfd signals the next timer in time.
  void look_before_sleep() {
    alarm_tells_ =
        set_for_ != kNever && (!changed_ || !queue_.has_waiting() || queue_.next() >= set_for_);
    if (alarm_tells_) {
      changed_ = false;
    } else {
      look();
    }
  }
  /// How long a sleep may be. To be called after look_before_sleep(), if no timer is due.
  Duration left() const noexcept {
    return queue_.has_waiting() && !alarm_tells_ ? next_ - looked_ : Duration::max();
  }
  /// Counts a sleep of left() that begins now. Returns whether the next timer has outlasted so many
  /// sleeps that leave_to() pays.
  bool outlasts_sleeps() noexcept {
    if (next_ != outlasting_) {
      outlasting_ = next_;
      sleeps_ = 0;
    }
    return ++sleeps_ > kSleepsOutlasted;
  }
  /// Sets the timerfd for the next timer, so that sleeps need no time-out.
  void leave_to(int alarm) noexcept {
    set_alarm(alarm);
    alarm_tells_ = set_for_ == next_;
    if (alarm_tells_) changed_ = false;
    sleeps_ = 0;
  }
  /// Sets the timerfd for the next timer. It is left unchanged if the timer is later than the time
  /// it is set for: one wake-up without work is cheaper than a system call for each message.
  void set(int alarm) {
    if (!std::exchange(changed_, false) && set_for_ != kNever) return;
    look();
    if (expired_ || !queue_.has_waiting() || next_ >= set_for_) return;
    set_alarm(alarm);
    if (set_for_ != next_) expired_ = true;  // failed: polling is better than missing the timer
  }
  /// Whether a timer is due, or set() would set the timerfd to an earlier time.
  bool sooner() {
    if (!changed_) return false;
    look();
    return has_due() || (queue_.has_waiting() && next_ < set_for_);
  }
  void alarm_came() noexcept {
    set_for_ = kNever;
    alarm_tells_ = false;
    expired_ = queue_.has_waiting();
  }
  void forget_alarm() noexcept {
    set_for_ = kNever;
    alarm_tells_ = false;
    changed_ = true;
  }

 private:
  static constexpr TimePoint kNever = TimePoint::max();
  static constexpr unsigned kSleepsOutlasted = 16;  // beyond these the timerfd pays

  void set_alarm(int alarm) noexcept {
    itimerspec time{};
    time.it_value = to_timespec(next_.time_since_epoch());
    if (::timerfd_settime(alarm, TFD_TIMER_ABSTIME, &time, nullptr) == 0) set_for_ = next_;
  }

  TimePoint looked_{}, next_{};
  TimePoint set_for_ = kNever;     // timerfd expiry; kNever: not set, or its event has arrived
  TimePoint outlasting_ = kNever;  // time of the timer that the last sleeps waited for
  unsigned sleeps_ = 0;            // the number of those sleeps
  bool alarm_tells_ = false;       // the timerfd expires no later than the next timer
};

}}  // namespace ae
