// SPDX-License-Identifier: BSD-3-Clause
// Tests of event_loop.h: running, stopping, exceptions.

#include "tests/support/any_loop.h"

#include <ev.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

// --- running -------------------------------------------------------------------------------------

TEST_CASE("event loop: run() goes on until stop(), with nothing to wait for too", "[ae]") {
  AnyLoop loop;
  int timers = 0;
  loop.add_time_event(1ms, [&] {
    ++timers;
    loop.add_time_event(1ms, [&] {
      ++timers;
      loop.stop();
      return kNoMore;
    });
    return kNoMore;  // for a moment the new timer is the only event
  });
  loop.run();
  CHECK(timers == 2);
  loop.add_before_sleep([&] { loop.stop(); });
  loop.run();  // no watcher at all
}

TEST_CASE("event loop: stop() before run() ends that run() at once, and only that", "[ae]") {
  AnyLoop loop;
  int calls = 0;
  loop.add_time_event(0ms, [&] {
    ++calls;
    loop.stop();
    return kNoMore;
  });
  int hooks = 0;
  const ae::HookId hook = loop.add_before_sleep([&] { ++hooks; });
  loop.stop();
  loop.run();
  CHECK(calls == 0);
  CHECK(hooks == 0);
  loop.remove_hook(hook);
  loop.run();
  CHECK(calls == 1);
}

TEST_CASE("event loop: stop() before any run() does not keep process_events() from waiting",
          "[ae]") {
  AnyLoop loop;
  Sockets s;
  loop.add_file_event(s.near, kReadable, [](int fd, Mask) { take_byte(fd); });
  std::thread sender;
  loop.add_before_sleep([&] {
    if (!sender.joinable()) sender = std::thread([&] { s.send(); });
  });
  loop.stop();
  CHECK(loop.process_events(kFullIteration) == 1);
  sender.join();
}

TEST_CASE("event loop: stop() lets the iteration end, with the flush of what was written", "[ae]") {
  AnyLoop loop;
  std::string journal;
  TestSource source(&journal);
  loop.add_source(source);
  Sockets s;
  s.send();
  loop.add_before_sleep([&] { journal += "b "; });
  const auto expect = [&](const char* from_where, const std::string& rest) {
    INFO(from_where);
    CHECK(journal == rest);
  };
  SECTION("from a file handler") {
    loop.add_file_event(s.near, kReadable, [&](int, Mask) {
      loop.stop();
      journal.clear();
    });
    loop.run();
    expect("file", "sp b sf ");
  }
  SECTION("from a hook") {
    loop.add_before_sleep([&] { loop.stop(); });
    loop.run();
    expect("before_sleep", "sp b sf ");
  }
  SECTION("from an after_sleep hook") {
    source.vetoes = 1;
    loop.add_after_sleep([&] {
      loop.stop();
      journal.clear();
    });
    loop.run();
    expect("after_sleep", "sp b sf ");
  }
  SECTION("from a source") {
    source.on_arm = [&] { loop.stop(); };
    loop.run();
    expect("arm", "sp b sf sa ");
  }
}

TEST_CASE("event loop: running it from inside a handler is refused", "[ae]") {
  AnyLoop loop;
  int refused = 0;
  const auto try_it = [&] {
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
  };
  Sockets s;
  s.send();
  TestSource source(nullptr);
  source.on_flush = try_it;
  loop.add_source(source);
  loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
    take_byte(fd);
    try_it();
  });
  loop.add_time_event(0ms, [&] { return try_it(), kNoMore; });
  loop.add_before_sleep(try_it);
  loop.add_after_sleep(try_it);
  loop.post(try_it);
  loop.destroy_later(thing(try_it));
  loop.process_events(kPoll);
  CHECK(refused == 2 * 7);
}

TEST_CASE("event loop: process_events() does only what its flags say", "[ae]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  std::string journal;
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { journal += 'f'; });
  loop.add_before_sleep([&] { journal += 'b'; });
  loop.add_after_sleep([&] { journal += 'a'; });
  loop.add_time_event(0ms, [&] { return journal += 't', kNoMore; });

  CHECK(loop.process_events(kFileEvents | kDontWait) == 1);
  CHECK(journal == "f");
  journal.clear();
  CHECK(loop.process_events(kFileEvents) == 1);  // the timer is due, but not processed
  CHECK(journal == "f");
  journal.clear();
  CHECK(loop.process_events(kTimeEvents) == 1);
  CHECK(journal == "t");
  journal.clear();
  CHECK(loop.process_events(kTimeEvents | kDontWait | ae::kCallBeforeSleep) == 0);
  CHECK(journal == "b");
  journal.clear();
  CHECK(loop.process_events(kFileEvents | kDontWait | ae::kCallAfterSleep) == 1);
  CHECK(journal == "af");
  journal.clear();
  CHECK(loop.process_events(static_cast<ae::Process>(0)) == 0);
  CHECK(journal.empty());
  CHECK(loop.process_events(kFullIteration) == 1);
  CHECK(journal == "baf");
}

TEST_CASE("event loop: timers that are due do not keep it awake when only files are asked for",
          "[ae]") {
  AnyLoop loop;
  Sockets s;
  bool fired = false;
  loop.add_file_event(s.near, kReadable, [](int fd, Mask) { take_byte(fd); });
  loop.add_time_event(0ms, [&] { return fired = true, kNoMore; });
  while (loop.process_events(kFileEvents | kDontWait) != 0) {
  }
  std::string journal;
  TestSource source(&journal);
  source.on_arm = [&] { s.send(); };  // about to sleep: ends the sleep
  loop.add_source(source);
  CHECK(loop.process_events(kFileEvents) == 1);
  CHECK(journal == "sp sf sa ");
  CHECK_FALSE(fired);
  loop.remove_source(source);
  CHECK(loop.process_events(kTimeEvents) == 1);
  CHECK(fired);
}

