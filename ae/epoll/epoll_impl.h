// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state of an EpollLoop, and the parts of an iteration that run() and dispatch() share. Its
// functions are in three sources:
//
//   epoll_loop.cc       run() and process_events(), where the loop sleeps by itself
//   epoll_host.cc       dispatch() and prepare(), where a host program's loop sleeps
//   epoll_interface.cc  what a program adds and removes, wake-ups, and a child of fork()

#include <sys/epoll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "ae/core/file_events.h"
#include "ae/core/loop_core.h"
#include "ae/core/loop_timers.h"
#include "ae/core/loop_work.h"
#include "ae/epoll/epoll_descriptors.h"
#include "ae/epoll/epoll_files.h"
#include "ae/epoll/epoll_timers.h"
#include "ae/epoll_loop.h"

namespace ae { inline namespace AECONN_ABI {

/// Reads the events that are ready into `room`, without waiting. Returns their number, or -1 if
/// epoll_wait() failed.
inline int look_at(int epoll, std::span<epoll_event> room) noexcept {
  return ::epoll_wait(epoll, room.data(), static_cast<int>(room.size()), 0);
}

// Hidden explicitly, because a class nested in an exported class is exported, too.
struct [[gnu::visibility("hidden")]] EpollLoop::Impl {
  // The number of events that one epoll_wait() call may return at first; a full array is enlarged.
  static constexpr std::size_t kBatch = 64;

  explicit Impl(EpollLoop & its_loop);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void shut_down();

  void run();
  std::size_t process_events(Process flags);

  int descriptor();
  std::size_t dispatch();
  std::size_t dispatch_nested();
  bool prepare();
  void end_prepare();
  void after_fork();

  bool iterate();
  bool iterate_settled();
  bool end_iteration(bool sources_sleep);
  // The functions below are the parts of an iteration of the loop.
  bool before_sleep();
  bool ready_to_sleep(bool sources_sleep);
  void wait(bool may_sleep);
  int timed_wait(bool posted) noexcept;
  Duration sleep_of_timers() noexcept;
  void collect();
  void serve();
  void serve_files();
  bool serve_file(const epoll_event& event);
  void drop_events() noexcept;
  bool quiet() const noexcept {
    return work.quiet_but_sources() && files.quiet() && timers.quiet();
  }
  bool note(const epoll_event& event) noexcept;
  std::span<epoll_event> all_room() noexcept { return {events.get(), room}; }

  // These functions are for a loop that runs inside a host program's event loop.
  bool hosted() const noexcept { return own.for_host(); }
  bool arm();
  void show(bool left);
  bool show_nested();
  /// Called after file events or timers have changed. Outside an iteration, passes the changes to
  /// the kernel at once, because the host may sleep without calling prepare() first.
  void changed_outside() noexcept {
    if (!hosted() || turning || work.inherited()) return;
    // The host may have called prepare() already and be about to sleep: wake it, so that it calls
    // prepare() again.
    if (prepares) {
      if (files.dirty() || files.has_ready() || timers.sooner()) loop.nudge();
      return;
    }
    files.sync();
    if (files.has_refused()) retry_refused();
    timers.set(own.alarm());
    own.show_work(own.shows_work() || files.has_ready() || timers.has_due());
  }
  static void wake_for_post(void* self) noexcept;
  void wake_up() noexcept;

  void retry_refused();

  /// Exists on the stack while the loop works: in run(), process_events(), dispatch(), prepare(),
  /// end_prepare() and the first call of descriptor(). Otherwise the host program runs.
  struct Turn {
    explicit Turn(Impl& of) : impl(of) {
      impl.turning = true;
      impl.loop.set_host_may_sleep(false);
      impl.asleep.exchange(false, std::memory_order_acq_rel);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      impl.turning = false;
      impl.core.allowed = kFullIteration;
    }
    Impl& impl;
  };

  EpollLoop& loop;
  LoopCore core;
  EpollDescriptors own;
  EpollFiles files{core, own.epoll()};
  EpollTimers timers{core};
  LoopWork work{core, timers, &Impl::wake_for_post, this};

  // The array that epoll_wait() fills with events; it holds `room` of them.
  std::unique_ptr<epoll_event[]> events = std::make_unique<epoll_event[]>(kBatch);
  std::size_t room = kBatch;
  std::size_t event_count = 0;
  std::size_t next_event = 0;
  TimerId retry = 0;
  bool lacks_pwait2 = false;
  // True if the loop could not open a timerfd: its sleeps then have time-outs instead.
  bool lacks_alarm = false;

  /// True while the loop may be asleep, so that new work must wake it. The first thread that wakes
  /// the loop sets this to false.
  std::atomic<bool> asleep{false};
  bool turning = false;  // true if run(), process_events(), dispatch() or prepare() is on the stack
  bool prepares = false;  // true if the host calls prepare() before each of its sleeps
};

/// Does the work of an iteration before the sleep. Returns true if no work is left: it may sleep.
[[gnu::always_inline]] inline bool EpollLoop::Impl::before_sleep() {
  return ready_to_sleep(work.before_sleep(true));
}

/// Does the work before a sleep, except that of the sources. `sources_sleep`: they have no work.
[[gnu::always_inline]] inline bool EpollLoop::Impl::ready_to_sleep(bool sources_sleep) {
  files.sync();
  if (files.has_refused()) retry_refused();
  timers.look_before_sleep();
  work.sleep_begins();
  if (core.allows(kDontWait)) return false;
  if (files.has_ready() && core.allows(kFileEvents)) return false;
  return sources_sleep && !(timers.has_due() && core.allows(kTimeEvents));
}

/// Handles one event that epoll_wait() reported, of a file or of the loop's own descriptors.
/// Returns whether it was the event of a file.
[[gnu::always_inline]] inline bool EpollLoop::Impl::serve_file(const epoll_event& event) {
  if (files.dispatch(event)) [[likely]]
    return true;
  note(event);
  return false;
}

[[gnu::always_inline]] inline void EpollLoop::Impl::serve() {
  work.after_sleep();
  if (event_count == 1 && next_event == 0 && !files.has_ready() && !files.has_left() &&
      !core.aborting()) {
    // The usual case: a single event, so no other handler of a file is due. (`next_event` is not 0
    // if a hook has called dispatch(), which has already served the event.)
    next_event = 1;
    serve_file(events[0]);
  } else {
    serve_files();
  }
  work.run_posts_and_timers();
}

}}  // namespace ae
