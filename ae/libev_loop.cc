// One iteration, as libev sees it. Where each part of it runs decides what is promised:
//
//   ev_prepare, lowest priority   deferred objects go -> sources' pending work -> before_sleep
//                                 hooks -> flush -> deferred objects -> spin, arm, or veto
//                                 -> file interest and the next timer's time to libev
//                                 (a spin goes on after each look at descriptors and timers)
//   (libev sleeps, or polls while the veto's ev_idle is active)
//   ev_check, highest priority    after_sleep hooks
//   ev_io                         file handlers
//   the tail, lowest priority     posted functions and due timers, a bounded number of each
//
// Only ev_prepare is always there; the others are there when there is something for them.
// stop() takes effect at the end of the ev_prepare part, so what the last handlers wrote is
// flushed.

#include "ae/libev_loop.h"

#include <ev.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <deque>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "ae/deferred_list.h"
#include "ae/hook_list.h"
#include "ae/idle_time.h"
#include "ae/libev_core.h"
#include "ae/libev_files.h"
#include "ae/libev_timers.h"
#include "ae/poster.h"
#include "ae/source_list.h"

namespace ae {
namespace {

// How many of each run before the loop looks at its descriptors again.
constexpr std::size_t kTimersPerIteration = 1000;
constexpr std::size_t kPostsPerIteration = 1000;
// Handlers of sources that run before descriptors are looked at again.
constexpr std::size_t kServedPerIteration = 64;
// How often a loop that spins for a source looks at descriptors and timers; and one that spins for
// its descriptors as well. Where no source asks it does nothing else.
constexpr Duration kSpinLooks = std::chrono::microseconds(20);
constexpr Duration kSpinLooksForBoth = std::chrono::microseconds(2);
// A batch that grew beyond this gives its memory back.
constexpr std::size_t kPostsKept = 16384;

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno != 0 ? errno : EMFILE, std::generic_category(), what);
}

[[noreturn]] void throw_reentry(const char* what) {
  throw LoopError(std::string(what) + " called from inside a handler of its own loop");
}

struct LoopDeleter {
  void operator()(struct ev_loop* loop) const noexcept { ev_loop_destroy(loop); }
};
using OwnedLoop = std::unique_ptr<struct ev_loop, LoopDeleter>;

OwnedLoop new_loop() {
  // epoll or an error, where there is epoll: the slower backends that libev would fall back to
  // start without a descriptor and hide that there is none. NOENV: LIBEV_FLAGS is not ours.
  const unsigned recommended = ev_recommended_backends();
  const unsigned epoll = recommended & EVBACKEND_EPOLL;
  errno = 0;
  OwnedLoop loop(ev_loop_new((epoll != 0 ? epoll : recommended) | EVFLAG_NOENV));
  if (!loop) throw_errno("event loop");
  return loop;
}

// libev aborts the process if it gets no descriptor for its wake-ups, so ask the kernel first.
void check_wakeup_descriptor() {
  const int fd = ::eventfd(0, EFD_CLOEXEC);
  if (fd < 0) throw_errno("event loop wake-up");
  ::close(fd);
}

}  // namespace

struct LibevLoop::Impl {
  explicit Impl(OwnedLoop loop);
  explicit Impl(struct ev_loop* borrowed);
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();
  void start();
  void shut_down();

  void run();
  std::size_t process_events(Process flags);
  void stop() noexcept;
  void refuse_reentry(const char* what) const;
  void rethrow();

  // The parts of an iteration, in their order.
  void before_sleep();
  bool serve_sources(bool after_events);
  bool other_work_waiting();  // than that of sources
  bool work_waiting();
  bool may_spin(bool after_events);
  bool spin(Duration look_after);
  void set_sleep(bool allowed) noexcept;
  void after_sleep();
  void run_tail();
  void run_posts(std::size_t limit);
  void recycle_posts() noexcept;

  bool posts_waiting() const noexcept { return next_post < posts.size() || queue->pending(); }
  bool stopping() const noexcept { return stop_requested && running; }
  TimePoint now() const;
  std::unique_ptr<LoopLocal>& local(const void* key);

