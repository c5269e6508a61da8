// SPDX-License-Identifier: BSD-3-Clause
// ae/epoll_loop.h within a host program's loop: nested iterations, and a loop below another.

#include <sys/socket.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ae/epoll_loop.h"
#include "tests/support/catch.h"
#include "tests/support/hosted_kit.h"
#include "tests/support/loop_kit.h"

using namespace hosted_kit;
using namespace loop_kit;

namespace {

/// Within a handler: runs nested iterations until the loop is idle.
void turn_inside(EpollLoop& loop) {
  for (int i = 0; i < 10 && readable(loop); ++i) loop.dispatch();
}

}  // namespace

TEST_CASE("hosted loop: an event that a hook has served by dispatch() is not served again",
          "[ae]") {
  EpollLoop loop;
  const bool hosted = GENERATE(false, true);
  if (hosted) (void)loop.descriptor();
  Sockets sockets;
  int calls = 0, vain = 0;
  loop.add_file_event(sockets.near, kReadable, [&](int fd, Mask) {
    char byte;
    ++calls;
    if (::recv(fd, &byte, 1, MSG_DONTWAIT) != 1) ++vain;
  });
  loop.add_after_sleep([&] { loop.dispatch(); });
  for (int i = 0; i < 3; ++i) {
    sockets.send();
    if (hosted)
      loop.dispatch();
    else
      loop.process_events(ae::kFullIteration | ae::kDontWait);
  }
  CHECK(calls == 3);
  CHECK(vain == 0);
}

TEST_CASE("hosted loop: run() sleeps once the work is done that was shown to a host", "[ae]") {
  EpollLoop loop;
  (void)loop.descriptor();
  TestSource source(nullptr);
  source.on_process = [&] {};
  loop.add_source(source);
  loop.add_time_event(1ms, [&] {
    source.pending = 1;
    (void)loop.prepare();  // a host that sleeps inside a handler: the descriptor is readable
    source.pending = 0;
    return kNoMore;
  });
  int iterations = 0;
  loop.add_before_sleep([&] { ++iterations; });
  loop.add_time_event(50ms, [&] { return loop.stop(), kNoMore; });
  loop.run();
  CHECK(iterations < 20);
}

TEST_CASE("hosted loop: a nested turn serves files and sources, and nothing else", "[ae]") {
  EpollLoop loop;
  (void)loop.descriptor();
  Sockets outer, inner, same_turn;
  std::string journal;
  TestSource source(nullptr);
  source.on_process = [&] {
    if (source.pending != 0) journal += "source ";
  };
  loop.add_source(source);
  loop.add_file_event(outer.near, kReadable, [&](int fd, Mask) {
    journal += "begin ";
    take_byte(fd);
    CHECK(loop.in_handler());
    loop.post([&] { journal += "post "; });
    loop.add_time_event(0ms, [&] { return journal += "timer ", kNoMore; });
    loop.destroy_later(thing([&] { journal += "destroyed "; }));
    loop.add_before_sleep([&] { journal += "hook "; });
    inner.send();
    source.pending = 1;
    loop.dispatch();
    CHECK(loop.in_handler());
    journal += "middle ";
    loop.add_file_event(inner.near, kReadable, [&](int its_fd, Mask) {
      journal += "late ";
      take_byte(its_fd);
    });
    inner.send();
    loop.dispatch();
    journal += "end ";
  });
  loop.add_file_event(inner.near, kReadable, [&](int fd, Mask) {
    journal += "file ";
    take_byte(fd);
  });
  outer.send();
  loop.dispatch();
  CHECK(journal == "begin file source middle late end post timer destroyed hook ");
  loop.remove_source(source);
}

TEST_CASE("hosted loop: in a nested turn the handler that runs does not run again", "[ae]") {
  EpollLoop loop;
  (void)loop.descriptor();
  Sockets s, other;
  int calls = 0, others = 0;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    ++calls;
    turn_inside(loop);  // it remains readable meanwhile
    take_byte(fd);
  });
  loop.add_file_event(other.near, kReadable, [&](int fd, Mask) {
    ++others;
    take_byte(fd);
  });
  s.send();
  other.send();
  loop.dispatch();
  CHECK(calls == 1);
  CHECK(others == 1);  // once, in the nested iteration only
  CHECK(rests(loop));
}

TEST_CASE("hosted loop: now() moves on with each nested turn, and while the host sleeps", "[ae]") {
  EpollLoop loop;
  const auto clock_moves = [](ae::TimePoint since) {
    while (std::chrono::steady_clock::now() <= since) {
    }
  };
  Sockets outer, inner;
  ae::TimePoint asked{}, nested{};
  TestSource source(nullptr);
  source.on_flush = [&] { asked = loop.now(); };
  loop.add_source(source);
  CHECK(loop.prepare());
  loop.add_file_event(outer.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    const ae::TimePoint began = loop.now();
    CHECK(began > asked);
    clock_moves(began);
    CHECK(loop.now() == began);
    inner.send();
    loop.dispatch();
    CHECK(nested > began);
    CHECK(loop.now() >= nested);
  });
  loop.add_file_event(inner.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    nested = loop.now();
  });
  loop.prepare();
  clock_moves(asked);
  outer.send();
  loop.dispatch();
  CHECK(nested != ae::TimePoint{});
  loop.remove_source(source);
}

TEST_CASE("hosted loop: what is thrown in a nested turn leaves with the one around it", "[ae]") {
  EpollLoop loop;
  (void)loop.descriptor();
  Sockets s, faulty, good;
  int ends = 0, reads = 0;
  loop.add_file_event(faulty.near, kReadable, [](int fd, Mask) {
    take_byte(fd);
    throw Oops{3};
  });
  loop.add_file_event(good.near, kReadable, [&](int fd, Mask) {
    ++reads;
    take_byte(fd);
  });
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    faulty.send();
    loop.dispatch();
    good.send();
    loop.dispatch();  // an earlier exception does not stop it
    ++ends;
  });
  s.send();
  CHECK_THROWS_AS(loop.dispatch(), Oops);
  CHECK(ends == 1);
  CHECK(reads == 1);
  CHECK(rests(loop));
}

TEST_CASE("hosted loop: run() and process_events() from its handlers are refused all the same",
          "[ae]") {
  EpollLoop loop;
  (void)loop.descriptor();
  int refused = 0;
  loop.post([&] {
    try {
      loop.run();
    } catch (const ae::LoopError&) {
      ++refused;
    }
    try {
      loop.process_events(kPoll);
    } catch (const ae::LoopError&) {
      ++refused;
    }
  });
  loop.dispatch();
  CHECK(refused == 2);
}
