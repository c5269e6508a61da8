// SPDX-License-Identifier: BSD-3-Clause
// ae/epoll_loop.h within a host program's loop: its descriptor, dispatch(), prepare() and nudge().
// Nested iterations are in ae_hosted_nested_test.cc.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ae/epoll_loop.h"
#include "tests/support/catch.h"
#include "tests/support/hosted_kit.h"
#include "tests/support/loop_kit.h"

using namespace hosted_kit;
using namespace loop_kit;
using ae::EpollLoop;

TEST_CASE("hosted loop: the descriptor is readable exactly while there is something to do",
          "[ae]") {
  EpollLoop loop;
  const int descriptor = loop.descriptor();
  CHECK(loop.descriptor() == descriptor);
  CHECK_FALSE(readable(loop));
  Sockets s;
  SECTION("a file") {
    int calls = 0;
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
      ++calls;
      take_byte(fd);
    });
    CHECK_FALSE(readable(loop));
    s.send();
    s.send();
    CHECK(readable(loop));
    CHECK(loop.dispatch() == 1);
    CHECK(readable(loop));  // level-triggered
    CHECK(loop.dispatch() == 1);
    CHECK_FALSE(readable(loop));
    CHECK(calls == 2);
  }
  SECTION("a file that is ready already, and its removal") {
    s.send();
    loop.add_file_event(s.near, kReadable, [](int, Mask) {});
    CHECK(readable(loop));
    loop.remove_file_event(s.near, kReadable);
    CHECK_FALSE(readable(loop));
    loop.add_file_event(s.near, kReadable | kWritable, [](int, Mask) {});
    take_byte(s.near);
    CHECK(readable(loop));
    loop.remove_file_event(s.near, kWritable);
    CHECK_FALSE(readable(loop));
  }
  SECTION("what handlers ask for") {
    Sockets other;
    other.send();
    int calls = 0;
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
      take_byte(fd);
      loop.add_file_event(other.near, kReadable, [&](int its_fd, Mask) {
        ++calls;
        loop.remove_file_event(its_fd, kReadable);
      });
    });
    s.send();
    loop.dispatch();
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(calls == 1);
    CHECK_FALSE(readable(loop));
  }
  SECTION("a timer") {
    bool fired = false;
    const auto begun = steady_clock::now();
    loop.add_time_event(30ms, [&] { return fired = true, kNoMore; });
    CHECK((steady_clock::now() - begun > 30ms || !readable(loop)));
    REQUIRE(hosted_until(loop, [&] { return fired; }));
    CHECK(steady_clock::now() - begun >= 30ms);
    CHECK(rests(loop));
  }
  SECTION("timers that are due at once, and more than one turn runs") {
    int fired = 0;
    for (int i = 0; i < 2500; ++i) loop.add_time_event(0ms, [&] { return ++fired, kNoMore; });
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(fired < 2500);
    CHECK(readable(loop));
    REQUIRE(hosted_until(loop, [&] { return fired == 2500; }));
    CHECK_FALSE(readable(loop));
  }
  SECTION("a timer that is moved to an earlier time, and one whose time is over") {
    int fired = 0;
    const ae::TimerId late = loop.add_time_event(1h, [&] { return ++fired, kNoMore; });
    loop.add_time_event(2h, [&] { return ++fired, kNoMore; });
    CHECK_FALSE(readable(loop));
    REQUIRE(loop.again(late, 1ms));
    REQUIRE(hosted_until(loop, [&] { return fired == 1; }));
    loop.add_time_event(steady_clock::now() - 1s, [&] { return ++fired, kNoMore; });
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(fired == 2);
    CHECK(rests(loop));
  }
  SECTION("a timer that is moved to a later time wakes once for nothing at most") {
    int fired = 0;
    const ae::TimerId moved = loop.add_time_event(10ms, [&] { return ++fired, kNoMore; });
    const auto begun = steady_clock::now();
    REQUIRE(loop.again(moved, 150ms));
    int turns = 0;
    REQUIRE(hosted_until(loop, [&] { return ++turns, fired == 1; }));
    CHECK(steady_clock::now() - begun >= 150ms);
    CHECK(turns <= 3);
  }
  SECTION("posts") {
    int ran = 0;
    loop.post([&] { ++ran; });
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(ran == 1);
    CHECK_FALSE(readable(loop));
    std::thread([&] {
      for (int i = 0; i < 2500; ++i) loop.post([&] { ++ran; });
    }).join();
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(readable(loop));  // an iteration runs at most a thousand
    REQUIRE(hosted_until(loop, [&] { return ran == 2501; }));
    CHECK_FALSE(readable(loop));
  }
  SECTION("a post from a posted function") {
    bool second = false;
    loop.post([&] { loop.post([&] { second = true; }); });
    loop.dispatch();
    CHECK_FALSE(second);
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(second);
    CHECK_FALSE(readable(loop));
  }
  SECTION("a source's work, and its veto") {
    TestSource source(nullptr);
    loop.add_source(source);
    CHECK(rests(loop));
    source.pending = 1000;
    loop.nudge();
    CHECK(readable(loop));
    REQUIRE(hosted_until(loop, [&] { return source.pending == 0; }));
    CHECK(rests(loop));
    source.vetoes = 2;
    loop.post([] {});
    loop.dispatch();
    CHECK(readable(loop));
    CHECK(rests(loop));
    CHECK(source.vetoes == 0);
    loop.remove_source(source);
  }
  SECTION("what is to be destroyed") {
    bool dead = false;
    loop.destroy_later(thing([&] { dead = true; }));
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(dead);
    CHECK_FALSE(readable(loop));
  }
  SECTION("a descriptor that is closed") {
    int calls = 0;
    loop.add_file_event(s.near, kReadable, [&](int, Mask) { ++calls; });
    loop.remove_file_event(s.near, kReadable);
    const int fd = s.near;
    s.close_near();
    loop.add_file_event(fd, kReadable, [&](int, Mask) { ++calls; });
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(calls == 1);
    CHECK(loop.file_events(fd) == ae::kNone);
    CHECK_FALSE(readable(loop));
  }
  CHECK(loop.descriptor() == descriptor);
}

