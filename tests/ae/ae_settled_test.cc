// SPDX-License-Identifier: BSD-3-Clause
// A settled loop (LoopCore::settled()) asks none of its parts whether it has work. Therefore each
// change that gives work to a part has to stir the loop.

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "ae/core/loop_core.h"
#include "ae/core/loop_work.h"
#include "ae/epoll/epoll_files.h"
#include "ae/epoll/epoll_timers.h"
#include "ae/epoll_loop.h"
#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

namespace {

/// The parts of a loop that are asked before it settles.
struct Parts {
  ~Parts() { ::close(epoll); }
  bool quiet() const { return work.quiet() && files.quiet() && timers.quiet(); }
  /// Whether the change stirs the loop, and is the reason why a part has work. Afterwards `undo`
  /// takes the work away.
  bool stirs(const std::function<void()>& change, const std::function<void()>& undo) {
    REQUIRE(quiet());
    core.settle();
    change();
    const bool noticed = !core.settled() && !quiet();
    undo();
    return noticed;
  }

  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  ae::LoopCore core;
  ae::EpollFiles files{core, epoll};
  ae::EpollTimers timers{core};
  ae::LoopWork work{core, timers, [](void*) {}, nullptr};
};

}  // namespace

TEST_CASE("event loop: work for a part of a settled loop stirs it", "[ae]") {
  Parts parts;
  ae::LoopWork& work = parts.work;
  TestSource source(nullptr);
  CHECK(parts.stirs([&] { work.add_source(source); }, [&] { work.sources.remove(source); }));
  source.rest();
  work.add_source(source);
  CHECK(parts.stirs([&] { source.wake(); }, [&] { source.rest(); }));
  work.sources.remove(source);
  source.wake();  // it is in no list
  CHECK(parts.quiet());
  ae::HookId hook = 0;
  CHECK(parts.stirs([&] { hook = work.add_before_sleep([] {}); }, [&] { work.remove_hook(hook); }));
  CHECK(parts.stirs([&] { hook = work.add_after_sleep([] {}); }, [&] { work.remove_hook(hook); }));
  CHECK(parts.stirs([&] { work.destroy_later(thing([] {})); }, [&] { work.destroy_deferred(); }));
  CHECK(parts.stirs([&] { work.set_spin({.mode = ae::Spin::Mode::kAlways}); },
                    [&] { work.set_spin({}); }));
  CHECK(parts.stirs([&] { work.request_stop(); }, [&] { (void)work.take_stop(); }));
  CHECK(parts.stirs([&] { work.begin_single(); }, [&] { work.single = false; }));

  ae::TimeHandler handler = [] { return kNoMore; };
  ae::TimerId timer = 0;
  const auto add = [&](ae::Duration delay) {
    ae::TimeHandler its = handler;
    timer = parts.timers.add(delay, its);
    parts.timers.look_before_sleep();
  };
  const auto remove = [&] {
    parts.timers.remove(timer);
    parts.timers.look_before_sleep();
  };
  CHECK(parts.stirs([&] { add(1h); }, remove));
  CHECK(parts.stirs([&] { add(0ms); }, remove));
  // A timer that is never due is no work.
  add(ae::Duration::max());
  CHECK(parts.quiet());
  const auto move = [&](ae::TimePoint when) {
    REQUIRE(parts.timers.again(timer, when));
    parts.timers.look_before_sleep();
  };
  CHECK(parts.stirs([&] { move(std::chrono::steady_clock::now() + 1h); },
                    [&] { move(ae::TimePoint::max()); }));
  CHECK(parts.quiet());
  remove();

  // A settled loop does not ask for these; the next iteration has to know of them.
  const auto stirs = [&](auto&& change) {
    parts.core.settle();
    change();
    return !parts.core.settled();
  };
  CHECK(stirs([&] { parts.core.guarded([] { throw std::runtime_error("thrown"); }); }));
  (void)parts.core.take_error();
  parts.core.begin_iteration();
  int posted = 0;
  (void)work.queue->push([&] { ++posted; });
  CHECK(stirs([&] { work.run_posts_and_timers(); }));
  CHECK(posted == 1);
  add(1h);
  CHECK(stirs([&] { parts.timers.again(timer, 2h); }));
  CHECK(stirs([&] { parts.timers.alarm_came(); }));
  CHECK(stirs([&] { parts.timers.run_due(1); }));
  remove();
  CHECK(stirs([&] { parts.timers.forget_alarm(); }));
  CHECK(stirs([&] { work.after_fork(); }));

  // An EpollLoop serves sources while it is settled.
  work.add_source(source);
  CHECK_FALSE(stirs([&] { CHECK(work.serve_before_sleep(true)); }));
  CHECK(work.quiet_but_sources());
  source.budget = 1us;
  CHECK(stirs([&] { (void)work.serve_before_sleep(true); }));
  CHECK_FALSE(work.quiet_but_sources());
  work.sources.remove(source);
}

