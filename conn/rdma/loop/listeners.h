// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The listeners of one loop.

#include <string>
#include <unordered_set>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/rdma/config/settings.h"

struct rdma_cm_id;

namespace conn { inline namespace AECONN_ABI { namespace rdma {

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

class LoopListeners {
 public:
  explicit LoopListeners(ae::EventLoop& loop) noexcept : loop_(loop) {}
  void add(LoopListener& listener) { all_.insert(&listener); }
  void remove(LoopListener& listener) noexcept { all_.erase(&listener); }
  bool empty() const noexcept { return all_.empty(); }
  const std::unordered_set<LoopListener*>& all() const noexcept { return all_; }

  /// Calls retry_if_down() of each listener in the next iteration.
  void ask_again() noexcept {
    ask_ = true;
    loop_.nudge();
  }
  /// In each iteration: does what ask_again() asked for.
  void retry_if_asked() noexcept {
    if (!std::exchange(ask_, false)) return;
    for (LoopListener* listener : all_) listener->retry_if_down();
  }
  /// A request without an owner has lost its sender or its device.
  void drop_request(const rdma_cm_id* id) noexcept {
    for (LoopListener* listener : all_) listener->drop_request(id);
  }
  /// Stops all listeners, which access the loop no more.
  void loop_gone() noexcept {
    for (LoopListener* listener : std::exchange(all_, {})) listener->loop_gone();
  }

 private:
  ae::EventLoop& loop_;
  std::unordered_set<LoopListener*> all_;
  bool ask_ = false;
};

}}}  // namespace conn::rdma
