// SPDX-License-Identifier: BSD-3-Clause
// The system calls that depend on time, and the list of the machine's addresses. Shared libraries
// (libev, libstdc++) find these definitions before the C library's.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <vector>

#include "tests/simulation/memory.h"
#include "tests/simulation/objects.h"

using simulation::Below;
using simulation::Nanoseconds;
using simulation::World;

namespace {

// No event will ever occur and the program waits without a deadline: a hang.
[[noreturn]] void hangs() {
  std::fputs("simulation: everything sleeps and nothing will wake it\n", stderr);
  std::abort();
}

// Asks the system without waiting, then lets simulated time pass until something is ready.
template <class Look>
int wait_in_simulation(World& world, std::int64_t nanoseconds, Look look) {
  ++world.waits;
  world.run_due();
  const bool for_ever = nanoseconds < 0;
  const Nanoseconds began = world.now();
  const Nanoseconds limit =
      for_ever ? began + std::chrono::hours(24) : began + Nanoseconds(nanoseconds);
  for (;;) {
    const int found = look();
    if (found != 0 || world.now() >= limit) {
      if (world.now() == began) return found;
      world.spend(world.config.wake_latency);
      world.slept += world.now() - began - world.config.wake_cpu;
      return found;
    }
    if (!world.advance(limit) && for_ever) hangs();
  }
}

/// A timer that timerfd_create() has made in a world.
struct Timer {
  std::uint64_t settings = 0;  ///< number of its latest setting, which replaces those before
  bool expired = false;        ///< since then
  void restart() noexcept {
    ++settings;
    expired = false;
  }
};

/// By descriptor. A number that is used again goes on counting: an old setting never expires.
std::map<int, Timer>& timers() {
  static std::map<int, Timer> all;
  return all;
}

struct InterfaceList {
  std::vector<ifaddrs> entries;
  std::vector<sockaddr_in> addresses;
  sockaddr_in mask{};  // all addresses have a mask of 24 bits
  std::vector<char*> names;
};

/// `limit` in nanoseconds; -1: no limit.
int epoll_wait_in_simulation(int fd, epoll_event* events, int size, std::int64_t limit) {
  const auto ask = [&] {
    return static_cast<int>(syscall(SYS_epoll_pwait, fd, events, size, 0, nullptr, NSIG / 8));
  };
  World& world = *World::current();
  const auto until = [&] { return limit < 0 ? World::kNever : world.now() + Nanoseconds(limit); };
  if (world.pace != nullptr) {
    world.run_due();
    const int found = ask();
    if (found != 0 || limit == 0) return found;
    world.pace->sleep(fd, until());
    return ask();
  }
  if (world.stepping) {
    world.run_due();
    const int found = ask();
    world.wish = found != 0 ? world.now() : until();
    return found;
  }
  return wait_in_simulation(world, limit, ask);
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const Below below;
  World* world = World::current();
  if (world == nullptr || clock == CLOCK_PROCESS_CPUTIME_ID)
    return static_cast<int>(syscall(SYS_clock_gettime, clock, out));
  // Today's date: certificates are checked against it.
  static const std::int64_t today = std::time(nullptr);
  const bool date = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
  if (clock == CLOCK_THREAD_CPUTIME_ID) {
    const std::int64_t spent = (world->look_at_clock() - world->slept).count();
    out->tv_sec = static_cast<time_t>(spent / 1000000000);
    out->tv_nsec = static_cast<long>(spent % 1000000000);
    return 0;
  }
  const std::int64_t now = world->look_at_clock().count() + (date ? today * 1000000000 : 0);
  out->tv_sec = static_cast<time_t>(now / 1000000000);
  out->tv_nsec = static_cast<long>(now % 1000000000);
  return 0;
}

// libev asks for the date with this call.
int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return result;
}

int epoll_wait(int fd, epoll_event* events, int size, int milliseconds) {
  const Below below;
  if (World::current() == nullptr)
    return static_cast<int>(
        syscall(SYS_epoll_pwait, fd, events, size, milliseconds, nullptr, NSIG / 8));
  return epoll_wait_in_simulation(fd, events, size,
                                  milliseconds < 0 ? -1 : std::int64_t{milliseconds} * 1000000);
}

int epoll_pwait2(int fd, epoll_event* events, int size, const timespec* limit,
                 const sigset_t* mask) {
  const Below below;
  if (World::current() == nullptr)
    return static_cast<int>(syscall(SYS_epoll_pwait2, fd, events, size, limit, mask, NSIG / 8));
  return epoll_wait_in_simulation(
      fd, events, size, limit == nullptr ? -1 : limit->tv_sec * 1000000000 + limit->tv_nsec);
}

// A timer of a world is an eventfd, which is written when the world's time has come. As with a real
// one, setting it makes it unreadable; epoll reports each write, hence each expiry, once.
int timerfd_create(int clock, int flags) noexcept {
  const Below below;
  static_assert(int{TFD_NONBLOCK} == int{EFD_NONBLOCK} && int{TFD_CLOEXEC} == int{EFD_CLOEXEC});
  const int fd = World::current() != nullptr
                     ? eventfd(0, flags)
                     : static_cast<int>(syscall(SYS_timerfd_create, clock, flags));
  if (fd < 0) return fd;
  if (World::current() != nullptr)
    timers()[fd].restart();
  else
    timers().erase(fd);
  return fd;
}

