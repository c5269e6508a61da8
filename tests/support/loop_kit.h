// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of ae/: running a loop until a condition holds, socket pairs, a source and other
// objects that record what the loop does with them.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "tests/support/any_loop.h"

namespace loop_kit {

using namespace std::chrono_literals;
using ae::kBarrier;
using ae::kDontWait;
using ae::kFileEvents;
using ae::kFullIteration;
using ae::kNoMore;
using ae::kReadable;
using ae::kTimeEvents;
using ae::kWritable;
using ae::Mask;
using std::chrono::steady_clock;
using testing::AnyLoop;

constexpr ae::Process kPoll = kFullIteration | kDontWait;

/// Runs iterations until the condition holds; false if that takes far too long.
template <class Condition>
bool runs_until(ae::EventLoop& loop, Condition condition) {
  const auto deadline = steady_clock::now() + 20s;
  const ae::TimerId alarm = loop.add_time_event(21s, [] { return kNoMore; });
  while (!condition() && steady_clock::now() < deadline) loop.process_events(kFullIteration);
  loop.remove_time_event(alarm);
  return condition();
}

inline void turns(ae::EventLoop& loop, int count) {
  for (int i = 0; i < count; ++i) loop.process_events(kPoll);
}

inline void write_byte(int fd) {
  const char byte = 'x';
  if (::write(fd, &byte, 1) != 1) std::abort();
}

/// A connected pair of stream sockets; `near` has the handlers, `far` is its peer.
struct Sockets {
  Sockets() {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) != 0) {
      throw std::system_error(errno, std::generic_category(), "socketpair");
    }
    near = fds[0];
    far = fds[1];
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    close_near();
    if (far >= 0) ::close(far);
  }
  void close_near() {
    if (near >= 0) ::close(std::exchange(near, -1));
  }
  void send() const { write_byte(far); }
  int near = -1;
  int far = -1;
};

inline bool take_byte(int fd) {
  char byte = 0;
  return ::read(fd, &byte, 1) == 1;
}

/// Records the loop's calls, and acts as the test says.
struct TestSource : ae::Source {
  explicit TestSource(std::string* to, char its_name = 's') : journal(to), name(its_name) {}
  bool has_pending() const override { return pending > 0; }
  std::size_t process_pending() override {
    note("p");
    if (on_process) on_process();
    if (pending == 0) return 0;
    --pending;
    return 1;
  }
  void flush() override {
    note("f");
    if (on_flush) on_flush();
  }
  bool arm() override {
    note("a");
    if (on_arm) on_arm();
    return vetoes == 0 || vetoes-- == 0;
  }
  const ae::Spin* spin() const override {
    if (budget > ae::Duration::zero()) asked = {.mode = ae::Spin::Mode::kFixed, .time = budget};
    return asked.mode == ae::Spin::Mode::kNo ? nullptr : &asked;
  }
  bool has_pending_now() override {
    ++polls;
    if (on_poll) on_poll();
    return pending > 0;
  }
  void note(const char* what) const {
    if (journal != nullptr) *journal += std::string(1, name) + what + " ";
  }

  std::string* journal;
  char name;
  int pending = 0;
  int vetoes = 0;
  long polls = 0;
  ae::Duration budget = ae::Duration::zero();
  mutable ae::Spin asked = {};
  std::function<void()> on_process, on_flush, on_arm, on_poll;
};

struct Thing : ae::Deferred {
  explicit Thing(std::function<void()> when_dying) : dying(std::move(when_dying)) {}
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;
  ~Thing() override { dying(); }
  std::function<void()> dying;
};

inline std::unique_ptr<Thing> thing(std::function<void()> when_dying) {
  return std::make_unique<Thing>(std::move(when_dying));
}

struct LocalThing : ae::LoopLocal {
  explicit LocalThing(std::function<void()> when_dying) : dying(std::move(when_dying)) {}
  LocalThing(const LocalThing&) = delete;
  LocalThing& operator=(const LocalThing&) = delete;
  ~LocalThing() override { dying(); }
  std::function<void()> dying;
};

/// Thrown by handlers.
struct Oops {
  int where;
};

}  // namespace loop_kit
