// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state that a loop shares with its Posters: the queue of functions that other threads have
// posted. It outlives the loop for as long as a Poster exists.

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "ae/abi.h"
#include "ae/core/fork.h"
#include "ae/event_loop.h"

namespace ae { inline namespace AECONN_ABI {

class Poster::Queue {
 public:
  using Functions = std::vector<std::function<void()>>;
  /// A function that wakes the loop. It is called on the posting thread while the queue is locked,
  /// and never after close().
  using Wake = void (*)(void* context);

  Queue(Wake wake, void* context) : wake_(wake), context_(context) {}

  /// Adds `fn`; may be called from any thread. Returns false if the queue is closed. Only the first
  /// function after a take() wakes the loop, because the next take() removes all of them.
  bool push(std::function<void()>&& fn);
  bool open() noexcept;
  /// Whether functions wait in the queue, including any that was pushed before this call. Loop
  /// thread only; takes no lock.
  bool pending() const noexcept { return pending_.load(std::memory_order_acquire); }
  /// Moves the queued functions into `batch`, which must be empty.
  void take(Functions& batch);
  /// Moves the queued functions into `batch` as take() does, and closes the queue: every later
  /// push() fails.
  void close(Functions& batch);

 private:
  void leave_to_parent() noexcept;

  Mutex mutex_;
  Functions functions_;
  MadeHere made_here_;  // remembers the process in which functions_ were pushed
  // Functions that were pushed before a fork() and that only the parent process runs.
  Functions of_parent_;
  std::atomic<bool> pending_{false};  // true if and only if functions_ is not empty
  bool closed_ = false;
  const Wake wake_;
  void* const context_;  // pointer that is passed to wake_; valid until the queue is closed
};

}}  // namespace ae
