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

/// The one way in which a task of a Scope goes on.
class Resumption {
 public:
  explicit Resumption(Root* root) noexcept : root_(root) {
    if (root_ != nullptr) outer_ = std::exchange(root_->running, this);
  }
  Resumption(const Resumption&) = delete;
  Resumption& operator=(const Resumption&) = delete;

  /// Rethrows what the task ended with.
  void run(std::coroutine_handle<> handle) {
    handle.resume();
    if (root_ != nullptr) {
      root_->running = outer_;
      if (root_->given_up && outer_ == nullptr) root_->frame.destroy();
    }
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  void hand_over(std::exception_ptr thrown) noexcept { thrown_ = std::move(thrown); }

 private:
  friend struct Root;
  Root* root_;  // null once its frame has gone
  Resumption* outer_ = nullptr;
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
