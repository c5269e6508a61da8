// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Work that an event loop does about once a second: frees resources of all devices that have been
// unused for some time, queries ports that are down, and destroys orphans (rdma_cm ids of loops
// that have ended). Its timer runs while a connection has resources of a device or something is
// left to free.

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
  /// Starts the timer of the cleanup unless it is running; call it when there may be something to
  /// clean up. Throws std::bad_alloc.
  void start();
  /// Removes the timer of the cleanup from the loop; call it before the loop is destroyed.
  void stop() noexcept;

  // due() and run_if_due() are for LoopState::pump(), in which the loop's timers do not run.
  /// Returns the time of the next cleanup; TimePoint::max() if the timer is not running.
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
  // True if the last cleanup has left memory that can be freed: the next one follows in 10 ms.
  bool more_soon_ = false;
  ae::TimerId timer_ = 0;
  ae::TimePoint due_{};
};

}}}  // namespace conn::rdma