  struct Local {
    const void* key;
    std::unique_ptr<LoopLocal> object;
  };

  const OwnedLoop owned_loop;  // null if borrowed
  LibevCore core;
  LibevFiles files{core};
  LibevTimers timers{core};
  HookList before_hooks;
  HookList after_hooks;
  HookId last_hook = 0;
  SourceList sources;
  DeferredList deferred;
  std::deque<Local> locals;  // in order of creation; references stay valid

  ev_prepare prepare;
  ev_check check;    // active while there are hooks or broken descriptors
  ev_idle no_sleep;  // active from a veto to the next before_sleep()
  ev_async wake;

  std::shared_ptr<Poster::Queue> queue;
  Poster::Queue::Functions posts;  // the batch that is being run
  std::size_t next_post = 0;

  bool running = false;         // inside our run()
  bool single = false;          // inside process_events()
  bool stop_requested = false;  // for the run() that is, or comes
  bool serving = false;         // inside before_sleep()
  unsigned sleep_number = ~0u;  // libev's number of the iteration that before_sleep() ended last
  std::size_t ran_before = 0;   // core.ran at the end of before_sleep()
  bool spin_looks = false;      // this iteration is one of the looks of a spin
  Spin own_spin;
  IdleTime idle;
  mutable TimePoint time;
  mutable bool time_known = false;
};

// --- construction and destruction ----------------------------------------------------------------

LibevLoop::Impl::Impl(OwnedLoop loop) : owned_loop(std::move(loop)), core(owned_loop.get(), true) {
  start();
}

LibevLoop::Impl::Impl(struct ev_loop* borrowed) : core(borrowed, false) { start(); }

void LibevLoop::Impl::start() {
  check_wakeup_descriptor();
  ev_init(&prepare,
          [](struct ev_loop*, ev_prepare* w, int) { static_cast<Impl*>(w->data)->before_sleep(); });
  ev_init(&check,
          [](struct ev_loop*, ev_check* w, int) { static_cast<Impl*>(w->data)->after_sleep(); });
  ev_init(&core.tail,
          [](struct ev_loop*, ev_check* w, int) { static_cast<Impl*>(w->data)->run_tail(); });
  ev_init(&no_sleep, [](struct ev_loop*, ev_idle*, int) {});
  ev_init(&wake, [](struct ev_loop*, ev_async* w, int) {
    static_cast<Impl*>(w->data)->core.queue_tail();
  });
  prepare.data = check.data = core.tail.data = wake.data = this;
  ev_set_priority(&prepare, EV_MINPRI);
  ev_set_priority(&check, EV_MAXPRI);
  ev_set_priority(&core.tail, EV_MINPRI);
  ev_set_priority(&no_sleep, EV_MINPRI);  // the host's idle watchers run all the same
  queue = std::make_shared<Poster::Queue>(
      [](void* self) {
        auto& impl = *static_cast<Impl*>(self);
        ev_async_send(impl.core.loop, &impl.wake);
      },
      this);
  core.start_unreferenced(ev_prepare_start, prepare);
  core.start_unreferenced(ev_async_start, wake);
  // Its first start makes room in libev's list: no later one allocates.
  core.start_unreferenced(ev_check_start, core.tail);
  core.stop_unreferenced(ev_check_stop, core.tail);
}

LibevLoop::Impl::~Impl() {
  core.release();
  core.stop_unreferenced(ev_async_stop, wake);
  core.stop_unreferenced(ev_idle_stop, no_sleep);
  core.stop_unreferenced(ev_check_stop, core.tail);
  core.stop_unreferenced(ev_check_stop, check);
  core.stop_unreferenced(ev_prepare_stop, prepare);
}

