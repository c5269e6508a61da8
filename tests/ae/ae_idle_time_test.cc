// SPDX-License-Identifier: BSD-3-Clause
// Accounting of a loop's idle time, with times given by the test.

#include "ae/core/idle_time.h"

#include "tests/support/catch.h"

namespace {

using namespace std::chrono_literals;
using ae::IdleTime;
using ae::Spin;
using TimePoint = IdleTime::TimePoint;

const TimePoint kStart{1h};

struct Books {
  IdleTime idle;
  explicit Books(const Spin& spin) { idle.ask(spin, kStart); }
};

}  // namespace

TEST_CASE("idle time: what is spun, slept and busy adds up", "[ae][spin]") {
  Books books({.mode = Spin::Mode::kFixed, .time = 20us});
  IdleTime& idle = books.idle;
  idle.begin(kStart + 10us);
  CHECK(idle.spinning());
  CHECK(idle.spins_until() == kStart + 30us);
  CHECK_FALSE(idle.looks(kStart + 15us));
  idle.work_came(kStart + 18us);  // found while spinning
  idle.begin(kStart + 20us);
  idle.end_spin(kStart + 40us);
  idle.looked(kStart + 100us);  // it has slept
  idle.work_came();
  idle.begin(kStart + 101us);
  const ae::LoopTimes times = idle.times();
  CHECK(times.busy == 10us + 2us + 1us);
  CHECK(times.spun == 8us + 20us);
  CHECK(times.slept == 60us);
  CHECK(times.spin_hits == 1);
  CHECK(times.spin_misses == 1);
}

TEST_CASE("idle time: a spin that ends unseen counts up to its last look", "[ae][spin]") {
  Books books({.mode = Spin::Mode::kFixed, .time = 20us});
  books.idle.begin(kStart);
  books.idle.looks(kStart + 5us);
  books.idle.drop_spin();
  books.idle.begin(kStart + 9us);
  CHECK(books.idle.times().spun == 5us);
  CHECK(books.idle.times().busy == 4us);
}

TEST_CASE("idle time: a loop whose processor others take spins no more", "[ae][spin]") {
  // Gaps of 2 us, which are bridged by spinning. After the start of each tenth spin the processor
  // is taken away.
  ae::SpinEnvironment here;
  const ae::SpinRoom::Seen seen = here.look();
  if (seen.processors < 2 || seen.quota) {
    WARN("SKIPPED: this machine has no room to spin");
    return;
  }
  struct Row {
    IdleTime::Duration taken;
    bool goes_on;
  };
  const auto row = GENERATE(Row{0us, true}, Row{20us, true}, Row{300us, false});
  CAPTURE(row.taken.count());
  Books books({.mode = Spin::Mode::kAuto, .sleep_cost = 5us, .sleep_latency = 5us});
  IdleTime& idle = books.idle;
  TimePoint now = kStart;
  std::uint64_t early = 0;
  constexpr int kPeriods = 60000;
  for (int i = 0; i < kPeriods; ++i) {
    idle.begin(now);
    if (idle.spins_until() > now) {
      now += 2us + (i % 10 == 0 ? row.taken : 0us);
      (void)idle.looks(now);
      idle.work_came(now);
    } else {
      idle.end_spin(now);
      idle.looked(now += 7us);
      idle.work_came();
    }
    now += 3us;
    if (i == kPeriods / 2) early = idle.times().spin_hits;
  }
  const std::uint64_t late = idle.times().spin_hits - early;
  if (row.goes_on)
    CHECK(late > kPeriods / 2 - 3000);
  else
    CHECK(late == 0);
}
