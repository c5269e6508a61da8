// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What LoopState knows of connections and of listeners.

#include <optional>
#include <string>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/config/settings.h"
#include "conn/rdma/loop/tick_wheel.h"

struct rdma_cm_id;

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// One for each connection.
class LoopUser : public TickItem {
 public:
  /// Posts everything that is due, with one doorbell per chain of work requests.
  virtual void post_due() noexcept = 0;
  /// Called at or after next_tick(); `late` is how long ago it was due.
  virtual void on_tick(ae::TimePoint now, ae::Duration late) noexcept = 0;
  virtual ae::TimePoint next_tick() const noexcept = 0;
  /// Memory to send from may be available again.
  virtual void on_memory() noexcept = 0;
  /// Continues the disconnect or teardown of this connection. Not called while completions are
  /// being handled.
  virtual void reap() = 0;
  /// When post_due() must be called again even if nothing else happens.
  virtual std::optional<ae::TimePoint> pace_at() const noexcept = 0;
  bool waits_for_reap() const noexcept { return in_.reap; }  ///< reap() will be called

 protected:
  virtual ~LoopUser() = default;

 private:
  friend class UserLists;
  struct In {  // the lists of UserLists that it is in
    bool flush = false, reap = false, memory = false, pace = false, attached = false;
  } in_;
};

/// One for each listener.
class LoopListener {
 public:
  virtual const Settings& settings() const noexcept = 0;
  /// True if connections are made on this loop and should find prepared queue pairs.
  virtual bool wishes_prepared() const noexcept = 0;
  /// Requests may arrive on this device.
  virtual bool is_on(const std::string& device) const = 0;
  /// Schedules the retry for lost devices if there was no memory for its timer before.
  virtual void retry_if_down() noexcept = 0;
  /// A queued request has lost its sender or its device.
  virtual void drop_request(const rdma_cm_id* id) noexcept = 0;
  /// Stops, after which the loop is not accessed any more.
  virtual void loop_gone() noexcept = 0;

 protected:
  virtual ~LoopListener() = default;
};

}}}  // namespace conn::rdma
