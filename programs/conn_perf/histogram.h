// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Latencies in buckets, as HdrHistogram has them: exact below 2048 ns, above it 1024 buckets for
// each power of two. So a value read back is off by 0.05 % at most, in fixed memory.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

class Histogram {
 public:
  /// Longer times (more than a day) count as this long; max() and mean() stay exact.
  static constexpr std::uint64_t kHighest = (std::uint64_t{1} << 47) - 1;

  Histogram();

  /// Allocates nothing.
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
  /// The least value that `p` percent (0 to 100) of all are not above: the middle of its bucket.
  std::uint64_t percentile(double p) const noexcept;

  void merge(const Histogram& other) noexcept;
  void clear() noexcept;

  /// f(low, high, count) for each bucket that is not empty, ascending; low and high are inclusive.
  template <class F>
  void for_each(F f) const {
    if (count_ == 0) return;
    for (std::size_t i = index_of(min_), last = index_of(max_); i <= last; ++i) {
      if (buckets_[i] != 0) f(low_of(i), low_of(i + 1) - 1, buckets_[i]);
    }
  }

 private:
  static constexpr int kBits = 10;  // 1024 buckets for each power of two
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
