// SPDX-License-Identifier: BSD-3-Clause
// The timer wheel of the connections' periodic checks: no check comes too early, none is missed, at
// any distance in time.
#if AECONN_RDMA

#include "conn/rdma/loop/tick_wheel.h"

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;

struct Item final : TickItem {};

ae::TimePoint at(ae::Duration time) { return ae::TimePoint(1000s) + time; }

TEST_CASE("rdma ticks: what is due is found when its time has come, and not before",
          "[rdma][ticks]") {
  TickWheel wheel;
  Item item;
  CHECK_FALSE(wheel.next(at(0s)));
  const ae::TimePoint found = wheel.put(item, at(100ms), at(0s));
  CHECK(found >= at(100ms));
  CHECK(found <= at(100ms) + TickWheel::kWidth);
  CHECK(wheel.next(at(0s)) == found);
  wheel.collect(found - 1ns);
  CHECK_FALSE(wheel.has_due());
  wheel.collect(found);
  REQUIRE(wheel.has_due());
  CHECK(wheel.take() == &item);
  CHECK(wheel.take() == nullptr);
  CHECK(wheel.size() == 0);
  CHECK_FALSE(item.in_wheel());
}

TEST_CASE("rdma ticks: what is due already, or long ago, is found at the next look",
          "[rdma][ticks]") {
  TickWheel wheel;
  Item item;
  wheel.put(item, at(-1h), at(0s));
  wheel.collect(at(0s) + TickWheel::kWidth);
  CHECK(wheel.take() == &item);
}

TEST_CASE("rdma ticks: beyond its reach the wheel asks to be looked at, and nothing is lost",
          "[rdma][ticks]") {
  TickWheel wheel;
  Item far, never;
  wheel.put(far, at(1h), at(0s));
  wheel.put(never, ae::TimePoint::max(), at(0s));
  CHECK(wheel.size() == 2);
  CHECK(wheel.scheduled() == 1);
  const auto next = wheel.next(at(0s));
  REQUIRE(next);
  CHECK(*next > at(3s));  // not polled continuously
  wheel.collect(*next);
  while (TickItem* item = wheel.take()) {
    CHECK(item->due() > *next);
    wheel.put(*item, item->due(), *next);
  }
  CHECK(wheel.size() == 2);
  wheel.remove(far);
  CHECK_FALSE(wheel.next(*next));  // an item that is never due needs no check
}

TEST_CASE("rdma ticks: one is put again, removed, or destroyed, wherever it stands",
          "[rdma][ticks]") {
  TickWheel wheel;
  Item moved, removed;
  {
    Item gone;
    wheel.put(gone, at(50ms), at(0s));
    wheel.put(moved, at(50ms), at(0s));
    wheel.put(moved, at(500ms), at(0s));
    wheel.put(removed, at(50ms), at(0s));
    wheel.remove(removed);
    wheel.remove(removed);
    CHECK(wheel.size() == 2);
    wheel.remove(gone);
  }
  wheel.collect(at(100ms));
  CHECK_FALSE(wheel.has_due());
  wheel.collect(at(600ms));
  REQUIRE(wheel.has_due());
  wheel.remove(moved);  // also possible when it is due
  CHECK_FALSE(wheel.has_due());
  CHECK(wheel.size() == 0);
}

// Goal: each item is found within one slot's width of its time. Method: random times, future and
// past, and a clock that advances in random steps, compared with a map.
TEST_CASE("rdma ticks: whatever the times and steps, nobody is early and nobody is forgotten",
          "[rdma][ticks][random]") {
  const auto seed = GENERATE(take(20, random(0u, 0x7fffffffu)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto upto = [&](std::int64_t ms) {
    return std::chrono::microseconds(static_cast<std::int64_t>(random() % 1000000) * ms / 1000);
  };
  TickWheel wheel;
  std::vector<std::unique_ptr<Item>> items;
  std::map<TickItem*, ae::TimePoint> due;
  ae::TimePoint now = at(0s);
  for (int i = 0; i < 50; ++i) items.push_back(std::make_unique<Item>());
  for (int step = 0; step < 2000; ++step) {
    Item& one = *items[random() % items.size()];
    if (random() % 10 == 0) {
      wheel.remove(one);
      due.erase(&one);
    } else {
      due[&one] = now + upto(random() % 5 == 0 ? 20000 : 500) - 10ms;
      wheel.put(one, due[&one], now);
    }
    now += upto(random() % 50 == 0 ? 8000 : 30);
    wheel.collect(now);
    while (TickItem* item = wheel.take()) {
      if (item->due() > now) {
        wheel.put(*item, item->due(), now);
        continue;
      }
      REQUIRE(due.at(item) == item->due());
      due.erase(item);
    }
    REQUIRE(wheel.size() == due.size());
    for (const auto& [item, when] : due) REQUIRE(when > now - 2 * TickWheel::kWidth);
    if (!due.empty()) {
      const auto next = wheel.next(now);
      REQUIRE(next);
      for (const auto& [item, when] : due) REQUIRE(*next <= when + 2 * TickWheel::kWidth);
    }
  }
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
