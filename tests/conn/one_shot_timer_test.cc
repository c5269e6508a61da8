// SPDX-License-Identifier: BSD-3-Clause
// OneShotTimer: runs a handler once, also where memory runs out and where the handler throws.

#include "conn/redial/one_shot_timer.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::OneShotTimer;
using namespace std::chrono_literals;

namespace {

/// A loop that keeps what was asked of it, and can be without memory.
struct Loop final : testing::AnyLoop {
  using AnyLoop::add_time_event;
  ae::TimerId add_time_event(ae::Duration delay, ae::TimeHandler handler) override {
    if (full) {
      ++refused;
      throw std::bad_alloc();
    }
    last = handler;
    const ae::TimerId id = AnyLoop::add_time_event(delay, std::move(handler));
    events.push_back(id);
    return id;
  }
  using AnyLoop::again;
  bool again(ae::TimerId id, ae::Duration delay) noexcept override {
    moved_to = delay;
    return AnyLoop::again(id, delay);
  }
  bool remove_time_event(ae::TimerId id) override {
    std::erase(events, id);
    return AnyLoop::remove_time_event(id);
  }

  bool full = false;
  int refused = 0;
  ae::Duration moved_to{};          ///< of the event that was moved last
  ae::TimeHandler last;             ///< of the event that was added last
  std::vector<ae::TimerId> events;  ///< that were added and not removed, also if they have run
};

}  // namespace

TEST_CASE("one-shot timer: runs once for each set(), not earlier, and never inside set()",
          "[redial]") {
  Loop loop;
  int runs = 0;
  OneShotTimer timer(loop, [&] { ++runs; });
  testing::turns(loop, 3);
  REQUIRE_FALSE(timer.is_set());
  REQUIRE(runs == 0);
  for (int round = 1; round <= 3; ++round) {
    const auto begun = std::chrono::steady_clock::now();
    timer.set(2ms);
    REQUIRE(timer.is_set());
    RUN_UNTIL(loop, runs == round);
    REQUIRE(std::chrono::steady_clock::now() - begun >= 2ms);
    REQUIRE_FALSE(timer.is_set());
    testing::turns(loop, 3);
    REQUIRE(runs == round);
  }
  // Of the time events, the last one is still there.
  const ae::TimerId last = loop.events.back();
  REQUIRE(std::count_if(loop.events.begin(), loop.events.end(), [&](ae::TimerId each) {
            return loop.again(each, 1h) && each != last;
          }) == 0);
  timer.set(0ms);
  REQUIRE(runs == 3);
  RUN_UNTIL(loop, runs == 4);
}

TEST_CASE("one-shot timer: a later set() replaces an earlier one, and clear() takes it back",
          "[redial]") {
  testing::AnyLoop loop;
  int runs = 0;
  OneShotTimer timer(loop, [&] { ++runs; });
  timer.set(0ms);
  timer.set(1h);
  testing::turns(loop, 3);
  REQUIRE(runs == 0);
  REQUIRE(timer.left() > 59min);
  REQUIRE(timer.left() <= 1h);
  timer.set(0ms);
  REQUIRE(timer.left() == 0ms);
  timer.clear();
  REQUIRE_FALSE(timer.is_set());
  testing::turns(loop, 3);
  REQUIRE(runs == 0);
  timer.set(0ms);
  RUN_UNTIL(loop, runs == 1);
}

TEST_CASE("one-shot timer: no time is too long, and one that is not set has no effect",
          "[redial]") {
  Loop loop;
  int runs = 0;
  OneShotTimer timer(loop, [&] { ++runs; });
  timer.set(ae::Duration::max());
  testing::turns(loop, 3);
  REQUIRE(timer.left() > 364 * 24h);
  timer.clear();
  REQUIRE(loop.moved_to > 364 * 24h);  // it does not wake the loop for nothing
  REQUIRE(loop.last() > 364 * 24h);    // what the loop calls after a year
  REQUIRE(runs == 0);
  REQUIRE(loop.events.size() == 1);
}

TEST_CASE("one-shot timer: the handler may set it, and destroy it", "[redial]") {
  Loop loop;
  int runs = 0;
  std::optional<OneShotTimer> timer;
  bool held = false;
  const auto holds = std::make_shared<int>(0);
  timer.emplace(loop, [&, holds, watch = std::weak_ptr(holds)] {
    REQUIRE_FALSE(timer->is_set());
    if (++runs < 3) return timer->set(0ms);
    timer->set(0ms);
    const std::weak_ptr<int> its = watch;
    const long before = its.use_count();
    timer.reset();
    held = before == 3 && its.use_count() == 2;  // the test's and this call's
  });
  timer->set(0ms);
  RUN_UNTIL(loop, !timer);
  REQUIRE(held);
  testing::turns(loop, 3);
  REQUIRE(runs == 3);
  REQUIRE(holds.use_count() == 1);
}

TEST_CASE("one-shot timer: what the handler throws leaves the loop, and the timer can be set",
          "[redial]") {
  testing::AnyLoop loop;
  struct Thrown {};
  int runs = 0;
  std::optional<OneShotTimer> timer;
  timer.emplace(loop, [&] {
    ++runs;
    timer->set(0ms);  // also what it has set before
    throw Thrown();
  });
  timer->set(0ms);
  for (int round = 1; round <= 5; ++round) {
    REQUIRE_THROWS_AS(testing::turns(loop, 3), Thrown);
    REQUIRE(runs == round);
  }
  timer.reset();
  testing::turns(loop, 3);
  REQUIRE(runs == 5);
}

TEST_CASE("one-shot timer: without memory it runs a little later", "[redial]") {
  Loop loop;
  loop.full = true;
  REQUIRE_THROWS_AS(OneShotTimer(loop, [] {}), std::bad_alloc);
  loop.full = false;
  int runs = 0;
  OneShotTimer timer(loop, [&] { ++runs; });
  loop.full = true;
  timer.set(0ms);
  testing::turns(loop, 5);
  REQUIRE(loop.refused == 2);  // once above, once here: the loop does not spin meanwhile
  REQUIRE(runs == 0);
  REQUIRE(timer.is_set());
  SECTION("until there is some") {
    loop.full = false;
    RUN_UNTIL(loop, runs == 1);
    REQUIRE_FALSE(timer.is_set());
  }
  SECTION("or not at all, if it is taken back") {
    timer.clear();
    testing::turns(loop, 3);
    REQUIRE(loop.last() > 1h);
    REQUIRE(runs == 0);
  }
}
