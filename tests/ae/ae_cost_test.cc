// SPDX-License-Identifier: BSD-3-Clause
// The costs of an iteration of the loop, counted, not timed: allocations and system calls; and the
// loop's behaviour when a system call fails.

// TSan allocates and watches epoll itself.
#if defined(__SANITIZE_THREAD__)
#define AECONN_COUNTS 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AECONN_COUNTS 0
#endif
#endif
#ifndef AECONN_COUNTS
#define AECONN_COUNTS 1
#endif

#if AECONN_COUNTS
#include "ae/epoll_loop.h"

#include <ev.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"
#include "tests/support/pass_descriptors.h"

namespace {

thread_local std::size_t g_allocations = 0;
thread_local bool g_no_memory = false;

void* counted(std::size_t size) noexcept {
  ++g_allocations;
  return g_no_memory ? nullptr : std::malloc(size != 0 ? size : 1);
}

void* counted_or_throw(std::size_t size) {
  void* const memory = counted(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* counted_aligned(std::size_t size, std::align_val_t alignment) {
  ++g_allocations;
  const auto to = static_cast<std::size_t>(alignment);
  void* const memory = g_no_memory ? nullptr : std::aligned_alloc(to, (size + to - 1) / to * to);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

struct KernelCalls {
  int waits = 0;
  int timeouts = 0;  // waits with a time-out
  int events = 0;
  int controls = 0;
  int looks = 0;               // checks whether a descriptor is open
  int alarms = 0;              // calls that set a timerfd
  int fail_controls_with = 0;  // an errno, or 0
  int fail_timerfd_with = 0;
  int fail_epoll_with = 0;
  int fail_eventfd_with = 0;
  int eventfds = 0;
  int fail_pwait2_with = 0;
};
thread_local KernelCalls g_kernel;

}  // namespace

void* operator new(std::size_t size) { return counted_or_throw(size); }
void* operator new[](std::size_t size) { return counted_or_throw(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return counted(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted_aligned(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return counted_aligned(size, alignment);
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

// libev, too, finds these before the C library's.
extern "C" int epoll_wait(int epoll, epoll_event* events, int size, int timeout) {
  ++g_kernel.waits;
  g_kernel.timeouts += timeout > 0 ? 1 : 0;
  const auto count = syscall(SYS_epoll_pwait, epoll, events, size, timeout, nullptr, 8);
  if (count > 0) g_kernel.events += static_cast<int>(count);
  return static_cast<int>(count);
}
extern "C" int epoll_pwait2(int epoll, epoll_event* events, int size, const timespec* limit,
                            const sigset_t* signals) {
  if (g_kernel.fail_pwait2_with != 0) {
    errno = g_kernel.fail_pwait2_with;
    return -1;
  }
  ++g_kernel.waits;
  g_kernel.timeouts += limit != nullptr ? 1 : 0;
  const auto count = syscall(SYS_epoll_pwait2, epoll, events, size, limit, signals, 8);
  if (count > 0) g_kernel.events += static_cast<int>(count);
  return static_cast<int>(count);
}
extern "C" int epoll_create1(int flags) noexcept {
  errno = g_kernel.fail_epoll_with;
  return errno != 0 ? -1 : static_cast<int>(syscall(SYS_epoll_create1, flags));
}
extern "C" int eventfd(unsigned count, int flags) noexcept {
  ++g_kernel.eventfds;
  errno = g_kernel.fail_eventfd_with;
  return errno != 0 ? -1 : static_cast<int>(syscall(SYS_eventfd2, count, flags));
}
extern "C" int timerfd_create(int clock, int flags) noexcept {
  errno = g_kernel.fail_timerfd_with;
  return errno != 0 ? -1 : static_cast<int>(syscall(SYS_timerfd_create, clock, flags));
}
extern "C" int timerfd_settime(int timer, int flags, const itimerspec* wanted,
                               itimerspec* before) noexcept {
  ++g_kernel.alarms;
  return static_cast<int>(syscall(SYS_timerfd_settime, timer, flags, wanted, before));
}
extern "C" int epoll_ctl(int epoll, int what, int fd, epoll_event* event) noexcept {
  ++g_kernel.controls;
  if (g_kernel.fail_controls_with != 0) {
    errno = g_kernel.fail_controls_with;
    return -1;
  }
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, what, fd, event));
}
extern "C" int fcntl(int fd, int what, ...) {
  va_list arguments;
  va_start(arguments, what);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  if (what == F_GETFD) ++g_kernel.looks;
  return static_cast<int>(syscall(SYS_fcntl, fd, what, argument));
}

using namespace loop_kit;

TEST_CASE("event loop: events that fire allocate nothing", "[ae]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  std::size_t calls = 0;
  struct Large {  // larger than std::function's internal buffer
    std::array<char, 64> bytes;
  } large{};
  TestSource source(nullptr);
  loop.add_source(source);
  loop.add_before_sleep([&, large] { calls += large.bytes.size() != 0; });
  loop.add_file_event(s.near, kReadable,
                      [&, large](int, Mask) { calls += large.bytes.size() != 0; });
  loop.add_file_event(s.near, kWritable | kBarrier, [&](int, Mask) { ++calls; });
  loop.add_time_event(0ms, [&, large] {
    calls += large.bytes.size() != 0;
    return ae::Duration::zero();
  });
  const auto post = [&] { ++calls; };  // fits into std::function's internal buffer
  const auto fire = [&](int times) {
    for (int i = 0; i < times; ++i) {
      loop.post(post);
      loop.process_events(kPoll);
    }
  };
  fire(10);  // the tables reach their final size
  calls = 0;
  const auto before = g_allocations;
  fire(100);
  CHECK(g_allocations - before == 0);
  CHECK(calls >= 450);
}

TEST_CASE("event loop: taking back interest and asking for it again allocates nothing", "[ae]") {
  AnyLoop loop;
  Sockets s;
  loop.add_file_event(s.near, kReadable, [](int, Mask) {});
  turns(loop, 2);
  const auto before = g_allocations;
  for (int i = 0; i < 100; ++i) {
    loop.add_file_event(s.near, kWritable, [](int, Mask) {});
    loop.process_events(kPoll);
    loop.remove_file_event(s.near, kWritable);
    loop.process_events(kPoll);
  }
  CHECK(g_allocations - before == 0);
}

TEST_CASE("event loop: timers that come, move and go allocate nothing once there were as many",
          "[ae]") {
  AnyLoop loop;
  std::vector<ae::TimerId> ids(1000);
  int calls = 0;
  const auto play = [&] {
    for (ae::TimerId& id : ids) id = loop.add_time_event(1h, [&] { return ++calls, kNoMore; });
    for (const ae::TimerId id : ids) loop.again(id, 2h);
    turns(loop, 1);
    for (std::size_t i = 0; i < ids.size(); ++i) loop.again(ids[i], i % 2 == 0 ? 0ms : 30min);
    turns(loop, 2);
    for (const ae::TimerId id : ids) loop.remove_time_event(id);
    turns(loop, 1);
  };
  play();
  const auto before = g_allocations;
  for (int i = 0; i < 10; ++i) play();
  CHECK(g_allocations - before == 0);
  CHECK(calls == 11 * 500);
}

TEST_CASE("event loop: what was posted runs at the loop's end, also without memory",
          "[ae][hostile]") {
  std::string order;
  std::optional<AnyLoop> loop(std::in_place);
  // The first uses up the iteration's time, so that the second is left for the next.
  loop->post([&] { std::this_thread::sleep_for(15ms), order += '1'; });
  loop->post([&] { order += '2'; });
  loop->process_events(ae::kFullIteration | ae::kDontWait);
  loop->post([&] { order += '3'; });
  order.reserve(10);
  g_no_memory = true;
  loop.reset();
  g_no_memory = false;
  CHECK(order == "123");
}

TEST_CASE("event loop: a timer that finds no memory is not there, all others are",
          "[ae][hostile]") {
  AnyLoop loop;
  int calls = 0;
  int added = 0;
  bool failed = false;
  const auto add = [&] {
    loop.add_time_event(1ms, [&] { return ++calls, kNoMore; });
    ++added;
  };
  add();
  g_no_memory = true;
  try {
    for (int i = 0; i < 10'000; ++i) add();
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  g_no_memory = false;
  CHECK(failed);
  CHECK(added > 0);
  for (int i = 0; i < 1000; ++i) add();
  REQUIRE(runs_until(loop, [&] { return calls >= added; }));
  turns(loop, 3);
  CHECK(calls == added);
}

TEST_CASE("event loop: a time-out that is put off again and again does not wake it", "[ae]") {
  AnyLoop loop;
  int calls = 0;
  std::vector<ae::TimerId> ids;
  for (int i = 0; i < 100; ++i) {
    ids.push_back(loop.add_time_event(300ms, [&] { return ++calls, kNoMore; }));
  }
  bool over = false;
  turns(loop, 1);
  for (const ae::TimerId id : ids) loop.again(id, 1h);
  loop.add_time_event(500ms, [&] {
    over = true;
    return kNoMore;
  });
  g_kernel = {};
  while (!over) loop.process_events(kFullIteration);
  CHECK(calls == 0);
  CHECK(g_kernel.waits <= 3);
}

TEST_CASE("event loop: nobody looks whether a descriptor is open that is trusted to be", "[ae]") {
  if (testing::chosen_loop() == testing::LoopKind::kEpoll) return;  // the kernel reports it
  AnyLoop loop;
  Sockets s;
  turns(loop, 1);
  const auto looks = [&](Mask read, Mask write) {
    g_kernel = {};
    loop.add_file_event(s.near, read, [](int, Mask) {});
    turns(loop, 1);
    loop.add_file_event(s.near, write, [](int, Mask) {});
    turns(loop, 1);
    CHECK(loop.file_events(s.near) == (kReadable | kWritable));
    loop.remove_file_event(s.near, kWritable);
    turns(loop, 1);
    loop.remove_file_event(s.near, kReadable);
    turns(loop, 1);
    return g_kernel.looks;
  };
  loop.add_file_event(s.near, kReadable, [](int, Mask) {});  // the first one enlarges a table
  loop.remove_file_event(s.near, kReadable);
  CHECK(looks(kReadable | ae::kTrusted, kWritable | ae::kTrusted) == 0);
  CHECK(looks(kReadable, kWritable) == 3);
  CHECK(looks(kReadable | ae::kTrusted, kWritable) == 2);
  CHECK(looks(kReadable, kWritable | ae::kTrusted) == 3);
}

TEST_CASE("event loop: an iteration costs the same with one idle connection and with a thousand",
          "[ae]") {
  const auto cost = [](std::size_t idle) {
    AnyLoop loop;
    Sockets busy;
    busy.send();
    loop.add_file_event(busy.near, kReadable, [](int, Mask) {});
    std::vector<std::unique_ptr<Sockets>> quiet;
    for (std::size_t i = 0; i < idle; ++i) {
      quiet.push_back(std::make_unique<Sockets>());
      loop.add_file_event(quiet.back()->near, kReadable, [](int, Mask) {});
      loop.add_time_event(1h, [] { return kNoMore; });
    }
    turns(loop, 2);
    g_kernel = {};
    const auto allocations = g_allocations;
    const auto handlers = loop.process_events(kFullIteration);
    return std::array<std::size_t, 5>{handlers, static_cast<std::size_t>(g_kernel.waits),
                                      static_cast<std::size_t>(g_kernel.events),
                                      static_cast<std::size_t>(g_kernel.controls),
                                      g_allocations - allocations};
  };
  const std::array<std::size_t, 5> one_wait_one_event{1, 1, 1, 0, 0};
  CHECK(cost(0) == one_wait_one_event);
  CHECK(cost(1) == one_wait_one_event);
  CHECK(cost(400) == one_wait_one_event);
}

TEST_CASE("event loop: interest that comes and goes within an iteration costs no system call",
          "[ae]") {
  AnyLoop loop;
  Sockets s;
  loop.add_file_event(s.near, kReadable, [](int, Mask) {});
  turns(loop, 2);
  g_kernel = {};
  for (int i = 0; i < 10; ++i) {
    loop.add_file_event(s.near, kWritable, [](int, Mask) {});
    loop.remove_file_event(s.near, kWritable);
    loop.process_events(kPoll);
  }
  CHECK(g_kernel.controls == 0);
  loop.add_file_event(s.near, kWritable, [](int, Mask) {});
  turns(loop, 3);
  CHECK(g_kernel.controls == 1);
}

TEST_CASE("event loop: an idle loop does nothing", "[ae]") {
  AnyLoop loop;
  Sockets s;
  TestSource source(nullptr);
  loop.add_source(source);
  loop.add_file_event(s.near, kReadable, [](int, Mask) {});
  bool over = false;
  loop.add_time_event(100ms, [&] {
    over = true;
    return kNoMore;
  });
  g_kernel = {};
  while (!over) loop.process_events(kFullIteration);
  CHECK(g_kernel.waits <= 3);  // the timer's wake-up, which the kernel rounds to ms
}

TEST_CASE("hosted loop: a turn is one system call, and allocates nothing", "[ae]") {
  ae::EpollLoop loop;
  Sockets s;
  TestSource source(nullptr);
  loop.add_source(source);
  pollfd host{loop.descriptor(), POLLIN, 0};
  std::size_t calls = 0;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    ++calls;
    take_byte(fd);
  });
  const ae::TimerId idle = loop.add_time_event(1h, [] { return kNoMore; });
  const auto post = [&] { ++calls; };
  const auto turn = [&] {
    s.send();
    REQUIRE(::poll(&host, 1, 20'000) == 1);
    loop.dispatch();
    loop.again(idle, 1h);
  };
  for (int i = 0; i < 10; ++i) turn();
  loop.post(post);
  loop.dispatch();
  g_kernel = {};
  auto before = g_allocations;
  for (int i = 0; i < 100; ++i) turn();
  CHECK(g_allocations == before);
  CHECK(calls == 111);
  CHECK(g_kernel.waits == 100);
  CHECK(g_kernel.controls == 0);
  // A busy period: remaining work is signalled once, and the signal is withdrawn once.
  g_kernel = {};
  before = g_allocations;
  source.vetoes = 1'000'000;
  source.pending = 1000;
  for (int i = 0; i < 100; ++i) loop.dispatch();
  CHECK(::poll(&host, 1, 0) == 1);
  source.vetoes = source.pending = 0;
  loop.dispatch();
  CHECK(::poll(&host, 1, 0) == 0);
  CHECK(g_allocations == before);
  CHECK(g_kernel.waits == 101);
  CHECK(g_kernel.controls <= 3);
  // Functions posted from outside, iteration by iteration.
  const auto from_outside = [&] {
    loop.post(post);
    loop.nudge();
    REQUIRE(::poll(&host, 1, 20'000) == 1);
    loop.dispatch();
  };
  for (int i = 0; i < 10; ++i) from_outside();
  before = g_allocations;
  for (int i = 0; i < 90; ++i) from_outside();
  CHECK(g_allocations == before);
  CHECK(calls == 211);
  loop.remove_source(source);
}

namespace {

/// The costs of `sleeps` sleeps that a file event ends before the next timer is due.
KernelCalls sleep_beside_timers(ae::EpollLoop& loop, int sleeps) {
  Sockets s;
  s.send();
  int calls = 0;
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { ++calls; });
  g_kernel = {};
  for (int i = 0; i < sleeps; ++i) loop.process_events(kFullIteration);
  CHECK(calls == sleeps);
  loop.remove_file_event(s.near, kReadable);
  return g_kernel;
}

}  // namespace

TEST_CASE("event loop: a timer that outlasts sleeps costs them no time-out", "[ae]") {
  ae::EpollLoop loop;
  loop.add_time_event(1h, [] { return kNoMore; });
  const KernelCalls first = sleep_beside_timers(loop, 1000);
  // Without epoll_pwait2(), as in valgrind, the first wait is made once more.
  CHECK(first.waits <= 1001);
  CHECK(first.timeouts <= 17);
  CHECK(first.alarms == 1);
  const auto moved = loop.add_time_event(2h, [] { return kNoMore; });
  loop.again(moved, 3h);
  const KernelCalls then = sleep_beside_timers(loop, 1000);
  CHECK(then.waits == 1000);
  CHECK(then.timeouts + then.alarms == 0);
}

TEST_CASE("event loop: a timer is no earlier and none is missed where others are left to a timerfd",
          "[ae]") {
  ae::EpollLoop loop;
  const bool long_one_first = GENERATE(true, false);
  const auto begun = steady_clock::now();
  int fired = 0;
  const auto in = [&](ae::Duration delay) {
    loop.add_time_event(delay, [&, delay] {
      ++fired;
      CHECK(steady_clock::now() - begun >= delay);
      return kNoMore;
    });
  };
  if (long_one_first) in(200ms);
  if (!long_one_first) in(50ms);
  sleep_beside_timers(loop, 50);
  in(long_one_first ? 50ms : 200ms);  // earlier than the timerfd was set for, or later
  in(100ms);
  const auto gone = loop.add_time_event(1ms, [&] { return ++fired, kNoMore; });
  loop.remove_time_event(gone);
  sleep_beside_timers(loop, 50);
  g_kernel = {};
  while (fired < 3) loop.process_events(kFullIteration);
  CHECK(steady_clock::now() - begun >= 200ms);
  CHECK(g_kernel.waits <= 8);
}

TEST_CASE("event loop: who asks for files alone is not woken by timers", "[ae]") {
  ae::EpollLoop loop;
  int fired = 0, calls = 0;
  const auto due = steady_clock::now() + 2s;  // longer than fifty sleeps may take
  loop.add_time_event(due, [&] { return ++fired, kNoMore; });
  sleep_beside_timers(loop, 50);
  Sockets s;
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { ++calls; });
  std::thread peer([&] {
    std::this_thread::sleep_until(due + 20ms);
    s.send();
  });
  CHECK(loop.process_events(kFileEvents) == 1);
  peer.join();
  CHECK(calls == 1);
  CHECK(fired == 0);
  loop.remove_file_event(s.near, kReadable);
  loop.process_events(kFullIteration);
  CHECK(fired == 1);
}

TEST_CASE("event loop: after fork() a timer that was left to a timerfd comes in both", "[ae]") {
  ae::EpollLoop loop;
  int fired = 0;
  loop.add_time_event(2s, [&] { return ++fired, kNoMore; });  // longer than fifty sleeps may take
  CHECK(sleep_beside_timers(loop, 50).alarms == 1);
  const auto comes = [&] {
    sleep_beside_timers(loop, 50);
    return runs_until(loop, [&] { return fired == 1; });
  };
  const pid_t child = ::fork();
  if (child == 0) {
    loop.after_fork();
    ::_exit(comes() ? 0 : 1);
  }
  REQUIRE(child > 0);
  CHECK(comes());
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("event loop: without a timerfd sleeps have time-outs", "[ae][hostile]") {
  ae::EpollLoop loop;
  int fired = 0;
  const auto begun = steady_clock::now();
  loop.add_time_event(50ms, [&] { return ++fired, kNoMore; });
  loop.add_time_event(1h, [] { return kNoMore; });  // on a slow machine the other comes before
  {
    Sockets s;
    s.send();
    loop.add_file_event(s.near, kReadable, [](int, Mask) {});
    g_kernel = {};
    g_kernel.fail_timerfd_with = EMFILE;
    for (int i = 0; i < 100; ++i) loop.process_events(kFullIteration);
    CHECK(g_kernel.alarms == 0);
    CHECK(g_kernel.timeouts > 16);
    loop.remove_file_event(s.near, kReadable);
  }
  while (fired == 0) loop.process_events(kFullIteration);
  g_kernel = {};
  CHECK(steady_clock::now() - begun >= 50ms);
}

TEST_CASE("event loop: without epoll_pwait2() timers are as good, in milliseconds", "[ae]") {
  ae::EpollLoop loop;
  g_kernel = {};
  g_kernel.fail_pwait2_with = ENOSYS;
  int fired = 0;
  const auto begun = steady_clock::now();
  loop.add_time_event(2500us, [&] { return ++fired < 3 ? ae::Duration(2500us) : kNoMore; });
  while (fired < 3) loop.process_events(kFullIteration);
  g_kernel.fail_pwait2_with = 0;
  CHECK(steady_clock::now() - begun >= 7500us);
  CHECK(g_kernel.waits <= 8);  // never too early, so never repeated
}

TEST_CASE("event loop: without descriptors it throws and leaves nothing behind", "[ae][hostile]") {
  const bool no_epoll = GENERATE(true, false);
  const auto before = testing::count_descriptors();
  g_kernel = {};
  (no_epoll ? g_kernel.fail_epoll_with : g_kernel.fail_eventfd_with) = EMFILE;
  int error = 0;
  try {
    AnyLoop loop;
  } catch (const std::system_error& caught) {
    error = caught.code().value();
  }
  g_kernel = {};
  CHECK(error == EMFILE);
  CHECK(testing::count_descriptors() == before);
}

TEST_CASE("event loop: each descriptor is opened once, and not for a trial", "[ae][hostile]") {
  // libev ends the process if it cannot open a descriptor that a trial has found.
  g_kernel = {};
  AnyLoop loop;
  std::thread([&] { loop.post([&] { loop.stop(); }); }).join();
  loop.run();
  CHECK(g_kernel.eventfds == 1);
}

TEST_CASE("event loop: a post to a loop that is awake costs no system call", "[ae]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  int ran = 0;
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { loop.post([&] { ++ran; }); });
  turns(loop, 3);
  g_kernel = {};
  ran = 0;
  for (int i = 0; i < 10; ++i) {
    loop.process_events(kFullIteration);
    loop.post([&] { ++ran; });
  }
  CHECK(ran >= 15);
  CHECK(g_kernel.events == g_kernel.waits);  // those of the socket, and no wake-up
}

TEST_CASE("event loop: a descriptor that the kernel has no room for is tried again, not lost",
          "[ae][hostile]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  int calls = 0;
  turns(loop, 1);
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { ++calls; });
  g_kernel = {};
  g_kernel.fail_controls_with = ENOSPC;
  turns(loop, 5);
  g_kernel.fail_controls_with = 0;
  CHECK(calls == 1);  // called once; no spinning
  CHECK(g_kernel.controls == 1);
  CHECK(loop.file_events(s.near) == kReadable);
  REQUIRE(
      runs_until(loop, [&] { return calls > 5; }));  // known to the kernel by now: level-triggered
}
#endif  // AECONN_COUNTS
