// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Tracks which tasks are running. A task is running while it is on this thread's call stack (the
// call that resumed it has not returned), and while a task that it awaits is running. Three rules
// hold everywhere: the frame of a running task is not destroyed before the task suspends or ends;
// the coroutine that awaits a running task is not resumed; and when such an action is deferred,
// operations that were started together with the running task and still wait are cancelled at once,
// so that they do not consume data that no coroutine would receive.
//
// Each task knows its awaiter (Node::above). Each resumption of a task is linked into a
// thread-local list while it lasts, and records the task that it runs. A task is therefore running
// if it can be reached from an entry of that list by following `above`.

#include <concepts>
#include <coroutine>
#include <cstring>
#include <exception>
#include <type_traits>
#include <utility>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace co::detail {

/// A task, a first() or a when_all(), as a node of a tree: the parent of a node is what awaits it.
struct Node {
  Node() = default;
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // The node that awaits this one; null: the awaiter does not belong to this library, or there is
  // none.
  Node* above = nullptr;
  // Deferred action, called once this node is no longer running (Resumption::runs()); null: none.
  void (*due)(Node&) = nullptr;
  // For a first() or a when_all(): cancels its operations that wait. Null for a task.
  void (*let_go)(Node&) noexcept = nullptr;

 protected:
  ~Node() = default;
};

/// One resumption of a coroutine. Every resumption of a task goes through this class, whose objects
/// are local variables of the functions that resume, and form a list that begins with the innermost
/// call.
class Resumption {
 public:
  /// Begins a resumption of `node`; null: the coroutine does not belong to this library.
  explicit Resumption(Node* node) noexcept
      : node_(node), around_(std::exchange(innermost_, this)) {}
  Resumption(const Resumption&) = delete;
  Resumption& operator=(const Resumption&) = delete;
  ~Resumption() { innermost_ = around_; }

  /// Resumes `handle` until it suspends or ends, then throws the exception that was raised
  /// meanwhile, if any.
  void run(std::coroutine_handle<> handle) {
    go_on(handle);
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }
  /// Resumes `handle` as run() does. If this happens inside another task, which is not involved,
  /// does not throw an exception into that task, but passes it to the Resumption that runs that
  /// task, which throws it once the task has suspended or ended.
  void begin(std::coroutine_handle<> handle) {
    go_on(handle);
    if (!thrown_) return;
    if (around_ == nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
    around_->raise(std::move(thrown_));
  }
  /// Stores an exception to be thrown once the resumed code suspends or ends. If there are several,
  /// only the first one is kept.
  void raise(std::exception_ptr thrown) noexcept {
    if (!thrown_) thrown_ = std::move(thrown);
  }

  /// Returns the Resumption that runs the calling task. To be called only inside a task, where
  /// there always is one.
  static Resumption& innermost() noexcept { return *innermost_; }
  /// Records that the running task has ended and that control passes to the task `node`; null if
  /// control passes to no task.
  void goes_on_with(Node* node) noexcept { node_ = node; }

  /// Returns whether `node` is running: whether it, or a node that it awaits directly or
  /// indirectly, is on this thread's call stack.
  static bool runs(const Node& node) noexcept {
    for (Resumption* each = innermost_; each != nullptr; each = each->around_)
      if (each->is_below(node)) return true;
    return false;
  }
  /// If `node` is running, returns true, cancels at once all operations that wait below `node` in
  /// the tree of awaiters, and calls `act` once `node` no longer runs. Otherwise returns false.
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
  /// Makes each first() and when_all() on the path from a running node up to `node` cancel those of
  /// its operations that wait.
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
  // Looks at the resumed node and at all nodes that await it, directly or indirectly. Runs the
  // deferred action (Node::due) of the highest one that has such an action and no longer runs; the
  // nodes below it end with it. If a node with a deferred action still runs, because of another
  // resumption, cancels the operations below it that began to wait after the action was deferred.
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
  bool look_ = false;  // true if node_, or a node that awaits it, has a deferred action
  std::exception_ptr thrown_;
};

/// Holds the coroutine that must be resumed when an operation ends; may be empty.
class Waiter {
 public:
  Waiter() = default;  ///< makes a Waiter without a coroutine
  template <class Promise>
  explicit Waiter(std::coroutine_handle<Promise> handle) noexcept : handle_(handle) {
    if constexpr (std::derived_from<Promise, Node>) node_ = &handle.promise();
  }
  explicit operator bool() const noexcept { return handle_ != nullptr; }
  void resume() const { Resumption(node_).run(handle_); }
  /// Resumes the coroutine on behalf of code outside this library. Does not throw into another task
  /// that is running, see Resumption::begin().
  void begin() const { Resumption(node_).begin(handle_); }

