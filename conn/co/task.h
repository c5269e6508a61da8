// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A coroutine that starts when it is awaited or spawned in a Scope.

#include <concepts>
#include <coroutine>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "ae/abi.h"
#include "conn/co/awaitable.h"
#include "conn/co/running.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

class Scope;
template <class T = void>
class Task;

namespace detail {

template <class T>
inline constexpr bool kIsTask = false;
template <class T>
inline constexpr bool kIsTask<Task<T>> = true;

/// The last step of a task: transfers control to the awaiting coroutine (symmetric transfer). For a
/// task that a Scope owns, destroys its frame instead.
struct FinalStep {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> task) const noexcept {
    Promise& promise = task.promise();
    Resumption& running = Resumption::innermost();
    if (promise.awaited_by) {
      Link* const link = Link::of(promise.awaited_by);
      if (link == nullptr) {
        running.goes_on_with(promise.above);
        return promise.awaited_by;
      }
      running.goes_on_with(link->node != nullptr ? link->node->above : nullptr);
      const Waiter next = link->next();
      if (!next) return std::noop_coroutine();
      running.goes_on_with(next.node());
      return next.handle();
    }
    if constexpr (requires { promise.spawned; }) {
      if (promise.spawned) {
        if (promise.thrown) running.raise(std::move(promise.thrown));
        running.goes_on_with(nullptr);
        task.destroy();
      }
    }
    return std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct TaskPromise : Node {
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalStep final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { thrown = std::current_exception(); }

  /// Lets a task await any awaitable: operations of this library directly, all others wrapped in a
  /// Foreign.
  template <class T>
  decltype(auto) await_transform(T&& awaited) {
    using Plain = std::remove_cvref_t<T>;
    if constexpr (kIsTask<Plain>) {
      static_assert(!std::is_lvalue_reference_v<T>,
                    "a Task is awaited once: co_await std::move(task)");
      return std::move(awaited);
    } else if constexpr (std::derived_from<Plain, OfLibrary>) {
      return static_cast<T&&>(awaited);
    } else if constexpr (Awaitable<T&&>) {
      return Foreign<T&&>(std::forward<T>(awaited));
    } else {
      check_awaitable<T&&>();
      return Refused();
    }
  }

  std::coroutine_handle<> awaited_by;
  std::exception_ptr thrown;
};

/// Part of a task's frame that links the task into the list of the Scope that owns it.
struct Spawned {
  Spawned() = default;
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;
  ~Spawned() { unlink(); }

  void link(Spawned*& head) noexcept {
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

  bool spawned = false;
  Spawned* next = nullptr;
  Spawned** place = nullptr;
};

template <class T>
struct Promise : TaskPromise {
  Task<T> get_return_object() noexcept;
  static Task<T> get_return_object_on_allocation_failure() noexcept;
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() {
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
    return std::move(*value);
  }

  std::optional<T> value;
};

template <>
struct Promise<void> : TaskPromise, Spawned {
  inline Task<void> get_return_object() noexcept;
  static inline Task<void> get_return_object_on_allocation_failure() noexcept;
  void return_void() const noexcept {}
  void take() {
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
  }
};

/// Destroys the frame of the task `node`. Passed to Resumption::put_off() as the deferred action.
template <class Promise>
void destroy_frame(Node& node) {
  std::coroutine_handle<Promise>::from_promise(static_cast<Promise&>(node)).destroy();
}

/// The awaiter of a Task: owns the task's frame and runs the task for the awaiting coroutine.
template <class T>
class [[nodiscard]] AwaitTask : public OfLibrary, private Watched {
 public:
  explicit AwaitTask(std::coroutine_handle<Promise<T>> frame) noexcept : frame_(frame) {}
  AwaitTask(AwaitTask&& other) noexcept : Watched(), frame_(std::exchange(other.frame_, nullptr)) {}
  AwaitTask& operator=(AwaitTask&&) = delete;
  ~AwaitTask() {
    if (!frame_) return;
    Promise<T>& promise = frame_.promise();
    if (frame_.done() || !Resumption::put_off(promise, &destroy_frame<Promise<T>>)) {
      frame_.destroy();
    } else {
      // The task is running: put_off() destroys its frame later. The task has lost its awaiter.
      promise.above = nullptr;
      promise.awaited_by = nullptr;
    }
  }

