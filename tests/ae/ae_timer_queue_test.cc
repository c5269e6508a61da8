// SPDX-License-Identifier: BSD-3-Clause
// Unit tests of ae/core/timer_queue.h: compared with a model, with reused slots, and without
// memory.

#include "ae/core/timer_queue.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "tests/support/catch.h"

using ae::Duration;
using ae::kNoMore;
using ae::TimePoint;
using ae::TimerId;
using ae::TimerQueue;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

constexpr std::size_t kAll = 1'000'000;

constexpr int kNever = std::numeric_limits<int>::max();

TimePoint at(int second) {
  return second == kNever ? TimePoint::max() : TimePoint(seconds(second));
}

TimerId add(TimerQueue& queue, TimePoint when, ae::TimeHandler handler) {
  return queue.add(when, handler);
}

void run_all(TimerQueue& queue) {
  while (queue.has_collected()) queue.run_one();
}

}  // namespace

// Goal: for any sequence of additions, moves and removals, exactly the due timers run, in the order
// of their times, and the next time is exact. Method: random operations from one seed, with few
// different times, one of them never; the oracle is a std::map.
TEST_CASE("timer queue: as a map from time to timer, whatever is done to it", "[ae][random]") {
  const auto seed = GENERATE(take(20, random(0u, 0xffffffffu)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto below = [&](std::size_t limit) { return random() % limit; };
  TimerQueue queue;
  std::map<int, int> due;    // by number
  std::vector<TimerId> ids;  // by number
  std::vector<int> ran;
  std::set<TimerId> all;
  int now = 0;
  for (int step = 0; step < 4000; ++step) {
    const int when = below(10) == 0 ? kNever : now + 1 + static_cast<int>(below(50));
    switch (below(step % 1000 < 500 ? 5 : 8)) {  // grows and shrinks in turn
      case 0:
      case 1:
      case 2: {
        const int number = static_cast<int>(ids.size());
        ids.push_back(
            add(queue, at(when), [&ran, number] { return ran.push_back(number), kNoMore; }));
        REQUIRE(all.insert(ids.back()).second);
        due[number] = when;
        break;
      }
      case 3:
        if (!ids.empty()) {
          const auto number = static_cast<int>(below(ids.size()));
          REQUIRE(queue.again(ids[static_cast<std::size_t>(number)], at(when)) ==
                  due.contains(number));
          if (due.contains(number)) due[number] = when;
        }
        break;
      case 4:
      case 5:
        if (!ids.empty()) {
          const auto number = static_cast<int>(below(ids.size()));
          REQUIRE(queue.remove(ids[static_cast<std::size_t>(number)]) == (due.erase(number) == 1));
        }
        break;
      default: {
        now += static_cast<int>(below(3));
        REQUIRE_FALSE(queue.collect(at(now), kAll));
        run_all(queue);
        int last = 0;
        for (const int number : ran) {
          REQUIRE(due.contains(number));
          REQUIRE(due[number] <= now);
          REQUIRE(due[number] >= last);
          last = due[number];
          due.erase(number);
        }
        ran.clear();
      }
    }
    int next = kNever;
    for (const auto& [number, time] : due) next = std::min(next, time);
    REQUIRE(queue.has_waiting() == (next != kNever));
    if (next != kNever) REQUIRE(queue.next() == at(next));
  }
}

TEST_CASE("timer queue: a limit leaves the later ones, and timers without a delay pass them by",
          "[ae]") {
  TimerQueue queue;
  std::vector<int> ran;
  for (int i = 0; i < 10; ++i) {
    add(queue, at(10 - i), [&ran, i] { return ran.push_back(i), kNoMore; });
  }
  ae::TimeHandler soon = [&ran] { return ran.push_back(100), kNoMore; };
  queue.add(Duration::zero(), soon);
  CHECK(queue.has_ready());
  CHECK(queue.collect(at(20), 3));
  run_all(queue);
  CHECK(ran == std::vector<int>{9, 8, 7, 100});
  CHECK_FALSE(queue.has_ready());
  CHECK(queue.next() == at(4));
  CHECK_FALSE(queue.collect(at(5), kAll));
  run_all(queue);
  CHECK(ran == std::vector<int>{9, 8, 7, 100, 6, 5});
}

TEST_CASE("timer queue: what a handler arms waits for the next look", "[ae]") {
  TimerQueue queue;
  int calls = 0;
  ae::TimeHandler soon = [&] { return ++calls, Duration::zero(); };
  queue.add(Duration(-1), soon);
  queue.collect(TimePoint::min(), kAll);
  run_all(queue);
  CHECK(calls == 1);
  CHECK(queue.has_ready());
  queue.collect(TimePoint::min(), kAll);
  run_all(queue);
  CHECK(calls == 2);
}

TEST_CASE("timer queue: what a handler owns may use the queue as it dies", "[ae][lifetime]") {
  struct Owned {
    explicit Owned(std::function<void()> when_dying) : dying(std::move(when_dying)) {}
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() { dying(); }
    std::function<void()> dying;
  };
  int late = 0;
  auto queue = std::make_unique<TimerQueue>();
  TimerQueue& its = *queue;
  const auto add_owner = [&](TimePoint when) {
    return add(its, when, [owned = std::make_shared<Owned>([&] {
                             add(its, at(1), [&] { return ++late, kNoMore; });
                           })] { return kNoMore; });
  };
  const TimerId removed = add_owner(at(5));
  CHECK(its.remove(removed));
  CHECK_FALSE(its.remove(removed));
  CHECK(its.has_waiting());
  add_owner(at(1));
  its.collect(at(2), kAll);
  run_all(its);
  CHECK(late == 1);
  its.collect(at(2), kAll);
  run_all(its);
  CHECK(late == 2);
  add_owner(at(5));
  queue.reset();  // timers left in it never run
  CHECK(late == 2);
}

TEST_CASE("timer queue: a timer that is never due can be moved, run again and removed", "[ae]") {
  TimerQueue queue;
  int calls = 0;
  const TimerId id = add(queue, TimePoint::max(), [&] { return ++calls, Duration::max(); });
  CHECK_FALSE(queue.has_waiting());
  CHECK(queue.again(id, at(5)));
  CHECK(queue.next() == at(5));
  CHECK(queue.again(id, TimePoint::max()));
  CHECK_FALSE(queue.has_waiting());
  CHECK(queue.again(id, Duration::zero()));
  CHECK(queue.has_ready());
  queue.collect(at(1), kAll);
  run_all(queue);
  CHECK(calls == 1);
  CHECK_FALSE(queue.has_ready());
  CHECK_FALSE(queue.has_waiting());
  CHECK(queue.again(id, at(5)));
  queue.collect(at(5), kAll);
  CHECK(queue.again(id, TimePoint::max()));  // between coming due and running
  CHECK_FALSE(queue.has_collected());
  CHECK(queue.remove(id));
  CHECK_FALSE(queue.remove(id));
  add(queue, TimePoint::max(), [] { return kNoMore; });  // is there at the end
}
