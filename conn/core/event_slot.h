// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// EventSlot: a slot for a connection's read or write handler. Like ae::HandlerSlot, the handler may
// replace or remove itself while it runs. But here it runs where it is stored, because moving it
// out and back would cost more than the rest of a call: a handler that replaces it waits in the
// frame of that call.

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

class Connection;

class EventSlot {
 public:
  using Function = std::function<void(Connection&)>;

  EventSlot() noexcept = default;
  EventSlot(const EventSlot&) = delete;
  EventSlot& operator=(const EventSlot&) = delete;

  void set(Function handler) {
    if (call_ == nullptr)
      handler_ = std::move(handler);
    else
      call_->replace(std::move(handler));
  }

  /// Runs the handler. Does nothing if there is none, or if it is running already (a nested call).
  /// The slot must outlive the call: destroy its owner through destroy_later().
  void run(Connection& connection) {
    if (call_ != nullptr) [[unlikely]]
      return run_nested(connection);
    if (!handler_) return;
    Call call(*this);
    handler_(connection);
  }

 private:
  /// The running call of the handler, with the handler that has replaced it meanwhile.
  struct Call {
    explicit Call(EventSlot& its) noexcept : slot(its) { slot.call_ = this; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      slot.call_ = nullptr;
      if (replaced != 0) [[unlikely]]
        end();
    }
    void replace(Function handler) {
      if (replaced++ == 0)
        std::construct_at(&next, std::move(handler));
      else
        next = std::move(handler);
    }
    /// Puts the new handler where the old one was, and frees the old one.
    [[gnu::noinline]] void end() noexcept {
      slot.handler_.swap(next);
      std::destroy_at(&next);
    }
    EventSlot& slot;
    std::uint32_t replaced = 0;  // how often the handler was replaced or removed
    union {
      Function next;  // exists if `replaced` is not 0
    };
  };

  /// Runs the handler that has replaced the running one. It is moved out of its place meanwhile, as
  /// in ae::HandlerSlot.
  [[gnu::noinline]] void run_nested(Connection& connection) {
    struct Restore {
      Call& call;
      const std::uint32_t version;
      Function running;
      ~Restore() {
        if (call.replaced == version) call.next.swap(running);
      }
    };
    if (call_->replaced == 0 || !call_->next) return;
    Restore restore{*call_, call_->replaced, {}};
    restore.running.swap(call_->next);
    restore.running(connection);
  }

  Function handler_;
  Call* call_ = nullptr;  // null: the handler does not run
};

}}  // namespace conn
