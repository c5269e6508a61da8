// SPDX-License-Identifier: BSD-3-Clause
// LibevLoop: which watcher of libev runs each part of an iteration. The guarantees of the loop
// depend on this order:
//
//   ev_prepare, lowest priority   destroy deferred objects -> sources' pending work -> before_sleep
//                                 hooks -> flush -> deferred objects -> spin, then arm() of the
//                                 sources (which may veto the sleep)
//                                 -> file interest and the next timer's time to libev
//                                 (a spin continues after each poll of descriptors and timers)
//   (libev sleeps, or polls while the ev_idle that vetoes the sleep is active)
//   ev_check, highest priority    after_sleep hooks
//   ev_io                         file handlers, for a bounded time (LoopCore::has_time()); the
//                                 remaining ones run at ev_check of the next iteration
//   the tail, lowest priority     posted functions and due timers, a bounded number of each
//
// Only ev_prepare is always active; each of the others is active while it has work. stop() takes
// effect at the end of the ev_prepare part, so that data written by the last handlers is flushed.

#include "ae/libev_loop.h"

#include <ev.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "ae/core/loop_work.h"
#include "ae/libev/libev_core.h"
#include "ae/libev/libev_files.h"
#include "ae/libev/libev_timers.h"

namespace ae { inline namespace AECONN_ABI {
// Not in the unnamed namespace, because LibevLoop::Impl has members of these types.
struct LoopDeleter {
  void operator()(struct ev_loop* loop) const noexcept { ev_loop_destroy(loop); }
};
using OwnedLoop = std::unique_ptr<struct ev_loop, LoopDeleter>;

namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno != 0 ? errno : EMFILE, std::generic_category(), what);
}

OwnedLoop new_loop() {
  // Accepts no backend but epoll where epoll is supported. libev's fallbacks (poll, select) need no
  // file descriptor, so they would hide that the process has run out of descriptors. EVFLAG_NOENV
  // ignores the variable LIBEV_FLAGS, which is not meant for this library.
  const unsigned recommended = ev_recommended_backends();
  const unsigned epoll = recommended & EVBACKEND_EPOLL;
  errno = 0;
  OwnedLoop loop(ev_loop_new((epoll != 0 ? epoll : recommended) | EVFLAG_NOENV));
  if (!loop) throw_errno("event loop");
  return loop;
}

// Opens the descriptor for wake-ups. Throws std::system_error. libev's own wake-up (ev_async) is
// not used, because libev aborts the process if it cannot open a descriptor for it.
int open_wakeup() {
  errno = 0;
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) throw_errno("event loop wake-up");
  return fd;
}

}  // namespace

// Hidden explicitly, because a class nested in an exported class is exported, too.
struct [[gnu::visibility("hidden")]] LibevLoop::Impl {
  Impl(LibevLoop & its_loop, OwnedLoop loop);
  Impl(LibevLoop & its_loop, struct ev_loop * borrowed);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();
  void start();
  void shut_down();

  void run();
  std::size_t process_events(Process flags);
  void stop() noexcept;
  void after_fork() noexcept;
  void refuse_reentry(const char* what) const;

  // The functions below are the parts of an iteration of the loop, in the order in which they run.
  void before_sleep();
  void set_sleep(bool allowed) noexcept;
  /// Returns whether the loop may sleep now: no function was posted. From here on, a thread that
  /// posts one sees `asleep` and wakes this loop; one that was posted earlier is found here.
  bool fall_asleep() noexcept {
    core.asleep.exchange(true, std::memory_order_acq_rel);
    return !work.posts_waiting();
  }
  void after_sleep();
  void run_tail();
  static void wake_for_post(void* self) noexcept;
  void on_wake(int revents) noexcept;

  LibevLoop& loop;
  const OwnedLoop owned_loop;  // owns the ev_loop; null if the ev_loop belongs to the program
  LibevCore core;
  LibevFiles files{core};
  LibevTimers timers{core};
  LoopWork work{core, timers, &Impl::wake_for_post, this};

  ev_prepare prepare;
  // The watcher that runs after each sleep. Active while there are after_sleep hooks, idle times
  // are measured, descriptors were found to be closed, or ready files were left unserved.
  ev_check check;
  int wake_fd = -1;      // the eventfd that wakes the loop
  ev_io wake;            // watches wake_fd
  bool serving = false;  // true while before_sleep() is on the stack
};

// --- construction and destruction ----------------------------------------------------------------

