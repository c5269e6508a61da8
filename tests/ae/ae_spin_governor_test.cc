// SPDX-License-Identifier: BSD-3-Clause
// The rule that decides how long a loop spins before it sleeps, with sequences of gaps and without
// a clock.

#include "ae/spin/spin_governor.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace {

using namespace std::chrono_literals;
using ae::SpinGovernor;
using Found = SpinGovernor::Found;
using Duration = SpinGovernor::Duration;
using TimePoint = SpinGovernor::TimePoint;

constexpr double us(Duration d) { return static_cast<double>(d.count()) / 1000; }

/// A loop with a governor: idle periods of given lengths, each followed by work.
struct Idler {
  explicit Idler(SpinGovernor::Prices prices = {.sleep_cost = 11us, .sleep_latency = 11us})
      : cost(prices.sleep_cost), latency(prices.sleep_latency) {
    governor.set(prices);
  }
  /// Work arrives `gap` after the loop became idle. Returns the spin budget of that period.
  Duration period(Duration gap) {
    const std::uint64_t probes = governor.probes();
    const Duration budget = governor.idle_began(now);
    in_probe += governor.probes() != probes ? 1 : 0;
    largest = std::max(largest, budget);
    if (gap <= budget) {
      cpu += gap;
      spun += gap;
      earned += governor.price();
      now += gap;
      governor.ended(now, Found::kSpun);
    } else {
      cpu += budget + cost;
      late += latency;
      spun += budget;
      now += gap + latency;
      governor.ended(now, Found::kSlept);
    }
    now += work;
    ++periods;
    return budget;
  }
  Duration settled(Duration gap, int count = 200) {
    Duration last{};
    for (int i = 0; i < count; ++i) last = period(gap);
    return last;
  }

  SpinGovernor governor;
  Duration cost, latency, work = 5us;
  TimePoint now{1h};
  Duration cpu{}, spun{}, earned{}, late{}, largest{};
  std::uint64_t in_probe = 0;
  int periods = 0;
};

using Gaps = std::function<Duration(std::mt19937&, int)>;

Duration exponential(std::mt19937& random, double mean_us) {
  return Duration(
      static_cast<std::int64_t>(1000 * std::exponential_distribution<>(1 / mean_us)(random)));
}

struct Load {
  std::string name;
  Gaps gaps;
};

std::vector<Load> loads() {
  const auto constant = [](Duration gap) { return [gap](std::mt19937&, int) { return gap; }; };
  const auto exp = [](double mean) {
    return [mean](std::mt19937& random, int) { return exponential(random, mean); };
  };
  return {
      {"2", constant(2us)},
      {"9", constant(9us)},
      {"15", constant(15us)},
      {"30", constant(30us)},
      {"45", constant(45us)},
      {"60", constant(60us)},
      {"exp 5", exp(5)},
      {"exp 20", exp(20)},
      {"4 or 200", [](std::mt19937& random, int) { return random() % 2 == 0 ? 4us : 200us; }},
      {"burst 64 x 3 + 2 ms", [](std::mt19937&, int i) { return i % 65 == 64 ? 2000us : 3us; }},
      {"burst 32 x 2 + 9 of 1 ms",
       [](std::mt19937&, int i) { return i % 41 >= 32 ? Duration(1ms) : Duration(2us); }},
      {"phases", [](std::mt19937&, int i) { return i / 500 % 2 == 0 ? 3us : 150us; }},
  };
}

/// The cost of the best fixed threshold, known in hindsight.
Duration best_fixed(const std::vector<Duration>& gaps, Duration cost) {
  Duration best = Duration::max();
  for (Duration b = 0us; b <= 200us; b += 500ns) {
    Duration all{};
    for (const Duration gap : gaps) all += gap <= b ? gap : b + cost;
    best = std::min(best, all);
  }
  return best;
}

}  // namespace

