// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs several operations concurrently until the first one ends, which decides the result.

#include <array>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "ae/abi.h"
#include "conn/co/awaitable.h"
#include "conn/co/running.h"
#include "conn/co/task.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {

template <class Result>
using FirstValue = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;

/// Returns the operation that first() runs for one of its arguments.
template <class T>
auto operation_of(T&& given) {
  using Plain = std::remove_cvref_t<T>;
  if constexpr (kIsTask<Plain>) {
    return std::move(given).operator co_await();
  } else if constexpr (std::derived_from<Plain, OfLibrary>) {
    return Plain(std::move(given));
  } else if constexpr (Awaitable<Plain>) {
    static_assert(std::move_constructible<Plain>, "first() moves what it awaits");
    return Foreign<Plain>(std::move(given));
  } else {
    check_awaitable<Plain>();
    return Refused();
  }
}
template <class T>
using OperationOf = decltype(operation_of(std::declval<T>()));

/// The part of first() that does not depend on the types of its operations. Records which operation
/// ended first, and resumes the awaiting coroutine. The resumption is deferred while a task among
/// the operations is running, because a task must not be cancelled while it runs. The operations
/// that wait are cancelled at once: they might otherwise take data that no coroutine would receive.
class Contest : public OfLibrary, public Node {
 protected:
  /// Given to one of the operations as the coroutine to resume. When the operation resumes it, the
  /// Contest records that this operation has ended.
  struct Entry : Link {
    Entry() noexcept : Link(&Contest::ended) {}
    Contest* contest = nullptr;
    std::size_t index = 0;
    bool over = false;
  };
  static constexpr std::size_t kNone = std::size_t(-1);

  explicit Contest(void (*its_let_go)(Node&) noexcept) noexcept { let_go = its_let_go; }
  ~Contest() = default;

  std::coroutine_handle<> enter(Entry& entry, std::size_t index) noexcept {
    entry.contest = this;
    entry.node = this;
    entry.index = index;
    return entry.handle();
  }
  bool won(std::size_t index) noexcept {
    if (winner_ == kNone) winner_ = index;
    return true;
  }

  Waiter waiter_;
  std::size_t winner_ = kNone;
  // index of the operation that is being started now; kNone at other times
  std::size_t begins_ = kNone;

 private:
  static Waiter ended(Link& link) noexcept {
    Entry& entry = static_cast<Entry&>(link);
    Contest& self = *entry.contest;
    entry.over = true;
    self.won(entry.index);
    const bool begins = self.begins_ != kNone;
    if (!begins && Resumption::put_off(self, &go_on)) return Waiter();
    if (!begins && !self.waiter_.would_wait()) return self.waiter_;
    self.let_go(self);
    // The awaiter is an outer first() or when_all(), which decides when its own awaiter is resumed.
    if (!begins) return self.waiter_;
    Resumption::let_go_below(self);
    return Waiter();
  }
  static void go_on(Node& node) { static_cast<Contest&>(node).waiter_.resume(); }
};

template <class... Operations>
class First : public Contest, private Watched {
  template <class Operation>
  using ValueOf =
      FirstValue<std::remove_cvref_t<decltype(std::declval<Operation&>().await_resume())>>;

 public:
  using Value = std::variant<ValueOf<Operations>...>;

  explicit First(Operations&&... operations)
      : Contest(&let_go_of_all), operations_(std::move(operations)...) {}
  /// Moves the operations. They may be moved only before the wait begins.
  First(First&& other) noexcept
      : Contest(&let_go_of_all), operations_(std::move(other.operations_)) {}
  First& operator=(First&&) = delete;