  /// Returns whether a resumption now would be deferred, as Link::would_wait() says. False if the
  /// handle belongs to a coroutine and not to a Link.
  inline bool would_wait() const noexcept;

  std::coroutine_handle<> handle() const noexcept { return handle_; }
  /// Returns the node in the promise of the task that is to be resumed. Null if the coroutine is
  /// not a task of this library, and for a Link, which has its own member `node` instead.
  Node* node() const noexcept { return node_; }

 private:
  std::coroutine_handle<> handle_;
  Node* node_ = nullptr;
};

/// Stands in for a coroutine: its handle can be resumed like that of a coroutine, and then calls a
/// function of this library. With both g++ and clang++ the first two words of a coroutine frame are
/// the functions that resume and destroy it; libstdc++ builds std::noop_coroutine() in the same
/// way.
class Link {
 public:
  /// Makes a link that calls `resumed` when it is resumed. `resumed` returns the coroutine to
  /// continue with, or an empty Waiter.
  explicit Link(Waiter (*resumed)(Link&) noexcept) noexcept : next_(resumed) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  std::coroutine_handle<> handle() noexcept {
    return std::coroutine_handle<>::from_address(static_cast<void*>(this));
  }
  /// Returns the Link that `handle` belongs to; null if `handle` refers to a coroutine.
  static Link* of(std::coroutine_handle<> handle) noexcept {
    void (*first)(void*) = nullptr;
    std::memcpy(&first, handle.address(), sizeof first);
    return first == &on_resume ? static_cast<Link*>(handle.address()) : nullptr;
  }
  /// Returns whether a resumption now would be deferred, because a first() or when_all() that waits
  /// for this link is running.
  bool would_wait() const noexcept {
    for (const Node* each = node; each != nullptr && each->let_go != nullptr; each = each->above)
      if (Resumption::runs(*each)) return true;
    return false;
  }
  /// Called when this Link is resumed: calls its function, then, as long as that returns another
  /// Link, the function of that one. Returns the coroutine to resume; an empty Waiter: none.
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
  // Called by destroy() of the handle. Does nothing, because the owner of the Link destroys it.
  static void on_destroy(void*) noexcept {}

  [[maybe_unused]] void (*const resume_)(void*) = &on_resume;
  [[maybe_unused]] void (*const destroy_)(void*) noexcept = &on_destroy;
  Waiter (*const next_)(Link&) noexcept;

 public:
  Node* node = nullptr;  // the node that awaits this link
};

inline bool Waiter::would_wait() const noexcept {
  const Link* const link = node_ == nullptr ? Link::of(handle_) : nullptr;
  return link != nullptr && link->would_wait();
}

/// Returns the node of a coroutine in the tree of awaiters; null if the coroutine does not belong
/// to this library.
template <class Promise>
Node* node_of(std::coroutine_handle<Promise> handle) noexcept {
  if constexpr (std::is_void_v<Promise>) {
    const Link* const link = Link::of(handle);
    return link != nullptr ? link->node : nullptr;
  } else {
    return Waiter(handle).node();
  }
}

/// Base of operations that run tasks while they begin. Such a task may destroy a coroutine of
/// another library that awaits the operation, and thereby the operation. This library does not know
/// that coroutine, and so cannot defer its destruction.
class Watched {
 public:
  /// A local variable of a member function of an operation, which tells that function whether the
  /// operation still exists.
  class Watch {
   public:
    explicit Watch(Watched& operation) noexcept : operation_(&operation) {
      operation.watch_ = this;
    }
    ~Watch() {
      if (operation_ != nullptr) operation_->watch_ = nullptr;
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    bool gone() const noexcept { return operation_ == nullptr; }

   private:
    friend class Watched;
    Watched* operation_;
  };
  Watched() = default;
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

 protected:
  ~Watched() {
    if (watch_ != nullptr) watch_->operation_ = nullptr;
  }

 private:
  Watch* watch_ = nullptr;
};

/// Base of this library's own operations, which a Task awaits without a wrapper. They accept any
/// coroutine's handle, and resume it through a Waiter.
struct OfLibrary {};

}}}  // namespace conn::co::detail
