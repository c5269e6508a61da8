// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Values from one task to another.

#include <cassert>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/wait.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

template <class T>
class Queue;

namespace detail {

/// So many may do something at a time. Others wait, and get what is given back in the order in
/// which they came; one that was woken has its permit already, so that nobody overtakes it.
class Permits {
 public:
  Permits(ae::EventLoop& loop, std::size_t free) : waits_(loop), free_(free) {}

  bool try_take() noexcept {
    if (free_ == 0) return false;
    --free_;
    return true;
  }
  void give() noexcept {
    if (waits_.empty())
      ++free_;
    else
      waits_.wake_first();
  }
  /// Who waits for one goes on without it.
  void dismiss_all() noexcept { waits_.dismiss_all(); }

 private:
  friend class PermitWait;
  WaitList waits_;
  std::size_t free_;
};

/// Gives its permit back unless that was used.
class PermitWait : public Wait {
 public:
  PermitWait(PermitWait&&) = default;
  PermitWait& operator=(PermitWait&&) = delete;

 protected:
  PermitWait(Permits& permits, ae::Duration limit) noexcept
      : Wait(permits.waits_, limit), permits_(&permits) {}
  ~PermitWait() override {
    if (has_permit()) permits_->give();
  }
  bool try_take() noexcept {
    if (permits_->try_take()) be_woken();
    return woken();
  }
  bool has_permit() const noexcept { return woken() && !used_ && list_is_there(); }
  void use() noexcept { used_ = true; }

 private:
  Permits* permits_;
  bool used_ = false;
};

}  // namespace detail

/// Holds up to `capacity` values. Any number of tasks push, and wait where it is full, and any
/// number pop, and wait where it is empty, each in the order in which they came. All on one loop's
/// thread; pushing and popping take no memory. Cancelling a task that waits loses no value: one
/// that is pushed is the queue's, or still the operation's. Not after the loop's end; who waits
/// when the queue ends goes on without success.
template <class T>
class Queue {
  static_assert(std::is_nothrow_move_constructible_v<T>,
                "co::Queue: its values must be movable without an exception");

 public:
  class Push;
  class Pop;

  /// Throws std::bad_alloc. A capacity of 0 is taken as 1.
  Queue(ae::EventLoop& loop, std::size_t capacity)
      : places_(capacity == 0 ? 1 : capacity), room_(loop, places_.size()), values_(loop, 0) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Until there is room: true. False after the limit and where the queue is closed: the value is
  /// gone with the operation then.
  [[nodiscard]] Push push(T value, ae::Duration limit = kNoLimit) noexcept {
    return Push(*this, std::move(value), limit);
  }
  /// Without waiting: false where there is no room, or it is closed, and `value` is as it was.
  bool try_push(T& value) noexcept {
    if (closed_ || !room_.try_take()) return false;
    put(std::move(value));
    return true;
  }
  /// The same of a temporary, which is gone in any case.
  bool try_push(T&& value) noexcept { return try_push(value); }
  /// The oldest value, once there is one. None after the limit, and where the queue is closed and
  /// empty.
  [[nodiscard]] Pop pop(ae::Duration limit = kNoLimit) noexcept { return Pop(*this, limit); }
  /// Without waiting.
  std::optional<T> try_pop() noexcept {
    if (!values_.try_take()) return std::nullopt;
    return take();
  }
  /// Nothing more is pushed; what is there is popped. Who waits to push gets false, and who waits
  /// to pop gets none.
  void close() noexcept {
    closed_ = true;
    room_.dismiss_all();
    values_.dismiss_all();
  }
  bool closed() const noexcept { return closed_; }                  ///< whether close() was called
  std::size_t size() const noexcept { return size_; }               ///< how many values are in it
  std::size_t capacity() const noexcept { return places_.size(); }  ///< how many fit

 private:
  void put(T&& value) noexcept {
    places_[(first_ + size_++) % places_.size()].emplace(std::move(value));
    values_.give();
  }
  std::optional<T> take() noexcept {
    std::optional<T>& place = places_[first_];
    std::optional<T> value(std::move(place));
    place.reset();
    first_ = (first_ + 1) % places_.size();
    --size_;
    room_.give();
    return value;
  }

  std::vector<std::optional<T>> places_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  bool closed_ = false;
  detail::Permits room_;
  detail::Permits values_;
};

/// What Queue::push() gives, to be awaited.
template <class T>
class Queue<T>::Push final : public detail::PermitWait {
 public:
  /// For Queue::push().
  Push(Queue& queue, T&& value, ae::Duration limit) noexcept
      : PermitWait(queue.room_, limit), queue_(&queue), value_(std::move(value)) {}
  /// Whether there is no need to wait. For co_await.
  bool await_ready() noexcept { return queue_->closed_ || try_take(); }
  /// Whether the value is in the queue. For co_await.
  bool await_resume() noexcept {
    if (!has_permit() || queue_->closed_) return false;
    use();
    queue_->put(std::move(value_));
    return true;
  }

 private:
  Queue* queue_;
  T value_;
};

/// What Queue::pop() gives, to be awaited.
template <class T>
class Queue<T>::Pop final : public detail::PermitWait {
 public:
  /// For Queue::pop().
  Pop(Queue& queue, ae::Duration limit) noexcept
      : PermitWait(queue.values_, limit), queue_(&queue) {}
  /// Whether there is no need to wait. For co_await.
  bool await_ready() noexcept { return try_take() || queue_->closed_; }
  /// The value, or none. For co_await.
  std::optional<T> await_resume() noexcept {
    if (!has_permit()) return std::nullopt;
    use();
    return queue_->take();
  }

 private:
  Queue* queue_;
};

}}}  // namespace conn::co
