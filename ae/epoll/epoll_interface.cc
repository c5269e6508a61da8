// SPDX-License-Identifier: BSD-3-Clause
// What a program adds to an EpollLoop and removes from it, what wakes the loop, and what becomes of
// it in a child of fork().

#include <utility>

#include "ae/epoll/epoll_impl.h"

namespace ae { inline namespace AECONN_ABI {

// --- waking the loop -----------------------------------------------------------------------------

void EpollLoop::Impl::wake_up() noexcept {
  if (!asleep.exchange(false, std::memory_order_acq_rel) || work.inherited()) return;
  own.wake();
}

void EpollLoop::Impl::wake_for_post(void* self) noexcept { static_cast<Impl*>(self)->wake_up(); }

/// Replaces the descriptors that this process, a child of fork(), shares with its parent.
void EpollLoop::Impl::after_fork() {
  const bool was_hosted = hosted();
  // First finds the files that the child has closed: the descriptors that are opened below may get
  // their numbers, and the files would then look open.
  files.after_fork();
  own.after_fork();
  timers.forget_alarm();
  if (was_hosted) own.open_for_host();
  work.after_fork();
  if (was_hosted && !turning) show(true);
}

// --- the interface: EpollLoop's functions for a program ------------------------------------------

void EpollLoop::add_file_event(int fd, Mask mask, FileHandler handler) {
  impl_->files.add(fd, mask, std::move(handler));
  impl_->changed_outside();
}
void EpollLoop::remove_file_event(int fd, Mask mask) {
  impl_->files.remove(fd, mask);
  impl_->changed_outside();
}
Mask EpollLoop::file_events(int fd) const { return impl_->files.events(fd); }

TimerId EpollLoop::add_time_event(Duration delay, TimeHandler handler) {
  const TimerId id = impl_->timers.add(delay, handler);
  impl_->changed_outside();
  return id;
}
TimerId EpollLoop::add_time_event(TimePoint when, TimeHandler handler) {
  const TimerId id = impl_->timers.add(when, handler);
  impl_->changed_outside();
  return id;
}
bool EpollLoop::again(TimerId id, Duration delay) noexcept {
  const bool there = impl_->timers.again(id, delay);
  impl_->changed_outside();
  return there;
}
bool EpollLoop::again(TimerId id, TimePoint when) noexcept {
  const bool there = impl_->timers.again(id, when);
  impl_->changed_outside();
  return there;
}
bool EpollLoop::remove_time_event(TimerId id) { return impl_->timers.remove(id); }

HookId EpollLoop::add_before_sleep(std::function<void()> hook) {
  return impl_->work.add_before_sleep(std::move(hook));
}
HookId EpollLoop::add_after_sleep(std::function<void()> hook) {
  return impl_->work.add_after_sleep(std::move(hook));
}
void EpollLoop::remove_hook(HookId id) { impl_->work.remove_hook(id); }
void EpollLoop::add_source(Source& source) {
  impl_->work.add_source(source);
  nudge();  // wakes the loop if it sleeps, because arm() of the new source was not called
}
void EpollLoop::remove_source(Source& source) { impl_->work.sources.remove(source); }

void EpollLoop::stop() noexcept { impl_->work.request_stop(); }

void EpollLoop::set_spin(const Spin& spin) { impl_->work.set_spin(spin); }
LoopTimes EpollLoop::times() const { return impl_->work.idle.times(); }

void EpollLoop::post(std::function<void()> fn) { impl_->work.queue->push(std::move(fn)); }
Poster EpollLoop::poster() { return Poster(impl_->work.queue); }

void EpollLoop::destroy_later(std::unique_ptr<Deferred> object) noexcept {
  impl_->work.destroy_later(std::move(object));
  nudge();
}
std::unique_ptr<LoopLocal>& EpollLoop::local(const void* key) { return impl_->work.local(key); }
TimePoint EpollLoop::now() const { return impl_->core.now(); }
bool EpollLoop::has_time() noexcept { return impl_->core.has_time(); }
bool EpollLoop::in_handler() const noexcept { return impl_->core.in_handler(); }

void EpollLoop::after_fork() { impl_->after_fork(); }
void EpollLoop::on_nudge() noexcept {
  set_host_may_sleep(false);
  impl_->wake_up();
}

}}  // namespace ae
