// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to the libev implementation: the time events of one loop below one ev_timer, which is set
// for the next of them before each sleep. Its expiry only asks for the end of the iteration, where
// those that are due run.

#include <ev.h>

#include "ae/abi.h"
#include "ae/core/loop_timers.h"
#include "ae/libev/libev_core.h"

namespace ae { inline namespace AECONN_ABI {

class LibevTimers : public LoopTimers {
 public:
  explicit LibevTimers(LibevCore& core);
  LibevTimers(const LibevTimers&) = delete;
  LibevTimers& operator=(const LibevTimers&) = delete;
  ~LibevTimers() { clear(); }

  template <class When>
  TimerId add(When when, TimeHandler& handler) {
    below_.come_back();
    return LoopTimers::add(when, handler);
  }
  /// Sets the ev_timer; before each sleep, and the last thing that may find has_due().
  void sync() {
    if (changed_) sync_timer();
  }
  void clear() {
    LoopTimers::clear();
    sync();
  }

 private:
  static void on_expiry(struct ev_loop* loop, ev_timer* timer, int revents);
  void sync_timer();

  LibevCore& below_;
  ev_timer timer_;     // active only while something waits
  TimePoint set_for_;  // what it was set for, while it is active
};

}}  // namespace ae
