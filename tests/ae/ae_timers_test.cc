// SPDX-License-Identifier: BSD-3-Clause
// Tests of event_loop.h: time events.

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
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

// --- time events ---------------------------------------------------------------------------------

TEST_CASE("event loop: a timer is never early and runs as often as it says", "[ae]") {
  AnyLoop loop;
  std::vector<steady_clock::time_point> calls;
  const auto start = steady_clock::now();
  const ae::TimerId id = loop.add_time_event(5ms, [&]() -> ae::Duration {
    calls.push_back(steady_clock::now());
    return calls.size() < 3 ? ae::Duration(2ms) : kNoMore;
  });
  CHECK(id != 0);
  REQUIRE(runs_until(loop, [&] { return calls.size() == 3; }));
  CHECK(calls[0] - start >= 5ms);
  CHECK(calls[1] - calls[0] >= 2ms);
  CHECK(calls[2] - calls[1] >= 2ms);
  turns(loop, 3);
  CHECK(calls.size() == 3);
  CHECK_FALSE(loop.remove_time_event(id));
}

TEST_CASE("event loop: a timer that a slow handler adds is not early", "[ae]") {
  AnyLoop loop;
  steady_clock::time_point added;
  steady_clock::time_point fired;
  loop.add_time_event(0ms, [&] {
    const auto until = steady_clock::now() + 30ms;
    while (steady_clock::now() < until) {
    }
    added = steady_clock::now();
    loop.add_time_event(10ms, [&] {
      fired = steady_clock::now();
      return kNoMore;
    });
    return kNoMore;
  });
  REQUIRE(runs_until(loop, [&] { return fired != steady_clock::time_point(); }));
  CHECK(fired - added >= 10ms);
}

TEST_CASE("event loop: timers with the same delay run in the order they were added", "[ae]") {
  AnyLoop loop;
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    loop.add_time_event(1ms, [&order, i] {
      order.push_back(i);
      return kNoMore;
    });
  }
  REQUIRE(runs_until(loop, [&] { return order.size() == 100; }));
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("event loop: a negative delay counts as none, the longest one as never", "[ae]") {
  AnyLoop loop;
  int calls = 0;
  loop.add_time_event(-5s,
                      [&]() -> ae::Duration { return ++calls < 3 ? ae::Duration(-1) : kNoMore; });
  loop.add_time_event(ae::Duration::max(), [&] {
    FAIL("too early");
    return kNoMore;
  });
  REQUIRE(runs_until(loop, [&] { return calls == 3; }));
}

TEST_CASE("event loop: a removed timer does not run", "[ae][lifetime]") {
  AnyLoop loop;
  int calls = 0;
  ae::TimerId id = 0;
  SECTION("before it is due") {
    id = loop.add_time_event(0ms, [&] { return ++calls, kNoMore; });
    CHECK(loop.remove_time_event(id));
    CHECK_FALSE(loop.remove_time_event(id));
  }
  SECTION("by another one that is due with it") {
    ae::TimerId ids[2];
    for (int i : {0, 1}) {
      ids[i] = loop.add_time_event(0ms, [&, i] {
        ++calls;
        CHECK(loop.remove_time_event(ids[1 - i]));
        return kNoMore;
      });
    }
    turns(loop, 3);
    CHECK(calls == 1);
    calls = 0;
  }
  SECTION("from its own handler, whatever that returns") {
    id = loop.add_time_event(0ms, [&] {
      CHECK(loop.remove_time_event(id));
      CHECK_FALSE(loop.remove_time_event(id));
      return ae::Duration::zero();
    });
  }
  CHECK_FALSE(loop.remove_time_event(0));
  CHECK_FALSE(loop.remove_time_event(987654));
  turns(loop, 3);
  CHECK(calls == 0);
}

TEST_CASE("event loop: ids of timers and hooks are not reused", "[ae]") {
  AnyLoop loop;
  std::set<std::uint64_t> timers;
  std::set<std::uint64_t> hooks;
  for (int i = 0; i < 100; ++i) {
    const auto timer = loop.add_time_event(1h, [] { return kNoMore; });
    CHECK(timers.insert(timer).second);
    loop.remove_time_event(timer);
    const auto hook = i % 2 == 0 ? loop.add_before_sleep([] {}) : loop.add_after_sleep([] {});
    CHECK(hooks.insert(hook).second);
    loop.remove_hook(hook);
  }
  CHECK(timers.count(0) == 0);
  CHECK(hooks.count(0) == 0);
  CHECK_THROWS_AS(loop.add_time_event(1s, nullptr), ae::LoopError);
  CHECK_THROWS_AS(loop.add_before_sleep(nullptr), ae::LoopError);
  CHECK_THROWS_AS(loop.add_after_sleep(nullptr), ae::LoopError);
}

TEST_CASE("event loop: a timer that is always due does not starve files or other timers", "[ae]") {
  AnyLoop loop;
  Sockets s;
  int ticks = 0;
  int reads = 0;
  int others = 0;
  loop.add_time_event(0ms, [&] { return ++ticks, ae::Duration::zero(); });
  loop.add_time_event(1ms, [&] { return ++others, ae::Duration(1ms); });
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { ++reads; });
  s.send();
  REQUIRE(runs_until(loop, [&] { return reads >= 100 && others >= 3; }));
  CHECK(ticks >= 50);
  CHECK(ticks <= reads + 2);  // at most once per iteration
}

TEST_CASE("event loop: a hundred thousand timers due at once each run once, with I/O in between",
          "[ae]") {
  AnyLoop loop;
  Sockets s;
  constexpr int kTimers = 100'000;
  std::vector<unsigned char> fired(kTimers);
  int total = 0;
  int since_read = 0;
  int longest = 0;
  s.send();
  loop.add_file_event(s.near, kReadable, [&](int, Mask) { since_read = 0; });
  for (int i = 0; i < kTimers; ++i) {
    loop.add_time_event(0ms, [&, i] {
      ++fired[static_cast<std::size_t>(i)];
      ++total;
      longest = std::max(longest, ++since_read);
      return kNoMore;
    });
  }
  REQUIRE(runs_until(loop, [&] { return total >= kTimers; }));
  turns(loop, 3);
  CHECK(total == kTimers);
  CHECK(std::count(fired.begin(), fired.end(), 1) == kTimers);
  CHECK(longest <= 1000);
}