// Everything of the user's goes while the loop still works: what is destroyed here may remove its
// events and defer more.
void LibevLoop::Impl::shut_down() {
  assert(!core.in_handler() && "an event loop must not be destroyed from inside its handlers");
  Poster::Queue::Functions last_posts;
  queue->close(last_posts);
  posts.insert(posts.end(), std::make_move_iterator(last_posts.begin()),
               std::make_move_iterator(last_posts.end()));
  while (next_post < posts.size()) {  // one that throws has nobody left to tell
    core.guarded([this] { run_posts(posts.size()); });
  }
  while (!locals.empty()) {
    const auto last = std::move(locals.back().object);
    if (!last) locals.pop_back();
  }
  deferred.destroy_all();
  timers.clear();
  files.clear();
  before_hooks.clear();
  after_hooks.clear();
  while (!deferred.empty()) deferred.destroy_all();
}

// --- running -------------------------------------------------------------------------------------

void LibevLoop::Impl::refuse_reentry(const char* what) const {
  if (core.in_handler() || ev_depth(core.loop) != 0) throw_reentry(what);
}

void LibevLoop::Impl::rethrow() {
  if (core.has_error()) std::rethrow_exception(core.take_error());
}

void LibevLoop::Impl::run() {
  refuse_reentry("run()");
  if (std::exchange(stop_requested, false)) return;
  running = true;
  idle.drop();
  if (!core.owned) ev_ref(core.loop);  // until stop(), whether or not there is anything to wait for
  ev_run(core.loop, 0);
  if (!core.owned) ev_unref(core.loop);
  running = false;
  stop_requested = false;
  rethrow();
}

std::size_t LibevLoop::Impl::process_events(Process flags) {
  refuse_reentry("process_events()");
  core.allowed = (flags & kAllEvents) == 0 ? flags | kDontWait : flags;
  const std::size_t ran = core.ran;
  if (!core.owned) ev_ref(core.loop);
  single = true;
  if (core.ran == ran_before)
    idle.drop_spin();  // else the next before_sleep() counts what was found
  do {                 // looks of a spin are parts of one iteration
    ev_run(core.loop, core.allows(kDontWait) ? EVRUN_NOWAIT : EVRUN_ONCE);
  } while (std::exchange(spin_looks, false) && core.ran == ran && !core.aborting());
  single = false;
  if (!core.owned) ev_unref(core.loop);
  core.allowed = kFullIteration;
  rethrow();
  return core.ran - ran;
}

void LibevLoop::Impl::stop() noexcept {
  stop_requested = true;
  // Too late for before_sleep() to see it: a watcher of the host's called us just before the sleep.
  if (running && sleep_number == ev_iteration(core.loop)) ev_break(core.loop, EVBREAK_ONE);
}

// --- before the sleep ----------------------------------------------------------------------------

void LibevLoop::Impl::before_sleep() {
  if (serving) {  // the host runs its loop from inside one of our phases: keep it awake, no more
    files.sync();
    timers.sync();
    if (timers.has_due()) core.start_unreferenced(ev_check_start, core.tail);
    set_sleep(false);
    return;
  }
  core.begin_iteration();
  time_known = spin_looks = false;
  const bool alone = !core.in_handler();
  if (alone) deferred.destroy_all();
  const bool after_events = core.ran != ran_before;
  bool may_sleep = false;
  serving = true;
  core.guarded([&] { may_sleep = serve_sources(after_events); });
  // What ended in this turn goes in it, rather than in a turn of its own.
  if (alone && !single && !core.aborting() && !deferred.empty()) {
    deferred.destroy_all();
    if (!work_waiting()) core.guarded([&] { may_sleep = serve_sources(after_events); });
  }
  serving = false;
  files.sync();
  if (files.has_broken()) {
    core.start_unreferenced(ev_check_start, check);
    may_sleep = false;
  }
  timers.sync();
  if (timers.has_due() && core.allows(kTimeEvents)) may_sleep = false;
  // Nothing else asks for the tail: the posts' wake-up may still be on the way, and libev does not
  // know of timers that are due already.
  if (!may_sleep && (posts_waiting() || timers.has_due())) {
    core.start_unreferenced(ev_check_start, core.tail);
  }
  set_sleep(may_sleep);
  time_known = false;
  ran_before = core.ran;
  sleep_number = ev_iteration(core.loop);
  if (stopping()) ev_break(core.loop, EVBREAK_ONE);
}