TEST_CASE("spin governor: constant gaps have the budget that covers them, or none", "[ae][spin]") {
  struct Row {
    Duration gap, budget;
  };
  // C = L = 11 us and no price for latency: spinning pays below 11 us.
  const auto row = GENERATE(Row{500ns, 1us}, Row{2us, 2us}, Row{3us, 3us}, Row{5us, 6us},
                            Row{8us, 8us}, Row{9us, 12us}, Row{11us, 0us}, Row{15us, 0us},
                            Row{30us, 0us}, Row{200us, 0us}, Row{5ms, 0us});
  CAPTURE(us(row.gap));
  Idler idler;
  CHECK(us(idler.settled(row.gap)) == us(row.budget));
}

TEST_CASE("spin governor: a price of latency makes longer gaps worth a spin, up to the cap",
          "[ae][spin]") {
  Idler idler({.sleep_cost = 11us, .sleep_latency = 11us, .latency_weight = 3});
  CHECK(idler.governor.price() == 44us);
  CHECK(idler.governor.cap() == 33us);
  CHECK(us(idler.settled(15us)) == 16);
  CHECK(us(idler.settled(30us)) == 32);
  CHECK(us(idler.settled(40us)) == 0);
}

TEST_CASE("spin governor: it knows nothing at first, and learns within a dozen gaps",
          "[ae][spin]") {
  Idler idler;
  CHECK(idler.period(2us) == 0us);
  int needed = 1;
  while (idler.period(2us) == 0us) ++needed;
  CHECK(needed <= 12);
  // And it forgets as fast.
  needed = 0;
  while (idler.period(5ms) != 0us) ++needed;
  CHECK(needed <= 40);
}

TEST_CASE("spin governor: of two kinds of gaps only the short ones are spun for", "[ae][spin]") {
  Idler idler;
  Duration most{};
  for (int i = 0; i < 1000; ++i) {
    const Duration budget = idler.period(i % 2 == 0 ? 3us : 500us);
    if (i > 100) most = std::max(most, budget);
  }
  CHECK(most == 3us);
}

TEST_CASE("spin governor: one's own wake-up does not look like a slow peer", "[ae][spin]") {
  // It sleeps through gaps of 8 us and wakes up 20 us later: they still count as 8 us.
  Idler idler({.sleep_cost = 11us, .sleep_latency = 20us});
  CHECK(us(idler.settled(8us)) == 8);
}

TEST_CASE("spin governor: what it believes of its wake-up recovers", "[ae][spin]") {
  // Gaps of all lengths may make the wake-up seem to take no time. That matters when they are
  // short.
  Idler idler;
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) idler.period(exponential(random, 20));
  CHECK(us(idler.settled(8us, 2000)) == 8);
}

TEST_CASE("spin governor: a wake-up that the user knows is not learnt", "[ae][spin]") {
  Idler idler({.sleep_cost = 11us, .sleep_latency = 20us, .latency_is_given = true});
  std::mt19937 random(3);
  for (int i = 0; i < 20000; ++i) idler.period(exponential(random, 20));
  CHECK(us(idler.settled(8us)) == 8);
}

TEST_CASE("spin governor: gaps of all lengths are not a peer that probes", "[ae][spin]") {
  Idler idler;
  std::mt19937 random(5);
  for (int i = 0; i < 300000; ++i) idler.period(exponential(random, 30));
  CHECK(idler.governor.probes() <= 12);
  CHECK(us(idler.cpu) <= 1.02 * 300000 * us(idler.cost));
}

TEST_CASE("spin governor: a cap beyond the purse spoils no short spin", "[ae][spin]") {
  Idler idler({.sleep_cost = 5us, .sleep_latency = 540us, .most = 2ms, .latency_is_given = true});
  idler.latency = 540us;
  REQUIRE(idler.governor.cap() > SpinGovernor::kPurse);
  REQUIRE(us(idler.settled(2us)) == 2);
  idler.period(400us);
  CHECK(us(idler.period(2us)) == 2);
  CHECK(us(idler.period(2us)) == 2);
}

TEST_CASE("spin governor: it is off, and on again", "[ae][spin]") {
  Idler idler;
  idler.settled(2us);
  idler.governor.allow(false);
  for (int i = 0; i < 5000; ++i) REQUIRE(idler.period(2us) == 0us);
  CHECK(idler.governor.probes() == 0);
  idler.governor.allow(true);
  CHECK(idler.settled(2us) == 2us);
}

