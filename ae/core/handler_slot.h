// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A slot for a handler that may replace or remove itself, or schedule the destruction of its owner,
// while it runs. The handler runs in place, so that a call costs no move of a std::function. If a
// handler is replaced or removed while it runs, its successor waits in the call's stack frame and
// is moved to the slot when the call has ended: moving the running function would change the
// captures that it reads.

#include <functional>
#include <optional>
#include <utility>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

template <class Signature>
class HandlerSlot;

template <class... Args>
class HandlerSlot<void(Args...)> {
 public:
  using Function = std::function<void(Args...)>;

  HandlerSlot() = default;
  HandlerSlot(const HandlerSlot&) = delete;
  HandlerSlot& operator=(const HandlerSlot&) = delete;

  /// Replaces the handler; an empty `fn` removes it. The previous handler is destroyed by this
  /// call, or, if it is running, when it has returned.
  void set(Function fn) {
    if (Function* const held = current()) {
      held->swap(fn);
    } else {
      call_->successor.emplace(std::move(fn));
    }
  }
  void clear() { set(nullptr); }
  /// Empties the slot and returns the handler that it held, which is empty if the handler is
  /// running. Used for handlers that run only once.
  Function take() {
    Function fn;
    if (Function* const held = current()) {
      held->swap(fn);
    } else {
      call_->successor.emplace();
    }
    return fn;
  }

  /// Whether the slot holds a handler, including one that is running now.
  explicit operator bool() const noexcept {
    if (call_ == nullptr) [[likely]]
      return static_cast<bool>(fn_);
    return !call_->successor || *call_->successor;
  }

  /// Whether the slot's handler is running now, so that run() would do nothing.
  bool running() const noexcept { return call_ != nullptr && !call_->successor; }

  /// Runs the handler. Does nothing if the slot is empty or its handler is already running (a
  /// nested call). The slot must outlive the call: destroy its owner through destroy_later().
  template <class... Actual>
  [[gnu::always_inline]] void run(Actual&&... args) {
    Function* const fn = current();
    if (fn == nullptr || !*fn) [[unlikely]]
      return;
    Call call(call_);
    const Leave leave{*this, call};
    call_ = &call;
    (*fn)(std::forward<Actual>(args)...);
  }

 private:
  // A call of the slot's handler; lives on the stack while the handler runs.
  struct Call {
    explicit Call(Call* its_outer) noexcept : outer(its_outer) {}
    Call* const outer;  // the call inside which this one is nested; null: none
    // The handler that replaces the running one after this call; an empty function removes it.
    std::optional<Function> successor;
  };
  // Ends a call of the slot's handler, in the destructor. Call's own destructor does not do this,
  // because a Call must be in memory, while the members of this inlined class can stay in
  // registers.
  struct Leave {
    // The handler that was replaced is destroyed with `call.successor`, last, because its
    // destructor may use the slot or destroy it.
    [[gnu::always_inline]] ~Leave() {
      slot.call_ = call.outer;
      if (call.successor) [[unlikely]]
        slot.current()->swap(*call.successor);
    }
    HandlerSlot& slot;
    Call& call;
  };

  // Returns the function that run() would call, which may be empty; null if the handler is running.
  Function* current() noexcept {
    if (call_ == nullptr) [[likely]]
      return &fn_;
    return call_->successor ? &*call_->successor : nullptr;
  }

  Function fn_;
  Call* call_ = nullptr;  // the innermost call of the slot's handler; null: it is not running
};

}}  // namespace ae
