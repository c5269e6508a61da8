// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Work that an event loop does about once a second: frees resources that have not been needed for a
// while, on all devices, and checks ports that are down and rdma_cm ids that could not be destroyed
// yet (orphans). Its timer runs while a connection holds resources of a device or something is left
// to free.

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/loop/devices.h"
#include "conn/rdma/loop/due_connections.h"
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/tick_dispatch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PeriodicCleanup {
 public:
  /// All arguments must outlive this object.
  PeriodicCleanup(ae::EventLoop& loop, Devices& devices, DueConnections& users,
                  const TickDispatch& wheel, const LoopListeners& listeners) noexcept
      : loop_(loop), devices_(devices), users_(users), wheel_(wheel), listeners_(listeners) {}
  /// Starts the timer of the cleanup if it does not run; call it when there may be something to
  /// clean up. Throws std::bad_alloc.
  void start();
  /// Removes the timer from the loop; call it before the loop is destroyed.
  void stop() noexcept;

  // due() and run_if_due() are for code in which the loop's timers do not run, such as
  // LoopState::pump().
  /// The time of the next run; TimePoint::max() if there is no work.
  ae::TimePoint due() const noexcept { return timer_ != 0 ? due_ : ae::TimePoint::max(); }
  void run_if_due(ae::TimePoint now) noexcept;

 private:
  ae::Duration on_timer();
  void run() noexcept;
  bool has_nothing_left() const noexcept;

  ae::EventLoop& loop_;
  Devices& devices_;
  DueConnections& users_;
  const TickDispatch& wheel_;
  const LoopListeners& listeners_;
  bool more_soon_ = false;  // whether the last cleanup left memory for the next one to free
  ae::TimerId timer_ = 0;
  ae::TimePoint due_{};
};

}}}  // namespace conn::rdma
