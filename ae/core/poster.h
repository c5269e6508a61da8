// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a loop and its Posters share: the queue of functions that other threads hand over. It
// outlives the loop for as long as somebody holds a Poster.

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
  /// Wakes the loop. Called with the queue locked, from the thread that posts; never after close().
  using Wake = void (*)(void* context);

  Queue(Wake wake, void* context) : wake_(wake), context_(context) {}

  /// Any thread. False if the queue is closed. Wakes the loop only for the first function after a
  /// take(): the loop takes all that are there.
  bool push(std::function<void()>&& fn);
  bool open() noexcept;
  /// Loop thread, without a lock: a function that was pushed before is seen.
  bool pending() const noexcept { return pending_.load(std::memory_order_acquire); }
  /// Swaps the functions into `batch`, which must be empty.
  void take(Functions& batch);
  /// As take(), and from now on push() refuses.
  void close(Functions& batch);

 private:
  void leave_to_parent() noexcept;

  Mutex mutex_;
  Functions functions_;
  MadeHere made_here_;                // functions_
  Functions of_parent_;               // from before a fork(): never run here
  std::atomic<bool> pending_{false};  // true exactly while functions_ is not empty
  bool closed_ = false;
  const Wake wake_;
  void* const context_;  // valid until closed_
};

}}  // namespace ae
