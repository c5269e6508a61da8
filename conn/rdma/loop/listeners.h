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

/// Interface through which an event loop's LoopState uses a listener.
class LoopListener {
 public:
  virtual const Settings& settings() const noexcept = 0;
  /// Returns true if the listener's connections are set up on this loop and its settings ask for
  /// queue pairs to be created in advance.
  virtual bool wishes_prepared() const noexcept = 0;
  /// Returns true if connection requests for this listener may arrive on the device named `device`.
  virtual bool is_on(const std::string& device) const = 0;
  /// If the timer that tries again to listen on a lost device could not be created for lack of
  /// memory, tries again to create it.
  virtual void retry_if_down() noexcept = 0;
  /// Tries again to listen on a lost device if that is due. Returns the next time at which it is
  /// due; TimePoint::max() if there is none. For blocking operations, during which the loop's
  /// timers do not run.
  virtual ae::TimePoint retry_if_due(ae::TimePoint now) noexcept = 0;
  /// Makes the listener listen on the devices that have its addresses now; called when addresses of
  /// the machine may have moved to other devices.
  virtual void follow_addresses() noexcept = 0;
  /// Removes the connection request `id` from the queue, if it is there, because its sender or its
  /// device is gone.
  virtual void drop_request(const rdma_cm_id* id) noexcept = 0;
  /// Stops the listener, because its event loop ends. The listener must not access the loop
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

  /// Makes the next iteration of the loop call retry_if_down() of all listeners, because there was
  /// no memory for a timer.
  void ask_again() noexcept {
    ask_ = true;
    loop_.nudge();
  }
  /// Call it in each iteration. If ask_again() was called since the last call, calls
  /// retry_if_down() of each listener and returns true.
  bool retry_if_asked() noexcept {
    if (!std::exchange(ask_, false)) return false;
    for (LoopListener* listener : all_) listener->retry_if_down();
    return true;
  }
  /// Lets each listener try again to listen on a lost device if that is due (retry_if_due()).
  /// Returns the earliest time at which one is due next.
  ae::TimePoint retry_if_due(ae::TimePoint now) noexcept {
    ae::TimePoint next = ae::TimePoint::max();
    for (LoopListener* listener : all_) next = std::min(next, listener->retry_if_due(now));
    return next;
  }
  /// Tells each listener that addresses of the machine have changed (follow_addresses()).
  void addresses_changed() noexcept {
    for (LoopListener* listener : all_) listener->follow_addresses();
  }
  /// Calls drop_request() of each listener: the one that has queued the connection request `id`
  /// removes it.
  void drop_request(const rdma_cm_id* id) noexcept {
    for (LoopListener* listener : all_) listener->drop_request(id);
  }
  /// Stops all listeners, because the event loop ends.
  void loop_gone() noexcept {
    for (LoopListener* listener : std::exchange(all_, {})) listener->loop_gone();
  }

 private:
  ae::EventLoop& loop_;
  std::unordered_set<LoopListener*> all_;
  bool ask_ = false;
};

}}}  // namespace conn::rdma
