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
// Between two messages of a server only the wait and the file handlers usually have work. When an
// iteration finds that the other steps have nothing to do, the loop is settled
// (LoopCore::settled()): run() then calls iterate_settled(), which skips those steps, until
// LoopCore::stir() is called.
//
// Below a host program's loop, the host sleeps: dispatch() runs serve() and then before_sleep(),
// and show() makes the loop's descriptor readable if work is left. Besides the files, the epoll
// instance watches three descriptors:
//
//   wake    an eventfd, edge-triggered, written to wake the loop: for posted functions, and for
//           nudges from outside handlers, including nudges after the host's prepare(), which the
//           host may not call again before it sleeps. It is never read.
//   alarm   a timerfd, edge-triggered, set for the next timer: below a host, and for a timer before
//           whose expiry the loop has slept many times.
//   work    an eventfd that is always readable. It is watched only below a host, exactly while
//           there is work that no other descriptor announces. A busy period costs two system calls,
//           however many iterations it has.

#include "ae/epoll_loop.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <limits>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "ae/core/file_events.h"
#include "ae/core/loop_core.h"
#include "ae/core/loop_timers.h"
#include "ae/core/loop_work.h"
#include "ae/epoll/epoll_files.h"
#include "ae/epoll/epoll_timers.h"

namespace ae { inline namespace AECONN_ABI {
namespace {

// The values in epoll_event::data that mark the loop's own descriptors. For a file, the lower half
// of the value is its descriptor number, which never equals one of these.
constexpr std::uint64_t kWake = 0xffffffff;
constexpr std::uint64_t kAlarm = 0xfffffffe;
constexpr std::uint64_t kWork = 0xfffffffd;

// The initial number of events that one epoll_wait() call may return.
constexpr std::size_t kBatch = 64;
constexpr std::size_t kLargestBatch = 4096;
// Number of events that a nested dispatch() reads at once; they are on the stack.
constexpr std::size_t kNestedBatch = 32;

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  const int& get() const noexcept { return fd_; }
  void reset(int fd = -1) noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }
  void take(Descriptor& other) noexcept { reset(std::exchange(other.fd_, -1)); }

 private:
  int fd_ = -1;
};

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

int wait_in_milliseconds(int epoll, std::span<epoll_event> room, Duration limit) noexcept {
  // The time-out is rounded up. A sleep that ended before the timer is due would cost an iteration
  // without work.
  const auto whole = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  const int milliseconds =
      static_cast<int>(std::min<decltype(whole)>(whole, std::numeric_limits<int>::max()));
  return ::epoll_wait(epoll, room.data(), static_cast<int>(room.size()), milliseconds);
}

int look_at(int epoll, std::span<epoll_event> room) noexcept {
  return ::epoll_wait(epoll, room.data(), static_cast<int>(room.size()), 0);
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

struct EpollLoop::Impl {
  explicit Impl(EpollLoop& its_loop);
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
  // These functions are the parts of an iteration.
  bool before_sleep();
  void wait(bool may_sleep);
  int timed_wait(bool posted) noexcept;
  Duration sleep_of_timers() noexcept;
  void collect();
  void serve();
  void serve_files();
  bool serve_file(const epoll_event& event);
  void drop_events() noexcept;
  bool quiet() const noexcept { return work.quiet() && files.quiet() && timers.quiet(); }
  bool note(const epoll_event& event) noexcept;
  std::span<epoll_event> all_room() noexcept { return {events.get(), room}; }

  // These functions are for a loop that runs below a host program's loop.
  bool hosted() const noexcept { return work_left.get() >= 0; }
  void open_host_descriptors();
  void open_alarm();
  bool arm();
  void show(bool left);
  bool show_nested();
  void show_work(bool left);
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
    timers.set(alarm.get());
    show_work(work_shown || files.has_ready() || timers.has_due());
  }
  static void wake_for_post(void* self) noexcept;
  void wake_up() noexcept;

  void watch(int fd, std::uint32_t wanted, std::uint64_t tag);
  void retry_refused();

  /// Exists on the stack while run(), process_events(), dispatch() or prepare() of this loop runs.
  /// Outside these calls, the host program runs.
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
  Descriptor epoll, wake, alarm, work_left;
  EpollFiles files{core, epoll.get()};
  EpollTimers timers{core};
  LoopWork work{core, timers, &Impl::wake_for_post, this};

  // The array that epoll_wait() fills with events; it holds `room` of them.
  std::unique_ptr<epoll_event[]> events = std::make_unique<epoll_event[]>(kBatch);
  std::size_t room = kBatch;
  std::size_t event_count = 0;
  std::size_t next_event = 0;
  TimerId retry = 0;
  bool lacks_pwait2 = false;
  // Whether the timerfd `alarm` could not be created, for lack of descriptors.
  bool lacks_alarm = false;

  /// True while the loop may be asleep, so that new work must wake it. The first thread that wakes
  /// the loop sets this to false.
  std::atomic<bool> asleep{false};
  bool turning = false;  // whether run(), process_events(), dispatch() or prepare() is on the stack
  bool prepares = false;    // whether the host calls prepare() before each of its sleeps
  bool work_shown = false;  // whether the epoll instance watches the descriptor `work_left`
};

// --- construction and destruction ----------------------------------------------------------------

EpollLoop::Impl::Impl(EpollLoop& its_loop)
    : loop(its_loop),
      epoll(checked(::epoll_create1(EPOLL_CLOEXEC), "event loop")),
      wake(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "event loop wake-up")) {
  watch(wake.get(), EPOLLIN | EPOLLET, kWake);
}

