// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Lane: one direction (reading or writing) of a Stream. It has the operation that waits for this
// direction, the handler that is set on the connection, and the timer for the operation's time-out.
//
// The handler stays set from one operation to the next if the same coroutine waits again before it
// returns to the loop, and one timer serves all time-outs of the lane. Then a new wait changes
// neither the handler nor the timer, which makes it cheap.

#include <cassert>
#include <cerrno>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/co/result.h"
#include "conn/co/running.h"
#include "conn/connection.h"

namespace conn { inline namespace AECONN_ABI { namespace co::detail {

class Lane;
class Operation;

/// Resumes an operation whose stream has released the connection. Does so from the loop, in its
/// next iteration.
struct DeferredResume {
  inline explicit DeferredResume(Operation& to) noexcept;
  DeferredResume(const DeferredResume&) = delete;
  DeferredResume& operator=(const DeferredResume&) = delete;
  inline ~DeferredResume();
  inline void run();
  Operation* operation;  // the operation to resume; null once it has resumed or is destroyed
};

/// Base of the operations of a Stream. An operation is tried again until it completes. It lives in
/// the frame of the awaiting coroutine. Destroying it ends the wait and loses no data.
class Operation : public OfLibrary {
 public:
  Operation(Operation&& other) noexcept
      : lane_(other.lane_), limit_(other.limit_), nothing_(other.nothing_) {
    assert(!other.waiting_);
  }
  Operation& operator=(Operation&&) = delete;

  inline bool await_ready();
  template <class Awaiting>
  bool await_suspend(std::coroutine_handle<Awaiting> awaiting) noexcept {
    waiter_ = Waiter(awaiting);
    return wait();
  }

 protected:
  /// `limit`: time-out of the operation. `nothing`: whether there are no bytes to move, so that the
  /// operation completes at once.
  Operation(Lane& lane, ae::Duration limit, bool nothing = false) noexcept
      : lane_(&lane), limit_(limit), nothing_(nothing) {}
  virtual inline ~Operation();
  /// Tries once to complete the operation. Returns true if it is complete then.
  virtual bool advance() = 0;
  /// Called instead of advance() if the awaiting coroutine can resume only later, and may be
  /// cancelled before that. An operation that can postpone taking the data takes nothing here and
  /// calls be_late(). Returns true if the operation is complete.
  virtual bool look() { return advance(); }
  void be_late() noexcept { late_ = true; }
  /// Takes the data that look() has found but not taken. Called when the awaiting coroutine
  /// resumes.
  void take_late() noexcept {
    if (late_) [[unlikely]]
      advance_late();
  }
  inline Connection& connection() const noexcept;
  /// Handles `err`, the errno value of a failed call on the connection. Returns true if it ends the
  /// operation; EAGAIN does not end it.
  inline bool failed(int err) noexcept;

  Lane* lane_;
  std::errc error_{};

 private:
  friend class Lane;
  friend struct DeferredResume;
  inline bool wait() noexcept;
  inline void lose_lane(ae::EventLoop* loop) noexcept;
  inline void advance_late() noexcept;
  bool over() { return waiter_.would_wait() ? look() : advance(); }
  void end() {  // must be called last, since the coroutine may destroy this operation
    waiting_ = late_;
    waiter_.resume();
  }

  // Resumes this operation from the loop, after the stream has released its connection; null at
  // other times.
  DeferredResume* deferred_resume_ = nullptr;
  ae::Duration limit_;
  ae::TimePoint deadline_;
  Waiter waiter_;
  bool waiting_ = false;
  // True if data has been found, but stays in the connection until the coroutine resumes. The
  // operation remains the waiting operation of its Lane until then.
  bool late_ = false;
  const bool nothing_;
};

class Lane {
 public:
  enum class Direction : bool { kRead, kWrite };

  /// Makes a lane for reading from or writing to `connection`. `at_once` is shared by both lanes of
  /// a stream: the number of tries made since an operation last waited.
  Lane(Direction direction, Connection* connection, unsigned& at_once) noexcept
      : direction_(direction), at_once_(at_once), connection_(connection) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;
  ~Lane() { leave_connection(); }
  /// Stops serving the current connection and serves `connection` from now on, like a new lane.
  void take_connection(Connection* connection) noexcept {
    leave_connection();
    connection_ = connection;
    ready_ = true;
  }

  /// Returns whether an operation should try at once, before the loop reports readiness. Such tries
  /// are limited in number and time, so that other handlers can run.
  bool worth_trying() noexcept {
    return (ready_ && ++at_once_ <= kAtOnce && has_time()) ||
           connection_->state() != State::kConnected;
  }
  /// Records whether the connection is expected to be ready for the next operation, which
  /// is then tried at once.
  void expect(bool ready) noexcept { ready_ = ready; }
  bool expected() const noexcept { return ready_; }
  Connection& connection() const noexcept { return *connection_; }

