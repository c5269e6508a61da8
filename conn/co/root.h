// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a Scope and the operations know of a spawned task: whether it is running. A task that ends
// its own Scope cannot be destroyed before it waits again.

#include <concepts>
#include <coroutine>
#include <exception>
#include <utility>

#include "ae/abi.h"

namespace conn::inline AECONN_ABI::co::detail {

class Resumption;

/// A task that a Scope owns; part of its frame.
struct Root {
  Root() = default;
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  inline ~Root();

  void link(Root*& head) noexcept {
    next = head;
    if (next != nullptr) next->place = &next;
    head = this;
    place = &head;
  }
  void unlink() noexcept {
    if (place == nullptr) return;
    *place = next;
    if (next != nullptr) next->place = place;
    place = nullptr;
  }

  std::coroutine_handle<> frame;
  Resumption* running = nullptr;  // on the stack
  bool given_up = false;          // its Scope is gone: the Resumption destroys it
  Root* next = nullptr;           // of the Scope's list
  Root** place = nullptr;
};

/// The one way in which a task of a Scope goes on. They are nested as the stack is.
class Resumption {
 public:
  explicit Resumption(Root* root) noexcept : root_(root), around_(std::exchange(innermost_, this)) {
    if (root_ != nullptr) outer_ = std::exchange(root_->running, this);
  }
  Resumption(const Resumption&) = delete;
  Resumption& operator=(const Resumption&) = delete;
  ~Resumption() { innermost_ = around_; }

  /// Throws what was raised meanwhile.
  void run(std::coroutine_handle<> handle) {
    go_on(handle);
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  /// The same for a task that begins. Inside another one it does not throw: that one has no part in
  /// it, and goes on until it waits.
  void begin(std::coroutine_handle<> handle) {
    go_on(handle);
    if (!thrown_) return;
    if (around_ == nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
    around_->raise(std::move(thrown_));
  }
  /// To be thrown once what runs here waits or has ended. The first one counts.
  void raise(std::exception_ptr thrown) noexcept {
    if (!thrown_) thrown_ = std::move(thrown);
  }

 private:
  friend struct Root;
  void go_on(std::coroutine_handle<> handle) {
    handle.resume();
    if (root_ == nullptr) return;
    root_->running = outer_;
    if (root_->given_up && outer_ == nullptr) root_->frame.destroy();
  }

  static inline constinit thread_local Resumption* innermost_ = nullptr;

  Root* root_;  // null once its frame has gone
  Resumption* const around_;
  Resumption* outer_ = nullptr;  // of the same task
  std::exception_ptr thrown_;
};

inline Root::~Root() {
  unlink();
  for (Resumption* each = running; each != nullptr; each = each->outer_) each->root_ = nullptr;
}

/// Every promise of a Task has one of these.
struct PromiseBase {
  Root* root = nullptr;  // the spawned task that awaits this one, at whatever distance
};

/// Who is resumed when an operation is over.
class Waiter {
 public:
  Waiter() = default;
  template <class Promise>
  explicit Waiter(std::coroutine_handle<Promise> handle) noexcept : handle_(handle) {
    if constexpr (std::derived_from<Promise, PromiseBase>) root_ = handle.promise().root;
  }
  void resume() const { Resumption(root_).run(handle_); }
  Root* root() const noexcept { return root_; }

 private:
  std::coroutine_handle<> handle_;
  Root* root_ = nullptr;
};

}  // namespace conn::inline AECONN_ABI::co::detail
