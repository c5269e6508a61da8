// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The interface through which LoopState, the RDMA state of an event loop, uses a connection.

#include <optional>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/loop/tick_wheel.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface through which an event loop's LoopState uses a connection.
class LoopConnection : public TickItem {
 public:
  /// Posts all work requests of this connection that are due. They are posted as chains, each of
  /// which costs one call and one doorbell.
  virtual void post_due() noexcept = 0;
  /// Does the connection's periodic checks. Called at the time next_tick() or later; `late`: how
  /// much later.
  virtual void on_tick(ae::TimePoint now, ae::Duration late) noexcept = 0;
  virtual ae::TimePoint next_tick() const noexcept = 0;
  /// Called when memory for the send buffer may be available again, if the connection has waited
  /// for it (LoopState::wait_for_memory()).
  virtual void on_memory() noexcept = 0;
  /// Does the next step of the disconnect or teardown of this connection. Not called while
  /// completions are being handled, because it may destroy the queue pair.
  virtual void reap() = 0;
  /// Returns the time at which post_due() must be called even if no event has arrived; no value if
  /// no such call is needed.
  virtual std::optional<ae::TimePoint> pace_at() const noexcept = 0;
  /// Returns true if a call of reap(), the next step of the connection's end, is scheduled.
  bool waits_for_reap() const noexcept { return in_.reap; }

 protected:
  virtual ~LoopConnection() = default;

 private:
  friend class DueConnections;
  struct In {  // true for each list of DueConnections that contains this connection
    bool flush = false, reap = false, memory = false, pace = false, attached = false;
  } in_;
};

}}}  // namespace conn::rdma
