// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sides of a comparison: ae::LibevLoop, ae::EpollLoop, bare libev, bare epoll.

#include <ev.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "ae/loop_names.h"

namespace loop_bench {

constexpr std::size_t kEvents = 20'000;  // per run of a side
constexpr std::size_t kTimers = 100'000;
constexpr std::size_t kIdle = 1'000;

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::exit(1);
}

/// One side of a comparison.
class Side {
 public:
  virtual ~Side() = default;
  virtual void prepare() {}             ///< before each run, not timed
  virtual void iterate() = 0;           ///< one iteration of the loop
  virtual void run(std::size_t events)  ///< timed
  {
    for (count = 0; count < events;) iterate();
  }
  std::size_t count = 0;
};

/// The loop type with which the next aeconn side is created.
inline std::string_view our_loop = "libev";

struct Ours : Side {
  void iterate() override { loop.process_events(ae::kFullIteration); }
  const std::unique_ptr<ae::EventLoop> owned = ae::loops_named(our_loop)(0);
  ae::EventLoop& loop = *owned;  // accessed by the interface, as in programs
};

/// Both aeconn sides.
template <class Of>
struct Both {
  template <class... Arguments>
  explicit Both(Arguments... arguments) {
    our_loop = "libev";
    on_libev = std::make_unique<Of>(arguments...);
    our_loop = "epoll";
    on_epoll = std::make_unique<Of>(arguments...);
  }
  std::unique_ptr<Side> on_libev, on_epoll;
};

struct Libev : Side {
  Libev() : loop(ev_loop_new(EVFLAG_NOENV)) { require(loop != nullptr, "ev_loop_new"); }
  Libev(const Libev&) = delete;
  Libev& operator=(const Libev&) = delete;
  ~Libev() override { ev_loop_destroy(loop); }
  void iterate() override { ev_run(loop, EVRUN_ONCE); }
  struct ev_loop* loop;
};

struct Handler {
  void (*call)(Handler&);
};

struct Epoll : Side {
  Epoll() : fd(::epoll_create1(EPOLL_CLOEXEC)) { require(fd >= 0, "epoll_create1"); }
  Epoll(const Epoll&) = delete;
  Epoll& operator=(const Epoll&) = delete;
  ~Epoll() override { ::close(fd); }
  void control(int operation, int of, std::uint32_t mask, Handler& handler) const {
    epoll_event event{};
    event.events = mask;
    event.data.ptr = &handler;
    require(::epoll_ctl(fd, operation, of, &event) == 0, "epoll_ctl");
  }
  void iterate() override {
    std::array<epoll_event, 64> events;
    const int ready = ::epoll_wait(fd, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      auto& handler = *static_cast<Handler*>(events[static_cast<std::size_t>(i)].data.ptr);
      handler.call(handler);
    }
  }
  int fd;
};

}  // namespace loop_bench
