// SPDX-License-Identifier: BSD-3-Clause
// EpollLoop inside a host program's loop, which does the sleeping: dispatch() serves what is due,
// and show() makes the epoll descriptor, which the host watches, readable if work is left.

#include <sys/epoll.h>

#include <array>
#include <span>
#include <utility>

#include "ae/epoll/epoll_impl.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

// Number of events that a dispatch() inside a handler reads at once, into an array on the stack.
constexpr std::size_t kNestedBatch = 32;

}  // namespace

int EpollLoop::Impl::descriptor() {
  if (hosted()) return own.epoll();
  own.open_for_host();
  // Events and timers that were added earlier may not be registered with the kernel yet. Inside an
  // iteration nothing is done here, because the end of the iteration registers them.
  if (turning) return own.epoll();
  {
    const Turn turn(*this);
    show(!arm());
  }
  core.rethrow();
  return own.epoll();
}

/// Sends what the program has written, and calls arm() of the sources. Returns true if no source
/// has work left.
bool EpollLoop::Impl::arm() {
  bool quiet = false;
  core.guarded([&] {
    SourceList::Visit visit(work.sources);
    visit.flush();
    quiet = !visit.has_pending() && visit.arm() && !visit.has_pending();
  });
  return quiet;
}

std::size_t EpollLoop::Impl::dispatch() {
  if (turning) return dispatch_nested();
  if (!hosted()) return process_events(kFullIteration | kDontWait);
  work.queue->enter();
  const std::size_t ran = core.ran;
  {
    const Turn turn(*this);
    core.begin_iteration();
    files.sync();
    collect();
    serve();
    bool may_sleep = false;
    if (!core.aborting()) {
      work.hosted = true;
      // With kDontWait, before_sleep() does not call arm() of the sources: prepare() calls it
      // later.
      if (prepares) core.allowed = kFullIteration | kDontWait;
      may_sleep = before_sleep();
      work.hosted = false;
    }
    if (!prepares || core.aborting()) show(!may_sleep);
  }
  core.rethrow();
  return core.ran - ran;
}

/// Serves a host that calls dispatch() inside a handler of this loop. An exception is kept for the
/// outer dispatch() call to rethrow, because the stack frames in between belong to the host.
std::size_t EpollLoop::Impl::dispatch_nested() {
  const std::size_t ran = core.ran;
  const bool was_aborting = core.aborting();
  const Process was_allowed = std::exchange(core.allowed, kFullIteration);
  core.begin_iteration();
  core.begin_slice();
  // This nested dispatch() may make the events that the outer dispatch() has not served invalid.
  drop_events();
  loop.set_host_may_sleep(false);
  files.sync();
  std::array<epoll_event, kNestedBatch> its_room;
  const int count = look_at(own.epoll(), its_room);
  auto found = std::span(its_room).first(count > 0 ? static_cast<std::size_t>(count) : 0);
  for (const epoll_event& event : found) note(event);
  if (files.has_ready()) files.dispatch_ready();
  files.put_left_first(found);
  for (bool any = false; !found.empty() && (!any || core.has_time());) {
    any |= files.dispatch(found.front());
    found = found.subspan(1);
  }
  for (const epoll_event& event : found) files.leave(event);
  core.guarded([this] { core.ran += SourceList::Visit(work.sources).process_pending(); });
  show_nested();
  core.allowed = was_allowed;
  if (was_aborting) core.abort_iteration();
  return core.ran - ran;
}

bool EpollLoop::Impl::prepare() {
  if (!hosted()) own.open_for_host();
  prepares = true;
  if (turning) return show_nested();
  work.queue->enter();
  {
    const Turn turn(*this);
    core.begin_iteration();
    work.destroy_deferred();
    show(!arm());
    core.begin_slice();
  }
  core.rethrow();
  return !own.shows_work();
}

void EpollLoop::Impl::end_prepare() {
  // If this function is called inside an iteration, the end of that iteration prepares the sleep.
  if (!std::exchange(prepares, false) || turning) return;
  {
    const Turn turn(*this);
    core.begin_iteration();
    show(!arm());
  }
  core.rethrow();
}

/// Makes the loop's descriptor readable like show() if there is work that a nested dispatch(), one
/// inside a handler, can do. Returns true if there is no such work.
bool EpollLoop::Impl::show_nested() {
  const bool quiet = arm();
  if (!hosted()) return quiet;
  files.sync();
  asleep.exchange(true, std::memory_order_acq_rel);
  own.show_work(!quiet || files.has_ready());
  loop.set_host_may_sleep(true);
  return !own.shows_work();
}

/// Makes the loop's descriptor readable if there is work, and not readable otherwise. `left`:
/// whether the caller knows of work.
void EpollLoop::Impl::show(bool left) {
  files.sync();
  if (files.has_refused()) retry_refused();
  timers.set(own.alarm());
  // From here on, a thread that posts a function sees `asleep` and wakes this loop. A function that
  // was posted earlier is found by other_work_waiting() below.
  asleep.exchange(true, std::memory_order_acq_rel);
  own.show_work(left || files.has_ready() || work.other_work_waiting());
  loop.set_host_may_sleep(true);
}

// --- the interface: EpollLoop's functions for a host ---------------------------------------------

int EpollLoop::descriptor() { return impl_->descriptor(); }
std::size_t EpollLoop::dispatch() { return impl_->dispatch(); }
bool EpollLoop::prepare() { return impl_->prepare(); }
void EpollLoop::end_prepare() { impl_->end_prepare(); }

}}  // namespace ae