LibevLoop::Impl::Impl(LibevLoop& its_loop, OwnedLoop owned)
    : loop(its_loop), owned_loop(std::move(owned)), core(owned_loop.get(), true) {
  start();
}

LibevLoop::Impl::Impl(LibevLoop& its_loop, struct ev_loop* borrowed)
    : loop(its_loop), core(borrowed, false) {
  start();
  loop.set_host_may_sleep(true);
}

void LibevLoop::Impl::start() {
  wake_fd = open_wakeup();
  ev_init(&prepare,
          [](struct ev_loop*, ev_prepare* w, int) { static_cast<Impl*>(w->data)->before_sleep(); });
  ev_init(&check,
          [](struct ev_loop*, ev_check* w, int) { static_cast<Impl*>(w->data)->after_sleep(); });
  ev_init(&core.tail,
          [](struct ev_loop*, ev_check* w, int) { static_cast<Impl*>(w->data)->run_tail(); });
  ev_init(&core.no_sleep, [](struct ev_loop*, ev_idle*, int) {});
  ev_io_init(
      &wake,
      [](struct ev_loop*, ev_io* w, int revents) { static_cast<Impl*>(w->data)->on_wake(revents); },
      wake_fd, EV_READ);
  prepare.data = check.data = core.tail.data = wake.data = this;
  ev_set_priority(&prepare, EV_MINPRI);
  ev_set_priority(&check, EV_MAXPRI);
  ev_set_priority(&core.tail, EV_MINPRI);
  // Lowest priority, so that the host program's idle watchers still run.
  ev_set_priority(&core.no_sleep, EV_MINPRI);
  core.start_unreferenced(ev_prepare_start, prepare);
  core.start_unreferenced(ev_io_start, wake);
  // Starting the watcher `tail` once makes libev reserve its list entry, so that later starts do
  // not allocate memory.
  core.start_unreferenced(ev_check_start, core.tail);
  core.stop_unreferenced(ev_check_stop, core.tail);
}

LibevLoop::Impl::~Impl() {
  core.release();
  core.stop_unreferenced(ev_io_stop, wake);
  core.stop_unreferenced(ev_idle_stop, core.no_sleep);
  core.stop_unreferenced(ev_check_stop, core.tail);
  core.stop_unreferenced(ev_check_stop, check);
  core.stop_unreferenced(ev_prepare_stop, prepare);
  ::close(wake_fd);
}

void LibevLoop::Impl::shut_down() {
  work.shut_down([this] {
    timers.clear();
    files.clear();
  });
}

void LibevLoop::Impl::wake_for_post(void* self) noexcept {
  Impl& impl = *static_cast<Impl*>(self);
  if (!impl.core.asleep.exchange(false, std::memory_order_acq_rel)) return;
  if (impl.work.inherited()) return;  // a child of fork() would wake its parent's loop instead
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(impl.wake_fd, &one, sizeof one);
}

void LibevLoop::Impl::on_wake(int revents) noexcept {
  // A child of fork() must not read the eventfd, which it shares with its parent: the parent would
  // miss the wake-up.
  if (work.inherited()) return core.stop_unreferenced(ev_io_stop, wake);
  std::uint64_t count;
  [[maybe_unused]] const ssize_t size = ::read(wake_fd, &count, sizeof count);
  // EV_ERROR: libev has stopped the watcher, because the kernel had no memory to watch the
  // descriptor.
  if ((revents & EV_ERROR) != 0) ev_io_start(core.loop, &wake);
  core.woke();
  core.queue_tail();
}

// --- running iterations --------------------------------------------------------------------------

void LibevLoop::Impl::refuse_reentry(const char* what) const {
  if (core.in_handler() || ev_depth(core.loop) != 0) LoopWork::refuse_reentry(what);
}

void LibevLoop::Impl::run() {
  refuse_reentry("run()");
  if (work.inherited()) after_fork();
  work.queue->enter();
  if (work.take_stop()) return;
  work.running = true;
  work.idle.drop();
  // ev_ref() keeps ev_run() running until stop(), even without active watchers.
  if (!core.owned) ev_ref(core.loop);
  ev_run(core.loop, 0);
  core.woke();
  if (!core.owned) ev_unref(core.loop);
  work.running = false;
  (void)work.take_stop();
  core.rethrow();
}