TEST_CASE("event loop: a settled EpollLoop serves a source as it does otherwise", "[ae]") {
  std::string journal;
  TestSource source(&journal);
  ae::EpollLoop loop;
  const Sockets sockets;
  sockets.send();
  loop.add_source(source);
  int calls = 0;
  loop.add_file_event(sockets.near, kReadable, [&](int, Mask) {
    journal += "file ";
    if (++calls == 5) loop.stop();
    source.pending = calls == 2 ? 2 : 0;
  });
  loop.run();
  CHECK(journal ==
        "sp sf sa file sp sf sa file sp sf file sp sf sa file sp sf sa file "
        "sp sf ");
  // What it gives to other parts of the settled loop is done in the same iteration.
  source.on_arm = [&] {
    if (calls != 20) return;
    journal.clear();
    loop.post([&] {
      journal += "post ";
      loop.stop();
    });
    loop.destroy_later(thing([&] { journal += "destroyed "; }));
  };
  loop.run();
  CHECK(calls == 21);
  CHECK(journal == "destroyed file post sp sf ");
  loop.remove_source(source);
}

TEST_CASE("event loop: the timer after one that was left to the timerfd is left to it sooner",
          "[ae]") {
  ae::LoopCore core;
  ae::EpollTimers timers{core};
  const int alarm = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  REQUIRE(alarm >= 0);
  ae::TimerId timer = 0;
  const auto begin = [&](ae::Duration delay) {
    timers.remove(timer);
    timers.alarm_came();
    ae::TimeHandler handler = [] { return kNoMore; };
    timer = timers.add(delay, handler);
    timers.look_before_sleep();
  };
  const auto time_outs_until_left = [&] {
    int count = 0;
    while (!timers.outlasts_sleeps()) ++count;
    timers.leave_to(alarm);
    CHECK_FALSE(timers.limits_sleep());
    return count;
  };
  begin(1h);
  CHECK(time_outs_until_left() == 16);
  begin(2h);
  CHECK(time_outs_until_left() == 3);
  begin(3h);
  CHECK(time_outs_until_left() == 3);
  begin(4h);
  CHECK_FALSE(timers.outlasts_sleeps());  // it is not left to the timerfd
  begin(5h);
  CHECK(time_outs_until_left() == 16);
  ::close(alarm);
}

TEST_CASE("event loop: what its files need stirs a settled loop", "[ae]") {
  Parts parts;
  ae::EpollFiles& files = parts.files;
  const Sockets sockets;
  sockets.send();
  int calls = 0;
  const auto count = [&](int, Mask) { ++calls; };
  const auto sync = [&] { files.sync(); };
  CHECK(parts.stirs([&] { files.add(sockets.near, kReadable, count); }, sync));
  CHECK(parts.stirs([&] { files.add(sockets.near, kWritable, count); }, sync));
  CHECK(parts.stirs([&] { files.remove(sockets.near, kWritable); }, sync));

  std::array<epoll_event, 4> events;
  REQUIRE(::epoll_wait(parts.epoll, events.data(), 4, 0) == 1);
  CHECK(parts.stirs([&] { CHECK(files.leave(events[0])); },
                    [&] { CHECK(files.dispatch(events[0])); }));
  CHECK(calls == 1);
  REQUIRE(parts.quiet());
  CHECK(files.dispatch(events[0]));
  CHECK(calls == 2);

  // epoll watches no regular file: it is always ready.
  std::FILE* const regular = std::tmpfile();
  REQUIRE(regular != nullptr);
  const auto add_regular = [&] {
    files.add(fileno(regular), kReadable, count);
    files.sync();
  };
  CHECK(parts.stirs(add_regular, [&] { files.remove(fileno(regular), kReadable); }));
  std::fclose(regular);

  // The event of an earlier registration is out of date.
  files.remove(sockets.near, kReadable);
  CHECK_FALSE(files.dispatch(events[0]));
  files.add(sockets.near, kReadable, count);
  files.sync();
  CHECK_FALSE(files.dispatch(events[0]));
  CHECK_FALSE(files.leave(events[0]));
  CHECK(calls == 2);
  CHECK(parts.quiet());
}

TEST_CASE(
    "event loop: a timer left to the timerfd comes though other events of its poll are dropped",
    "[ae]") {
  const bool throws = GENERATE(true, false);
  const bool settles = GENERATE(true, false);
  ::alarm(60);  // ends it if it hangs
  ae::EpollLoop loop;
  if (!settles) loop.add_after_sleep([] {});
  const Sockets busy, first, second;
  int sleeps = 0;
  bool fired = false;
  const auto due = steady_clock::now() + 30ms;
  loop.add_time_event(due, [&] {
    fired = true;
    loop.stop();
    return kNoMore;
  });
  // More sleeps before the timer than the loop gives a time-out to. Then the timer expires, after
  // two other files have become ready: the next poll finds all of it.
  busy.send();
  loop.add_file_event(busy.near, kReadable, [&](int fd, Mask) {
    if (++sleeps < 20) return;
    take_byte(fd);
    first.send();
    second.send();
    while (steady_clock::now() <= due + 1ms) {
    }
  });
  const auto drops = [&](int fd, Mask) {
    take_byte(fd);
    if (throws) throw Oops{1};
    (void)loop.dispatch();  // nested
  };
  loop.add_file_event(first.near, kReadable, drops);
  loop.add_file_event(second.near, kReadable, drops);
  while (!fired) {
    try {
      loop.run();
    } catch (const Oops&) {
      CHECK(throws);
    }
  }
  CHECK(fired);
  ::alarm(0);
}