int timerfd_settime(int fd, int flags, const itimerspec* wanted, itimerspec* before) noexcept {
  const Below below;
  World* const world = World::current();
  const auto found = timers().find(fd);
  if (found == timers().end())
    return static_cast<int>(syscall(SYS_timerfd_settime, fd, flags, wanted, before));
  Timer& timer = found->second;
  const std::uint64_t number = ++timer.settings;
  std::uint64_t expiries = 0;
  if (std::exchange(timer.expired, false)) (void)!read(fd, &expiries, sizeof expiries);
  const auto when =
      std::chrono::seconds(wanted->it_value.tv_sec) + Nanoseconds(wanted->it_value.tv_nsec);
  if (world == nullptr || when == Nanoseconds::zero()) return 0;
  world->after(std::max(when - world->now(), Nanoseconds(0)), [fd, number] {
    Timer& expiring = timers()[fd];
    if (expiring.settings != number) return;
    expiring.expired = true;
    const std::uint64_t once = 1;
    (void)!write(fd, &once, sizeof once);
  });
  return 0;
}

// As many processors as the world has; no other code depends on the real set.
int sched_getaffinity(pid_t thread, size_t size, cpu_set_t* set) noexcept {
  const Below below;
  World* world = World::current();
  if (world == nullptr) return syscall(SYS_sched_getaffinity, thread, size, set) < 0 ? -1 : 0;
  CPU_ZERO_S(size, set);
  for (unsigned i = 0; i < world->config.processors; ++i) CPU_SET_S(i, size, set);
  return 0;
}

int getrusage(__rusage_who_t who, rusage* usage) noexcept {
  const Below below;
  if (World::current() == nullptr)
    return static_cast<int>(syscall(SYS_getrusage, static_cast<int>(who), usage));
  *usage = {};
  return 0;
}

int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
  const Below below;
  const auto ask = [&](const timespec* limit) {
    timespec copy{};
    if (limit != nullptr) copy = *limit;
    return static_cast<int>(
        syscall(SYS_ppoll, fds, count, limit != nullptr ? &copy : nullptr, mask, NSIG / 8));
  };
  World* world = World::current();
  if (world == nullptr) return ask(timeout);
  const timespec now{};
  const std::int64_t limit =
      timeout == nullptr ? -1 : std::int64_t{timeout->tv_sec} * 1000000000 + timeout->tv_nsec;
  return wait_in_simulation(*world, limit, [&] { return ask(&now); });
}

int poll(pollfd* fds, nfds_t count, int milliseconds) {
  const Below below;
  const timespec limit{milliseconds / 1000, milliseconds % 1000 * 1000000L};
  return ppoll(fds, count, milliseconds < 0 ? nullptr : &limit, nullptr);
}

// With _FORTIFY_SOURCE, libraries call this name.
int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t) {
  const Below below;
  return ppoll(fds, count, timeout, mask);
}

int nanosleep(const timespec* wanted, timespec* left) {
  const Below below;
  World* world = World::current();
  if (world == nullptr) return static_cast<int>(syscall(SYS_nanosleep, wanted, left));
  const Nanoseconds end =
      world->now() + std::chrono::seconds(wanted->tv_sec) + Nanoseconds(wanted->tv_nsec);
  while (world->now() < end) world->advance(end);
  return 0;
}

int getifaddrs(ifaddrs** out) noexcept {
  const Below below;
  World* world = World::current();
  auto* list = new InterfaceList;
  if (world != nullptr) {
    for (const auto& device : world->devices) {
      if (device->removed || !device->address_present) continue;
      sockaddr_in address{};
      address.sin_family = AF_INET;
      inet_pton(AF_INET, device->address.c_str(), &address.sin_addr);
      list->addresses.push_back(address);
      list->names.push_back(device->base.name);
    }
  }
  list->mask.sin_family = AF_INET;
  list->mask.sin_addr.s_addr = htonl(0xffffff00);
  // The first entry carries the list itself, so that freeifaddrs() finds it.
  list->entries.resize(list->addresses.size() + 1);
  list->entries[0].ifa_data = list;
  for (std::size_t i = 0; i < list->addresses.size(); ++i) {
    ifaddrs& entry = list->entries[i + 1];
    entry.ifa_name = list->names[i];
    entry.ifa_addr = reinterpret_cast<sockaddr*>(&list->addresses[i]);
    entry.ifa_netmask = reinterpret_cast<sockaddr*>(&list->mask);
    entry.ifa_flags = IFF_UP;
    list->entries[i].ifa_next = &entry;
  }
  list->entries[0].ifa_name = const_cast<char*>("lo");
  *out = list->entries.data();
  return 0;
}

void freeifaddrs(ifaddrs* list) noexcept { delete static_cast<InterfaceList*>(list->ifa_data); }

}  // extern "C"
