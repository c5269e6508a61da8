// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The one rule for running a handler that may replace, remove or (through deferred destruction)
// bury itself: move it out, run it, put it back unless the slot changed meanwhile.

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
  /// Empties the slot and hands the handler over: for those that run once.
  Function take() {
    Function fn = std::move(fn_);
    clear();
    return fn;
  }

  /// True also while the handler is running.
  explicit operator bool() const noexcept { return set_; }

  /// It runs just now, so that run() would do nothing.
  bool running() const noexcept { return set_ && !fn_; }

  /// Runs the handler. A slot that is already running (a nested call) or empty does nothing.
  /// The slot itself must survive the call: owners are destroyed through destroy_later().
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
