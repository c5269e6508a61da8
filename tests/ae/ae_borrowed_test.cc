// SPDX-License-Identifier: BSD-3-Clause
// ae/libev_loop.h on a host program's ev_loop, and a host's watchers on this library's loop.

#include "ae/libev_loop.h"

#include <ev.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;
using ae::LibevLoop;

namespace {

/// A host program's loop, with a deadline in case it does not end by itself.
struct Host {
  Host() : loop(ev_loop_new(EVFLAG_NOENV)) {}
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() { ev_loop_destroy(loop); }
  /// True if ev_run() ended because there was nothing left to wait for.
  bool runs_dry() {
    ev_timer deadline;
    ev_timer_init(
        &deadline,
        [](struct ev_loop* its_loop, ev_timer* w, int) {
          *static_cast<bool*>(w->data) = true;
          ev_break(its_loop, EVBREAK_ALL);
        },
        20.0, 0.0);
    bool late = false;
    deadline.data = &late;
    ev_timer_start(loop, &deadline);
    ev_unref(loop);
    ev_run(loop, 0);
    ev_ref(loop);
    ev_timer_stop(loop, &deadline);
    return !late;
  }
  struct ev_loop* loop;
};

}  // namespace

TEST_CASE("borrowed loop: the host's ev_run() serves our events beside its own", "[ae]") {
  Host host;
  LibevLoop loop(host.loop);
  CHECK(loop.native() == host.loop);
  Sockets ours;
  Sockets theirs;
  ours.send();
  theirs.send();
  int host_reads = 0;
  ev_io io;
  ev_io_init(
      &io,
      [](struct ev_loop* its_loop, ev_io* w, int) {
        ++*static_cast<int*>(w->data);
        ev_io_stop(its_loop, w);
      },
      theirs.near, EV_READ);
  io.data = &host_reads;
  ev_io_start(host.loop, &io);
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  int reads = 0;
  int ticks = 0;
  int posted = 0;
  loop.add_file_event(ours.near, kReadable, [&](int fd, Mask) {
    if (++reads == 3) loop.remove_file_event(fd, kReadable);
  });
  loop.add_time_event(1ms, [&]() -> ae::Duration { return ++ticks < 3 ? 1ms : kNoMore; });
  loop.post([&] { ++posted; });
  CHECK(host.runs_dry());
  CHECK(host_reads == 1);
  CHECK(reads == 3);
  CHECK(ticks == 3);
  CHECK(posted == 1);
  CHECK(journal.find("sa") != std::string::npos);
  loop.remove_source(source);
}

TEST_CASE("borrowed loop: it keeps the host's ev_run() only while there is something of ours",
          "[ae]") {
  Host host;
  LibevLoop loop(host.loop);
  Sockets s;
  SECTION("nothing") {}
  SECTION("an event that is added and removed") {
    loop.add_file_event(s.near, kReadable, [](int, Mask) {});
    loop.remove_file_event(s.near, kReadable);
  }
  SECTION("a handler that moves its interest to another file") {
    // No watcher is active for a moment.
    auto other = std::make_shared<Sockets>();
    auto moved = std::make_shared<bool>(false);
    s.send();
    other->send();
    loop.add_file_event(s.near, kReadable, [&loop, other, moved](int fd, Mask) {
      loop.remove_file_event(fd, kReadable);
      loop.add_file_event(other->near, kReadable, [&loop, moved](int its_fd, Mask) {
        *moved = true;
        loop.remove_file_event(its_fd, kReadable);
      });
    });
    CHECK(host.runs_dry());
    CHECK(*moved);
  }
  SECTION("more timers at once than an iteration runs") {
    int fired = 0;
    for (int i = 0; i < 5000; ++i) loop.add_time_event(0ms, [&] { return ++fired, kNoMore; });
    CHECK(host.runs_dry());
    CHECK(fired == 5000);
  }
  SECTION("more posts than an iteration runs") {
    int ran = 0;
    for (int i = 0; i < 5000; ++i) loop.post([&] { ++ran; });
    CHECK(host.runs_dry());
    CHECK(ran == 5000);
  }
  SECTION("what the last handler left to flush and to destroy") {
    std::string journal;
    TestSource source(&journal);
    bool dead = false;
    loop.add_source(source);
    loop.add_time_event(0ms, [&] {
      journal.clear();
      loop.destroy_later(thing([&] { dead = true; }));
      return kNoMore;
    });
    CHECK(host.runs_dry());
    CHECK(dead);
    CHECK(journal.substr(0, 6) == "sp sf ");
    loop.remove_source(source);
  }
  SECTION("pending work of a source") {
    TestSource source(nullptr);
    source.pending = 10;
    loop.add_source(source);
    CHECK(host.runs_dry());
    CHECK(source.pending == 0);
    loop.remove_source(source);
  }
  CHECK(host.runs_dry());
}