void EpollLoop::Impl::shut_down() {
  loop.set_host_may_sleep(false);
  turning = true;  // set, so that later changes do not update the host's descriptor
  work.shut_down([this] {
    timers.clear();
    files.clear();
  });
}

void EpollLoop::Impl::watch(int fd, std::uint32_t wanted, std::uint64_t tag) {
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = tag;
  checked(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event), "event loop");
}

// --- running -------------------------------------------------------------------------------------

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

// --- before the sleep ----------------------------------------------------------------------------

/// Runs the part before the sleep. Returns true if no work is left, so that the loop may sleep.
[[gnu::always_inline]] inline bool EpollLoop::Impl::before_sleep() {
  const bool sources_sleep = work.before_sleep(true);
  files.sync();
  if (files.has_refused()) retry_refused();
  timers.look_before_sleep();
  work.sleep_begins();
  if (core.allows(kDontWait)) return false;
  if (files.has_ready() && core.allows(kFileEvents)) return false;
  return sources_sleep && !(timers.has_due() && core.allows(kTimeEvents));
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

// --- waiting -------------------------------------------------------------------------------------

[[gnu::always_inline]] inline void EpollLoop::Impl::wait(bool may_sleep) {
  if (!may_sleep) return collect();
  // From here on, a thread that posts a function sees `asleep` and wakes this loop. A function that
  // was posted earlier is found by the call of pending() below.
  asleep.exchange(true, std::memory_order_acq_rel);
  const bool posted = work.queue->pending();
  const bool usual = core.allows(kTimeEvents) && !posted && !timers.limits_sleep();
  const int count = usual ? wait_for_ever(epoll.get(), all_room()) : timed_wait(posted);
  // From here on, a thread that posts a function sees that the loop is awake; one that has posted a
  // function before has written to `wake`.
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
    count = wait_for(epoll.get(), all_room(), limit, lacks_pwait2);
    // If only a timer has expired, but the caller wants no time events, the loop sleeps again.
  } while (!for_timers && count == 1 && note(events[0]));
  return count;
}

Duration EpollLoop::Impl::sleep_of_timers() noexcept {
  const Duration left = timers.left();
  if (left == Duration::max() || !timers.outlasts_sleeps() || lacks_alarm) return left;
  if (alarm.get() < 0) {
    try {
      open_alarm();
    } catch (const std::exception&) {
      // If the timerfd cannot be created, each sleep uses a time-out instead.
      lacks_alarm = true;
      return left;
    }
  }
  timers.leave_to(alarm.get());
  return timers.left();
}

void EpollLoop::Impl::collect() {
  const int count = look_at(epoll.get(), all_room());
  event_count = count > 0 ? static_cast<std::size_t>(count) : 0;
  next_event = 0;
}

// --- after the sleep -----------------------------------------------------------------------------

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
    // The usual case: no other handler of a file can be due. (A hook may have served this event
    // already, by calling dispatch().)
    next_event = 1;
    serve_file(events[0]);
  } else {
    serve_files();
  }
  work.run_posts_and_timers();
}

/// Runs one whole iteration of run() or process_events(). Returns false if the loop is to stop, or
/// a handler has thrown.
bool EpollLoop::Impl::iterate() {
  const bool may_sleep = before_sleep();
  if (work.stopping() || core.aborting()) return false;
  if (may_sleep && quiet()) core.settle();
  wait(may_sleep);
  serve();
  return !core.aborting();
}

