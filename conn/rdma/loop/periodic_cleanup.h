// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Once a second: frees what has not been needed for a while, on all devices, and queries ports and
// orphans. Its timer runs while a connection holds resources of a device or something is left to
// free.

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/loop/devices.h"
#include "conn/rdma/loop/due_connections.h"
#include "conn/rdma/loop/listeners.h"
#include "conn/rdma/loop/tick_dispatch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class PeriodicCleanup {
 public:
  /// Borrows all of them.
  PeriodicCleanup(ae::EventLoop& loop, Devices& devices, DueConnections& users,
                  const TickDispatch& wheel, const LoopListeners& listeners) noexcept
      : loop_(loop), devices_(devices), users_(users), wheel_(wheel), listeners_(listeners) {}
  /// There may be something to do. Throws std::bad_alloc.
  void start();
  /// Removes the timer; the loop ends.
  void stop() noexcept;

  // For when the loop's timers do not run.
  /// When there is something to do; TimePoint::max(): there is nothing.
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
  bool more_soon_ = false;  // freeing goes on in parts
  ae::TimerId timer_ = 0;
  ae::TimePoint due_{};
};

}}}  // namespace conn::rdma
