// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state that a loop shares with its Posters: the queue of functions that other threads have
// posted, and the thread that runs the loop. It outlives the loop for as long as a Poster exists.

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
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

  /// Records that the calling thread runs or destroys the loop from now on. If the loop's last
  /// thread was another one, waits until no run_here() call of that thread is on the stack; if it
  /// was the same, this costs only a load and a comparison.
  void enter() noexcept {
    if (thread_.load(std::memory_order_relaxed) != std::this_thread::get_id()) change_thread();
  }
  /// The thread that ran the loop last; the id of no thread before the first run. Thread-safe.
  std::thread::id thread() const noexcept { return thread_.load(std::memory_order_acquire); }
  /// If the calling thread was the last one to run the loop, calls `fn` and returns true; otherwise
  /// returns false. While `fn` runs, no other thread begins to run or to destroy the loop. `fn`
  /// must be short, and must not run or destroy the loop.
  template <class Fn>
  bool run_here(Fn&& fn) {
    const std::lock_guard lock(changing_);
    if (thread() != std::this_thread::get_id()) return false;
    fn();
    return true;
  }
  /// The queue of a poster; null if the poster is empty.
  static Queue* of(const Poster& poster) noexcept { return poster.queue_.get(); }

 private:
  void leave_to_parent() noexcept;
  void change_thread() noexcept;

  Mutex mutex_;
  Functions functions_;
  MadeHere made_here_;  // remembers the process in which functions_ were pushed
  // Functions that were pushed before a fork() and that only the parent process runs.
  Functions of_parent_;
  std::atomic<bool> pending_{false};  // true if and only if functions_ is not empty
  bool closed_ = false;
  Mutex changing_;  // locked to change thread_, and by run_here() so that thread_ does not change
  std::atomic<std::thread::id> thread_{};
  const Wake wake_;
  void* const context_;  // pointer that is passed to wake_; valid until the queue is closed
};

}}  // namespace ae
