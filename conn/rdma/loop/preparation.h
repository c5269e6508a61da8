// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides when queue pairs are prepared for future connections of a loop, how many at a time, and
// when they are destroyed. They are prepared after a short time without new connections, in the
// share of an iteration that such system calls may take, until each listener that wishes them has
// as many as its settings say. A timer runs while some are to be prepared or destroyed; it also
// starts the periodic cleanup.

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
  /// Call it when a listener or a connection came or went, because prepared queue pairs may now be
  /// needed, or no longer needed. Starts the timer. Without memory for it, calls
  /// LoopListeners::ask_again() and leaves the start to retry().
  void soon() noexcept;
  /// Starts the timer if soon() could not; call it after LoopListeners::ask_again().
  void retry() noexcept;
  /// Call it when a connection has taken a prepared queue pair.
  void on_taken() noexcept {
    ++used_;
    soon();
  }
  /// Number of prepared queue pairs that connections have taken so far.
  std::uint64_t used() const noexcept { return used_; }
  /// Removes the timer from the loop; call it before the loop is destroyed.
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
  bool late_ = false;  // whether the timer could not be started for lack of memory
  // When to prepare queue pairs, and the latest time that this may be postponed to.
  ae::TimePoint at_{}, by_{};
  std::uint64_t used_ = 0;
};

}}}  // namespace conn::rdma
