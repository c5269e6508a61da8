// SPDX-License-Identifier: BSD-3-Clause
// EpollLoop: one iteration of run() and process_events() consists of
//
//   before_sleep()   destroys deferred objects -> sources' pending work -> before_sleep hooks
//                    -> flush -> deferred objects -> spin, then arm() of the sources (which may
//                    veto the sleep) -> file interest to the kernel
//   wait()           sleeps until the next timer at the latest, or polls; if the loop sleeps many
//                    times before one timer expires, the timerfd replaces the time-outs
//   serve()          after_sleep hooks -> file handlers -> posted functions and due timers, a
//                    bounded number of each, for a bounded time (LoopCore::has_time())
//
// Between two messages of a server only the sources, the wait and the file handlers usually have
// work. When an iteration finds that the other steps have nothing to do, the loop is settled
// (LoopCore::settled()): run() then calls iterate_settled(), which skips those steps, until
// LoopCore::stir() is called.
//
// Inside a host program's loop, the host sleeps: dispatch() runs serve() and then before_sleep(),
// and show() makes the loop's descriptor readable if work is left. EpollDescriptors has the
// descriptors of the loop itself.

#include <sys/epoll.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <span>
#include <utility>

#include "ae/epoll/epoll_impl.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

// The most events that one epoll_wait() call may return.
constexpr std::size_t kLargestBatch = 4096;

int wait_in_milliseconds(int epoll, std::span<epoll_event> room, Duration limit) noexcept {
  // The time-out is rounded up. A sleep that ended before the timer is due would cost an iteration
  // without work.
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  const int milliseconds =
      static_cast<int>(std::min<decltype(whole)>(whole, std::numeric_limits<int>::max()));
  return ::epoll_wait(epoll, room.data(), static_cast<int>(room.size()), milliseconds);
}

int wait_for_ever(int epoll, std::span<epoll_event> room) noexcept {
  return ::epoll_wait(epoll, room.data(), static_cast<int>(room.size()), -1);
}

/// Waits for events, for at most `limit` (Duration::max(): without a time-out). Sets `lacks_pwait2`
/// if the kernel does not have epoll_pwait2(2) or a sandbox forbids it.
int wait_for(int epoll, std::span<epoll_event> room, Duration limit, bool& lacks_pwait2) noexcept {
  if (limit <= Duration::zero()) return look_at(epoll, room);
  if (limit == Duration::max()) return wait_for_ever(epoll, room);
  if (!lacks_pwait2) {
    const timespec time = to_timespec(limit);
    const int size = static_cast<int>(room.size());
    const int count = ::epoll_pwait2(epoll, room.data(), size, &time, nullptr);
    if (count >= 0 || (errno != ENOSYS && errno != EPERM)) return count;
    lacks_pwait2 = true;
  }
  return wait_in_milliseconds(epoll, room, limit);
}

}  // namespace

// --- construction and destruction ----------------------------------------------------------------

EpollLoop::Impl::Impl(EpollLoop& its_loop) : loop(its_loop) {}

void EpollLoop::Impl::shut_down() {
  loop.set_host_may_sleep(false);
  turning = true;  // so that changed_outside() does nothing from now on
  work.shut_down([this] {
    timers.clear();
    files.clear();
  });
}

// --- running iterations --------------------------------------------------------------------------

void EpollLoop::Impl::run() {
  if (turning) LoopWork::refuse_reentry("run()");
  if (work.inherited()) after_fork();
  work.queue->enter();
  if (work.take_stop()) return;
  {
    const Turn turn(*this);
    work.running = true;
    work.idle.drop();
    core.stir();
    while (core.settled() ? iterate_settled() : iterate()) {
    }
    work.running = false;
    (void)work.take_stop();
    if (hosted()) show(!arm());
  }
  core.rethrow();
}

std::size_t EpollLoop::Impl::process_events(Process flags) {
  if (turning) LoopWork::refuse_reentry("process_events()");
  if (work.inherited()) after_fork();
  work.queue->enter();
  const std::size_t ran = core.ran;
  {
    const Turn turn(*this);
    core.allowed = (flags & kAllEvents) == 0 ? flags | kDontWait : flags;
    work.begin_single();
    // Repeated while the event loop spins: all polls of a spin are parts of one iteration.
    while (iterate() && std::exchange(work.spin_looks, false) && core.ran == ran) {
    }
    work.single = false;
    core.allowed = kFullIteration;
    if (hosted()) show(!arm());
  }
  core.rethrow();
  return core.ran - ran;
}

// Starts a timer that tries again to register the descriptors that the kernel refused to watch for
// lack of resources.
void EpollLoop::Impl::retry_refused() {
  if (retry != 0) return;
  try {
    TimeHandler handler = [this] {
      retry = 0;
      files.retry();
      return kNoMore;
    };
    retry = timers.add(kFileEventRetry, handler);
  } catch (const std::bad_alloc&) {
    // There is no memory for the timer: the next iteration calls this function again.
    return;
  }
}

// --- waiting for events --------------------------------------------------------------------------

[[gnu::always_inline]] inline void EpollLoop::Impl::wait(bool may_sleep) {
  if (!may_sleep) return collect();
  // From here on, a thread that posts a function sees `asleep` and wakes this loop. A function that
  // was posted earlier is found by the call of pending() below.
  asleep.exchange(true, std::memory_order_acq_rel);
  const bool posted = work.queue->pending();
  const bool usual = core.allows(kTimeEvents) && !posted && !timers.limits_sleep();
  const int count = usual ? wait_for_ever(own.epoll(), all_room()) : timed_wait(posted);
  // From here on, a thread that posts a function finds that the loop is awake. If threads have
  // posted functions during the sleep, one of them has called wake().
  asleep.store(false, std::memory_order_release);
  event_count = count > 0 ? static_cast<std::size_t>(count) : 0;
  next_event = 0;
  if (count == 0) timers.look();
}