/// Runs one iteration of a settled loop (LoopCore::settled()), with the same result as iterate().
[[gnu::always_inline]] inline bool EpollLoop::Impl::iterate_settled() {
#ifdef AECONN_CHECKS  // debug and sanitizer builds check that no call of stir() is missing
  assert(quiet());
#endif
  core.begin_slice();
  core.begin_files();
  asleep.exchange(true, std::memory_order_acq_rel);
  const int count = work.queue->pending() ? look_at(epoll.get(), all_room())
                                          : wait_for_ever(epoll.get(), all_room());
  asleep.store(false, std::memory_order_release);
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

/// Handles an event of one of the loop's own descriptors. Returns whether it was the timerfd
/// `alarm`. Events of `alarm` are edge-triggered: the kernel does not report them again, so each of
/// them must be passed to this function.
bool EpollLoop::Impl::note(const epoll_event& event) noexcept {
  // While the loop itself waits, `work_left` must not be watched: it is always readable, so the
  // loop would never sleep.
  if (event.data.u64 == kWork && (work.running || work.single)) show_work(false);
  if (event.data.u64 != kAlarm) return false;
  timers.alarm_came();
  return true;
}

[[gnu::noinline]] void EpollLoop::Impl::serve_files() {
  if (files.has_ready()) files.dispatch_ready();
  const bool full = event_count == room;
  files.put_left_first(all_room().first(event_count));
  // A handler may call dispatch() (nested), which drops the remaining events.
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

// --- below a host's loop -------------------------------------------------------------------------

void EpollLoop::Impl::open_host_descriptors() {
  if (alarm.get() < 0) open_alarm();
  Descriptor its_work(
      checked(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK), "wake-up of an event loop"));
  watch(its_work.get(), 0, kWork);
  work_left.take(its_work);
}

void EpollLoop::Impl::open_alarm() {
  Descriptor its_alarm(checked(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                               "timer of an event loop"));
  watch(its_alarm.get(), EPOLLIN | EPOLLET, kAlarm);
  alarm.take(its_alarm);
}

int EpollLoop::Impl::descriptor() {
  if (hosted()) return epoll.get();
  open_host_descriptors();
  // Earlier events and timers may not be registered with the kernel yet. Inside an iteration
  // nothing is done here, because its end registers them.
  if (turning) return epoll.get();
  {
    const Turn turn(*this);
    show(!arm());
  }
  core.rethrow();
  return epoll.get();
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
      // prepare() calls arm() of the sources later.
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
  // The nested call may make the remaining events of the outer call invalid.
  drop_events();
  loop.set_host_may_sleep(false);
  files.sync();
  std::array<epoll_event, kNestedBatch> its_room;
  const int count = look_at(epoll.get(), its_room);
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
  if (!hosted()) open_host_descriptors();
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
  return !work_shown;
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

/// Makes the loop's descriptor readable like show() if there is work that a nested dispatch() can
/// do. Returns true if there is no such work.
bool EpollLoop::Impl::show_nested() {
  const bool quiet = arm();
  if (!hosted()) return quiet;
  files.sync();
  asleep.exchange(true, std::memory_order_acq_rel);
  show_work(!quiet || files.has_ready());
  loop.set_host_may_sleep(true);
  return !work_shown;
}

/// Makes the loop's descriptor readable if there is work, and not readable otherwise. `left`:
/// whether the caller knows of work.
void EpollLoop::Impl::show(bool left) {
  files.sync();
  if (files.has_refused()) retry_refused();
  timers.set(alarm.get());
  // From here on, a thread that posts a function sees `asleep` and wakes this loop. A function that
  // was posted earlier is found by other_work_waiting() below.
  asleep.exchange(true, std::memory_order_acq_rel);
  show_work(left || files.has_ready() || work.other_work_waiting());
  loop.set_host_may_sleep(true);
}

void EpollLoop::Impl::show_work(bool left) {
  if (left == work_shown) return;
  epoll_event event{};
  event.events = left ? std::uint32_t{EPOLLIN} : 0u;
  event.data.u64 = kWork;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_MOD, work_left.get(), &event) == 0) work_shown = left;
}

// --- waking --------------------------------------------------------------------------------------

void EpollLoop::Impl::wake_up() noexcept {
  if (!asleep.exchange(false, std::memory_order_acq_rel) || work.inherited()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
}

void EpollLoop::Impl::wake_for_post(void* self) noexcept { static_cast<Impl*>(self)->wake_up(); }

/// Replaces the descriptors that this process, a child of fork(), shares with its parent.
void EpollLoop::Impl::after_fork() {
  const bool was_hosted = hosted();
  // The files come first, because the descriptors opened below may reuse numbers that the child has
  // closed.
  files.after_fork();
  alarm.reset();
  work_left.reset();
  work_shown = false;
  Descriptor its_wake(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "event loop wake-up"));
  wake.take(its_wake);
  const Descriptor its_epoll(checked(::epoll_create1(EPOLL_CLOEXEC), "event loop"));
  // dup3() is used because it keeps the descriptor's number, which a host program may watch.
  checked(::dup3(its_epoll.get(), epoll.get(), O_CLOEXEC), "event loop");
  watch(wake.get(), EPOLLIN | EPOLLET, kWake);
  timers.forget_alarm();
  if (was_hosted) open_host_descriptors();
  work.after_fork();
  if (was_hosted && !turning) show(true);
}

// --- the interface -------------------------------------------------------------------------------

EpollLoop::EpollLoop() : impl_(std::make_unique<Impl>(*this)) {}
EpollLoop::~EpollLoop() { impl_->shut_down(); }

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

void EpollLoop::run() { impl_->run(); }
void EpollLoop::stop() noexcept { impl_->work.request_stop(); }
std::size_t EpollLoop::process_events(Process flags) { return impl_->process_events(flags); }
int EpollLoop::descriptor() { return impl_->descriptor(); }
std::size_t EpollLoop::dispatch() { return impl_->dispatch(); }
bool EpollLoop::prepare() { return impl_->prepare(); }
void EpollLoop::end_prepare() { impl_->end_prepare(); }

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
