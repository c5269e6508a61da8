// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Private to loops: everything a loop does except waiting for descriptors, independent of how it
// waits. This covers hooks, sources, posted functions, deferred objects, LoopLocals, and spinning
// before the sleep.

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "ae/abi.h"
#include "ae/core/deferred_list.h"
#include "ae/core/fork.h"
#include "ae/core/hook_list.h"
#include "ae/core/idle_time.h"
#include "ae/core/loop_core.h"
#include "ae/core/loop_timers.h"
#include "ae/core/poster.h"
#include "ae/core/source_list.h"

namespace ae { inline namespace AECONN_ABI {

class LoopWork {
 public:
  /// Creates the state of a loop. `wake(context)` must wake that loop; it is called after another
  /// thread has posted a function.
  LoopWork(LoopCore& core, LoopTimers& timers, Poster::Queue::Wake wake, void* context);

  HookList before_hooks;
  HookList after_hooks;
  SourceList sources;
  const std::shared_ptr<Poster::Queue> queue;
  IdleTime idle;

  bool running = false;  // true while run() is on the stack
  bool single = false;   // true while process_events() is on the stack
  // True if a host program's loop does the sleeping for this loop, which then never spins.
  bool hosted = false;
  // True if the loop is in the middle of a spin, so that this iteration only polls descriptors.
  bool spin_looks = false;

  bool stopping() const noexcept { return stop_requested_ && running; }
  /// Makes the current run() end or, if none is running, the next one.
  void request_stop() noexcept {
    stop_requested_ = true;
    core_.stir();
  }
  /// Withdraws the request made by request_stop(). Returns whether there was one.
  bool take_stop() noexcept { return std::exchange(stop_requested_, false); }
  /// Sets how the loop's owner wants it to wait.
  void set_spin(const Spin& spin) noexcept {
    own_spin_ = spin;
    core_.stir();
  }
  void add_source(Source& source) { sources.add(source); }
  void destroy_later(std::unique_ptr<Deferred> object) noexcept {
    deferred_.push(std::move(object));
    core_.stir();
  }
  /// Destroys the objects passed to destroy_later(). To be called while no handler is on the stack.
  void destroy_deferred() noexcept { deferred_.destroy_all(); }
  HookId add_before_sleep(std::function<void()> hook) {
    return add_hook(before_hooks, std::move(hook));
  }
  HookId add_after_sleep(std::function<void()> hook) {
    return add_hook(after_hooks, std::move(hook));
  }
  void remove_hook(HookId id) {
    if (!before_hooks.remove(id)) after_hooks.remove(id);
  }
  std::unique_ptr<LoopLocal>& local(const void* key);

  /// Throws LoopError with a message that names `what`, a function (such as run()) that was called
  /// from inside a handler.
  [[noreturn]] static void refuse_reentry(const char* what);

  /// Does the work before the sleep: destroys deferred objects and serves the sources. Returns
  /// whether the loop may sleep; if so, Source::arm() of every source has returned true. `alone`:
  /// no handler is on the stack, so objects may be destroyed.
  [[gnu::always_inline]] bool before_sleep(bool alone) {
    core_.begin_iteration();
    core_.begin_slice();
    spin_looks = false;
    if (alone && !deferred_.empty()) deferred_.destroy_all();
    return serve_before_sleep(alone);
  }
  /// The part of before_sleep() that serves the sources and destroys the objects that were deferred
  /// meanwhile. If the loop is settled, nothing else is due before the sleep.
  [[gnu::always_inline]] bool serve_before_sleep(bool alone) {
    const bool after_events = core_.ran_any();
    bool may_sleep = false;
    core_.guarded([&] { may_sleep = serve_sources(after_events); });
    // Objects that were deferred during this iteration are destroyed in it too; otherwise the loop
    // would need another iteration for them.
    if (!deferred_.empty() && alone && !single && !core_.aborting())
      serve_sources_again(after_events, may_sleep);
    return may_sleep;
  }
  /// Whether before_sleep(), after_sleep() and run_posts_and_timers() have nothing to do, except
  /// for sources, timers, and functions that wait in the queue. The loop may skip them (see
  /// LoopCore::settled()) only while this is true: each change that makes it false must call
  /// LoopCore::stir().
  bool quiet_but_sources() const noexcept {
    return deferred_.empty() && before_hooks.empty() && after_hooks.empty() &&
           own_spin_.mode == Spin::Mode::kNo && !idle.on() && !stop_requested_ && !single &&
           posts_.empty();
  }
  /// Whether quiet_but_sources() is true, and the loop has no source to visit either.
  bool quiet() const noexcept { return sources.idle() && quiet_but_sources(); }
  /// Records that the work before the sleep is done and the loop is about to sleep.
  void sleep_begins() noexcept {
    core_.begin_slice();
    core_.begin_files();
  }
  void after_sleep() {
    if (idle.waits()) idle.looked(std::chrono::steady_clock::now());
    if (!after_hooks.empty()) run_after_hooks();
  }
  /// Runs posted functions and the handlers of expired timers, a limited number of each.
  void run_posts_and_timers() {
    if (!posts_.empty() || queue->pending()) run_posts();
    if (timers_.has_due()) run_timers();
  }

