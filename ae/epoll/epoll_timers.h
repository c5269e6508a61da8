// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The timers of an EpollLoop, and when a timerfd tells of the next one: below a host always, in a
// run() of its own once a timer has outlasted so many sleeps that a time-out for each costs more.

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

/// The loop's timers, and what the timerfd was told of them.
class EpollTimers : public LoopTimers {
 public:
  using LoopTimers::LoopTimers;

  /// Looks whether the next is due.
  void look() {
    if (!queue_.has_waiting()) {
      expired_ = false;
    } else if (!expired_) {
      looked_ = std::chrono::steady_clock::now();
      next_ = queue_.next();
      expired_ = next_ <= looked_;
    }
  }
  /// As look(), but without one at the clock where the timerfd tells of the next in time.
  void look_before_sleep() {
    alarm_tells_ =
        set_for_ != kNever && (!changed_ || !queue_.has_waiting() || queue_.next() >= set_for_);
    if (alarm_tells_) {
      changed_ = false;
    } else {
      look();
    }
  }
  /// After look_before_sleep(), with none due: how long a sleep may be.
  Duration left() const noexcept {
    return queue_.has_waiting() && !alarm_tells_ ? next_ - looked_ : Duration::max();
  }
  /// A sleep of left() begins: whether the next timer has outlasted so many that leave_to() pays.
  bool outlasts_sleeps() noexcept {
    if (next_ != outlasting_) {
      outlasting_ = next_;
      sleeps_ = 0;
    }
    return ++sleeps_ > kSleepsOutlasted;
  }
  /// The timerfd tells of the next one, and no sleep has to.
  void leave_to(int alarm) noexcept {
    set_alarm(alarm);
    alarm_tells_ = set_for_ == next_;
    if (alarm_tells_) changed_ = false;
    sleeps_ = 0;
  }
  /// Sets the timerfd for the next one. It stays as it is where that is later than it was set for:
  /// to be woken once for nothing is cheaper than a system call for each message.
  void set(int alarm) {
    if (!std::exchange(changed_, false) && set_for_ != kNever) return;
    look();
    if (expired_ || !queue_.has_waiting() || next_ >= set_for_) return;
    set_alarm(alarm);
    if (set_for_ != next_) expired_ = true;  // to look again and again is better than never
  }
  /// Whether set() would have the timerfd expire earlier than it was set for.
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
  static constexpr unsigned kSleepsOutlasted = 16;  // then the timerfd is worth its system call

  void set_alarm(int alarm) noexcept {
    itimerspec time{};
    time.it_value = to_timespec(next_.time_since_epoch());
    if (::timerfd_settime(alarm, TFD_TIMER_ABSTIME, &time, nullptr) == 0) set_for_ = next_;
  }

  TimePoint looked_{}, next_{};
  TimePoint set_for_ = kNever;     // the timerfd; kNever: it is not set, or was heard
  TimePoint outlasting_ = kNever;  // the timer that the last sleeps could have ended with
  unsigned sleeps_ = 0;            // of those
  bool alarm_tells_ = false;       // the timerfd comes no later than the next timer
};

}}  // namespace ae
