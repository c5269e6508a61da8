// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// When the prepared queue pairs of a loop are made, how many at a time, and when they are dropped:
// after a short time without new connections, in the part of an iteration that such system calls
// may take, until each listener that wishes them has as many as its settings say. Has a timer while
// some are to be made or dropped.

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/loop/devices.h"
#include "conn/rdma/loop/iteration_budget.h"
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/periodic_cleanup.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Preparation {
 public:
  /// Borrows all of them.
  Preparation(ae::EventLoop& loop, Devices& devices, const LoopListeners& listeners,
              IterationBudget& iteration, PeriodicCleanup& maintenance) noexcept
      : loop_(loop),
        devices_(devices),
        listeners_(listeners),
        iteration_(iteration),
        maintenance_(maintenance) {}
  /// Queue pairs may be needed, or needed no longer: a listener came or went, or a connection did.
  void soon() noexcept;
  /// A connection took a prepared queue pair.
  void on_taken() noexcept {
    ++used_;
    soon();
  }
  std::uint64_t used() const noexcept { return used_; }  ///< how many were taken
  /// Removes the timer; the loop ends.
  void stop() noexcept;

 private:
  ae::Duration on_timer();
  bool step();

  ae::EventLoop& loop_;
  Devices& devices_;
  const LoopListeners& listeners_;
  IterationBudget& iteration_;
  PeriodicCleanup& maintenance_;
  ae::TimerId timer_ = 0;
  ae::TimePoint at_{}, by_{};  // quiet until then; at the latest
  std::uint64_t used_ = 0;
};

}}}  // namespace conn::rdma