TEST_CASE("spin governor: off in the middle of a probe is the end of it", "[ae][spin]") {
  Idler idler;
  while (idler.governor.probes() == 0) idler.period(30us);
  const Duration purse = idler.governor.purse();
  REQUIRE(idler.governor.idle_began(idler.now) == idler.governor.cap());
  idler.governor.allow(false);
  idler.governor.ended(idler.now + 100us, Found::kSlept);
  CHECK(idler.governor.purse() == purse);
  idler.governor.allow(true);
  CHECK(idler.governor.idle_began(idler.now + 200us) == 0us);
}

TEST_CASE("spin governor: probes come where they could help, ever more rarely", "[ae][spin]") {
  Idler idler;
  SECTION("a peer that is slow by itself") {
    std::vector<int> at;
    for (int i = 0; i < 700000; ++i) {
      const std::uint64_t before = idler.governor.probes();
      const Duration budget = idler.period(30us);
      if (idler.governor.probes() != before) at.push_back(i);
      if (budget != 0us) REQUIRE(budget == idler.governor.cap());
    }
    REQUIRE(at.size() >= 4);
    CHECK(at.size() <= 10);
    CHECK(at[0] >= 256);
    for (std::size_t i = 2; i < at.size(); ++i)
      CHECK(at[i] - at[i - 1] >= std::min(16384, 2 * (at[i - 1] - at[i - 2])));
    // All probes cost less than 1 % of what sleeping does.
    CHECK(idler.governor.spent_on_probes() <= idler.periods * idler.cost / 100);
  }
  SECTION("nobody answers within any cap: none") {
    idler.settled(2ms, 20000);
    CHECK(idler.governor.probes() == 0);
    CHECK(idler.spun == 0us);
  }
}