// Returns whether the loop may sleep; every source is armed then.
bool LibevLoop::Impl::serve_sources(bool after_events) {
  if (after_events) idle.work_came();
  for (std::size_t total = 0;;) {
    const std::size_t served = sources.process_pending();
    if (served != 0) idle.work_came();
    core.ran += served;
    total += served;
    if (core.allows(kCallBeforeSleep)) before_hooks.run();
    sources.flush();
    if (core.allows(kDontWait) || stopping() || work_waiting()) return false;
    // The caller of one iteration may have waited for just what was served.
    if (single && served != 0) return false;
    if (sources.empty() && own_spin.mode == Spin::Mode::kNo && !idle.on()) return true;
    if (may_spin(after_events)) return false;
    if (sources.arm() && !work_waiting()) return true;
    idle.vetoed();
    // What came at the last moment is served at once: a look at the descriptors would cost more.
    // Not for ever, so that these do not wait.
    if (single || total >= kServedPerIteration || served == 0 || other_work_waiting()) return false;
  }
}

bool LibevLoop::Impl::other_work_waiting() {
  return posts_waiting() || !deferred.empty() || (timers.has_due() && core.allows(kTimeEvents));
}
bool LibevLoop::Impl::work_waiting() { return sources.has_pending() || other_work_waiting(); }

// True: the loop goes on without sleeping, for what was found or to look.
bool LibevLoop::Impl::may_spin(bool after_events) {
  if (own_spin.mode == Spin::Mode::kNo && !idle.on() && !sources.has_spin()) return false;
  Spin asked = own_spin;
  const bool for_sources = sources.add_spin(asked);
  if (asked.mode == Spin::Mode::kNo && !idle.on()) return false;
  const TimePoint now = std::chrono::steady_clock::now();
  if (!(asked == idle.asked())) idle.ask(asked, now);
  if (!idle.on()) return false;
  core.start_unreferenced(ev_check_start, check);  // which tells when the sleep was over
  if (!idle.spinning()) idle.begin(now);
  if (now < idle.spins_until()) {
    // While descriptors are busy they are asked first: a spin would only delay them.
    if (after_events) return spin_looks = true;
    const bool for_descriptors = own_spin.mode != Spin::Mode::kNo;
    if (spin(!for_descriptors ? kSpinLooks : for_sources ? kSpinLooksForBoth : Duration::zero()))
      return true;
  }
  idle.end_spin(std::max(now, idle.spins_until()));
  return false;
}

// In pieces: between two of them the loop goes round without sleeping, and serves descriptors and
// timers, whose time no source knows.
bool LibevLoop::Impl::spin(Duration look_after) {
  TimePoint now = std::chrono::steady_clock::now();
  const TimePoint look = std::min(idle.spins_until(), now + look_after);
  for (;;) {
    if (sources.has_pending_now() || queue->pending()) {
      idle.work_came(now);
      return true;
    }
    now = std::chrono::steady_clock::now();
    if (now >= look) return spin_looks = now < idle.spins_until();
    relax_processor();
  }
}

// libev polls without sleeping while an idle watcher is active. A borrowed loop also comes back
// then.
void LibevLoop::Impl::set_sleep(bool allowed) noexcept {
  if (allowed) {
    if (ev_is_active(&no_sleep)) core.stop_unreferenced(ev_idle_stop, no_sleep);
    core.release();
  } else {
    core.start_unreferenced(ev_idle_start, no_sleep);
    core.come_back();
  }
}

// --- after the sleep -----------------------------------------------------------------------------

void LibevLoop::Impl::after_sleep() {
  if (idle.waits()) idle.looked(std::chrono::steady_clock::now());
  if (core.may_run(kCallAfterSleep)) core.guarded([this] { after_hooks.run(); });
  if (files.has_broken()) files.run_broken();
  if (after_hooks.empty() && !idle.on()) core.stop_unreferenced(ev_check_stop, check);
}

void LibevLoop::Impl::run_tail() {
  if (!core.aborting()) core.guarded([this] { run_posts(kPostsPerIteration); });
  if (core.may_run(kTimeEvents) && timers.has_due()) {
    core.guarded([this] { timers.run_due(kTimersPerIteration); });
  }
  // While something is left the tail belongs to every iteration: a queue that is not empty wakes
  // nobody again, and a timer expires once.
  if (posts_waiting() || timers.has_due()) {
    core.start_unreferenced(ev_check_start, core.tail);
    core.come_back();
  } else {
    core.stop_unreferenced(ev_check_stop, core.tail);
  }
}