std::size_t LibevLoop::Impl::process_events(Process flags) {
  refuse_reentry("process_events()");
  if (work.inherited()) after_fork();
  work.queue->enter();
  core.allowed = (flags & kAllEvents) == 0 ? flags | kDontWait : flags;
  const std::size_t ran = core.ran;
  if (!core.owned) ev_ref(core.loop);
  work.begin_single();
  // Repeated while the event loop spins: all polls of a spin are parts of one iteration.
  do {
    ev_run(core.loop, core.allows(kDontWait) ? EVRUN_NOWAIT : EVRUN_ONCE);
  } while (std::exchange(work.spin_looks, false) && core.ran == ran && !core.aborting());
  work.single = false;
  core.woke();
  if (!core.owned) ev_unref(core.loop);
  core.allowed = kFullIteration;
  core.rethrow();
  return core.ran - ran;
}

void LibevLoop::Impl::after_fork() noexcept {
  ev_loop_fork(core.loop);
  // Stops the files' watchers first: the new eventfd may get the number of a descriptor that the
  // child has closed.
  files.after_fork();
  core.stop_unreferenced(ev_io_stop, wake);
  ::close(wake_fd);
  wake_fd = open_wakeup();
  ev_io_set(&wake, wake_fd, EV_READ);
  core.start_unreferenced(ev_io_start, wake);
  work.after_fork();
}

void LibevLoop::Impl::stop() noexcept {
  work.request_stop();
  // If before_sleep() has already run in this iteration (a watcher of the host program calls this
  // function just before the sleep), only ev_break() can still end the loop.
  if (work.running && core.sleep_number == ev_iteration(core.loop))
    ev_break(core.loop, EVBREAK_ONE);
}

// --- the part of an iteration before the sleep ---------------------------------------------------

// Allows or prevents the sleep. libev does not sleep while an idle watcher is active, so one is
// started to prevent it. If the program runs the ev_loop, come_back() makes it iterate once more.
[[gnu::always_inline]] inline void LibevLoop::Impl::set_sleep(bool allowed) noexcept {
  if (allowed) {
    if (ev_is_active(&core.no_sleep)) core.stop_unreferenced(ev_idle_stop, core.no_sleep);
    core.release();
  } else {
    core.start_unreferenced(ev_idle_start, core.no_sleep);
    core.come_back();
  }
}

void LibevLoop::Impl::before_sleep() {
  if (core.settled() && fall_asleep()) {
    // The loop is settled: the last call has found nothing to do and allowed the sleep, and nothing
    // has changed since.
    work.sleep_begins();
    core.sleep_number = ev_iteration(core.loop);
    return;
  }
  core.stir();
  // before_sleep() is on the stack already: one of its handlers runs the host's loop inside itself.
  // This nested call only passes changes to libev and keeps the host's loop from sleeping.
  if (serving) {
    core.begin_slice();
    core.begin_files();
    files.sync();
    timers.sync();
    if (timers.has_due()) core.start_unreferenced(ev_check_start, core.tail);
    set_sleep(false);
    return;
  }
  core.woke();
  if (!core.owned) {
    loop.set_host_may_sleep(false);
    work.queue->enter();  // the host program may have called ev_run()
  }
  serving = true;
  bool may_sleep = work.before_sleep(!core.in_handler());
  serving = false;
  if (core.aborting()) ev_break(core.loop, EVBREAK_ALL);
  // After the sleep, this watcher tells `idle`, which measures idle times, that the sleep has
  // ended, and serves the files that the last iteration had no time for.
  if (work.idle.on() || files.has_left()) core.start_unreferenced(ev_check_start, check);
  files.sync();
  if (files.has_broken()) {
    core.start_unreferenced(ev_check_start, check);
    may_sleep = false;
  }
  timers.sync();
  if (timers.has_due() && core.allows(kTimeEvents)) may_sleep = false;
  if (may_sleep) may_sleep = fall_asleep();
  // Starts the watcher `tail`, which runs posted functions and expired timers: libev may not have
  // seen the wake-up for the functions yet, and does not know of timers that are already due.
  if (!may_sleep && (work.posts_waiting() || timers.has_due())) {
    core.start_unreferenced(ev_check_start, core.tail);
  }
  set_sleep(may_sleep);
  work.sleep_begins();
  core.sleep_number = ev_iteration(core.loop);
  if (!core.owned) loop.set_host_may_sleep(true);
  if (work.stopping()) ev_break(core.loop, EVBREAK_ONE);
  // A loop on a borrowed ev_loop never becomes settled (never skips parts of an iteration), because
  // each of its handlers must keep ev_run() running for another iteration.
  if (may_sleep && core.owned && work.quiet() && files.quiet() && !timers.has_due()) core.settle();
}

// --- the parts of an iteration after the sleep ---------------------------------------------------

