// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to the libev implementation: the state around the underlying ev_loop that LibevLoop and
// its parts share. libev calls watchers from C code, which exceptions must not cross, so every
// handler runs inside LibevCore::guarded().

#include <ev.h>

#include <atomic>
#include <utility>

#include "ae/abi.h"
#include "ae/core/loop_core.h"

namespace ae { inline namespace AECONN_ABI {

class LibevCore : public LoopCore {
 public:
  LibevCore(struct ev_loop* loop_below, bool is_owned) : loop(loop_below), owned(is_owned) {}

  struct ev_loop* const loop;
  const bool owned;
  // The watcher that runs posted functions and expired timers at the end of an iteration.
  ev_check tail;
  ev_idle no_sleep;  // while active, keeps libev from sleeping; lasts until the next before_sleep()
  unsigned sleep_number = ~0u;  // value of ev_iteration() when before_sleep() was last completed

  /// True while the loop may sleep, so that a posted function must wake it. The first thread that
  /// wakes the loop sets this to false.
  std::atomic<bool> asleep{false};
  /// Records that the loop is awake and will look for posted functions before it sleeps.
  void woke() noexcept {
    if (asleep.load(std::memory_order_relaxed)) asleep.store(false, std::memory_order_release);
  }

  void count_handler() noexcept {
    LoopCore::count_handler();
    woke();
    come_back();
  }
  /// Makes the watcher `tail`, which runs posted functions and timers, run in this iteration.
  void queue_tail() noexcept {
    if (!ev_is_pending(&tail)) ev_feed_event(loop, &tail, EV_CHECK);
    come_back();
  }

  /// Runs `body` as a handler. If it throws, ends ev_run(); the exception is then reported by run()
  /// or take_exception().
  template <class Body>
  void guarded(Body&& body) noexcept {
    if (!LoopCore::guarded(std::forward<Body>(body))) ev_break(loop, EVBREAK_ALL);
  }

  /// Requests one more iteration. A borrowed ev_loop (the host program's) without other active
  /// watchers then keeps running until release(). If this iteration's before_sleep() has already
  /// run (because the caller is a hook of another LibevLoop on the same ev_loop), the ev_loop also
  /// does not sleep first.
  void come_back() noexcept {
    if (owned || held_) return;
    held_ = true;
    ev_ref(loop);
    if (sleep_number == ev_iteration(loop)) start_unreferenced(ev_idle_start, no_sleep);
  }
  void release() noexcept {
    if (!held_) return;
    held_ = false;
    ev_unref(loop);
  }

  /// The two functions below start and stop a watcher that must not keep a borrowed ev_loop (the
  /// host program's) running. Starting an active watcher or stopping an inactive one has no effect.
  template <class Watcher>
  void start_unreferenced(void (*start)(struct ev_loop*, Watcher*), Watcher& watcher) noexcept {
    if (ev_is_active(&watcher)) return;
    start(loop, &watcher);
    if (!owned) ev_unref(loop);
  }
  template <class Watcher>
  void stop_unreferenced(void (*stop)(struct ev_loop*, Watcher*), Watcher& watcher) noexcept {
    if (!owned && ev_is_active(&watcher)) ev_ref(loop);
    stop(loop, &watcher);
  }

 private:
  bool held_ = false;
};

}}  // namespace ae
