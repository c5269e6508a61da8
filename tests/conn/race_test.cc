// SPDX-License-Identifier: BSD-3-Clause
// The order in which several candidates for one destination are tried, in time controlled by the
// test.

#include <algorithm>
#include <random>
#include <vector>

#include "conn/lists/race.h"
#include "tests/support/catch.h"

using conn::Race;
using Step = conn::Race::Step;
using namespace std::chrono_literals;

namespace {

const ae::TimePoint kStart{};
constexpr ae::Duration kDelay = 250ms, kTimeout = 5s;

Race race_of(std::size_t count) { return {count, kDelay, kStart + kTimeout}; }

bool starts(Race& race, ae::Duration at, std::size_t way) {
  const Race::Move move = race.next(kStart + at);
  return move.step == Step::kStart && move.way == way;
}
Step step(Race& race, ae::Duration at) { return race.next(kStart + at).step; }

}  // namespace

TEST_CASE("race: the first way alone, until its head start is over", "[race]") {
  Race race = race_of(2);
  REQUIRE(starts(race, 0ms, 0));
  REQUIRE(step(race, 0ms) == Step::kWait);
  REQUIRE(race.wake() == kStart + kDelay);
  REQUIRE(step(race, 249ms) == Step::kWait);
  REQUIRE_FALSE(race.started(1));
  REQUIRE(starts(race, 250ms, 1));
  REQUIRE(step(race, 250ms) == Step::kWait);
  REQUIRE(race.wake() == kStart + kTimeout);
}

TEST_CASE("race: the next begins at once where the one before has failed", "[race]") {
  Race race = race_of(3);
  REQUIRE(starts(race, 0ms, 0));
  race.failed(0);
  REQUIRE(starts(race, 1ms, 1));
  REQUIRE(step(race, 1ms) == Step::kWait);
  REQUIRE(race.wake() == kStart + 251ms);  // the second one's own head start
  race.failed(1);
  REQUIRE(starts(race, 2ms, 2));
  race.failed(2);
  REQUIRE(step(race, 3ms) == Step::kLost);
}

TEST_CASE("race: the first that is ready wins, whatever its place", "[race]") {
  Race race = race_of(2);
  REQUIRE(starts(race, 0ms, 0));
  REQUIRE(starts(race, 250ms, 1));
  race.ready(1);
  race.ready(0);
  race.failed(1);
  const Race::Move move = race.next(kStart + 1h);
  REQUIRE(move.step == Step::kWon);
  REQUIRE(move.way == 1);
}

TEST_CASE("race: the preferred one may still win after its head start", "[race]") {
  Race race = race_of(2);
  REQUIRE(starts(race, 0ms, 0));
  REQUIRE(starts(race, 250ms, 1));
  race.failed(1);
  REQUIRE(step(race, 300ms) == Step::kWait);
  race.ready(0);
  REQUIRE(step(race, 300ms) == Step::kWon);
}

TEST_CASE("race: one time-out for all", "[race]") {
  Race race = race_of(2);
  REQUIRE(starts(race, 0ms, 0));
  REQUIRE(starts(race, 250ms, 1));
  REQUIRE(step(race, 4999ms) == Step::kWait);
  REQUIRE(step(race, 5s) == Step::kLost);
}

TEST_CASE("race: a way alone is never followed by another", "[race]") {
  Race race = race_of(1);
  REQUIRE(starts(race, 0ms, 0));
  REQUIRE(step(race, 1s) == Step::kWait);
  race.failed(0);
  REQUIRE(step(race, 1s) == Step::kLost);
}

TEST_CASE("race: every course of events keeps the rules", "[race][model]") {
  for (unsigned seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&](unsigned limit) { return static_cast<unsigned>(random() % limit); };
    const std::size_t count = 1 + below(4);
    const auto delay = std::chrono::milliseconds(below(400));
    const auto timeout = std::chrono::milliseconds(1 + below(2000));
    Race race(count, delay, kStart + timeout);
    std::vector<ae::TimePoint> begun;
    std::vector<bool> failed(count);
    bool over = false;
    ae::TimePoint now = kStart;
    while (!over) {
      for (;;) {
        const Race::Move move = race.next(now);
        if (move.step == Step::kStart) {
          REQUIRE(move.way == begun.size());  // in order, each once
          REQUIRE(now < kStart + timeout);
          if (move.way > 0) REQUIRE((failed[move.way - 1] || now >= begun.back() + delay));
          begun.push_back(now);
          continue;
        }
        const bool all_failed = std::all_of(failed.begin(), failed.end(), [](bool f) { return f; });
        if (move.step == Step::kLost) REQUIRE((all_failed || now >= kStart + timeout));
        if (move.step == Step::kWait) {
          REQUIRE(race.wake() > now);
          REQUIRE(race.wake() <= kStart + timeout);
          // A candidate that is due is started at once.
          if (begun.size() < count) {
            REQUIRE_FALSE(failed[begun.size() - 1]);
            REQUIRE(now < begun.back() + delay);
          }
        }
        over = move.step != Step::kWait;
        break;
      }
      if (over) break;
      const std::size_t way = below(static_cast<unsigned>(begun.size()));
      switch (below(4)) {
        case 0:
          race.failed(way);
          failed[way] = true;
          break;
        case 1:
          if (below(8) != 0 || failed[way]) break;
          race.ready(way);
          REQUIRE(race.next(now).step == Step::kWon);
          REQUIRE(race.next(now).way == way);
          over = true;
          break;
        case 2:
          now = race.wake();
          break;
        default:
          now += std::chrono::milliseconds(below(50));
      }
    }
  }
}
