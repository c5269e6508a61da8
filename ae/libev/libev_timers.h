// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to the libev implementation: the time events of one loop. Before each sleep, one ev_timer
// is set for the next time event. Its expiry only requests the tail (the watcher at the end of the
// iteration), which runs the expired timers.

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
  /// Sets the ev_timer for the next time event. To be called before each sleep, and before the last
  /// call of has_due(), whose result it may change.
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
  ev_timer timer_;     // libev's timer; active only while a time event waits for its expiry
  TimePoint set_for_;  // the time at which timer_ expires, while it is active
};

}}  // namespace ae
