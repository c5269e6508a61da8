// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lets tasks await awaitables that do not belong to this library.

#include <concepts>
#include <coroutine>
#include <optional>
#include <type_traits>
#include <utility>

#include "ae/abi.h"
#include "conn/co/running.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {

/// Returns the awaiter of an awaitable, found as the language does: by a member operator co_await,
/// by a free operator co_await, or the awaitable itself.
template <class T>
decltype(auto) awaiter_of(T&& awaitable) {
  if constexpr (requires { std::forward<T>(awaitable).operator co_await(); }) {
    return std::forward<T>(awaitable).operator co_await();
  } else if constexpr (requires { operator co_await(std::forward<T>(awaitable)); }) {
    return operator co_await(std::forward<T>(awaitable));
  } else {
    return static_cast<T&&>(awaitable);
  }
}

template <class T>
using AwaiterOf = decltype(awaiter_of(std::declval<T>()));

template <class T>
concept SuspensionResult =
    std::is_void_v<T> || std::same_as<T, bool> || std::convertible_to<T, std::coroutine_handle<>>;

template <class Awaiter>
concept HasAwaiterFunctions = requires(Awaiter& awaiter, std::coroutine_handle<> handle) {
  static_cast<bool>(awaiter.await_ready());
  { awaiter.await_suspend(handle) } -> SuspensionResult;
  awaiter.await_resume();
};

// Satisfied if destroying an awaitable can end its wait. That needs a destructor that is not
// trivial: of the awaiter, or, if the awaitable is a temporary, of the awaitable, which is then
// destroyed together with the awaiter.
template <class T>
concept EndsItsWait =
    !std::is_trivially_destructible_v<std::remove_cvref_t<AwaiterOf<T>>> ||
    (!std::is_lvalue_reference_v<T> && !std::is_trivially_destructible_v<std::remove_cvref_t<T>>);

}  // namespace detail

/// An awaitable from outside this library that a Task, first() and when_all() accept. The
/// awaitable, or the result of its operator co_await, must have
/// - await_ready(), await_suspend() taking a std::coroutine_handle<> (not one of a specific promise
///   type), and await_resume(), as the language requires them;
/// - a destructor that ends the wait: afterwards the handle is not resumed. This is how a task is
///   cancelled. A trivial destructor cannot do that and is rejected.
/// It must resume the handle once, on the loop's thread. It may do so from anywhere: also inside
/// await_suspend(), inside another task, or in a nested iteration of the loop.
template <class T>
concept Awaitable = detail::HasAwaiterFunctions<std::remove_reference_t<detail::AwaiterOf<T>>> &&
    detail::EndsItsWait<T>;

namespace detail {

/// The awaiter by which a task waits for an awaitable that does not belong to this library. `T` is
/// the awaitable's type or a reference to it.
template <class T>
class Foreign : public OfLibrary {
 public:
  explicit Foreign(T&& awaitable) : awaitable_(std::forward<T>(awaitable)) {}
  /// Moves the awaitable. It may be moved only before the wait begins.
  Foreign(Foreign&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : awaitable_(std::forward<T>(other.awaitable_)) {}
  Foreign& operator=(Foreign&&) = delete;
  ~Foreign() = default;

  bool await_ready() {
    awaiter_.emplace(awaitable_);
    return static_cast<bool>(awaiter_->value.await_ready());
  }
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    waiter_ = Waiter(awaiting);
    link_.node = node_of(awaiting);
    state_ = State::kBegins;
    if (!begin() || state_ == State::kResumed) return false;
    state_ = State::kWaits;
    return true;
  }
  decltype(auto) await_resume() { return awaiter_->value.await_resume(); }

 private:
  enum class State { kIdle, kBegins, kWaits, kResumed };
  struct ItsLink : Link {
    explicit ItsLink(Foreign& its) noexcept : Link(&Foreign::resumed), owner(&its) {}
    Foreign* owner;
  };
  // Constructs the awaiter in place, because an awaiter need not be movable.
  struct Made {
    explicit Made(T& awaitable) : value(awaiter_of(std::forward<T>(awaitable))) {}
    AwaiterOf<T> value;
  };
  static Waiter resumed(Link& link) noexcept {
    Foreign& self = *static_cast<ItsLink&>(link).owner;
    const State before = std::exchange(self.state_, State::kResumed);
    return before == State::kWaits ? self.waiter_ : Waiter();
  }
  /// Calls await_suspend() of the awaiter and returns whether the task must wait. If
  /// await_suspend() returns a coroutine to be resumed in place of the task, that coroutine is
  /// resumed inside this call.
  bool begin() {
    using Result = decltype(awaiter_->value.await_suspend(link_.handle()));
    if constexpr (std::is_void_v<Result>) {
      awaiter_->value.await_suspend(link_.handle());
      return true;
    } else if constexpr (std::same_as<Result, bool>) {
      return awaiter_->value.await_suspend(link_.handle());
    } else {
      const std::coroutine_handle<> next = awaiter_->value.await_suspend(link_.handle());
      next.resume();
      return true;
    }
  }

  T awaitable_;
  std::optional<Made> awaiter_;
  ItsLink link_{*this};
  Waiter waiter_;
  State state_ = State::kIdle;
};

/// Stands in for an awaitable that was rejected, so that the compiler reports no further errors
/// about it.
struct Refused : OfLibrary {
  bool await_ready() const noexcept { return true; }
  void await_suspend(std::coroutine_handle<>) const noexcept {}
  Refused await_resume() const noexcept { return {}; }
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};

template <class T>
constexpr void check_awaitable() {
  static_assert(HasAwaiterFunctions<std::remove_reference_t<AwaiterOf<T>>>,
                "co_await in a Task: this has no await_ready(), await_suspend() of a "
                "std::coroutine_handle<> and await_resume()");
  static_assert(!HasAwaiterFunctions<std::remove_reference_t<AwaiterOf<T>>> || EndsItsWait<T>,
                "co_await in a Task: the awaiter's destructor must end the wait, and this one is "
                "trivial");
}

}  // namespace detail
}}}  // namespace conn::co