void LibevLoop::Impl::after_sleep() {
  core.woke();
  work.after_sleep();
  if (core.aborting()) ev_break(core.loop, EVBREAK_ALL);
  files.run_left();
  if (files.has_broken()) files.run_broken();
  if (work.after_hooks.empty() && !work.idle.on()) core.stop_unreferenced(ev_check_stop, check);
}

void LibevLoop::Impl::run_tail() {
  core.woke();
  // Requests one more iteration, because the handlers that run now may leave work for it.
  core.come_back();
  work.run_posts_and_timers();
  if (core.aborting()) ev_break(core.loop, EVBREAK_ALL);
  // While work is left, the watcher `tail` runs in every iteration. Nothing else would start it:
  // only the first function in an empty queue wakes the loop, and libev's timer expires only once.
  if (work.posts_waiting() || timers.has_due()) {
    core.start_unreferenced(ev_check_start, core.tail);
  } else {
    core.stop_unreferenced(ev_check_stop, core.tail);
  }
}

// --- the interface: LibevLoop's functions --------------------------------------------------------

LibevLoop::LibevLoop() : impl_(std::make_unique<Impl>(*this, new_loop())) {}
LibevLoop::LibevLoop(struct ev_loop* borrowed) : impl_(std::make_unique<Impl>(*this, borrowed)) {}
LibevLoop::~LibevLoop() {
  set_host_may_sleep(false);
  impl_->shut_down();
}

void LibevLoop::add_file_event(int fd, Mask mask, FileHandler handler) {
  impl_->files.add(fd, mask, std::move(handler));
}
void LibevLoop::remove_file_event(int fd, Mask mask) { impl_->files.remove(fd, mask); }
Mask LibevLoop::file_events(int fd) const { return impl_->files.events(fd); }

TimerId LibevLoop::add_time_event(Duration delay, TimeHandler handler) {
  return impl_->timers.add(delay, handler);
}
TimerId LibevLoop::add_time_event(TimePoint when, TimeHandler handler) {
  return impl_->timers.add(when, handler);
}
bool LibevLoop::again(TimerId id, Duration delay) noexcept {
  return impl_->timers.again(id, delay);
}
bool LibevLoop::again(TimerId id, TimePoint when) noexcept { return impl_->timers.again(id, when); }
bool LibevLoop::remove_time_event(TimerId id) { return impl_->timers.remove(id); }

HookId LibevLoop::add_before_sleep(std::function<void()> hook) {
  return impl_->work.add_before_sleep(std::move(hook));
}
HookId LibevLoop::add_after_sleep(std::function<void()> hook) {
  const HookId id = impl_->work.add_after_sleep(std::move(hook));
  impl_->core.start_unreferenced(ev_check_start, impl_->check);
  return id;
}
void LibevLoop::remove_hook(HookId id) { impl_->work.remove_hook(id); }
void LibevLoop::add_source(Source& source) {
  impl_->work.add_source(source);
  nudge();
}
void LibevLoop::remove_source(Source& source) { impl_->work.sources.remove(source); }

void LibevLoop::run() { impl_->run(); }
void LibevLoop::stop() noexcept { impl_->stop(); }
std::size_t LibevLoop::process_events(Process flags) { return impl_->process_events(flags); }

void LibevLoop::set_spin(const Spin& spin) { impl_->work.set_spin(spin); }
LoopTimes LibevLoop::times() const { return impl_->work.idle.times(); }

void LibevLoop::post(std::function<void()> fn) { impl_->work.queue->push(std::move(fn)); }
Poster LibevLoop::poster() { return Poster(impl_->work.queue); }

void LibevLoop::destroy_later(std::unique_ptr<Deferred> object) noexcept {
  impl_->work.destroy_later(std::move(object));
  impl_->core.come_back();
}
std::unique_ptr<LoopLocal>& LibevLoop::local(const void* key) { return impl_->work.local(key); }
TimePoint LibevLoop::now() const { return impl_->core.now(); }
bool LibevLoop::has_time() noexcept { return impl_->core.has_time(); }
bool LibevLoop::in_handler() const noexcept { return impl_->core.in_handler(); }

struct ev_loop* LibevLoop::native() const noexcept {
  return impl_->core.loop;
}
std::exception_ptr LibevLoop::take_exception() noexcept { return impl_->core.take_error(); }
void LibevLoop::after_fork() noexcept { impl_->after_fork(); }

void LibevLoop::on_nudge() noexcept {
  set_host_may_sleep(false);
  impl_->core.come_back();
}

}}  // namespace ae