// Functions that are posted meanwhile wait for the next call.
void LibevLoop::Impl::run_posts(std::size_t limit) {
  if (next_post == posts.size()) {
    recycle_posts();
    if (!queue->pending()) return;
    queue->take(posts);
  }
  for (; limit != 0 && next_post < posts.size(); --limit) {
    const auto fn = std::move(posts[next_post++]);
    core.count_handler();
    if (fn) fn();
  }
  if (next_post == posts.size()) recycle_posts();
}

void LibevLoop::Impl::recycle_posts() noexcept {
  if (posts.capacity() > kPostsKept) posts = {};
  posts.clear();
  next_post = 0;
}

// --- the rest ------------------------------------------------------------------------------------

// Read from the clock when it is first asked for, so an iteration that nobody asks pays nothing.
TimePoint LibevLoop::Impl::now() const {
  if (!core.in_handler()) return std::chrono::steady_clock::now();
  if (!std::exchange(time_known, true)) time = std::chrono::steady_clock::now();
  return time;
}

std::unique_ptr<LoopLocal>& LibevLoop::Impl::local(const void* key) {
  for (Local& entry : locals) {
    if (entry.key == key) return entry.object;
  }
  return locals.emplace_back(Local{key, nullptr}).object;
}

LibevLoop::LibevLoop() : impl_(std::make_unique<Impl>(new_loop())) {}
LibevLoop::LibevLoop(struct ev_loop* borrowed) : impl_(std::make_unique<Impl>(borrowed)) {}
LibevLoop::~LibevLoop() { impl_->shut_down(); }

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
  if (!hook) throw LoopError("a hook needs a function");
  impl_->before_hooks.add(++impl_->last_hook, std::move(hook));
  return impl_->last_hook;
}
HookId LibevLoop::add_after_sleep(std::function<void()> hook) {
  if (!hook) throw LoopError("a hook needs a function");
  impl_->after_hooks.add(++impl_->last_hook, std::move(hook));
  impl_->core.start_unreferenced(ev_check_start, impl_->check);
  return impl_->last_hook;
}
void LibevLoop::remove_hook(HookId id) {
  if (!impl_->before_hooks.remove(id)) impl_->after_hooks.remove(id);
}
void LibevLoop::add_source(Source& source) { impl_->sources.add(source); }
void LibevLoop::remove_source(Source& source) { impl_->sources.remove(source); }

void LibevLoop::run() { impl_->run(); }
void LibevLoop::stop() noexcept { impl_->stop(); }
std::size_t LibevLoop::process_events(Process flags) { return impl_->process_events(flags); }

void LibevLoop::set_spin(const Spin& spin) { impl_->own_spin = spin; }
LoopTimes LibevLoop::times() const { return impl_->idle.times(); }

void LibevLoop::post(std::function<void()> fn) { impl_->queue->push(std::move(fn)); }
Poster LibevLoop::poster() { return Poster(impl_->queue); }

void LibevLoop::destroy_later(std::unique_ptr<Deferred> object) noexcept {
  impl_->deferred.push(std::move(object));
  impl_->core.come_back();
}
std::unique_ptr<LoopLocal>& LibevLoop::local(const void* key) { return impl_->local(key); }
TimePoint LibevLoop::now() const { return impl_->now(); }
bool LibevLoop::in_handler() const noexcept { return impl_->core.in_handler(); }

struct ev_loop* LibevLoop::native() const noexcept {
  return impl_->core.loop;
}
std::exception_ptr LibevLoop::take_exception() noexcept { return impl_->core.take_error(); }
void LibevLoop::after_fork() noexcept {
  ev_loop_fork(impl_->core.loop);
  impl_->files.after_fork();
  for (const auto& local : impl_->locals)
    if (local.object) local.object->after_fork();
}

}  // namespace ae
