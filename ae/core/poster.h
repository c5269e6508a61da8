// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state shared by a loop and its Posters: the queue of functions posted by other threads. It
// outlives the loop for as long as a Poster exists.

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
  /// Wakes the loop. Called on the posting thread with the queue locked; never after close().
  using Wake = void (*)(void* context);

  Queue(Wake wake, void* context) : wake_(wake), context_(context) {}

  /// Any thread. Returns false if the queue is closed. Wakes the loop only for the first function
  /// after a take(), because take() removes all functions.
  bool push(std::function<void()>&& fn);
  bool open() noexcept;
  /// Loop thread; takes no lock. A function pushed before the call is seen.
  bool pending() const noexcept { return pending_.load(std::memory_order_acquire); }
  /// Swaps the functions into `batch`, which must be empty.
  void take(Functions& batch);
  /// As take(); push() fails from now on.
  void close(Functions& batch);

 private:
  void leave_to_parent() noexcept;

  Mutex mutex_;
  Functions functions_;
  MadeHere made_here_;                // the process that functions_ were pushed in
  Functions of_parent_;               // pushed before a fork(): never run in this process
  std::atomic<bool> pending_{false};  // true if and only if functions_ is not empty
  bool closed_ = false;
  const Wake wake_;
  void* const context_;  // valid until closed_
};

}}  // namespace ae