  /// Begins a process_events() call. If the last call ended in the middle of a spin, drops that
  /// spin without a result: work may have arrived at any time since then.
  void begin_single() noexcept {
    single = true;
    core_.stir();
    // If handlers have run since the last poll, the spin has found work. It is not dropped then,
    // because before_sleep() will record that result.
    if (!core_.ran_any()) idle.drop_spin();
  }
  bool posts_waiting() const noexcept {
    return queue->pending() || (!posts_.empty() && next_post_ < posts_.size());
  }
  // Whether anything but a source has work: posted functions, deferred objects, expired timers.
  bool other_work_waiting() {
    return posts_waiting() || !deferred_.empty() ||
           (timers_.has_due() && core_.allows(kTimeEvents));
  }

  /// Ends the loop: runs the posted functions that remain and destroys all user objects. The loop
  /// stays usable until this returns, because destructors may remove events and defer more objects.
  /// `clear_events` must remove the file and time events.
  template <class ClearEvents>
  void shut_down(ClearEvents clear_events) {
    end_posts_and_locals();
    deferred_.destroy_all();
    clear_events();
    before_hooks.clear();
    after_hooks.clear();
    while (!deferred_.empty()) deferred_.destroy_all();
  }
  /// Whether this process is a child of fork() in which after_fork() has not been called yet.
  bool inherited() const noexcept { return made_here_.inherited(); }
  void after_fork() noexcept {
    made_here_.renew();
    next_post_ = posts_.size();  // skips the remaining functions, which the parent process runs
    core_.stir();
    for (const Local& local : locals_)
      if (local.object) local.object->after_fork();
  }

 private:
  struct Local {
    const void* key;
    std::unique_ptr<LoopLocal> object;
  };

  HookId add_hook(HookList& list, std::function<void()>&& hook);
  bool serve_sources(bool after_events);
  void serve_sources_again(bool after_events, bool& may_sleep);
  // What the loop does after may_spin(): sleep; poll descriptors and timers without sleeping; or
  // serve the sources, in which a spin has found work.
  enum class Then { kSleep, kPoll, kServe };
  Then may_spin(bool after_events, SourceList::Visit& visit, TimePoint& look);
  Then spin(TimePoint moment, TimePoint until, SourceList::Visit& visit);
  void run_posts();
  void run_posts(std::size_t limit);
  void run_timers();
  void run_after_hooks();
  void recycle_posts() noexcept;
  void end_posts_and_locals();

  LoopCore& core_;
  LoopTimers& timers_;
  DeferredList deferred_;
  Spin own_spin_;
  bool stop_requested_ = false;
  MadeHere made_here_;
  HookId last_hook_ = 0;
  // The objects that local() returns, in order of creation. A deque, so that references stay valid.
  std::deque<Local> locals_;
  Poster::Queue::Functions posts_;  // the batch of posted functions that is being run
  std::size_t next_post_ = 0;
};

}}  // namespace ae
