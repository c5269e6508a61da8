// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The interfaces through which LoopState calls connections and listeners.

#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/loop/ticks.h"

struct rdma_cm_id;

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface of a connection, as its event loop's LoopState sees it.
class LoopUser : public TickItem {
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
  virtual ~LoopUser() = default;

 private:
  friend class UserLists;
  struct In {  // which lists of UserLists this connection is in
    bool flush = false, reap = false, memory = false, pace = false, attached = false;
  } in_;
};

/// Interface of a listener, as an event loop's LoopState sees it.
class LoopListener {
 public:
  virtual const Settings& settings() const noexcept = 0;
  /// True if the listener's connections are set up on this loop and should find prepared queue
  /// pairs.
  virtual bool wishes_prepared() const noexcept = 0;
  /// True if connection requests may arrive on this device.
  virtual bool is_on(const std::string& device) const = 0;
  /// If the timer that retries lost devices could not be created for lack of memory, tries again to
  /// create it.
  virtual void retry_if_down() noexcept = 0;
  /// Drops the queued connection request `id`, because its sender or its device is gone.
  virtual void drop_request(const rdma_cm_id* id) noexcept = 0;
  /// Stops the listener; it does not access the loop afterwards.
  virtual void loop_gone() noexcept = 0;

 protected:
  virtual ~LoopListener() = default;
};

}}}  // namespace conn::rdma