TEST_CASE("hosted loop: what was there before descriptor() was asked for is shown", "[ae]") {
  EpollLoop loop;
  Sockets s;
  int calls = 0;
  SECTION("a post") {
    loop.post([&] { ++calls; });
  }
  SECTION("a timer") {
    loop.add_time_event(0ms, [&] { return ++calls, kNoMore; });
  }
  SECTION("a timer that is not due yet") {
    loop.add_time_event(20ms, [&] { return ++calls, kNoMore; });
  }
  SECTION("a file") {
    s.send();
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
      ++calls;
      take_byte(fd);
    });
  }
  SECTION("after its own turns") {
    turns(loop, 3);
    loop.post([&] { ++calls; });
    CHECK(readable(loop));
  }
  REQUIRE(hosted_until(loop, [&] { return calls == 1; }));
  CHECK(rests(loop));
}

TEST_CASE("hosted loop: run() and process_events() leave the descriptor true", "[ae]") {
  EpollLoop loop;
  Sockets s;
  (void)loop.descriptor();
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  int reads = 0;
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    ++reads;
    take_byte(fd);
  });
  loop.add_time_event(1ms, [&] { return loop.stop(), kNoMore; });
  loop.run();
  CHECK(rests(loop));
  s.send();
  s.send();
  REQUIRE(loop.process_events(kFullIteration) == 1);
  CHECK(readable(loop));
  loop.post([] {});
  CHECK(loop.process_events(kPoll) == 2);
  CHECK(reads == 2);
  CHECK(rests(loop));
  CHECK(journal.substr(journal.size() - 3) == "sa ");  // it sleeps armed
  loop.remove_source(source);
}

TEST_CASE("hosted loop: a host that polls pays one system call more for a turn", "[ae]") {
  EpollLoop loop;
  Sockets s;
  (void)loop.descriptor();
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  CHECK(rests(loop));
  journal.clear();
  loop.add_file_event(s.near, kReadable, [](int fd, Mask) { take_byte(fd); });
  s.send();
  loop.dispatch();
  CHECK(journal == "sp sf sa ");
  loop.remove_source(source);
}

TEST_CASE("hosted loop: what a handler throws leaves dispatch(), and the others run in the next",
          "[ae]") {
  EpollLoop loop;
  (void)loop.descriptor();
  int after = 0;
  SECTION("a timer") {
    loop.add_time_event(0ms, []() -> ae::Duration { throw Oops{1}; });
    loop.add_time_event(0ms, [&] { return ++after, kNoMore; });
  }
  SECTION("a post") {
    loop.post([] { throw Oops{1}; });
    loop.post([&] { ++after; });
  }
  SECTION("a source") {
    auto source = std::make_shared<TestSource>(nullptr);
    source->pending = 1;
    source->on_process = [&loop, &after, source, calls = 0]() mutable {
      if (++calls == 1) throw Oops{1};
      ++after;
      loop.remove_source(*source);
      loop.post([source] { source->on_process = {}; });
    };
    loop.add_source(*source);
  }
  REQUIRE(readable(loop));
  CHECK_THROWS_AS(loop.dispatch(), Oops);
  CHECK(after == 0);
  CHECK_FALSE(loop.in_handler());
  REQUIRE(readable(loop));
  loop.dispatch();
  CHECK(after == 1);
  CHECK(rests(loop));
}

