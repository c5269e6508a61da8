// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Implementation of the asynchronous operations of adapters/asio.h. Not for use by programs.

#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>

#include "adapters/asio_namespace.h"
#include "ae/abi.h"
#include "conn/connection.h"

namespace adapters { inline namespace AECONN_ABI { namespace asio {
inline namespace AECONN_ASIO_INLINE { namespace detail {

using Executor = net::any_io_executor;

// Per-operation cancellation exists since asio 1.19 (Boost 1.77).
#if AECONN_ASIO_VERSION >= 101900
inline constexpr bool kHasSlots = true;
template <class Handler, class Cancel>
void set_cancel(const Handler& handler, Cancel cancel) {
  auto slot = net::get_associated_cancellation_slot(handler);
  if (!slot.is_connected()) return;
  // A waiting operation has transferred nothing, so all three kinds of cancellation are possible,
  // and have the same effect.
  slot.assign([cancel](net::cancellation_type_t kind) {
    if (kind != net::cancellation_type_t::none) cancel();
  });
}
template <class Handler>
void forget_cancel(const Handler& handler) {
  auto slot = net::get_associated_cancellation_slot(handler);
  if (slot.is_connected()) slot.clear();
}
#else
inline constexpr bool kHasSlots = false;
template <class Handler, class Cancel>
void set_cancel(const Handler&, Cancel) {}
template <class Handler>
void forget_cancel(const Handler&) {}
#endif

/// Returns an errno value as an error code in the category of asio's own errors, so that programs
/// can compare it with them.
inline ErrorCode from_errno(int code) { return {code, net::error::get_system_category()}; }
inline ErrorCode from_std(const std::error_code& code) {
  return from_errno(code.default_error_condition().value());
}

/// A handler together with its results, to be posted; has the associated executor and allocator of
/// the handler.
template <class Handler, class... Results>
class Completion {
 public:
  using executor_type = net::associated_executor_t<Handler, Executor>;
  using allocator_type = net::associated_allocator_t<Handler>;

  Completion(Handler&& handler, const Executor& executor, Results... results)
      : handler_(std::move(handler)), executor_(executor), results_(std::move(results)...) {}

  executor_type get_executor() const noexcept {
    return net::get_associated_executor(handler_, executor_);
  }
  allocator_type get_allocator() const noexcept { return net::get_associated_allocator(handler_); }
  void operator()() {
    forget_cancel(handler_);
    std::apply([this](auto&... results) { std::move(handler_)(std::move(results)...); }, results_);
  }

 private:
  Handler handler_;
  Executor executor_;
  std::tuple<Results...> results_;
};

template <class Handler, class... Results>
void post(const Executor& executor, Handler&& handler, Results... results) {
  net::post(executor, Completion<std::decay_t<Handler>, Results...>(std::move(handler), executor,
                                                                    std::move(results)...));
}

/// Result of an operation.
struct Outcome {
  ErrorCode error;
  std::size_t size = 0;
  conn::ConnectionPtr connection;
};

/// A waiting operation. finish() and discard() first free the operation itself.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// For reads and writes: tries the operation. Returns false if it must continue to wait.
  virtual bool attempt(conn::Connection&, Outcome&) { return false; }
  /// Posts the operation's handler.
  virtual void finish(Outcome outcome) = 0;
  /// Destroys the operation's handler without running it.
  virtual void discard() noexcept = 0;

  /// Identifies the operation; never reused, because a cancellation may come too late.
  std::uint64_t id = 0;

 protected:
  virtual ~Operation() = default;

 private:
  friend class Operations;
  Operation* next_ = nullptr;
};

/// A queue of operations, linked through their own members.
class Operations {
 public:
  Operations() = default;
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;
  ~Operations() { discard_all(); }

  bool empty() const noexcept { return first_ == nullptr; }
  Operation* first() const noexcept { return first_; }
  void push(Operation* operation) noexcept {
    Operation** end = &first_;
    while (*end != nullptr) end = &(*end)->next_;
    *end = operation;
  }
  Operation* pop() noexcept { return std::exchange(first_, first_->next_); }
  /// Removes the operation `id` and returns it; null if it is no longer in the queue.
  Operation* take(std::uint64_t id) noexcept {
    for (Operation** at = &first_; *at != nullptr; at = &(*at)->next_)
      if ((*at)->id == id) return std::exchange(*at, (*at)->next_);
    return nullptr;
  }
  void abort_all() {
    while (!empty()) pop()->finish({net::error::operation_aborted, 0, nullptr});
  }
  void discard_all() noexcept {
    while (!empty()) pop()->discard();
  }

 private:
  Operation* first_ = nullptr;
};

/// An operation in memory from the allocator of its handler. It counts as outstanding work of its
/// executors. `Kind` is the derived class; its deliver(executor, handler, outcome) runs after the
/// operation was freed.
template <class Kind, class Handler>
class OperationOf : public Operation {
 public:
  OperationOf(Handler&& handler, const Executor& executor)
      : handler_(std::move(handler)),
        executor_(executor),
        work_(executor),
        handler_work_(net::get_associated_executor(handler_, executor)) {}

  template <class... Arguments>
  static Kind* make(Handler&& handler, Arguments&&... arguments) {
    Allocator allocator(net::get_associated_allocator(handler));
    Kind* const memory = std::allocator_traits<Allocator>::allocate(allocator, 1);
    try {
      return new (memory) Kind(std::move(handler), std::forward<Arguments>(arguments)...);
    } catch (...) {
      std::allocator_traits<Allocator>::deallocate(allocator, memory, 1);
      throw;
    }
  }
  const Handler& handler() const noexcept { return handler_; }
  void finish(Outcome outcome) final {
    // Keeps counting as work until the completion is posted, which itself counts as work.
    const auto work = std::move(work_);
    const auto handler_work = std::move(handler_work_);
    const Executor executor = executor_;
    Handler handler = take();
    Kind::deliver(executor, std::move(handler), outcome);
  }
  void discard() noexcept final { [[maybe_unused]] const Handler dropped = take(); }

 private:
  using Allocator = typename std::allocator_traits<
      net::associated_allocator_t<Handler>>::template rebind_alloc<Kind>;

  Handler take() {
    Handler handler = std::move(handler_);
    Allocator allocator(net::get_associated_allocator(handler));
    Kind* const self = static_cast<Kind*>(this);
    self->~Kind();
    std::allocator_traits<Allocator>::deallocate(allocator, self, 1);
    return handler;
  }

  Handler handler_;
  Executor executor_;
  net::executor_work_guard<Executor> work_;
  net::executor_work_guard<net::associated_executor_t<Handler, Executor>> handler_work_;
};

/// One exists for each execution context. When the context ends, it discards the waiting
/// operations, as asio discards its own. They may own objects (such as coroutines) that own the
/// streams.
class Service final : public net::execution_context::service {
 public:
  class Member {
   public:
    explicit Member(const Executor& executor)
        : service_(&net::use_service<Service>(net::query(executor, net::execution::context))),
          next_(service_->first_) {
      service_->first_ = this;
      if (next_ != nullptr) next_->previous_ = this;
    }
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;
    /// Called when the execution context ends. Must not run any handler.
    virtual void context_ends() noexcept = 0;

   protected:
    virtual ~Member() { leave(); }

   private:
    friend class Service;
    void leave() noexcept {
      if (service_ == nullptr) return;
      (previous_ != nullptr ? previous_->next_ : service_->first_) = next_;
      if (next_ != nullptr) next_->previous_ = previous_;
      service_ = nullptr;
      next_ = previous_ = nullptr;
    }
    Service* service_;
    Member* next_;
    Member* previous_ = nullptr;
  };

  using key_type = Service;
  static inline net::execution_context::id id;
  explicit Service(net::execution_context& context) : net::execution_context::service(context) {}

 private:
  void shutdown() override {
    while (first_ != nullptr) {
      Member* const member = first_;
      member->leave();
      member->context_ends();
    }
  }
  Member* first_ = nullptr;
};

}  // namespace detail
}  // namespace AECONN_ASIO_INLINE
}}}  // namespace adapters::asio