// Waits, but not longer than until the next timer expires, and not at all if a function was posted.
[[gnu::noinline]] int EpollLoop::Impl::timed_wait(bool posted) noexcept {
  const bool for_timers = core.allows(kTimeEvents);
  Duration limit = Duration::zero();
  if (!posted) limit = for_timers ? sleep_of_timers() : Duration::max();
  int count = 0;
  do {
    count = wait_for(own.epoll(), all_room(), limit, lacks_pwait2);
    // If the only event is the timerfd's, but the caller wants no time events, the loop sleeps
    // again.
  } while (!for_timers && count == 1 && note(events[0]));
  return count;
}

Duration EpollLoop::Impl::sleep_of_timers() noexcept {
  const Duration left = timers.left();
  if (left == Duration::max() || !timers.outlasts_sleeps() || lacks_alarm) return left;
  try {
    own.open_alarm();
  } catch (const std::exception&) {
    // If the timerfd cannot be created, each sleep uses a time-out instead.
    lacks_alarm = true;
    return left;
  }
  timers.leave_to(own.alarm());
  return timers.left();
}

void EpollLoop::Impl::collect() {
  const int count = look_at(own.epoll(), all_room());
  event_count = count > 0 ? static_cast<std::size_t>(count) : 0;
  next_event = 0;
}

// --- one iteration, and its events ---------------------------------------------------------------

/// Runs one whole iteration of run() or process_events(). Returns false if the loop is to stop, or
/// a handler has thrown.
bool EpollLoop::Impl::iterate() { return end_iteration(work.before_sleep(true)); }

/// Runs the rest of an iteration, after the work of the sources. `sources_sleep`: none is left.
bool EpollLoop::Impl::end_iteration(bool sources_sleep) {
  const bool may_sleep = ready_to_sleep(sources_sleep);
  if (work.stopping() || core.aborting()) return false;
  if (may_sleep && quiet()) core.settle();
  wait(may_sleep);
  serve();
  return !core.aborting();
}

/// Runs one iteration of a settled loop, which only waits for descriptors and posted functions
/// (LoopCore::settled()). Returns false if a handler has thrown.
[[gnu::always_inline]] inline bool EpollLoop::Impl::iterate_settled() {
#ifdef AECONN_CHECKS  // in debug, ASan and fuzzing builds: finds missing calls of LoopCore::stir()
  assert(quiet());
#endif
  bool may_sleep = true;
  if (!work.sources.idle()) {
    core.begin_slice();
    may_sleep = work.serve_before_sleep(true);
    if (!core.settled()) return end_iteration(may_sleep);
  }
  work.sleep_begins();
  int count = 0;
  if (may_sleep) {
    asleep.exchange(true, std::memory_order_acq_rel);
    count = work.queue->pending() ? look_at(own.epoll(), all_room())
                                  : wait_for_ever(own.epoll(), all_room());
    asleep.store(false, std::memory_order_release);
  } else {
    count = look_at(own.epoll(), all_room());
  }
  if (count == 1) [[likely]] {
    serve_file(events[0]);
  } else {
    event_count = count > 0 ? static_cast<std::size_t>(count) : 0;
    next_event = 0;
    serve_files();
  }
  if (core.settled() && !work.queue->pending()) return true;
  work.run_posts_and_timers();
  return !core.aborting();
}

/// Handles an event of one of the loop's own descriptors; ignores an event of a file. Returns
/// whether it was an event of the timerfd. The timerfd is edge-triggered: the kernel reports each
/// of its events only once, so all of them must be passed to this function.
bool EpollLoop::Impl::note(const epoll_event& event) noexcept {
  // show_work(true) has made the epoll instance readable, for a host program's loop. In run() and
  // process_events() this loop itself waits on it, and could not sleep: ends its being readable.
  if (EpollDescriptors::is_work(event) && (work.running || work.single)) own.show_work(false);
  if (!EpollDescriptors::is_alarm(event)) return false;
  timers.alarm_came();
  return true;
}

[[gnu::noinline]] void EpollLoop::Impl::serve_files() {
  if (files.has_ready()) files.dispatch_ready();
  const bool full = event_count == room;
  files.put_left_first(all_room().first(event_count));
  // A handler may call dispatch(), which polls again and drops the remaining events of `events`.
  for (bool ran = false; next_event < event_count && !core.aborting();) {
    if (ran && !core.has_time()) break;
    ran |= serve_file(events[next_event++]);
  }
  for (; next_event < event_count; ++next_event)
    if (!files.leave(events[next_event])) note(events[next_event]);
  if (full && room < kLargestBatch) {
    try {
      events = std::make_unique<epoll_event[]>(2 * room);
      room *= 2;
    } catch (const std::bad_alloc&) {
      // There is no memory for a larger array: the events are read in several iterations.
      return;
    }
  }
}

/// Drops the events that have not been served yet. The kernel reports events of files again; events
/// of the timerfd are edge-triggered, and are therefore handled here.
void EpollLoop::Impl::drop_events() noexcept {
  while (next_event < event_count) note(events[next_event++]);
}

// --- the interface: EpollLoop's functions that run the loop --------------------------------------

EpollLoop::EpollLoop() : impl_(std::make_unique<Impl>(*this)) {}
EpollLoop::~EpollLoop() { impl_->shut_down(); }

void EpollLoop::run() { impl_->run(); }
std::size_t EpollLoop::process_events(Process flags) { return impl_->process_events(flags); }

}}  // namespace ae
