// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A slot for a handler that may replace or remove itself, or schedule the destruction of its owner,
// while it runs. To run the handler, the slot moves it out, and moves it back afterwards unless the
// handler was replaced or removed meanwhile.

#include <cstdint>
#include <functional>
#include <utility>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

template <class Signature>
class HandlerSlot;

template <class... Args>
class HandlerSlot<void(Args...)> {
 public:
  using Function = std::function<void(Args...)>;

  void set(Function fn) {
    set_ = static_cast<bool>(fn);
    fn_ = std::move(fn);
    ++version_;
  }
  void clear() { set(nullptr); }
  /// Empties the slot and returns the handler that it held. Used for handlers that run only once.
  Function take() {
    Function fn = std::move(fn_);
    clear();
    return fn;
  }

  /// Whether the slot holds a handler, including one that is running now.
  explicit operator bool() const noexcept { return set_; }

  /// Whether the slot's handler is running now, so that run() would do nothing.
  bool running() const noexcept { return set_ && !fn_; }

  /// Runs the handler. Does nothing if the slot is empty or its handler is already running (a
  /// nested call). The slot must outlive the call: destroy its owner through destroy_later().
  template <class... Actual>
  void run(Actual&&... args) {
    if (!fn_) return;
    Restore restore{*this, {}, version_};
    restore.running.swap(fn_);
    restore.running(std::forward<Actual>(args)...);
  }

 private:
  struct Restore {
    HandlerSlot& slot;
    Function running;
    std::uint32_t version;
    ~Restore() {
      if (slot.version_ == version) slot.fn_.swap(running);
    }
  };

  Function fn_;
  std::uint32_t version_ = 0;
  bool set_ = false;
};

}}  // namespace ae
