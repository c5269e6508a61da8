// SPDX-License-Identifier: BSD-3-Clause
#include "histogram.h"

#include <algorithm>
#include <cmath>

namespace perf {

Histogram::Histogram() : buckets_(index_of(kHighest) + 1) {}

double Histogram::mean() const noexcept {
  return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_);
}

std::uint64_t Histogram::percentile(double p) const noexcept {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(p, 0.0, 100.0) / 100 * static_cast<double>(count_));
  const std::uint64_t rank =
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, count_);
  if (rank == count_) return max_;
  std::uint64_t seen = 0;
  for (std::size_t i = index_of(min_); i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen < rank) continue;
    const std::uint64_t low = low_of(i), high = low_of(i + 1) - 1;
    return std::clamp(low + (high - low) / 2, min_, max_);
  }
  return max_;
}

void Histogram::merge(const Histogram& other) noexcept {
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  min_ = std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
}

void Histogram::clear() noexcept {
  std::fill(buckets_.begin(), buckets_.end(), 0);
  count_ = sum_ = max_ = 0;
  min_ = UINT64_MAX;
}

}  // namespace perf
