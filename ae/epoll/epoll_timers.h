// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The timers of an EpollLoop, and the timerfd that signals the next one. Inside a host program's
// loop the timerfd is always used. In EpollLoop::run() each sleep has a time-out instead, until the
// loop has slept so often before one timer expired that setting the timerfd once is cheaper.

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

/// The timers of one loop, and the expiry time of its timerfd.
class EpollTimers : public LoopTimers {
 public:
  using LoopTimers::LoopTimers;

  /// Reads the clock and records whether the next timer has expired.
  void look() {
    if (!queue_.has_waiting()) {
      expired_ = false;
    } else if (!expired_) {
      looked_ = std::chrono::steady_clock::now();
      next_ = queue_.next();
      expired_ = next_ <= looked_;
    }
  }
  /// Like look(), but does not read the clock if the timerfd will expire no later than the next
  /// timer.
  void look_before_sleep() {
    alarm_tells_ =
        set_for_ != kNever && (!changed_ || !queue_.has_waiting() || queue_.next() >= set_for_);
    if (alarm_tells_) {
      changed_ = false;
    } else {
      look();
    }
  }
  /// Whether the next sleep needs a time-out: there is a timer that the timerfd does not signal. To
  /// be called after look_before_sleep(), if no timer is due; left() then returns the time-out.
  bool limits_sleep() const noexcept { return queue_.has_waiting() && !alarm_tells_; }
  /// Whether the timers let the loop be settled (LoopCore::settled()): a settled loop neither
  /// checks timers nor limits its sleeps. So no timer may be due, and if there are timers, the
  /// timerfd must be set for the next one. To be called after look_before_sleep().
  bool quiet() const noexcept { return !has_due() && !limits_sleep(); }
  /// Returns how long the loop may sleep; Duration::max(): without a time-out.
  Duration left() const noexcept { return limits_sleep() ? next_ - looked_ : Duration::max(); }
  /// Counts a sleep with the time-out left(), which is about to begin. Returns whether the loop has
  /// begun so many sleeps before the expiry of the same timer that setting the timerfd is cheaper
  /// than further time-outs.
  bool outlasts_sleeps() noexcept {
    if (next_ != outlasting_) {
      outlasting_ = next_;
      sleeps_ = 0;
      most_sleeps_ = std::exchange(left_, false) ? kSleepsOutlastedAgain : kSleepsOutlasted;
    }
    return ++sleeps_ > most_sleeps_;
  }
  /// Sets the timerfd `alarm` to the next timer's expiry, so that the sleeps until then need no
  /// time-out.
  void leave_to(int alarm) noexcept {
    set_alarm(alarm);
    alarm_tells_ = set_for_ == next_;
    if (alarm_tells_) changed_ = false;
    sleeps_ = 0;
    left_ = alarm_tells_;
  }
  /// Sets the timerfd `alarm` for the next timer. If it already expires earlier, it is left
  /// unchanged: one wake-up without work is cheaper than a system call for each message that moves
  /// the timer.
  void set(int alarm) {
    if (!std::exchange(changed_, false) && set_for_ != kNever) return;
    look();
    if (expired_ || !queue_.has_waiting() || next_ >= set_for_) return;
    set_alarm(alarm);
    // The timerfd could not be set, so nothing would wake the loop for the timer. Treats the timer
    // as expired: the loop then polls until the timer really expires.
    if (set_for_ != next_) expired_ = true;
  }
  /// Whether changed timers require the host to be woken, so that it calls prepare(): a timer has
  /// expired, or prepare() must set the timerfd to an earlier time.
  bool sooner() {
    if (!changed_) return false;
    look();
    return has_due() || (queue_.has_waiting() && next_ < set_for_);
  }
  void alarm_came() noexcept {
    set_for_ = kNever;
    alarm_tells_ = false;
    expired_ = queue_.has_waiting();
    core_.stir();
  }
  void forget_alarm() noexcept {
    set_for_ = kNever;
    alarm_tells_ = false;
    change();
  }

 private:
  static constexpr TimePoint kNever = TimePoint::max();
  // After this many sleeps whose time-out was limited by the same timer, the timerfd is used
  // instead of time-outs.
  static constexpr unsigned kSleepsOutlasted = 16;
  // Used instead of kSleepsOutlasted if the timerfd was used for the previous timer: a periodic
  // timer can be expected to limit many sleeps again.
  static constexpr unsigned kSleepsOutlastedAgain = 3;

  void set_alarm(int alarm) noexcept {
    itimerspec time{};
    time.it_value = to_timespec(next_.time_since_epoch());
    if (::timerfd_settime(alarm, TFD_TIMER_ABSTIME, &time, nullptr) == 0) set_for_ = next_;
  }

  TimePoint looked_{}, next_{};
  // Time for which the timerfd is set; kNever: it is not set, or has expired.
  TimePoint set_for_ = kNever;
  TimePoint outlasting_ = kNever;  // expiry of the timer that limited the last sleeps; kNever: none
  unsigned sleeps_ = 0;            // number of sleeps that the timer of outlasting_ has limited
  unsigned most_sleeps_ = kSleepsOutlasted;  // if sleeps_ exceeds this, the timerfd is used
  // True if the timerfd was set for the last timer that limited sleeps, to replace their time-outs.
  bool left_ = false;
  bool alarm_tells_ = false;  // true if the timerfd expires no later than the next timer
};

}}  // namespace ae