TEST_CASE("hosted loop: prepare() flushes, arms, and says whether the host may sleep", "[ae]") {
  EpollLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  CHECK(loop.prepare());
  CHECK_FALSE(readable(loop));
  CHECK(journal == "sf sa ");
  journal.clear();
  Sockets s;
  SECTION("after dispatch() nothing is shown before it, and everything by it") {
    loop.dispatch();
    s.send();
    loop.add_file_event(s.near, kReadable, [](int fd, Mask) { take_byte(fd); });
    source.pending = 1;
    loop.nudge();
    loop.add_time_event(0ms, [] { return kNoMore; });
    CHECK_FALSE(readable(loop));
    CHECK_FALSE(loop.prepare());
    CHECK(readable(loop));
    CHECK(loop.dispatch() == 3);
    CHECK(loop.prepare());
    CHECK_FALSE(readable(loop));
  }
  SECTION("dispatch() leaves the arming to it") {
    loop.post([] {});
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(journal == "sp sf ");
    CHECK(loop.prepare());
    CHECK(journal == "sp sf sf sa ");
    CHECK_FALSE(readable(loop));
  }
  SECTION("a veto is shown") {
    source.vetoes = 1;
    CHECK_FALSE(loop.prepare());
    CHECK(readable(loop));
    CHECK(loop.prepare());
    CHECK_FALSE(readable(loop));
  }
  SECTION("it runs no handler") {
    int ran = 0;
    loop.add_before_sleep([&] { ++ran; });
    loop.post([&] { ++ran; });
    loop.add_time_event(0ms, [&] { return ++ran, kNoMore; });
    CHECK_FALSE(loop.prepare());
    CHECK(ran == 0);
    loop.dispatch();
    CHECK(ran == 3);
  }
  SECTION("what a source throws leaves it") {
    source.on_flush = [&] {
      source.on_flush = {};
      throw Oops{2};
    };
    CHECK_THROWS_AS(loop.prepare(), Oops);
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(loop.prepare());
  }
  loop.remove_source(source);
}

TEST_CASE("hosted loop: what is asked for between prepare() and the sleep wakes the host", "[ae]") {
  EpollLoop loop;
  TestSource source(nullptr);
  loop.add_source(source);
  Sockets s;
  const ae::TimerId timer = loop.add_time_event(1h, [] { return kNoMore; });
  CHECK(loop.prepare());
  CHECK_FALSE(readable(loop));
  bool flushed = false, read = false;  // declared here to outlive the section
  SECTION("a nudge, whose source has something to do") {
    source.on_flush = [&] { flushed = true; };
    loop.nudge();
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(flushed);
  }
  SECTION("a descriptor") {
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
      take_byte(fd);
      read = true;
    });
    CHECK(readable(loop));
    s.send();
    loop.dispatch();
    CHECK(read);
  }
  SECTION("a timer") {
    bool rang = false;
    loop.add_time_event(0ms, [&] { return rang = true, kNoMore; });
    CHECK(readable(loop));
    loop.dispatch();
    CHECK(rang);
  }
  SECTION("a timer that is moved to an earlier time") {
    CHECK(loop.again(timer, 1min));
    CHECK(readable(loop));
    loop.dispatch();
  }
  SECTION("a timer for a later time does not: the next is as before") {
    loop.add_time_event(2h, [] { return kNoMore; });
    CHECK(loop.again(timer, 3h));
  }
  SECTION("an object to destroy") {
    struct Object : ae::Deferred {
      explicit Object(bool& its) : gone(its) {}
      ~Object() override { gone = true; }
      bool& gone;
    };
    bool gone = false;
    loop.destroy_later(std::make_unique<Object>(gone));
    CHECK((gone || readable(loop)));
    loop.dispatch();
    CHECK(gone);
  }
  CHECK(loop.prepare());
  CHECK_FALSE(readable(loop));
  loop.remove_source(source);
}