// Goal: for any gaps, the time spun without gain is covered by the purse and the probes. Method:
// random gaps from a few regimes, random prices, switched off at random; sums are kept
// independently.
TEST_CASE("spin governor: no sequence of gaps loses more than the purse and the probes",
          "[ae][spin][random]") {
  const auto seed = GENERATE(range(0u, 60u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const Duration cost = Duration(2'000 + random() % 60'000);
  Idler idler({.sleep_cost = cost,
               .sleep_latency = Duration(random() % 120'000),
               .latency_weight = random() % 2 == 0 ? 0u : 3u,
               .most = Duration(1'000 + random() % (random() % 4 == 0 ? 3'000'000 : 150'000)),
               .latency_is_given = random() % 4 == 0});
  // Its estimate of its own wake-up may be wrong.
  idler.latency = Duration(random() % 150'000);
  Duration regime = 3us, probed_before{};
  TimePoint window = idler.now;
  bool off = false;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 300 == 0)
      regime = Duration(
          static_cast<std::int64_t>(std::exp(std::uniform_real_distribution<>(5.0, 15.0)(random))));
    if (random() % 2000 == 0) idler.governor.allow(!(off = !off));
    // The worst case for any budget: a gap slightly longer than the last budget.
    const bool spite = random() % 4 == 0;
    const Duration gap =
        spite ? idler.governor.budget() + 1ns
              : Duration(1 + static_cast<std::int64_t>(random()) % (2 * regime.count()));
    const Duration budget = idler.period(gap);
    if (off) REQUIRE(budget == 0us);
    REQUIRE(budget <= idler.governor.cap());
    REQUIRE(idler.governor.purse() >= 0us);
    REQUIRE(idler.governor.purse() <= SpinGovernor::kPurse);
    REQUIRE(idler.spun - idler.earned <= SpinGovernor::kPurse + idler.governor.spent_on_probes());
    if (idler.now - window >= SpinGovernor::kProbeTime) {
      // After a probe that paid, four more may follow within the window, at doubling distances,
      // most of which end half-way; and a run may begin in one window and end in the next.
      REQUIRE(idler.governor.spent_on_probes() - probed_before <=
              3 * SpinGovernor::kProbeRun * idler.governor.cap());
      probed_before = idler.governor.spent_on_probes();
      window = idler.now;
    }
  }
  CHECK(idler.governor.spent_on_probes() <= static_cast<std::int64_t>(idler.governor.probes()) *
                                                SpinGovernor::kProbeRun * idler.governor.cap());
}

TEST_CASE("spin governor: who provokes probes and pays little for them gets few", "[ae][spin]") {
  // Gaps for which a probe is made and that never pay; then a few short ones, after which probes
  // might be allowed again soon.
  Idler idler;
  const TimePoint start = idler.now;
  while (idler.now - start < 2s) {
    const std::uint64_t probes = idler.governor.probes();
    while (idler.governor.probes() == probes && idler.now - start < 2s) idler.period(30us);
    idler.settled(30us, 40);
    idler.settled(4us, 45);
  }
  CAPTURE(idler.governor.probes(), us(idler.governor.spent_on_probes()));
  CHECK(idler.governor.spent_on_probes() <= (idler.now - start) / 200);
}

TEST_CASE("spin governor: little dearer than the best threshold, known afterwards",
          "[ae][spin][random]") {
  for (const Load& load : loads()) {
    CAPTURE(load.name);
    std::mt19937 random(7);
    Idler idler;
    std::vector<Duration> gaps;
    Duration before{};
    for (int i = 0; i < 6200; ++i) {
      const Duration gap = load.gaps(random, i);
      if (i == 200) before = idler.cpu;
      if (i >= 200) gaps.push_back(gap);
      idler.period(gap);
    }
    CHECK(us(idler.cpu - before) <= 1.3 * us(best_fixed(gaps, idler.cost)));
    // Never much more expensive than always sleeping.
    CHECK(us(idler.cpu - before) <= 1.04 * 6000 * us(idler.cost));
  }
}

// Two loops that answer each other, each with or without a governor.
namespace {

struct Pair {
  struct End {
    bool adapts = true;
    Duration cpu{};
    SpinGovernor governor;
  };
  /// One request and its answer; returns the round-trip time.
  Duration round() {
    const TimePoint begin = now;
    deliver(server, server_idle);
    server_idle = now;
    deliver(client, client_idle);
    client_idle = now;
    return now - begin;
  }
  // Bytes from the other end arrive at `end`, which has been idle since `since`.
  void deliver(End& end, TimePoint since) {
    const TimePoint arrives = now + wire;
    const Duration budget = end.adapts ? end.governor.idle_began(since) : 0us;
    if (end.adapts && arrives - since <= budget) {
      end.cpu += arrives - since;
      now = arrives;
      end.governor.ended(now, Found::kSpun);
    } else {
      end.cpu += budget + cost;
      now = arrives + latency;
      if (end.adapts) end.governor.ended(now, Found::kSlept);
    }
    now += work;
    end.cpu += work;
  }
  Duration wire = 2us, work = 2us, cost = 11us, latency = 11us;
  TimePoint now{1h}, client_idle = now, server_idle = now;
  End client, server;
  Pair() {
    client.governor.set({.sleep_cost = cost, .sleep_latency = latency});
    server.governor.set({.sleep_cost = cost, .sleep_latency = latency});
  }
};

}  // namespace

TEST_CASE("spin governor: two loops that sleep find out that they could both spin", "[ae][spin]") {
  Pair pair;
  CHECK(pair.round() == 30us);
  int rounds = 0;
  while (pair.round() != 8us && rounds < 20000) ++rounds;
  CAPTURE(rounds);
  CHECK(rounds < 5000);  // the first probe needs 100 ms, and 256 rounds
  const Duration client = pair.client.cpu, server = pair.server.cpu;
  for (int i = 0; i < 1000; ++i) REQUIRE(pair.round() == 8us);
  CHECK((pair.client.cpu - client) / 1000 == 8us);  // sleeping costs 13
  CHECK((pair.server.cpu - server) / 1000 == 8us);
}

TEST_CASE("spin governor: two loops meet whose wake-ups are later than believed, or earlier",
          "[ae][spin]") {
  // The gap seen by a sleeper does not pay by itself: it is more than C, however L is subtracted.
  const auto latency = GENERATE(5us, 20us, 40us);
  const auto believed = GENERATE(2us, 11us, 22us, 60us);
  CAPTURE(us(latency), us(believed));
  Pair pair;
  pair.latency = latency;
  for (Pair::End* end : {&pair.client, &pair.server})
    end->governor.set({.sleep_cost = pair.cost, .sleep_latency = believed});
  // A spin of the maximum length must reach the other's wake-up, else neither end can find out.
  const bool reach = pair.client.governor.cap() >= pair.latency + pair.work + 2 * pair.wire;
  int rounds = 0;
  while (pair.round() != 8us && rounds < 20000) ++rounds;
  if (!reach) {
    CHECK(us(pair.client.cpu) <= 1.1 * 13 * rounds);
    return;
  }
  CHECK(rounds < 8000);
  int slow = 0;
  for (int i = 0; i < 10000; ++i) slow += pair.round() > 8us ? 1 : 0;
  CHECK(slow <= 100);
}

TEST_CASE("spin governor: two loops that spin go on after an accident", "[ae][spin]") {
  Pair pair;
  pair.latency = 25us;
  int rounds = 0;
  while (pair.round() != 8us && rounds < 20000) ++rounds;
  for (int i = 0; i < 100; ++i) pair.round();
  const std::uint64_t probes = pair.client.governor.probes() + pair.server.governor.probes();
  const Duration before = pair.client.cpu;
  int slow = 0;
  for (int i = 0; i < 20000; ++i) {
    // A system tick, for example: 200 us during which a request does not arrive.
    pair.wire = i % 500 == 0 ? 200us : 2us;
    slow += pair.round() > 8us ? 1 : 0;
  }
  CHECK(slow <= 20000 / 500 * 6);
  CHECK(pair.client.governor.probes() + pair.server.governor.probes() == probes);
  CHECK(us(pair.client.cpu - before) / 20000 <= 9);  // sleeping costs 13
}

TEST_CASE("spin governor: towards a peer that never spins it costs next to nothing", "[ae][spin]") {
  Pair pair;
  pair.server.adapts = false;
  for (int i = 0; i < 20000; ++i) pair.round();
  CHECK(us(pair.client.cpu) / 20000 <= 1.02 * 13);
}

TEST_CASE("spin room: off where there is no processor to spare", "[ae][spin]") {
  ae::SpinRoom room;
  const TimePoint start{1h};
  const auto at = [start](Duration later) { return start + later; };
  CHECK(room.due(start));
  CHECK(room.look(start, {.processors = 2}));
  CHECK_FALSE(room.due(at(99ms)));
  CHECK(room.due(at(100ms)));
  CHECK_FALSE(room.look(at(100ms), {.processors = 1}));
  CHECK_FALSE(room.look(at(200ms), {.processors = 2, .quota = true}));
  CHECK(room.look(at(300ms), {.processors = 2}));
  // A short loss to the system is tolerated; losing nearly half of the spin time means that others
  // need it.
  CHECK(room.look(at(400ms), {.processors = 2, .spun = 20ms, .lost = 8ms}));
  CHECK(room.look(at(500ms), {.processors = 2, .spun = 26ms, .lost = 12900us}));  // too short
  CHECK_FALSE(room.look(at(600ms), {.processors = 2, .spun = 40ms, .lost = 20ms}));
  CHECK_FALSE(room.look(at(1500ms), {.processors = 2, .spun = 40ms, .lost = 20ms}));
  CHECK(room.look(at(1600ms), {.processors = 2, .spun = 40ms, .lost = 20ms}));
  // Soon after the first time: a longer pause.
  CHECK_FALSE(room.look(at(1700ms), {.processors = 2, .spun = 52ms, .lost = 26ms}));
  CHECK_FALSE(room.look(at(3600ms), {.processors = 2, .spun = 52ms, .lost = 26ms}));
  CHECK(room.look(at(3700ms), {.processors = 2, .spun = 52ms, .lost = 26ms}));
  // Much later: a short pause.
  CHECK_FALSE(room.look(at(20s), {.processors = 2, .spun = 64ms, .lost = 32ms}));
  CHECK(room.look(at(21s), {.processors = 2, .spun = 64ms, .lost = 32ms}));
}