TEST_CASE("event loop: process_events() counts file, time and posted handlers and sources' work",
          "[ae]") {
  AnyLoop loop;
  Sockets s;
  s.send();
  TestSource source(nullptr);
  source.pending = 5;
  loop.add_source(source);
  loop.add_file_event(s.near, kReadable | kWritable, [](int, Mask) {});
  loop.add_time_event(0ms, [] { return kNoMore; });
  loop.post([] {});
  CHECK(loop.process_events(kPoll) == 1 + 2 + 1 + 1);
}

// --- exceptions ----------------------------------------------------------------------------------

TEST_CASE("event loop: what a handler throws leaves through run(), and the loop stays usable",
          "[ae]") {
  const bool by_run = GENERATE(true, false);
  AnyLoop loop;
  Sockets s;
  TestSource source(nullptr);
  bool armed = true;  // throws once
  const auto oops = [&] {
    if (std::exchange(armed, false)) throw Oops{1};
  };
  SECTION("file event") {
    s.send();
    loop.add_file_event(s.near, kReadable, [&](int fd, Mask) {
      oops();
      take_byte(fd);
    });
  }
  SECTION("time event") {
    loop.add_time_event(0ms, [&] { return oops(), ae::Duration(1h); });
  }
  SECTION("post") { loop.post(oops); }
  SECTION("before_sleep") { loop.add_before_sleep(oops); }
  SECTION("after_sleep") {
    loop.add_after_sleep(oops);
    loop.post([] {});
  }
  SECTION("process_pending") {
    source.on_process = oops;
    loop.add_source(source);
  }
  SECTION("flush") {
    source.on_flush = oops;
    loop.add_source(source);
  }
  SECTION("arm") {
    source.on_arm = oops;
    loop.add_source(source);
  }
  if (by_run) {
    CHECK_THROWS_AS(loop.run(), Oops);
  } else {
    CHECK_THROWS_AS(loop.process_events(kFullIteration), Oops);
  }
  CHECK_FALSE(armed);
  CHECK_FALSE(loop.in_handler());
  CHECK_FALSE(loop.take_exception());
  bool alive = false;
  loop.add_time_event(1ms, [&] {
    alive = true;
    loop.stop();
    return kNoMore;
  });
  loop.run();
  CHECK(alive);
}

TEST_CASE("event loop: when a handler throws, the others of its iteration run in the next one",
          "[ae]") {
  AnyLoop loop;
  Sockets a;
  Sockets b;
  a.send();
  b.send();
  bool thrown = false;
  std::string calls;
  const auto handler = [&](const char* name) {
    if (!std::exchange(thrown, true)) throw Oops{2};
    calls += name;
  };
  loop.add_file_event(a.near, kReadable, [&](int fd, Mask) { handler("f"), take_byte(fd); });
  loop.add_file_event(b.near, kReadable, [&](int fd, Mask) { handler("f"), take_byte(fd); });
  loop.add_time_event(0ms, [&] { return handler("t"), kNoMore; });
  loop.post([&] { handler("p1"); });
  loop.post([&] { handler("p2"); });
  CHECK_THROWS_AS(loop.process_events(kPoll), Oops);
  CHECK(calls.empty());
  loop.process_events(kPoll);
  CHECK(calls == "ffp1p2t");
  turns(loop, 2);
  CHECK(calls == "ffp1p2t");
}

TEST_CASE("event loop: a file handler that throws is the last of its iteration", "[ae]") {
  const bool closed = GENERATE(false, true);
  CAPTURE(closed);
  AnyLoop loop;
  int thrown = 0;
  // Regular files are always ready, and closed descriptors have their handlers run once: neither
  // kind comes from the kernel's list of events.
  const std::array<int, 2> files{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC),
                                 ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  for (const int file : files) {
    REQUIRE(file >= 0);
    loop.add_file_event(file, kReadable, [&](int fd, Mask) {
      loop.remove_file_event(fd, kReadable);
      throw Oops{++thrown};
    });
    if (closed) ::close(file);
  }
  for (int i = 1; i <= 2; ++i) {
    CHECK_THROWS_AS(loop.process_events(kPoll), Oops);
    CHECK(thrown == i);
  }
  loop.process_events(kPoll);
  for (const int file : files)
    if (!closed) ::close(file);
}

TEST_CASE("event loop: a post or a timer that throws is gone, the ones behind it are not", "[ae]") {
  AnyLoop loop;
  std::string calls;
  loop.post([&] {
    calls += 'a';
    throw Oops{3};
  });
  loop.post([&] { calls += 'b'; });
  loop.post([&] {
    calls += 'c';
    throw Oops{3};
  });
  for (char name : {'1', '2'}) {
    loop.add_time_event(0ms, [&, name]() -> ae::Duration {
      calls += name;
      throw Oops{4};
    });
  }
  int thrown = 0;
  for (int i = 0; i < 10; ++i) {
    try {
      loop.process_events(kPoll);
    } catch (const Oops&) {
      ++thrown;
    }
  }
  CHECK(thrown == 4);
  CHECK(calls == "abc12");
}
