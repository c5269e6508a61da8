// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: the state that the parts of one loop share. It holds what the current
// process_events() call may do, how many handlers have run, and for how long an iteration may run
// handlers. All handlers run through guarded(), which catches exceptions.

#include <chrono>
#include <cstddef>
#include <ctime>
#include <exception>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// The time limit of each of the two parts of an iteration. One part runs the handlers of files,
/// posted functions and timers; the other runs the handlers of sources. Once a part has taken this
/// long, it runs at most one more handler of each kind.
inline constexpr Duration kSlice = std::chrono::milliseconds(10);
/// Returns the time of the last clock tick, which is at most a few milliseconds old. Reading it
/// costs half as much as reading the exact clock, and never makes a system call, whatever the
/// machine's clock source.
inline TimePoint coarse_now() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

class LoopCore {
 public:
  LoopCore() = default;
  LoopCore(const LoopCore&) = delete;
  LoopCore& operator=(const LoopCore&) = delete;

  // The kinds of work that the current process_events() call may do.
  Process allowed = kFullIteration;
  std::size_t ran = 0;  // number of handlers that have run so far, including those of sources

  bool in_handler() const noexcept { return depth_ != 0; }
  bool allows(Process what) const noexcept { return (allowed & what) != 0; }
  /// Whether handlers of the kind `what` may run. False once a handler of this iteration has
  /// thrown: the remaining handlers then keep their events for the next iteration.
  bool may_run(Process what) const noexcept { return !aborting_ && allows(what); }
  bool aborting() const noexcept { return aborting_; }
  void begin_iteration() noexcept { aborting_ = false; }

  /// Whether the loop is settled: an iteration only has to wait for descriptors and posted
  /// functions, and to serve them (in an EpollLoop, sources as well), so that it may skip
  /// everything else. The loop calls settle() after each of its parts has reported that it has
  /// nothing else to do. Code that gives the loop other work must call stir(), so that the next
  /// iteration asks the parts again.
  bool settled() const noexcept { return settled_; }
  void settle() noexcept { settled_ = true; }
  void stir() noexcept { settled_ = false; }
  void count_handler() noexcept { ++ran; }

  /// Begins one part of an iteration. The clock is read only when the part first needs its start
  /// time.
  void begin_slice() noexcept { time_known_ = false; }
  /// Call with the time when it has been read: a part that has not needed its start time yet uses
  /// it instead of reading the clock again.
  void set_time(TimePoint now) noexcept {
    if (!time_known_) time_ = now;
    time_known_ = true;
  }
  /// Like EventLoop::now(). Inside a handler this is the start time of the current part of the
  /// iteration, see begin_slice(). The clock is read only on first use in that part, so an
  /// iteration that never asks for the time does not pay for it.
  TimePoint now() const {
    if (!in_handler()) return std::chrono::steady_clock::now();
    return slice_began();
  }
  /// Whether the iteration has time for another handler, like EventLoop::has_time(). To be called
  /// before each handler of one kind except the first.
  bool has_time() const noexcept { return coarse_now() - slice_began() < kSlice; }
  /// For libev, which calls file handlers one by one: begin_files() begins the events of an
  /// iteration; may_run_another() allows the first handler, and further ones if has_time() is true.
  void begin_files() noexcept { ran_before_ = ran; }
  bool ran_any() const noexcept { return ran != ran_before_; }
  bool may_run_another() const noexcept { return !ran_any() || has_time(); }

  /// Runs `body` as a handler. Returns false if it threw; the exception is kept for take_error().
  template <class Body>
  [[gnu::always_inline]] bool guarded(Body&& body) noexcept {
    ++depth_;
    bool ended = true;
    try {
      body();
    } catch (...) {
      if (!error_) error_ = std::current_exception();
      abort_iteration();
      ended = false;
    }
    --depth_;
    return ended;
  }
  void abort_iteration() noexcept {
    aborting_ = true;
    stir();
  }
  bool has_error() const noexcept { return error_ != nullptr; }
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }
  void rethrow() {
    if (has_error()) std::rethrow_exception(take_error());
  }

 private:
  TimePoint slice_began() const noexcept {
    if (!time_known_) [[unlikely]]
      read_clock();
    return time_;
  }
  [[gnu::noinline]] void read_clock() const noexcept {
    time_ = std::chrono::steady_clock::now();
    time_known_ = true;
  }

  std::size_t ran_before_ = 0;  // number of handlers that had run when the current sleep began
  mutable TimePoint time_;
  mutable bool time_known_ = false;
  int depth_ = 0;
  bool aborting_ = false;
  bool settled_ = false;
  std::exception_ptr error_;
};

}}  // namespace ae
