// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The rdma:// listeners that use one event loop.

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/config/settings.h"

struct rdma_cm_id;

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Interface of a listener, as an event loop's LoopState sees it.
class LoopListener {
 public:
  virtual const Settings& settings() const noexcept = 0;
  /// True if the listener's connections are set up on this loop and should find prepared queue
  /// pairs.
  virtual bool wishes_prepared() const noexcept = 0;
  /// True if connection requests for this listener may arrive on the device with the name `device`.
  virtual bool is_on(const std::string& device) const = 0;
  /// If the timer that retries lost devices could not be created for lack of memory, tries again to
  /// create it.
  virtual void retry_if_down() noexcept = 0;
  /// Does the work of that timer if it is due. Returns when it is due next, or TimePoint::max().
  /// For a blocking operation, during which the loop's timers do not run.
  virtual ae::TimePoint retry_if_due(ae::TimePoint now) noexcept = 0;
  /// Call when addresses of the machine may have moved to other devices: the listener follows them.
  virtual void follow_addresses() noexcept = 0;
  /// Drops the queued connection request `id`, because its sender or its device is gone.
  virtual void drop_request(const rdma_cm_id* id) noexcept = 0;
  /// Stops the listener, because its event loop ends; the listener does not access the loop
  /// afterwards.
  virtual void loop_gone() noexcept = 0;

 protected:
  virtual ~LoopListener() = default;
};

class LoopListeners {
 public:
  explicit LoopListeners(ae::EventLoop& loop) noexcept : loop_(loop) {}
  void add(LoopListener& listener) { all_.insert(&listener); }
  void remove(LoopListener& listener) noexcept { all_.erase(&listener); }
  bool empty() const noexcept { return all_.empty(); }
  const std::unordered_set<LoopListener*>& all() const noexcept { return all_; }

  /// Makes the next iteration try again to create the timers for which there was no memory.
  void ask_again() noexcept {
    ask_ = true;
    loop_.nudge();
  }
  /// Calls retry_if_down() of each listener if ask_again() was called before; returns whether it
  /// was. Call it in each iteration.
  bool retry_if_asked() noexcept {
    if (!std::exchange(ask_, false)) return false;
    for (LoopListener* listener : all_) listener->retry_if_down();
    return true;
  }
  /// Calls retry_if_due() of each listener; returns the earliest time.
  ae::TimePoint retry_if_due(ae::TimePoint now) noexcept {
    ae::TimePoint next = ae::TimePoint::max();
    for (LoopListener* listener : all_) next = std::min(next, listener->retry_if_due(now));
    return next;
  }
  /// Makes each listener follow its addresses.
  void addresses_changed() noexcept {
    for (LoopListener* listener : all_) listener->follow_addresses();
  }
  /// Makes the listener that has queued the connection request `id` drop it, because its sender or
  /// its device is gone.
  void drop_request(const rdma_cm_id* id) noexcept {
    for (LoopListener* listener : all_) listener->drop_request(id);
  }
  /// Stops all listeners; they do not access the loop afterwards.
  void loop_gone() noexcept {
    for (LoopListener* listener : std::exchange(all_, {})) listener->loop_gone();
  }

 private:
  ae::EventLoop& loop_;
  std::unordered_set<LoopListener*> all_;
  bool ask_ = false;
};

}}}  // namespace conn::rdma
