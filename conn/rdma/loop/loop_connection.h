// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What LoopState knows of a connection.

#include <optional>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/loop/tick_wheel.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface of a connection, as its event loop's LoopState sees it.
class LoopConnection : public TickItem {
 public:
  /// Posts all requests that are due, with one doorbell for each chain of work requests.
  virtual void post_due() noexcept = 0;
  /// Does the connection's periodic checks. Called at next_tick() or later; `late` is by how much.
  virtual void on_tick(ae::TimePoint now, ae::Duration late) noexcept = 0;
  virtual ae::TimePoint next_tick() const noexcept = 0;
  /// Called when memory to send from may be available again.
  virtual void on_memory() noexcept = 0;
  /// Continues the disconnect or teardown of this connection. Never called while completions are
  /// being handled.
  virtual void reap() = 0;
  /// When post_due() must be called again even if no event arrives; no value: it need not be.
  virtual std::optional<ae::TimePoint> pace_at() const noexcept = 0;
  bool waits_for_reap() const noexcept { return in_.reap; }  ///< reap() is due to be called

 protected:
  virtual ~LoopConnection() = default;

 private:
  friend class DueConnections;
  struct In {  // the lists of DueConnections that it is in
    bool flush = false, reap = false, memory = false, pace = false, attached = false;
  } in_;
};

}}}  // namespace conn::rdma
