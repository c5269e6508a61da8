// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: what the parts of one loop share. What this turn may do, how many handlers ran,
// for how long an iteration runs them, and the one way a handler is run.

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <ctime>
#include <exception>
#include <system_error>
#include <utility>

#include "ae/abi.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// What every loop refuses of add_file_event(). Throws LoopError.
inline void check_file_event(int fd, Mask mask, const FileHandler& handler) {
  if (fd < 0) throw LoopError("a file event needs a descriptor, not a negative number");
  if ((mask & (kReadable | kWritable)) == 0)
    throw LoopError("a file event needs kReadable or kWritable");
  if (!handler) throw LoopError("a file event needs a handler");
}
[[noreturn]] inline void refuse_closed_descriptor() {
  throw std::system_error(EBADF, std::generic_category(), "file event on a closed descriptor");
}

/// How long one part of an iteration runs handlers: those of files, posts and timers, and those of
/// sources. Afterwards each kind that has some due runs one more at most.
inline constexpr Duration kSlice = std::chrono::milliseconds(10);
/// The clock of the last tick, a few milliseconds old at most. It costs half of what the exact one
/// does, and is never a system call, whatever the machine's clock is.
inline TimePoint coarse_now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return TimePoint(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

/// Until file events are tried again for which the kernel had no room.
inline constexpr Duration kRetryAfter = std::chrono::milliseconds(100);

class LoopCore {
 public:
  LoopCore() = default;
  LoopCore(const LoopCore&) = delete;
  LoopCore& operator=(const LoopCore&) = delete;

  Process allowed = kFullIteration;  // what this process_events() may do
  std::size_t ran = 0;               // handlers that ever ran, and what sources did

  bool in_handler() const noexcept { return depth_ != 0; }
  bool allows(Process what) const noexcept { return (allowed & what) != 0; }
  /// False once a handler threw: the others of this iteration keep their events for the next one.
  bool may_run(Process what) const noexcept { return !aborting_ && allows(what); }
  bool aborting() const noexcept { return aborting_; }
  void begin_iteration() noexcept { aborting_ = false; }
  void count_handler() noexcept { ++ran; }

  /// A part of an iteration begins: its time and its slice are looked up when they are asked for.
  void begin_slice() noexcept { time_known_ = false; }
  /// As in EventLoop. Read from the clock when it is first asked for, so an iteration that nobody
  /// asks pays nothing.
  TimePoint now() const {
    if (!in_handler()) return std::chrono::steady_clock::now();
    return slice_began();
  }
  /// As in EventLoop: before each handler of one kind but the first.
  bool has_time() const noexcept { return coarse_now() - slice_began() < kSlice; }
  /// The same for handlers that are run one by one, by somebody who does not know which is the
  /// first: files of libev.
  void begin_files() noexcept { ran_before_ = ran; }
  bool ran_any() const noexcept { return ran != ran_before_; }
  bool may_run_another() const noexcept { return !ran_any() || has_time(); }

  /// Runs `body` as a handler. What it throws is kept for take_error(). False if it threw.
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
