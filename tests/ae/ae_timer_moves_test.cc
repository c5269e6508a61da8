// SPDX-License-Identifier: BSD-3-Clause
// Tests of event_loop.h: time events that are moved, and those for a point in time.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/loop_kit.h"

using namespace loop_kit;

TEST_CASE("event loop: a timer that is moved runs once, not earlier than it was moved to", "[ae]") {
  AnyLoop loop;
  std::vector<steady_clock::time_point> calls;
  const auto call = [&] { return calls.push_back(steady_clock::now()), kNoMore; };
  const auto start = steady_clock::now();
  ae::Duration least = 5ms;
  ae::TimerId id = 0;
  SECTION("to an earlier time") {
    id = loop.add_time_event(1h, call);
    CHECK(loop.again(id, 5ms));
  }
  SECTION("to a later time, before the loop has seen it and after") {
    id = loop.add_time_event(1ms, call);
    CHECK(loop.again(id, 1h));
    turns(loop, 1);
    CHECK(loop.again(id, 2h));
    CHECK(loop.again(id, 5ms));
  }
  SECTION("far away and back again") {
    id = loop.add_time_event(1ms, call);
    CHECK(loop.again(id, 2h));
    CHECK(loop.again(id, ae::Duration::max()));
    CHECK(loop.again(id, 1h));
    CHECK(loop.again(id, 5ms));
  }
  SECTION("to a point in time") {
    id = loop.add_time_event(ae::Duration::zero(), call);
    CHECK(loop.again(id, start + 5ms));
  }
  SECTION("to none") {
    id = loop.add_time_event(1h, call);
    CHECK(loop.again(id, -1s));
    least = ae::Duration::zero();
  }
  SECTION("from none") {
    id = loop.add_time_event(ae::Duration::zero(), call);
    CHECK(loop.again(id, 5ms));
    turns(loop, 1);
  }
  REQUIRE(runs_until(loop, [&] { return !calls.empty(); }));
  turns(loop, 3);
  REQUIRE(calls.size() == 1);
  CHECK(calls[0] - start >= least);
  CHECK(calls[0] - start < 10s);
  CHECK_FALSE(loop.again(id, 1ms));
}

TEST_CASE("event loop: a timer that does not exist cannot be moved", "[ae][lifetime]") {
  AnyLoop loop;
  const auto never = [] {
    FAIL("removed");
    return kNoMore;
  };
  const ae::TimerId removed = loop.add_time_event(1ms, never);
  loop.remove_time_event(removed);
  int calls = 0;
  const ae::TimerId other = loop.add_time_event(1h, [&] { return ++calls, kNoMore; });
  for (const ae::TimerId id : {removed, ae::TimerId{0}, ae::TimerId{1}, ae::TimerId{987654},
                               ~ae::TimerId{0}, other + (ae::TimerId{1} << 32)}) {
    CHECK_FALSE(loop.again(id, 0ms));
    CHECK_FALSE(loop.again(id, steady_clock::now()));
    CHECK_FALSE(loop.remove_time_event(id));
  }
  turns(loop, 3);
  CHECK(calls == 0);
  CHECK(loop.again(other, 0ms));
  turns(loop, 1);
  CHECK(calls == 1);
}

TEST_CASE("event loop: again() from a timer's own handler is stronger than what that returns",
          "[ae]") {
  AnyLoop loop;
  int calls = 0;
  ae::TimerId id = 0;
  SECTION("where that is the end") {
    id = loop.add_time_event(0ms, [&] {
      if (++calls < 3) CHECK(loop.again(id, calls == 1 ? 0ms : 1ms));
      return kNoMore;
    });
  }
  SECTION("where that is a delay") {
    id = loop.add_time_event(0ms, [&]() -> ae::Duration {
      if (++calls == 3) return kNoMore;
      CHECK(loop.again(id, 1h));
      CHECK(loop.again(id, steady_clock::now()));  // the last call counts
      return 1h;
    });
  }
  REQUIRE(runs_until(loop, [&] { return calls == 3; }));
  turns(loop, 3);
  CHECK(calls == 3);
  CHECK_FALSE(loop.remove_time_event(id));
}