  bool await_ready() const noexcept { return false; }
  /// Runs the task here until it suspends. A task that completes at once does not suspend its
  /// awaiter, so awaiting many such tasks in a loop does not let the call stack grow. If the task
  /// has destroyed its awaiter, an exception of the task is dropped, and no coroutine is resumed.
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    Promise<T>& promise = frame_.promise();
    promise.above = node_of(awaiting);
    const Watch watch(*this);
    try {
      Resumption(&promise).begin(frame_);
    } catch (...) {
      if (!watch.gone()) throw;
    }
    if (watch.gone()) return true;
    if (frame_.done()) return false;
    promise.awaited_by = awaiting;
    return true;
  }
  T await_resume() { return frame_.promise().take(); }
  /// Returns whether the task is running now (running.h).
  bool runs() const noexcept { return Resumption::runs(frame_.promise()); }

 private:
  std::coroutine_handle<Promise<T>> frame_;
};

}  // namespace detail

/// Owns the frame of a coroutine that has not started. `co_await f()` or `co_await std::move(task)`
/// takes the frame, runs it to its end, and returns its value or throws its exception. Destroying
/// the awaiting coroutine cancels the task, whatever it is waiting for.
///
/// A Task is empty after it was moved from, and if there was no memory for the coroutine's frame.
/// The call of the coroutine does not report that: awaiting or spawning an empty Task throws
/// std::bad_alloc.
///
/// Parameters are stored in the frame: take them by value. A coroutine lambda loses its captures
/// when the lambda is destroyed: pass parameters instead.
template <class T>
class [[nodiscard]] Task {
 public:
  /// Name that the compiler requires of a coroutine's return type.
  using promise_type = detail::Promise<T>;

  /// Takes ownership of the frame of `other`, which is then empty.
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  /// Takes ownership of the frame of `other`, which is then empty. A coroutine that this Task owned
  /// before never runs.
  Task& operator=(Task&& other) noexcept {
    Task(std::move(other)).swap(*this);
    return *this;
  }
  ~Task() {
    if (frame_) frame_.destroy();
  }
  /// Exchanges the frames of the two tasks.
  void swap(Task& other) noexcept { std::swap(frame_, other.frame_); }
  /// Returns whether this Task is empty, that is, owns no frame.
  bool done() const noexcept { return frame_ == nullptr; }

  /// Called by co_await: passes the frame to the awaiter. Throws std::bad_alloc if this Task is
  /// empty.
  detail::AwaitTask<T> operator co_await() && {
    if (done()) throw std::bad_alloc();
    return detail::AwaitTask<T>(std::exchange(frame_, nullptr));
  }

 private:
  friend class Scope;
  friend promise_type;
  explicit Task(std::coroutine_handle<promise_type> frame) noexcept : frame_(frame) {}

  std::coroutine_handle<promise_type> frame_;
};

namespace detail {

template <class T>
Task<T> Promise<T>::get_return_object() noexcept {
  return Task<T>(std::coroutine_handle<Promise>::from_promise(*this));
}

inline Task<void> Promise<void>::get_return_object() noexcept {
  return Task<void>(std::coroutine_handle<Promise>::from_promise(*this));
}

template <class T>
Task<T> Promise<T>::get_return_object_on_allocation_failure() noexcept {
  return Task<T>(nullptr);
}

inline Task<void> Promise<void>::get_return_object_on_allocation_failure() noexcept {
  return Task<void>(nullptr);
}

}  // namespace detail
}}}  // namespace conn::co