TEST_CASE("hosted loop: after end_prepare() dispatch() alone is enough again", "[ae]") {
  EpollLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  Sockets s;
  loop.end_prepare();  // without prepare(): no effect
  CHECK(journal.empty());
  CHECK(loop.prepare());
  journal.clear();
  SECTION("what waited for prepare() is shown") {
    s.send();
    loop.dispatch();
    journal.clear();
    loop.add_file_event(s.near, kReadable, [](int fd, Mask) { take_byte(fd); });
    CHECK_FALSE(readable(loop));
    loop.end_prepare();
    CHECK(journal == "sf sa ");
    CHECK(readable(loop));
    CHECK(loop.dispatch() == 1);
    CHECK(rests(loop));
  }
  SECTION("a nudge wakes the host") {
    loop.end_prepare();
    loop.nudge();
    CHECK(readable(loop));
    loop.dispatch();
    CHECK_FALSE(readable(loop));
  }
  SECTION("a timer that is added outside wakes it, too") {
    loop.end_prepare();
    bool rang = false;
    loop.add_time_event(0ms, [&] { return rang = true, kNoMore; });
    CHECK(hosted_until(loop, [&] { return rang; }));
  }
  SECTION("inside a handler") {
    loop.post([&] { loop.end_prepare(); });
    loop.dispatch();
    CHECK(rests(loop));
    loop.nudge();
    CHECK(readable(loop));
  }
  SECTION("what a source throws leaves it") {
    source.on_flush = [&] {
      source.on_flush = {};
      throw Oops{2};
    };
    CHECK_THROWS_AS(loop.end_prepare(), Oops);
    CHECK(readable(loop));
    CHECK(rests(loop));
  }
  loop.remove_source(source);
}

TEST_CASE("hosted loop: a nudge from outside wakes the host once", "[ae]") {
  EpollLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  (void)loop.descriptor();
  CHECK(rests(loop));
  journal.clear();
  for (int i = 0; i < 3; ++i) loop.nudge();
  CHECK(readable(loop));
  loop.dispatch();
  CHECK(journal == "sp sf sa ");
  CHECK_FALSE(readable(loop));
  loop.post([&] { loop.nudge(); });  // in a handler: sources run anyway
  loop.dispatch();
  CHECK_FALSE(readable(loop));
  loop.remove_source(source);
}

TEST_CASE("hosted loop: a loop may be the host of another, and of a third below that", "[ae]") {
  EpollLoop host, guest, below;
  std::vector<std::string> journal;
  const auto take_in = [](ae::EventLoop& its_host, EpollLoop& its_guest) {
    its_host.add_file_event(its_guest.descriptor(), kReadable,
                            [&its_guest](int, Mask) { its_guest.dispatch(); });
  };
  take_in(host, guest);
  take_in(guest, below);
  int ran = 0;
  below.post([&] { ++ran; });
  REQUIRE(runs_until(host, [&] { return ran == 1; }));
  below.add_time_event(1ms, [&] { return ++ran, kNoMore; });
  REQUIRE(runs_until(host, [&] { return ran == 2; }));
  host.remove_file_event(guest.descriptor(), kReadable);
  guest.remove_file_event(below.descriptor(), kReadable);
}

TEST_CASE("hosted loop: posts of other threads all arrive", "[ae]") {
  EpollLoop loop;
  (void)loop.descriptor();
  const bool prepares = GENERATE(false, true);
  constexpr int kThreads = 4, kPosts = 5000;
  int ran = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < kPosts; ++n) loop.post([&] { ++ran; });
    });
  bool in_time = true;
  while (in_time && ran < kThreads * kPosts) {
    if (prepares) loop.prepare();
    in_time = sleeps_and_dispatches(loop);
  }
  for (auto& thread : threads) thread.join();
  CHECK(in_time);
  CHECK(ran == kThreads * kPosts);
}

TEST_CASE("hosted loop: after fork() the child's descriptor is its own", "[ae]") {
  EpollLoop loop;
  Sockets s;
  int reads = 0;
  const int descriptor = loop.descriptor();
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    ++reads;
    take_byte(fd);
  });
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    loop.after_fork();
    bool fine = loop.descriptor() == descriptor && rests(loop);
    loop.remove_file_event(s.near, kReadable);
    int fired = 0;
    loop.add_time_event(1ms, [&] { return ++fired, kNoMore; });
    loop.post([&] { ++fired; });
    fine = fine && hosted_until(loop, [&] { return fired == 2; }) && rests(loop);
    ::_exit(fine ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK_FALSE(readable(loop));
  s.send();
  CHECK(readable(loop));
  loop.dispatch();
  CHECK(reads == 1);
}
