// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides when queue pairs are created in advance ("prepared") for future connections of a loop,
// how many at a time, and when they are destroyed. They are prepared after a short time without new
// connections, as many in one iteration as its time for such system calls allows, until the number
// in the settings of each listener is reached. A timer runs while queue pairs must be prepared or
// destroyed. It also starts the periodic cleanup.

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/loop/devices.h"
#include "conn/rdma/loop/iteration_budget.h"
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/periodic_cleanup.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Preparation {
 public:
  /// All arguments must outlive this object.
  Preparation(ae::EventLoop& loop, Devices& devices, LoopListeners& listeners,
              IterationBudget& iteration, PeriodicCleanup& maintenance) noexcept
      : loop_(loop),
        devices_(devices),
        listeners_(listeners),
        iteration_(iteration),
        maintenance_(maintenance) {}
  /// Starts the timer that adapts the number of queue pairs created in advance; call it when a
  /// listener or a connection was added or removed. If there is no memory for the timer, calls
  /// LoopListeners::ask_again(), and retry() starts it later.
  void soon() noexcept;
  /// Starts the timer for creating queue pairs in advance if soon() could not; call it after
  /// LoopListeners::ask_again().
  void retry() noexcept;
  /// Counts a queue pair, created in advance, that a connection has taken, and has it replaced
  /// soon.
  void on_taken() noexcept {
    ++used_;
    soon();
  }
  /// Returns the number of queue pairs created in advance that connections have used so far.
  std::uint64_t used() const noexcept { return used_; }
  /// Removes the timer for creating queue pairs in advance from the loop; call it before the loop
  /// is destroyed.
  void stop() noexcept;

 private:
  ae::Duration on_timer();
  bool step();

  ae::EventLoop& loop_;
  Devices& devices_;
  LoopListeners& listeners_;
  IterationBudget& iteration_;
  PeriodicCleanup& maintenance_;
  ae::TimerId timer_ = 0;
  bool late_ = false;  // true if the timer could not be started for lack of memory
  // at_: time at which to create queue pairs in advance. by_: latest time to which at_ may be
  // postponed.
  ae::TimePoint at_{}, by_{};
  std::uint64_t used_ = 0;
};

}}}  // namespace conn::rdma
