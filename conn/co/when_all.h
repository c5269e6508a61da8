// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs several operations concurrently until all of them have ended.

#include <array>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ae/abi.h"
#include "conn/co/awaitable.h"
#include "conn/co/first.h"
#include "conn/co/running.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

namespace detail {

/// The part of when_all() that does not depend on the types of its operations. Counts the
/// operations that have not ended, and resumes the awaiting coroutine when the last one has ended.
/// The result of an operation is taken as soon as the operation ends, so that, for example, the
/// space of a value popped from a queue is free for other tasks at once.
class Gathering : public OfLibrary, public Node {
 protected:
  /// Given to one of the operations as the coroutine to resume, to learn that it has ended.
  struct Entry : Link {
    Entry() noexcept : Link(&Gathering::ended) {}
    Gathering* owner = nullptr;
    // stores the result of the operation that this entry belongs to
    void (*take)(Gathering&) noexcept = nullptr;
    bool over = false;
  };
  static constexpr std::size_t kNone = std::size_t(-1);

  Gathering(std::size_t count, void (*its_let_go)(Node&) noexcept) noexcept : missing_(count) {
    let_go = its_let_go;
  }
  ~Gathering() = default;

  void complete(Entry& entry) noexcept {
    entry.over = true;
    entry.take(*this);
    --missing_;
  }

  Waiter waiter_;
  std::size_t missing_;  // number of operations that have not ended
  // index of the operation that is being started now; kNone at other times
  std::size_t begins_ = kNone;

 private:
  static Waiter ended(Link& link) noexcept {
    Entry& entry = static_cast<Entry&>(link);
    Gathering& self = *entry.owner;
    self.complete(entry);
    // While operations are being started, the awaiting coroutine has not suspended yet, so it is
    // not resumed.
    return self.missing_ == 0 && self.begins_ == kNone ? self.waiter_ : Waiter();
  }
};

template <class... Operations>
class WhenAll : public Gathering, private Watched {
  template <class Operation>
  using ValueOf =
      FirstValue<std::remove_cvref_t<decltype(std::declval<Operation&>().await_resume())>>;

 public:
  using Values = std::tuple<ValueOf<Operations>...>;

  explicit WhenAll(Operations&&... operations)
      : Gathering(sizeof...(Operations), &let_go_of_all), operations_(std::move(operations)...) {}
  /// Moves the operations. They may be moved only before the wait begins.
  WhenAll(WhenAll&& other) noexcept
      : Gathering(sizeof...(Operations), &let_go_of_all),
        operations_(std::move(other.operations_)) {}
  WhenAll& operator=(WhenAll&&) = delete;

  bool await_ready() const noexcept { return false; }
  /// Starts the operations in order. If an operation is a task, it runs until it waits before the
  /// next operation is started.
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) noexcept {
    waiter_ = Waiter(awaiting);
    above = node_of(awaiting);
    const Watch watch(*this);
    begin(watch, std::index_sequence_for<Operations...>{});
    if (watch.gone()) return true;
    begins_ = kNone;
    return missing_ != 0;
  }
  Values await_resume() { return take_all(std::index_sequence_for<Operations...>{}); }
  /// Returns whether one of the operations passed to when_all() is a task that is running
  /// (running.h).
  bool runs() const noexcept { return Resumption::runs(*this); }

 private:
  template <std::size_t... I>
  void begin(const Watch& watch, std::index_sequence<I...>) noexcept {
    ((watch.gone() ? void() : begin<I>()), ...);
  }
  template <std::size_t I>
  void begin() noexcept {
    // The operation was cancelled while an earlier operation of this when_all() was being started.
    if (!std::get<I>(operations_)) return;
    begins_ = I;
    Entry& entry = entries_[I];
    entry.owner = this;
    entry.node = this;
    entry.take = &take<I>;
    try {
      if (waits<I>(entry.handle())) return;
    } catch (...) {
      thrown_[I] = std::current_exception();
    }
    if (!entry.over) complete(entry);
  }
  /// Starts operation I. Returns whether it has to wait.
  template <std::size_t I>
  bool waits(std::coroutine_handle<> entry) {
    auto& operation = *std::get<I>(operations_);
    if (operation.await_ready()) return false;
    if constexpr (std::is_void_v<decltype(operation.await_suspend(entry))>) {
      operation.await_suspend(entry);
      return true;
    } else {
      return operation.await_suspend(entry);
    }
  }
  /// Stores the result of operation I, or the exception that it threw.
  template <std::size_t I>
  static void take(Gathering& gathering) noexcept {
    WhenAll& self = static_cast<WhenAll&>(gathering);
    if (self.thrown_[I]) return;
    auto& operation = *std::get<I>(self.operations_);
    auto& value = std::get<I>(self.values_);
    try {
      if constexpr (std::is_void_v<decltype(operation.await_resume())>) {
        operation.await_resume();
        value.emplace();
      } else {
        value.emplace(operation.await_resume());
      }
    } catch (...) {
      self.thrown_[I] = std::current_exception();
    }
  }
  static void let_go_of_all(Node& node) noexcept {
    static_cast<WhenAll&>(static_cast<Gathering&>(node))
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
    if (!operation || I == begins_ || entries_[I].over) return;
    if constexpr (requires { operation->runs(); }) {
      if (operation->runs()) return;
    }
    operation.reset();
  }
  template <std::size_t... I>
  Values take_all(std::index_sequence<I...>) {
    for (std::exception_ptr& thrown : thrown_)
      if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
    return Values(std::move(*std::get<I>(values_))...);
  }

  std::tuple<std::optional<Operations>...> operations_;
  std::tuple<std::optional<ValueOf<Operations>>...> values_;
  std::array<std::exception_ptr, sizeof...(Operations)> thrown_;
  std::array<Entry, sizeof...(Operations)> entries_;
};

}  // namespace detail

/// Runs operations and tasks concurrently until all have ended, and returns a tuple of their
/// results: `co_await when_all(peer.write(request), peer.read(buffer))`; a void result becomes
/// std::monostate. The operations start in order; each runs until it waits before the next one
/// starts.
///
/// An exception cancels nothing: when all operations have ended, when_all() throws the exception of
/// the first argument that threw. Cancelling the awaiting task cancels the operations that have not
/// ended; the results of the others are lost. An empty task throws std::bad_alloc.
///
/// Takes its arguments by value: everything that co_await accepts. For a number of tasks that is
/// known only at run time use Scope and WaitGroup.
template <class... Awaitables>
requires(sizeof...(Awaitables) > 0 && (!std::is_lvalue_reference_v<Awaitables> && ...))
    [[nodiscard]] detail::WhenAll<detail::OperationOf<Awaitables>...> when_all(
        Awaitables&&... awaitables) {
  return detail::WhenAll<detail::OperationOf<Awaitables>...>(
      detail::operation_of(std::forward<Awaitables>(awaitables))...);
}

/// Rejects lvalues at compile time, since when_all() takes ownership of its arguments:
/// when_all(std::move(task), ...).
template <class... Awaitables>
requires(std::is_lvalue_reference_v<Awaitables> || ...) detail::Refused when_all(Awaitables&&...)
= delete;

}}}  // namespace conn::co
