// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Histogram: counts durations in fixed buckets, for Prometheus's metric type of this name.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Counts durations, for use by one thread. add() searches 16 bounds; it neither allocates nor
/// locks.
class Histogram {
 public:
  /// The inclusive upper bounds of the buckets in nanoseconds: 25 us to 10 s. One more bucket
  /// counts longer durations.
  static constexpr std::array<std::uint64_t, 16> kBounds = {
      25'000,      50'000,      100'000,       250'000,       500'000,    1'000'000,
      2'500'000,   5'000'000,   10'000'000,    25'000'000,    50'000'000, 100'000'000,
      250'000'000, 500'000'000, 1'000'000'000, 10'000'000'000};

  /// Adds one duration to the histogram. A negative duration is treated as 0.
  void add(std::chrono::nanoseconds duration) noexcept {
    const auto took = static_cast<std::uint64_t>(duration.count() < 0 ? 0 : duration.count());
    std::size_t bucket = 0;
    while (bucket < kBounds.size() && took > kBounds[bucket]) ++bucket;
    ++buckets_[bucket];
    sum_ns_ += took;
  }
  /// Returns how many of the added durations were at most kBounds[bound]. If `bound` is
  /// kBounds.size(), returns how many were added at all.
  std::uint64_t up_to(std::size_t bound) const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i <= bound; ++i) sum += buckets_[i];
    return sum;
  }
  /// Returns how many durations were added.
  std::uint64_t count() const noexcept { return up_to(kBounds.size()); }
  /// Returns the sum of all added durations, in nanoseconds.
  std::uint64_t sum_ns() const noexcept { return sum_ns_; }

 private:
  std::array<std::uint64_t, kBounds.size() + 1> buckets_{};
  std::uint64_t sum_ns_ = 0;
};

}}  // namespace conn
