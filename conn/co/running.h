// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which tasks are on the stack. Three rules hold everywhere: the frame of a task that is running is
// not destroyed before the task waits or has ended; nothing resumes what awaits a running task; and
// where that is put off, what waits beside the running task is cancelled at once, so that it takes
// nothing that nobody would get.
//
// Each task knows what awaits it (Node::above). Each resumption of a task stands in a list of its
// thread while it lasts, and names the task that it runs. So a task is running if it is found on
// the way up from one of them.

#include <concepts>
#include <coroutine>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace co::detail {

/// A task, or a first(): a place in the tree of what awaits what.
struct Node {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Node* above = nullptr;                     // what awaits it, where that is of this library
  void (*due)(Node&) = nullptr;              // runs once nothing of this node is on the stack
  void (*let_go)(Node&) noexcept = nullptr;  // a first(): cancels what waits in it

 protected:
  ~Node() = default;
};

/// The one way in which a task goes on. They are nested as the stack is.
class Resumption {
 public:
  /// `node`: what it runs; null: nothing of this library.
  explicit Resumption(Node* node) noexcept
      : node_(node), around_(std::exchange(innermost_, this)) {}
  Resumption(const Resumption&) = delete;
  Resumption& operator=(const Resumption&) = delete;
  ~Resumption() { innermost_ = around_; }

  /// Throws what was raised meanwhile.
  void run(std::coroutine_handle<> handle) {
    go_on(handle);
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  /// The same, but inside another task it does not throw: that one has no part in it, and goes on
  /// until it waits.
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

  /// That which runs the task that calls this. There is always one.
  static Resumption& innermost() noexcept { return *innermost_; }
  /// Its task has ended, and it goes on with this one; null: with none.
  void goes_on_with(Node* node) noexcept { node_ = node; }

  /// Whether `node`, or what it awaits at whatever distance, is on the stack.
  static bool runs(const Node& node) noexcept {
    for (Resumption* each = innermost_; each != nullptr; each = each->around_)
      if (each->is_below(node)) return true;
    return false;
  }
  /// If so: true, and `act` runs when it is no more. What else waits below `node` is cancelled.
  static bool put_off(Node& node, void (*act)(Node&)) noexcept {
    bool found = false;
    for (Resumption* each = innermost_; each != nullptr; each = each->around_) {
      if (!each->is_below(node)) continue;
      each->look_ = found = true;
    }
    if (!found) return false;
    node.due = act;
    let_go_below(node);
    return true;
  }
  /// Each first() between `node` and what is on the stack cancels what waits in it.
  static void let_go_below(Node& node) noexcept {
    for (Resumption* each = innermost_; each != nullptr; each = each->around_) {
      if (!each->is_below(node)) continue;
      for (Node *at = each->node_, *above = nullptr; at != nullptr; at = above) {
        above = at == &node ? nullptr : at->above;
        if (at->let_go != nullptr) at->let_go(*at);
      }
    }
  }

 private:
  void go_on(std::coroutine_handle<> handle) {
    handle.resume();
    innermost_ = around_;
    if (look_) go_up();
  }
  // What is due and lies highest takes along all that is below it. Above it may be what others keep
  // on the stack: that waits no longer for what waits from now on.
  void go_up() noexcept {
    Node* highest = nullptr;
    Node* kept = nullptr;
    for (Node* each = node_; each != nullptr; each = each->above)
      if (each->due != nullptr) (runs(*each) ? kept : highest) = each;
    try {
      if (highest != nullptr) std::exchange(highest->due, nullptr)(*highest);
    } catch (...) {
      raise(std::current_exception());
    }
    if (kept != nullptr) let_go_below(*kept);
  }
  bool is_below(const Node& node) const noexcept {
    for (const Node* each = node_; each != nullptr; each = each->above)
      if (each == &node) return true;
    return false;
  }

  static inline constinit thread_local Resumption* innermost_ = nullptr;

  Node* node_;
  Resumption* const around_;
  bool look_ = false;  // something on the way up is due
  std::exception_ptr thrown_;
};

/// Who is resumed when an operation is over.
class Waiter {
 public:
  Waiter() = default;  ///< nobody
  template <class Promise>
  explicit Waiter(std::coroutine_handle<Promise> handle) noexcept : handle_(handle) {
    if constexpr (std::derived_from<Promise, Node>) node_ = &handle.promise();
  }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  void resume() const { Resumption(node_).run(handle_); }
  /// Where what resumes is a stranger: see Resumption::begin().
  void begin() const { Resumption(node_).begin(handle_); }

  /// Resumed now, what waits would be put off: a link says so.
  inline bool would_wait() const noexcept;

  std::coroutine_handle<> handle() const noexcept { return handle_; }
  Node* node() const noexcept { return node_; }  ///< null: not a task, or a link, which knows it

 private:
  std::coroutine_handle<> handle_;
  Node* node_ = nullptr;
};

/// Stands for a coroutine towards what resumes one: its handle can be resumed like any other. The
/// first two words of a frame are the functions that resume and destroy it, by g++ and clang++
/// alike; std::noop_coroutine() of libstdc++ is made in the same way.
class Link {
 public:
  /// `resumed`: says what goes on where this is resumed, which may be nobody.
  explicit Link(Waiter (*resumed)(Link&) noexcept) noexcept : next_(resumed) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  std::coroutine_handle<> handle() noexcept {
    return std::coroutine_handle<>::from_address(static_cast<void*>(this));
  }
  /// The link that a handle belongs to. Null: it is a coroutine's.
  static Link* of(std::coroutine_handle<> handle) noexcept {
    void (*first)(void*) = nullptr;
    std::memcpy(&first, handle.address(), sizeof first);
    return first == &on_resume ? static_cast<Link*>(handle.address()) : nullptr;
  }
  /// Resumed now, what waits for it would be put off.
  bool would_wait() const noexcept {
    for (const Node* each = node; each != nullptr && each->let_go != nullptr; each = each->above)
      if (Resumption::runs(*each)) return true;
    return false;
  }
  /// It is resumed: what goes on, through other links.
  Waiter next() noexcept {
    for (Link* link = this;;) {
      const Waiter waiter = link->next_(*link);
      link = waiter ? of(waiter.handle()) : nullptr;
      if (link == nullptr) return waiter;
    }
  }

 private:
  static void on_resume(void* link) {
    if (const Waiter waiter = static_cast<Link*>(link)->next(); waiter) waiter.begin();
  }
  static void on_destroy(void*) noexcept {}  // its owner destroys it

  [[maybe_unused]] void (*const resume_)(void*) = &on_resume;
  [[maybe_unused]] void (*const destroy_)(void*) noexcept = &on_destroy;
  Waiter (*const next_)(Link&) noexcept;

 public:
  Node* node = nullptr;  // what waits for it
};

inline bool Waiter::would_wait() const noexcept {
  const Link* const link = node_ == nullptr ? Link::of(handle_) : nullptr;
  return link != nullptr && link->would_wait();
}

/// What a coroutine's handle stands for in the tree; null: nothing of this library.
template <class Promise>
Node* node_of(std::coroutine_handle<Promise> handle) noexcept {
  if constexpr (std::is_void_v<Promise>) {
    const Link* const link = Link::of(handle);
    return link != nullptr ? link->node : nullptr;
  } else {
    return Waiter(handle).node();
  }
}

/// What a Task awaits as it is: operations of this library. They take any coroutine's handle, and
/// resume it by a Waiter.
struct OfLibrary {};

}}}  // namespace conn::co::detail