  bool await_ready() const noexcept { return false; }
  /// Starts the operations in order, up to one that completes at once. If an operation is a task,
  /// it runs until it waits before the next operation is started.
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) {
    waiter_ = Waiter(awaiting);
    above = node_of(awaiting);
    const Watch watch(*this);
    begin(watch, std::index_sequence_for<Operations...>{});
    if (watch.gone()) return true;
    begins_ = kNone;
    return winner_ == kNone;
  }
  Value await_resume() { return take(std::index_sequence_for<Operations...>{}); }
  /// Returns whether one of the operations passed to first() is a task that is running (running.h).
  bool runs() const noexcept { return Resumption::runs(*this); }

 private:
  template <std::size_t... I>
  void begin(const Watch& watch, std::index_sequence<I...>) {
    (void)((over<I>() || watch.gone() || winner_ != kNone) || ...);
  }
  template <std::size_t I>
  bool over() {
    begins_ = I;
    // The operation was cancelled while an earlier operation of this first() was being started.
    if (!std::get<I>(operations_)) return false;
    auto& operation = *std::get<I>(operations_);
    if (operation.await_ready()) return won(I);
    const std::coroutine_handle<> entry = enter(entries_[I], I);
    if constexpr (std::is_void_v<decltype(operation.await_suspend(entry))>) {
      operation.await_suspend(entry);
      return false;
    } else {
      return !operation.await_suspend(entry) && won(I);
    }
  }
  static void let_go_of_all(Node& node) noexcept {
    static_cast<First&>(static_cast<Contest&>(node))
        .let_go_of(std::index_sequence_for<Operations...>{});
  }
  template <std::size_t... I>
  void let_go_of(std::index_sequence<I...>) noexcept {
    (let_go_of<I>(), ...);
  }
  /// Cancels operation I, unless it has ended, is being started, or is a task that is running. An
  /// operation that has ended must not be destroyed here, because its code that reports the end may
  /// be executing.
  template <std::size_t I>
  void let_go_of() noexcept {
    auto& operation = std::get<I>(operations_);
    if (!operation || I == winner_ || I == begins_ || entries_[I].over) return;
    if constexpr (requires { operation->runs(); }) {
      if (operation->runs()) return;
    }
    operation.reset();
  }
  /// Returns the value of the operation that ended first. Destroys the other operations before it
  /// takes the value, because taking it may use or move a stream that they wait for.
  template <std::size_t... I>
  Value take(std::index_sequence<I...>) {
    ((I != winner_ ? std::get<I>(operations_).reset() : void()), ...);
    return value_from<0>();
  }
  /// Returns the value of the operation that ended first, which is operation I or a later one.
  template <std::size_t I>
  Value value_from() {
    if constexpr (I + 1 < sizeof...(Operations))
      if (I != winner_) return value_from<I + 1>();
    auto& operation = *std::get<I>(operations_);
    if constexpr (std::is_void_v<decltype(operation.await_resume())>) {
      operation.await_resume();
      return Value(std::in_place_index<I>);
    } else {
      return Value(std::in_place_index<I>, operation.await_resume());
    }
  }

  std::tuple<std::optional<Operations>...> operations_;
  std::array<Entry, sizeof...(Operations)> entries_;
};

}  // namespace detail

/// Runs operations and tasks concurrently until one ends, and cancels the others:
/// `co_await first(peer.read(buffer), sleep(loop, 1s))` returns a variant whose index() says which
/// operation ended; a void result becomes std::monostate. The operations start in order. If one of
/// them completes at once, it has ended first, and those after it never start. An empty task throws
/// std::bad_alloc.
///
/// If an operation ends while a task among the operations is running (the operation ended in a
/// nested iteration of the loop), that task continues until it waits, and first() completes then;
/// the other operations are cancelled at once. Takes its arguments by value: everything that
/// co_await accepts.
template <class... Awaitables>
requires(sizeof...(Awaitables) > 0 && (!std::is_lvalue_reference_v<Awaitables> && ...))
    [[nodiscard]] detail::First<detail::OperationOf<Awaitables>...> first(
        Awaitables&&... awaitables) {
  return detail::First<detail::OperationOf<Awaitables>...>(
      detail::operation_of(std::forward<Awaitables>(awaitables))...);
}

/// Rejects lvalues at compile time, since first() takes ownership of its arguments:
/// first(std::move(task), ...).
template <class... Awaitables>
requires(std::is_lvalue_reference_v<Awaitables> || ...) detail::Refused first(Awaitables&&...)
= delete;

}}}  // namespace conn::co