  /// Returns the reason why no operation can begin now; std::errc() if one can.
  std::errc refusal() const noexcept {
    if (waiting_ != nullptr) return std::errc::device_or_resource_busy;
    return connection_ != nullptr ? std::errc() : std::errc::not_connected;
  }
  /// Makes `operation` wait until the connection is ready, or its time-out expires. Returns
  /// std::errc(), or the reason why the operation cannot wait.
  std::errc enter(Operation& operation) noexcept {
    if (const std::errc why = refusal(); why != std::errc()) return why;
    at_once_ = 0;
    try {
      set_limit(operation);
      arm();
    } catch (const std::bad_alloc&) {
      return std::errc::not_enough_memory;
    }
    waiting_ = &operation;
    return std::errc();
  }
  void leave() noexcept {
    waiting_ = nullptr;
    ready_ = true;  // data that look() has found is still unread, so the connection counts as ready
    if (watch_ == nullptr) disarm();
  }

  /// Ends the wait of the waiting operation at `deadline`, unless its own time-out is earlier. If
  /// there is no memory for a timer the wait goes on.
  void end_by(ae::TimePoint deadline) noexcept {
    ae::EventLoop* const loop = connection_->loop();
    if (waiting_ == nullptr || waiting_->deadline_ <= deadline || loop == nullptr) return;
    try {
      set_timer(*loop, deadline);
      waiting_->deadline_ = deadline;
    } catch (const std::bad_alloc&) {
    }
  }

  /// Stops serving the connection, which is about to be closed or handed over. Cancels the
  /// operation that waits for it (ECANCELED).
  void leave_connection() noexcept {
    for (Watch* each = std::exchange(watch_, nullptr); each != nullptr; each = each->around)
      each->lane = nullptr;
    if (connection_ == nullptr) return;
    ae::EventLoop* const loop = connection_->loop();
    if (waiting_ != nullptr) std::exchange(waiting_, nullptr)->lose_lane(loop);
    if (timer_ != 0 && loop != nullptr) loop->remove_time_event(timer_);
    disarm();
    timer_ = 0;
    connection_ = nullptr;
  }

 private:
  static constexpr unsigned kAtOnce = 64;
  // Number of tries in a row that are made without checking whether the loop's iteration has time
  // left: usually one that writes a response, and one that reads the next request.
  static constexpr unsigned kUnasked = 2;

  bool has_time() const noexcept {
    ae::EventLoop* const loop = at_once_ <= kUnasked ? nullptr : connection_->loop();
    return loop == nullptr || loop->has_time();
  }

  /// Says whether the Lane still exists after it has resumed a coroutine, which may destroy the
  /// Lane. A Watch is a local variable of the function that resumes the coroutine. Watches are
  /// nested: the resumed coroutine may run a nested iteration of the loop, in which the Lane
  /// resumes another coroutine.
  struct Watch {
    explicit Watch(Lane& watched) noexcept
        : lane(&watched), around(std::exchange(watched.watch_, this)) {}
    ~Watch() {
      if (lane != nullptr) lane->watch_ = around;
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    Lane* lane;
    Watch* const around;
  };

  void arm() {
    if (armed_) return;
    // This handler fits into std::function's own storage, so setting it allocates no memory.
    const auto handler = [this](Connection&) { on_ready(); };
    if (direction_ == Direction::kRead) {
      connection_->set_read_handler(handler);
    } else {
      connection_->set_write_handler(handler);
    }
    armed_ = true;
  }
  void disarm() noexcept {
    if (!std::exchange(armed_, false)) return;
    ready_ = true;
    try {
      if (direction_ == Direction::kRead) {
        connection_->set_read_handler(nullptr);
      } else {
        connection_->set_write_handler(nullptr);
      }
    } catch (const std::bad_alloc&) {
      // The transport has no memory to end its watch for readiness. The handler is removed
      // nevertheless.
    }
  }

  void on_ready() {
    if (waiting_ == nullptr) return disarm();
    ready_ = true;
    if (waiting_->over()) wake();
  }

  void wake() {
    if (waiting_->late_) [[unlikely]]
      return tell_late();
    Operation& operation = *std::exchange(waiting_, nullptr);
    const Watch watch(*this);
    operation.end();
    if (watch.lane != nullptr && waiting_ == nullptr) disarm();
  }

  void tell_late() {
    disarm();
    waiting_->deadline_ = ae::TimePoint::max();
    waiting_->end();
  }

