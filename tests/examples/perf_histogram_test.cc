// SPDX-License-Identifier: BSD-3-Clause
// conn-perf's histogram, compared with sorted samples.

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "programs/conn_perf/histogram.h"
#include "tests/support/catch.h"

using perf::Histogram;

namespace {

double error_of(std::uint64_t got, std::uint64_t exact) {
  return std::abs(static_cast<double>(got) - static_cast<double>(exact)) /
         static_cast<double>(std::max<std::uint64_t>(exact, 1));
}

std::uint64_t exact_percentile(const std::vector<std::uint64_t>& sorted, double p) {
  const auto rank =
      static_cast<std::size_t>(std::ceil(p / 100 * static_cast<double>(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

TEST_CASE("histogram: an empty one says 0 to everything", "[perf]") {
  const Histogram empty;
  REQUIRE(empty.count() == 0);
  REQUIRE(empty.mean() == 0);
  REQUIRE(empty.min() == 0);
  REQUIRE(empty.max() == 0);
  REQUIRE(empty.percentile(99) == 0);
  empty.for_each([](auto, auto, auto) { FAIL("an empty histogram has no buckets"); });
}

TEST_CASE("histogram: percentiles of samples over eight powers of ten are 0.1 % off at most",
          "[perf][random]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(0, 11);
  Histogram histogram;
  std::vector<std::uint64_t> samples;
  double sum = 0;
  for (int i = 0; i < 50000; ++i) {
    const auto ns = static_cast<std::uint64_t>(std::pow(10.0, exponent(random)));
    samples.push_back(ns);
    sum += static_cast<double>(ns);
    histogram.record(ns);
  }
  std::sort(samples.begin(), samples.end());
  for (const double p : {0.0, 0.01, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 99.99, 100.0}) {
    CAPTURE(p);
    REQUIRE(error_of(histogram.percentile(p), exact_percentile(samples, p)) <= 0.001);
  }
  REQUIRE(histogram.count() == samples.size());
  REQUIRE(histogram.min() == samples.front());
  REQUIRE(histogram.max() == samples.back());
  REQUIRE(error_of(static_cast<std::uint64_t>(histogram.mean()),
                   static_cast<std::uint64_t>(sum / 50000)) < 1e-6);
}

TEST_CASE("histogram: every value lies in its bucket, and buckets are 0.1 % wide at most",
          "[perf]") {
  std::vector<std::uint64_t> values;
  for (int bit = 0; bit < 47; ++bit) {
    const std::uint64_t power = std::uint64_t{1} << bit;
    for (const std::uint64_t ns : {power - 1, power, power + 1, power + power / 3})
      values.push_back(ns);
  }
  for (const std::uint64_t ns : values) {
    CAPTURE(ns);
    Histogram histogram;
    histogram.record(ns);
    int buckets = 0;
    histogram.for_each([&](std::uint64_t low, std::uint64_t high, std::uint64_t count) {
      ++buckets;
      REQUIRE(count == 1);
      REQUIRE(low <= ns);
      REQUIRE(ns <= high);
      REQUIRE((high == low || static_cast<double>(high - low) <= 0.001 * static_cast<double>(low)));
    });
    REQUIRE(buckets == 1);
  }
}

TEST_CASE("histogram: buckets come in order, without gaps of count", "[perf]") {
  Histogram histogram;
  for (std::uint64_t ns = 1; ns < 3'000'000'000; ns += 1 + ns / 50) histogram.record(ns);
  std::uint64_t last = 0, total = 0;
  histogram.for_each([&](std::uint64_t low, std::uint64_t high, std::uint64_t count) {
    REQUIRE((total == 0 || low > last));
    REQUIRE(high >= low);
    last = high;
    total += count;
  });
  REQUIRE(total == histogram.count());
}

TEST_CASE("histogram: merged halves are the whole", "[perf][random]") {
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  Histogram whole, even, odd;
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t ns = random() >> (20 + random() % 40);
    whole.record(ns);
    (i % 2 == 0 ? even : odd).record(ns);
  }
  even.merge(odd);
  even.merge(Histogram());
  REQUIRE(even.count() == whole.count());
  REQUIRE(even.mean() == whole.mean());
  REQUIRE(even.min() == whole.min());
  REQUIRE(even.max() == whole.max());
  for (const double p : {1.0, 50.0, 99.0, 99.9}) REQUIRE(even.percentile(p) == whole.percentile(p));
  even.clear();
  REQUIRE(even.count() == 0);
  REQUIRE(even.max() == 0);
  even.record(7);
  REQUIRE(even.min() == 7);
}

TEST_CASE("histogram: times beyond its range are counted", "[perf]") {
  Histogram histogram;
  histogram.record(5);
  histogram.record(Histogram::kHighest);
  histogram.record(Histogram::kHighest + 1);
  histogram.record(std::uint64_t{1} << 60);
  REQUIRE(histogram.count() == 4);
  REQUIRE(histogram.max() == std::uint64_t{1} << 60);
  std::uint64_t total = 0;
  histogram.for_each([&](auto, auto, std::uint64_t count) { total += count; });
  REQUIRE(total == 4);
}
