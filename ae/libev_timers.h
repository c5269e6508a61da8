#pragma once
// Private to the libev implementation: the time events of one loop below one ev_timer, which is set
// for the next of them before each sleep. Its expiry only asks for the end of the iteration, where
// the loop runs a bounded number of those that are due, after the file events, so that any number
// of timers due at once delays nobody's I/O for long.

#include <ev.h>

#include <cstddef>

#include "ae/event_loop.h"
#include "ae/libev_core.h"
#include "ae/timer_queue.h"

namespace ae {

class LibevTimers {
 public:
  explicit LibevTimers(LibevCore& core);
  LibevTimers(const LibevTimers&) = delete;
  LibevTimers& operator=(const LibevTimers&) = delete;
  ~LibevTimers() { clear(); }

  // As in EventLoop; `When` is a Duration or a TimePoint.
  template <class When>
  TimerId add(When when, TimeHandler& handler) {
    core_.come_back();
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

  /// Sets the ev_timer; before each sleep, and the last thing that may find has_due().
  void sync() {
    if (changed_) sync_timer();
  }
  bool has_due() const noexcept { return expired_ || queue_.has_ready(); }
  /// Runs at most `limit` of the timers that are due. Passes on what a handler throws; that timer
  /// is then gone.
  void run_due(std::size_t limit);
  void clear();

 private:
  static void on_expiry(struct ev_loop* loop, ev_timer* timer, int revents);
  void sync_timer();

  LibevCore& core_;
  TimerQueue queue_;
  ev_timer timer_;        // active only while something waits
  TimePoint set_for_;     // what it was set for, while it is active
  bool changed_ = false;  // since the last sync()
  bool expired_ = false;  // something that waited may be due
};

}  // namespace ae
