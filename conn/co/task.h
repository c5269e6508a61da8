// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A coroutine that begins when it is awaited, or when a Scope takes it.

#include <coroutine>
#include <exception>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "ae/abi.h"
#include "conn/co/root.h"

namespace conn::inline AECONN_ABI::co {

class Scope;
template <class T = void>
class Task;

namespace detail {

/// At its end a task goes on with who awaits it. One of a Scope is destroyed here.
struct FinalStep {
  bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> task) const noexcept {
    Promise& promise = task.promise();
    if (promise.awaited_by) return promise.awaited_by;
    if constexpr (std::is_base_of_v<Root, Promise>) {
      if (promise.root == static_cast<Root*>(&promise)) {
        if (promise.thrown) {
          if (promise.running == nullptr) std::terminate();  // resumed by an awaiter of others
          promise.running->raise(std::move(promise.thrown));
        }
        task.destroy();
      }
    }
    return std::noop_coroutine();
  }
  void await_resume() const noexcept {}
};

struct TaskPromise : PromiseBase {
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalStep final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { thrown = std::current_exception(); }

  std::coroutine_handle<> awaited_by;
  std::exception_ptr thrown;
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
struct Promise<void> : TaskPromise, Root {
  inline Task<void> get_return_object() noexcept;
  static inline Task<void> get_return_object_on_allocation_failure() noexcept;
  void return_void() const noexcept {}
  void take() {
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
  }
};

/// Runs a task for who awaits it, and owns its frame from then on.
template <class T>
class [[nodiscard]] AwaitTask {
 public:
  explicit AwaitTask(std::coroutine_handle<Promise<T>> frame) noexcept : frame_(frame) {}
  AwaitTask(AwaitTask&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  AwaitTask& operator=(AwaitTask&&) = delete;
  ~AwaitTask() {
    if (frame_) frame_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  /// Runs it here until it waits. What ends at once does not suspend who awaits it, so the stack
  /// does not grow, however often that happens.
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    Promise<T>& promise = frame_.promise();
    promise.root = Waiter(awaiting).root();
    frame_.resume();
    if (frame_.done()) return false;
    promise.awaited_by = awaiting;
    return true;
  }
  T await_resume() { return frame_.promise().take(); }
  bool done() const noexcept { return frame_.done(); }

 private:
  std::coroutine_handle<Promise<T>> frame_;
};

}  // namespace detail

/// Owns the frame of a coroutine that has not begun. `co_await f()`, or `co_await std::move(task)`,
/// takes the frame, runs it to its end and gives its value, or throws what it threw; to drop what
/// awaits it cancels it, at whatever it waits for.
/// It is empty once it was moved from, and where there was no memory for the frame, which the call
/// of the coroutine does not say: to await an empty one, or to spawn it, throws std::bad_alloc.
/// Parameters are kept in the frame: take them by value. A lambda that is a coroutine loses its
/// captures with the lambda: let it have parameters instead.
template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;  ///< for the compiler

  /// Takes the frame over.
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  /// What it had never runs.
  Task& operator=(Task&& other) noexcept {
    Task(std::move(other)).swap(*this);
    return *this;
  }
  ~Task() {
    if (frame_) frame_.destroy();
  }
  void swap(Task& other) noexcept { std::swap(frame_, other.frame_); }  ///< exchanges the frames
  bool done() const noexcept { return frame_ == nullptr; }              ///< whether it is empty

  /// For the compiler.
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
}  // namespace conn::inline AECONN_ABI::co
