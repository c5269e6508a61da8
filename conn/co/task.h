// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A coroutine that begins when it is awaited, or when a Scope takes it.

#include <coroutine>
#include <exception>
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
          promise.running->hand_over(std::move(promise.thrown));
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
  void return_void() const noexcept {}
  void take() {
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
  }
};

}  // namespace detail

/// Owns the frame: dropping it cancels what has not ended, at whatever it waits for. `co_await`
/// runs it to its end and gives its value, or throws what it threw. Await it once.
/// Parameters are kept in the frame: take them by value. A lambda that is a coroutine loses its
/// captures with the lambda: let it have parameters instead.
template <class T>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::Promise<T>;  ///< for the compiler

  /// Takes the frame over.
  Task(Task&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  /// Cancels what it had.
  Task& operator=(Task&& other) noexcept {
    Task(std::move(other)).swap(*this);
    return *this;
  }
  ~Task() {
    if (frame_) frame_.destroy();
  }
  void swap(Task& other) noexcept { std::swap(frame_, other.frame_); }  ///< exchanges the frames
  bool done() const noexcept { return frame_.done(); }                  ///< whether it has ended

  bool await_ready() const noexcept { return done(); }  ///< as done()
  /// Runs it here until it waits. What ends at once does not suspend who awaits it, so the stack
  /// does not grow, however often that happens.
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    promise_type& promise = frame_.promise();
    promise.root = detail::Waiter(awaiting).root();
    frame_.resume();
    if (frame_.done()) return false;
    promise.awaited_by = awaiting;
    return true;
  }
  T await_resume() { return frame_.promise().take(); }  ///< its value, or throws

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

}  // namespace detail
}  // namespace conn::inline AECONN_ABI::co
