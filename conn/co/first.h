// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several operations, of which the first to end counts.

#include <coroutine>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "ae/abi.h"

namespace conn::inline AECONN_ABI::co {

namespace detail {

template <class Result>
using FirstValue = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;

/// What is asked whether it is ready: an operation itself, of a task what it makes for that.
template <class Operation>
auto awaiter_of(Operation&& operation) {
  if constexpr (requires { std::move(operation).operator co_await(); }) {
    return std::move(operation).operator co_await();
  } else {
    return std::move(operation);
  }
}
template <class Operation>
using AwaiterOf = decltype(awaiter_of(std::declval<Operation>()));

template <class... Operations>
class First {
 public:
  using Value = std::variant<FirstValue<decltype(std::declval<Operations&>().await_resume())>...>;

  explicit First(Operations&&... operations) : operations_(std::move(operations)...) {}

  bool await_ready() const noexcept { return false; }
  /// In their order, up to one that is over at once: a task runs before a later one is looked at.
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    return std::apply([&](auto&... each) { return (waits(*each, awaiting) && ...); }, operations_);
  }
  Value await_resume() { return take(std::index_sequence_for<Operations...>{}); }
  bool done() const noexcept {
    return std::apply([](auto&... each) { return ((each && each->done()) || ...); }, operations_);
  }

 private:
  template <class Operation, class Awaiting>
  static bool waits(Operation& operation, std::coroutine_handle<Awaiting> awaiting) {
    if (operation.await_ready()) return false;
    if constexpr (std::is_void_v<decltype(operation.await_suspend(awaiting))>) {
      operation.await_suspend(awaiting);
      return true;
    } else {
      return operation.await_suspend(awaiting);
    }
  }
  /// The others end before the value is taken: it may be of a stream that they wait for.
  template <std::size_t... I>
  Value take(std::index_sequence<I...>) {
    std::size_t winner = sizeof...(I);
    ((winner == sizeof...(I) && std::get<I>(operations_)->done() ? void(winner = I) : void()), ...);
    ((I != winner ? std::get<I>(operations_).reset() : void()), ...);
    std::optional<Value> value;
    ((I == winner ? value_of<I>(value) : void()), ...);
    return *std::move(value);
  }
  template <std::size_t I>
  void value_of(std::optional<Value>& value) {
    auto& operation = *std::get<I>(operations_);
    if constexpr (std::is_void_v<decltype(operation.await_resume())>) {
      operation.await_resume();
      value.emplace(std::in_place_index<I>);
    } else {
      value.emplace(std::in_place_index<I>, operation.await_resume());
    }
  }

  std::tuple<std::optional<Operations>...> operations_;
};

}  // namespace detail

/// Runs operations and tasks beside each other until one ends, and cancels the others:
/// `co_await first(peer.read(buffer), sleep(loop, 1s))` gives a variant whose index() says which it
/// was; of void, std::monostate. They begin in their order, up to one that is over at once: that
/// one wins, and those after it never begin. A task among them that is empty throws std::bad_alloc.
template <class... Operations>
requires(sizeof...(Operations) > 0 && (!std::is_lvalue_reference_v<Operations> && ...))
    [[nodiscard]] detail::First<detail::AwaiterOf<Operations>...> first(
        Operations&&... operations) {
  return detail::First<detail::AwaiterOf<Operations>...>(
      detail::awaiter_of(std::move(operations))...);
}

}  // namespace conn::inline AECONN_ABI::co