TEST_CASE("event loop: a timer that has removed itself cannot be moved, one that throws is gone",
          "[ae][lifetime]") {
  AnyLoop loop;
  int calls = 0;
  ae::TimerId id = 0;
  SECTION("removed") {
    id = loop.add_time_event(0ms, [&] {
      ++calls;
      CHECK(loop.again(id, 0ms));
      CHECK(loop.remove_time_event(id));
      CHECK_FALSE(loop.again(id, 0ms));
      return ae::Duration::zero();
    });
    turns(loop, 1);
  }
  SECTION("thrown") {
    id = loop.add_time_event(0ms, [&]() -> ae::Duration {
      ++calls;
      CHECK(loop.again(id, 0ms));
      throw Oops{1};
    });
    CHECK_THROWS_AS(turns(loop, 1), Oops);
  }
  CHECK_FALSE(loop.again(id, 0ms));
  turns(loop, 3);
  CHECK(calls == 1);
}

TEST_CASE("event loop: a timer that is due and is moved by another waits for its new time",
          "[ae]") {
  AnyLoop loop;
  ae::Duration to = 0ms;
  SECTION("at once") { to = 0ms; }
  SECTION("an hour") { to = 1h; }
  std::vector<int> calls(2);
  ae::TimerId ids[2] = {};
  for (const int i : {0, 1}) {
    ids[i] = loop.add_time_event(0ms, [&, i] {
      ++calls[static_cast<std::size_t>(i)];
      if (calls[0] + calls[1] == 1) CHECK(loop.again(ids[1 - i], to));
      return kNoMore;
    });
  }
  turns(loop, 1);
  CHECK(calls[0] + calls[1] == 1);
  turns(loop, 2);
  CHECK(calls[0] + calls[1] == (to == 0ms ? 2 : 1));
}

TEST_CASE("event loop: timers run in the order of their times, those of one time as they were set",
          "[ae]") {
  AnyLoop loop;
  const auto start = steady_clock::now() - 1s;
  std::vector<int> order;
  std::vector<ae::TimerId> ids;
  const auto add = [&](int number, steady_clock::time_point when) {
    ids.push_back(loop.add_time_event(when, [&order, number] {
      order.push_back(number);
      return kNoMore;
    }));
  };
  for (int i = 0; i < 50; ++i) add(100 + i, start);
  for (int i = 0; i < 50; ++i) add(50 - i, start - std::chrono::microseconds(i + 1));
  add(1000, ae::TimePoint::max());
  add(0, ae::TimePoint::min());
  CHECK(loop.again(ids[0], start));  // now the last one with its time
  turns(loop, 1);
  REQUIRE(order.size() == 101);
  CHECK(order[0] == 0);
  CHECK(order[1] == 1);
  CHECK(order[51] == 101);
  CHECK(order.back() == 100);
  order.pop_back();
  CHECK(std::is_sorted(order.begin(), order.begin() + 51));
  CHECK(std::is_sorted(order.begin() + 51, order.end()));
}

TEST_CASE("event loop: after fork() timers go on in the parent and in the child", "[ae]") {
  AnyLoop loop;
  int calls = 0;
  const ae::TimerId moved = loop.add_time_event(1h, [&] { return ++calls, kNoMore; });
  loop.add_time_event(1ms, [&] { return ++calls, kNoMore; });
  turns(loop, 1);
  const auto both_run = [&] {
    return loop.again(moved, 2ms) && runs_until(loop, [&] { return calls == 2; });
  };
  const pid_t child = ::fork();
  if (child == 0) {
    loop.after_fork();
    ::_exit(both_run() ? 0 : 1);
  }
  REQUIRE(child > 0);
  CHECK(both_run());
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
