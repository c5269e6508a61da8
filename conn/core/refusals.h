// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Refusals: stores and calls the handler of Listener::on_refused(), for transports.

#include <cstddef>
#include <deque>
#include <utility>

#include "ae/abi.h"
#include "ae/core/handler_slot.h"
#include "conn/error.h"
#include "conn/listener.h"

namespace conn { inline namespace AECONN_ABI {

/// Runs the handler for one refusal at a time. A refusal that occurs while the handler runs (in a
/// nested iteration) is reported when the handler returns. The object must not be destroyed during
/// tell(), so its owner is destroyed through destroy_later().
class Refusals {
 public:
  /// Sets the handler that is called for each refusal; null removes it.
  void set(const RefusedHandler& handler) { handler_.set(handler); }
  /// Removes the handler, and drops the refusals that wait for it.
  void clear() { (void)take(); }
  /// Removes the handler, drops the refusals that wait for it, and returns the handler, so that the
  /// caller can choose when to destroy it: its destructor may run any code.
  [[nodiscard]] RefusedHandler take() {
    waiting_.clear();
    return handler_.take();
  }
  /// Returns whether the program has set a handler for refusals.
  explicit operator bool() const noexcept { return static_cast<bool>(handler_); }
  /// Returns whether the handler runs now.
  bool running() const noexcept { return handler_.running(); }
  /// Calls the handler for a refusal. If the handler is already running, queues the refusal until
  /// it has returned; if 64 refusals are queued already, drops it.
  void tell(const Failure& why) {
    if (handler_.running()) {
      if (waiting_.size() < kMostWaiting) waiting_.push_back(why);
      return;
    }
    handler_.run(why);
    while (!waiting_.empty()) {
      const Failure next = std::move(waiting_.front());
      waiting_.pop_front();
      handler_.run(next);
    }
  }

 private:
  static constexpr std::size_t kMostWaiting = 64;
  ae::HandlerSlot<void(const Failure&)> handler_;
  std::deque<Failure> waiting_;
};

}}  // namespace conn