TEST_CASE("borrowed loop: what a handler throws ends ev_run() and waits in take_exception()",
          "[ae]") {
  Host host;
  LibevLoop loop(host.loop);
  int after = 0;
  loop.add_time_event(0ms, []() -> ae::Duration { throw Oops{5}; });
  loop.add_time_event(0ms, [&] { return ++after, kNoMore; });
  loop.add_time_event(1h, [] { return kNoMore; });
  ev_run(host.loop, 0);  // returns, although the last timer is far away
  CHECK(after == 0);
  const auto error = loop.take_exception();
  REQUIRE(error);
  CHECK_THROWS_AS(std::rethrow_exception(error), Oops);
  CHECK_FALSE(loop.take_exception());
  ev_run(host.loop, EVRUN_NOWAIT);
  CHECK(after == 1);
}

TEST_CASE("borrowed loop: run() and process_events() work on it too, not from the host's handlers",
          "[ae]") {
  Host host;
  LibevLoop loop(host.loop);
  int ticks = 0;
  loop.add_time_event(0ms, [&] { return ++ticks, kNoMore; });
  CHECK(loop.process_events(kFullIteration) == 1);
  loop.add_time_event(1ms, [&] { return loop.stop(), kNoMore; });
  loop.run();
  struct Nested {
    LibevLoop* loop;
    int refused;
  } nested{&loop, 0};
  ev_timer timer;
  ev_timer_init(
      &timer,
      [](struct ev_loop*, ev_timer* w, int) {
        auto& self = *static_cast<Nested*>(w->data);
        try {
          self.loop->run();
        } catch (const ae::LoopError&) {
          ++self.refused;
        }
      },
      0.0, 0.0);
  timer.data = &nested;
  ev_timer_start(host.loop, &timer);
  CHECK(host.runs_dry());
  CHECK(nested.refused == 1);
}

TEST_CASE("borrowed loop: a loop on it leaves no trace", "[ae][lifetime]") {
  Host host;
  Sockets s;
  for (int i = 0; i < 3; ++i) {
    LibevLoop loop(host.loop);
    loop.add_file_event(s.near, kReadable | kWritable, [](int, Mask) {});
    loop.add_time_event(1h, [] { return kNoMore; });
    loop.add_time_event(0ms, [] { return kNoMore; });
    TestSource source(nullptr);
    source.pending = 100;
    loop.add_source(source);
    if (i == 1) loop.process_events(kPoll);
    if (i == 2) ev_run(host.loop, EVRUN_NOWAIT);
    loop.remove_source(source);
  }
  // With a lost or leaked reference this would not wait for the timer, or would wait for ever.
  bool fired = false;
  ev_timer timer;
  ev_timer_init(
      &timer, [](struct ev_loop*, ev_timer* w, int) { *static_cast<bool*>(w->data) = true; }, 0.01,
      0.0);
  timer.data = &fired;
  ev_timer_start(host.loop, &timer);
  CHECK(host.runs_dry());
  CHECK(fired);
}

TEST_CASE("borrowed loop: the host's idle watchers run even while our sources have work", "[ae]") {
  Host host;
  LibevLoop loop(host.loop);
  TestSource source(nullptr);
  source.pending = 1'000'000'000;
  loop.add_source(source);
  struct Idle {
    TestSource* source;
    int calls;
  } state{&source, 0};
  ev_idle idle;
  ev_idle_init(&idle, [](struct ev_loop* its_loop, ev_idle* w, int) {
    auto& self = *static_cast<Idle*>(w->data);
    if (++self.calls == 5) self.source->pending = 0;
    if (self.calls == 10) ev_idle_stop(its_loop, w);
  });
  idle.data = &state;
  ev_idle_start(host.loop, &idle);
  CHECK(host.runs_dry());
  CHECK(state.calls == 10);
  loop.remove_source(source);
}

TEST_CASE("borrowed loop: two of our loops may share one of the host's", "[ae]") {
  Host host;
  LibevLoop one(host.loop);
  std::optional<LibevLoop> two(std::in_place, host.loop);
  int ticks = 0;
  one.add_time_event(0ms, [&] { return ++ticks, kNoMore; });
  two->add_time_event(0ms, [&] { return ++ticks, kNoMore; });
  CHECK(host.runs_dry());
  CHECK(ticks == 2);
  two.reset();
  one.add_time_event(0ms, [&] { return ++ticks, kNoMore; });
  CHECK(host.runs_dry());
  CHECK(ticks == 3);
}

