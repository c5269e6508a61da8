// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Defines the interface through which LoopState, the RDMA state of an event loop, uses a
// connection.

#include <optional>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/loop/tick_wheel.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface of a connection, as its event loop's LoopState sees it.
class LoopConnection : public TickItem {
 public:
  /// Posts all work requests of this connection that are due, with one doorbell for each chain of
  /// them.
  virtual void post_due() noexcept = 0;
  /// Does the connection's periodic checks. Called at next_tick() or later; `late` is by how much.
  virtual void on_tick(ae::TimePoint now, ae::Duration late) noexcept = 0;
  virtual ae::TimePoint next_tick() const noexcept = 0;
  /// Called when memory to send from may be available again.
  virtual void on_memory() noexcept = 0;
  /// Continues the disconnect or teardown of this connection. Never called while completions are
  /// being handled.
  virtual void reap() = 0;
  /// Returns when post_due() must be called even if no event has arrived; no value if no such call
  /// is needed.
  virtual std::optional<ae::TimePoint> pace_at() const noexcept = 0;
  /// Whether this connection waits for a call of reap().
  bool waits_for_reap() const noexcept { return in_.reap; }

 protected:
  virtual ~LoopConnection() = default;

 private:
  friend class DueConnections;
  struct In {  // the lists of DueConnections that contain this connection
    bool flush = false, reap = false, memory = false, pace = false, attached = false;
  } in_;
};

}}}  // namespace conn::rdma
