// SPDX-License-Identifier: BSD-3-Clause
// The histogram of durations, and the durations that connections add to it.

#include "conn/histogram.h"

#include <limits>

#include "tests/support/catch.h"

using conn::Histogram;
using namespace std::chrono_literals;

TEST_CASE("histogram: buckets have their bound, and what is longer is in none", "[conn]") {
  Histogram times;
  REQUIRE(times.count() == 0);
  for (const std::uint64_t bound : Histogram::kBounds)
    times.add(std::chrono::nanoseconds(static_cast<std::int64_t>(bound)));
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i) REQUIRE(times.up_to(i) == i + 1);
  times.add(25001ns);  // the lowest of the second bucket
  REQUIRE(times.up_to(0) == 1);
  REQUIRE(times.up_to(1) == 3);
  times.add(10s + 1ns);
  REQUIRE(times.up_to(Histogram::kBounds.size() - 1) == Histogram::kBounds.size() + 1);
  REQUIRE(times.count() == Histogram::kBounds.size() + 2);
}

TEST_CASE("histogram: sums, and no time runs backwards", "[conn]") {
  Histogram times;
  times.add(3us);
  times.add(-5s);
  times.add(0ns);
  REQUIRE(times.up_to(0) == 3);
  REQUIRE(times.sum_ns() == 3000);
}
