// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Latency histogram with buckets like HdrHistogram: exact below 2048 ns, above that 1024 buckets
// per power of two. A value read back is off by at most 0.05 %, in fixed memory.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

class Histogram {
 public:
  /// Times longer than this (more than a day) are clamped to it; max() and mean() stay exact.
  static constexpr std::uint64_t kHighest = (std::uint64_t{1} << 47) - 1;

  Histogram();

  /// Adds one time; allocates no memory.
  void record(std::uint64_t ns) noexcept {
    ++buckets_[index_of(ns)];
    ++count_;
    sum_ += ns;
    if (ns < min_) min_ = ns;
    if (ns > max_) max_ = ns;
  }

  std::uint64_t count() const noexcept { return count_; }
  double mean() const noexcept;                                     ///< exact; 0 when empty
  std::uint64_t min() const noexcept { return count_ ? min_ : 0; }  ///< exact
  std::uint64_t max() const noexcept { return max_; }               ///< exact
  /// Returns the smallest value such that `p` percent (0 to 100) of all values are not above it;
  /// more precisely, the middle of that value's bucket.
  std::uint64_t percentile(double p) const noexcept;

  void merge(const Histogram& other) noexcept;
  void clear() noexcept;

  /// Calls f(low, high, count) for each non-empty bucket in ascending order; low and high are
  /// inclusive.
  template <class F>
  void for_each(F f) const {
    if (count_ == 0) return;
    for (std::size_t i = index_of(min_), last = index_of(max_); i <= last; ++i) {
      if (buckets_[i] != 0) f(low_of(i), low_of(i + 1) - 1, buckets_[i]);
    }
  }

 private:
  static constexpr int kBits = 10;  // 1024 buckets per power of two
  static constexpr std::size_t kPart = std::size_t{1} << kBits;

  static constexpr std::size_t index_of(std::uint64_t ns) noexcept {
    if (ns > kHighest) ns = kHighest;
    if (ns < 2 * kPart) return static_cast<std::size_t>(ns);
    const int shift = static_cast<int>(std::bit_width(ns)) - 1 - kBits;
    return static_cast<std::size_t>(shift) * kPart + static_cast<std::size_t>(ns >> shift);
  }
  static constexpr std::uint64_t low_of(std::size_t index) noexcept {
    if (index < 2 * kPart) return index;
    const std::size_t shift = index / kPart - 1;
    return std::uint64_t{index - shift * kPart} << shift;
  }

  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0, sum_ = 0, min_ = UINT64_MAX, max_ = 0;
};

}  // namespace perf