  void set_limit(Operation& operation) {
    operation.deadline_ = ae::TimePoint::max();
    ae::EventLoop* const loop = connection_->loop();
    if (operation.limit_ == kNoLimit || loop == nullptr) return;
    // Reads the clock, not the loop's time: after a long handler the loop's time is old, and
    // time-outs would expire early.
    const ae::TimePoint now = std::chrono::steady_clock::now();
    if (operation.limit_ >= ae::TimePoint::max() - now) return;
    const ae::TimePoint deadline = now + operation.limit_;
    set_timer(*loop, deadline);
    operation.deadline_ = deadline;
  }
  /// Makes the timer expire at `deadline` at the latest.
  void set_timer(ae::EventLoop& loop, ae::TimePoint deadline) {
    if (timer_ == 0) {
      timer_ = loop.add_time_event(deadline, [this] { return on_time(); });
      due_ = deadline;
    } else if (deadline < due_) {
      loop.again(timer_, deadline);
      due_ = deadline;
    }
  }

  /// Ends the waiting operation if its deadline has passed. If the deadline is later than the time
  /// that the timer was set for, only sets the timer again, by returning the remaining time.
  ae::Duration on_time() {
    if (waiting_ != nullptr && waiting_->deadline_ != ae::TimePoint::max()) {
      const ae::TimePoint now = std::chrono::steady_clock::now();
      if (now < waiting_->deadline_) {
        due_ = waiting_->deadline_;
        return due_ - now;
      }
      timer_ = 0;
      // Tries once more before reporting the time-out: data may have arrived whose handler has not
      // run yet.
      if (!waiting_->over()) waiting_->error_ = std::errc::timed_out;
      ready_ = true;
      wake();
      return ae::kNoMore;
    }
    timer_ = 0;
    return ae::kNoMore;
  }

  const Direction direction_;
  bool armed_ = false;  // true if this lane's handler is set on the connection
  bool ready_ = true;
  unsigned& at_once_;
  Connection* connection_;
  Operation* waiting_ = nullptr;
  Watch* watch_ = nullptr;  // the innermost Watch; null: the lane is resuming no coroutine
  ae::TimerId timer_ = 0;
  ae::TimePoint due_;
};

inline bool Operation::await_ready() {
  error_ = lane_->refusal();
  if (nothing_) {  // an operation without bytes completes even if another one waits
    if (error_ == std::errc::device_or_resource_busy) error_ = std::errc();
    return true;
  }
  return error_ != std::errc() || (lane_->worth_trying() && advance());
}

inline bool Operation::wait() noexcept {
  const std::errc why = lane_->enter(*this);
  waiting_ = why == std::errc();
  if (!waiting_) error_ = why;
  return waiting_;
}

inline Operation::~Operation() {
  if (!waiting_) return;
  if (lane_ != nullptr) {
    lane_->leave();
  } else if (deferred_resume_ != nullptr) {
    deferred_resume_->operation = nullptr;
  }
}

// Ends the operation with ECANCELED. The coroutine is resumed from the loop, not here, since the
// caller is in the middle of releasing the connection.
inline void Operation::lose_lane(ae::EventLoop* loop) noexcept {
  lane_ = nullptr;
  error_ = std::errc::operation_canceled;
  if (std::exchange(late_, false)) return;  // the awaiting coroutine is already about to resume
  if (loop == nullptr) return;  // the loop was destroyed, so nothing can resume the coroutine
  try {
    loop->add_time_event(ae::Duration::zero(), [resume = std::make_shared<DeferredResume>(*this)] {
      resume->run();
      return ae::kNoMore;
    });
  } catch (const std::bad_alloc&) {
    // There is no memory to resume the coroutine. The operation waits until it is cancelled.
  }
}

inline void Operation::advance_late() noexcept {
  late_ = waiting_ = false;
  lane_->leave();
  try {
    // Tries to take the data; this fails if another operation has taken it meanwhile.
    if (!advance()) error_ = std::errc::resource_unavailable_try_again;
  } catch (const std::bad_alloc&) {
    error_ = std::errc::not_enough_memory;
  }
}

inline DeferredResume::DeferredResume(Operation& to) noexcept : operation(&to) {
  to.deferred_resume_ = this;
}

inline DeferredResume::~DeferredResume() {
  if (operation != nullptr) operation->deferred_resume_ = nullptr;
}

inline void DeferredResume::run() {
  if (operation == nullptr) return;
  Operation& last = *std::exchange(operation, nullptr);
  last.deferred_resume_ = nullptr;
  last.end();
}

inline Connection& Operation::connection() const noexcept { return lane_->connection(); }

inline bool Operation::failed(int err) noexcept {
  lane_->expect(err != EAGAIN);
  if (err == EAGAIN) return false;
  error_ = static_cast<std::errc>(err);
  return true;
}

}}}  // namespace conn::co::detail
