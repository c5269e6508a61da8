// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A queue of values with a maximum size, through which tasks pass values to each other.

#include <cassert>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/semaphore.h"

namespace conn { inline namespace AECONN_ABI { namespace co {

/// Contains up to `capacity` values. Any number of tasks may push values, and wait while the queue
/// is full; any number may pop values, and wait while it is empty. Tasks that wait to push, and
/// tasks that wait to pop, are each served in the order in which they began to wait. Use it on one
/// loop's thread only. Pushing and popping allocate no memory. Cancelling a waiting task loses no
/// value: a value is either in the queue, or still in the operation that pushes it. The queue must
/// not be used after the loop's end. Tasks that wait when the queue is destroyed resume without
/// success.
template <class T>
class Queue {
  static_assert(std::is_nothrow_move_constructible_v<T>,
                "co::Queue: its values must be movable without an exception");

 public:
  class Push;
  class Pop;

  /// Makes an empty queue for up to `capacity` values; 0 is treated as 1. Throws std::bad_alloc.
  Queue(ae::EventLoop& loop, std::size_t capacity)
      : places_(capacity == 0 ? 1 : capacity), room_(loop, places_.size()), values_(loop, 0) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  /// Waits until the queue has space, pushes `value` and returns true. Returns false if the
  /// time-out expires or the queue is closed; the value is then destroyed with the operation.
  [[nodiscard]] Push push(T value, ae::Duration limit = kNoLimit) noexcept {
    return Push(*this, std::move(value), limit);
  }
  /// Pushes `value` without waiting and returns true. Returns false if the queue is full or closed;
  /// `value` is then unchanged.
  bool try_push(T& value) noexcept {
    if (closed_ || !room_.try_take()) return false;
    put(std::move(value));
    return true;
  }
  /// Pushes a temporary without waiting and returns true. Returns false if the queue is full or
  /// closed; the value is then lost.
  bool try_push(T&& value) noexcept { return try_push(value); }
  /// Waits until there is a value, removes the oldest value and returns it. Returns no value if the
  /// time-out expires, or if the queue is closed and empty.
  [[nodiscard]] Pop pop(ae::Duration limit = kNoLimit) noexcept { return Pop(*this, limit); }
  /// Removes the oldest value and returns it, without waiting. Returns no value if the queue is
  /// empty.
  std::optional<T> try_pop() noexcept {
    if (!values_.try_take()) return std::nullopt;
    return take();
  }
  /// Closes the queue: no more values can be pushed; the remaining ones can still be popped.
  /// Waiting pushes resume with false, waiting pops without a value.
  void close() noexcept {
    closed_ = true;
    room_.dismiss_all();
    values_.dismiss_all();
  }
  bool closed() const noexcept { return closed_; }     ///< returns whether close() was called
  std::size_t size() const noexcept { return size_; }  ///< number of values in the queue now
  /// Maximum number of values in the queue.
  std::size_t capacity() const noexcept { return places_.size(); }

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

/// The operation that Queue::push() returns; it must be awaited.
template <class T>
class Queue<T>::Push final : public detail::PermitWait {
 public:
  /// Makes the operation; called by Queue::push() only.
  Push(Queue& queue, T&& value, ae::Duration limit) noexcept
      : PermitWait(queue.room_, limit), queue_(&queue), value_(std::move(value)) {}
  /// Called by co_await: returns whether the operation is complete without waiting.
  bool await_ready() noexcept { return queue_->closed_ || try_take(); }
  /// Called by co_await: returns whether the value is in the queue.
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

/// The operation that Queue::pop() returns; it must be awaited.
template <class T>
class Queue<T>::Pop final : public detail::PermitWait {
 public:
  /// Makes the operation; called by Queue::pop() only.
  Pop(Queue& queue, ae::Duration limit) noexcept
      : PermitWait(queue.values_, limit), queue_(&queue) {}
  /// Called by co_await: returns whether the operation is complete without waiting.
  bool await_ready() noexcept { return try_take() || queue_->closed_; }
  /// Called by co_await: returns the value, or no value if there was none.
  std::optional<T> await_resume() noexcept {
    if (!has_permit()) return std::nullopt;
    use();
    return queue_->take();
  }

 private:
  Queue* queue_;
};

}}}  // namespace conn::co