TEST_CASE("event loop: a program may put watchers of its own on our loop", "[ae]") {
  LibevLoop loop;
  ev_timer timer;
  ev_timer_init(
      &timer, [](struct ev_loop*, ev_timer* w, int) { static_cast<LibevLoop*>(w->data)->stop(); },
      0.001, 0.0);
  timer.data = &loop;
  ev_timer_start(loop.native(), &timer);
  loop.run();
}

TEST_CASE("borrowed loop: stop() is heard even between our part of the iteration and the sleep",
          "[ae]") {
  Host host;
  ev_prepare prepare;  // older and with the lowest priority: runs last
  ev_prepare_init(&prepare, [](struct ev_loop*, ev_prepare* w, int) {
    static_cast<LibevLoop*>(w->data)->stop();
  });
  ev_set_priority(&prepare, EV_MINPRI);
  ev_prepare_start(host.loop, &prepare);
  LibevLoop loop(host.loop);
  prepare.data = &loop;
  loop.run();  // no other event would end it
  ev_prepare_stop(host.loop, &prepare);
}

TEST_CASE("borrowed loop: what another loop's hook leaves behind is done before the sleep",
          "[ae]") {
  Host host;
  LibevLoop first(host.loop);   // its hook before the sleep runs last
  LibevLoop second(host.loop);  // and this one's has run by then
  Sockets s;
  bool done = false;
  bool left = false;
  const std::string what =
      GENERATE("an object", "a timer", "a file event", "a source", "work of a source");
  CAPTURE(what);
  TestSource source(nullptr);
  source.on_flush = [&] { done = left; };
  if (what == "work of a source") second.add_source(source);
  struct Object final : ae::Deferred {
    explicit Object(bool& flag) : destroyed(flag) {}
    ~Object() override { destroyed = true; }
    bool& destroyed;
  };
  s.send();
  const ae::HookId hook = first.add_before_sleep([&] {
    if (std::exchange(left, true)) return;
    if (what == "an object") {
      second.destroy_later(std::make_unique<Object>(done));
    } else if (what == "a timer") {
      second.add_time_event(0ms, [&] {
        done = true;
        return kNoMore;
      });
    } else if (what == "a source") {
      second.add_source(source);
    } else if (what == "work of a source") {
      second.nudge();
    } else {
      second.add_file_event(s.near, kReadable, [&](int fd, Mask) {
        done = true;
        second.remove_file_event(fd, kReadable);
      });
    }
  });
  CHECK(host.runs_dry());
  CHECK(left);
  CHECK(done);
  first.remove_hook(hook);
  if (what.ends_with("source")) second.remove_source(source);
}

TEST_CASE("borrowed loop: work that the host's last watcher gives to a source is done", "[ae]") {
  Host host;
  LibevLoop loop(host.loop);
  struct Given {
    LibevLoop* loop;
    TestSource source{nullptr};
    bool given = false, flushed = false;
  } work{&loop};
  work.source.on_flush = [&] { work.flushed = work.given; };
  loop.add_source(work.source);
  CHECK(host.runs_dry());
  ev_timer timer;
  ev_timer_init(
      &timer,
      [](struct ev_loop*, ev_timer* w, int) {
        auto& its = *static_cast<Given*>(w->data);
        its.given = true;
        its.loop->nudge();
      },
      0.0, 0.0);
  timer.data = &work;
  ev_timer_start(host.loop, &timer);
  CHECK(host.runs_dry());
  CHECK(work.flushed);
  loop.remove_source(work.source);
}

TEST_CASE("borrowed loop: a child whose host renews its loop takes no wake-up from the parent",
          "[ae][fork]") {
  Host host;
  LibevLoop loop(host.loop);
  ev_run(host.loop, EVRUN_NOWAIT);
  // The loop sleeps in this process while the child runs the host's loop.
  int go[2];
  REQUIRE(::pipe(go) == 0);
  int ran = 0;
  ev_ref(host.loop);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ev_loop_fork(host.loop);
    char byte;
    if (::read(go[0], &byte, 1) != 1) ::_exit(1);  // the parent has posted
    for (int i = 0; i < 3; ++i) ev_run(host.loop, EVRUN_NOWAIT);
    ::_exit(0);
  }
  loop.post([&] { ++ran; });
  REQUIRE(::write(go[1], "g", 1) == 1);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  ev_run(host.loop, EVRUN_ONCE);
  ev_unref(host.loop);
  CHECK(ran == 1);
  ::close(go[0]);
  ::close(go[1]);
}
