// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: state shared by the parts of one loop. It holds what this process_events() call
// may do, how many handlers ran, and how long an iteration may run them. All handlers run through
// guarded().

#include <chrono>
#include <cstddef>
#include <ctime>
#include <exception>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// How long each of the two parts of an iteration may run handlers: one part is files, posts and
/// timers, the other is sources. After that each kind with due handlers runs at most one more.
inline constexpr Duration kSlice = std::chrono::milliseconds(10);
/// The time of the last clock tick, at most a few milliseconds old. Reading it costs half as much
/// as reading the exact clock, and is never a system call, whatever the machine's clock source.
inline TimePoint coarse_now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

class LoopCore {
 public:
  LoopCore() = default;
  LoopCore(const LoopCore&) = delete;
  LoopCore& operator=(const LoopCore&) = delete;

  Process allowed = kFullIteration;  // what this process_events() call may do
  std::size_t ran = 0;               // handlers run so far, including those of sources

  bool in_handler() const noexcept { return depth_ != 0; }
  bool allows(Process what) const noexcept { return (allowed & what) != 0; }
  /// False once a handler threw: the remaining handlers keep their events for the next iteration.
  bool may_run(Process what) const noexcept { return !aborting_ && allows(what); }
  bool aborting() const noexcept { return aborting_; }
  void begin_iteration() noexcept { aborting_ = false; }
  void count_handler() noexcept { ++ran; }

  /// Begins a part of an iteration. Its time, and the start of its slice, are read on first use.
  void begin_slice() noexcept { time_known_ = false; }
  /// As in EventLoop. The clock is read on first use, so that an iteration without a call pays
  /// nothing.
  TimePoint now() const {
    if (!in_handler()) return std::chrono::steady_clock::now();
    return slice_began();
  }
  /// As in EventLoop; to be called before each handler of one kind but the first.
  bool has_time() const noexcept { return coarse_now() - slice_began() < kSlice; }
  /// The same for handlers that are run one by one, when the caller does not know which is the
  /// first: file handlers called by libev.
  void begin_files() noexcept { ran_before_ = ran; }
  bool ran_any() const noexcept { return ran != ran_before_; }
  bool may_run_another() const noexcept { return !ran_any() || has_time(); }

  /// Runs `body` as a handler. An exception is kept for take_error(). Returns false if it threw.
  template <class Body>
  bool guarded(Body&& body) noexcept {
    ++depth_;
    bool ended = true;
    try {
      body();
    } catch (...) {
      if (!error_) error_ = std::current_exception();
      aborting_ = true;
      ended = false;
    }
    --depth_;
    return ended;
  }
  void abort_iteration() noexcept { aborting_ = true; }
  bool has_error() const noexcept { return error_ != nullptr; }
  std::exception_ptr take_error() noexcept { return std::exchange(error_, nullptr); }
  void rethrow() {
    if (has_error()) std::rethrow_exception(take_error());
  }

 private:
  TimePoint slice_began() const noexcept {
    if (!std::exchange(time_known_, true)) time_ = std::chrono::steady_clock::now();
    return time_;
  }

  std::size_t ran_before_ = 0;  // `ran` when the sleep began
  mutable TimePoint time_;
  mutable bool time_known_ = false;
  int depth_ = 0;
  bool aborting_ = false;
  std::exception_ptr error_;
};

}}  // namespace ae
