// SPDX-License-Identifier: BSD-3-Clause
#include "shards.h"

#include <algorithm>
#include <bit>

namespace kv {
namespace {

constexpr std::size_t kForEachLoop = 8;

}  // namespace

Shards::Shards(std::size_t loops, std::size_t databases, HashSeed seed) : seed_(seed) {
  const std::size_t count =
      std::min(kMost, std::bit_ceil(std::max<std::size_t>(loops, 1) * kForEachLoop));
  shift_ = 64 - std::countr_zero(count);
  for (std::size_t i = 0; i < count; ++i) {
    shards_.push_back(std::make_unique<Shard>(databases, seed));
  }
}

ShardsLock::ShardsLock(Shards& shards, std::int64_t& account) : shards_(shards), account_(account) {
  for (std::size_t i = 0; i < shards.count(); ++i) chosen_[i / 64] |= std::uint64_t{1} << (i % 64);
  lock();
}

ShardsLock::ShardsLock(Shards& shards, std::int64_t& account,
                       std::span<const std::string_view> keys, std::size_t step)
    : shards_(shards), account_(account) {
  for (std::size_t i = 0; i < keys.size(); i += step) {
    const std::size_t index = shards.index_of(keys[i]);
    chosen_[index / 64] |= std::uint64_t{1} << (index % 64);
  }
  lock();
}

ShardsLock::~ShardsLock() {
  std::size_t after = 0;
  each([&after](Shard& shard) {
    after += shard.store.memory();
    shard.mutex.unlock();
  });
  account_ += static_cast<std::int64_t>(after - before_);
}

template <class Visit>
void ShardsLock::each(Visit visit) const {
  for (std::size_t word = 0; word < chosen_.size(); ++word) {
    for (std::uint64_t bits = chosen_[word]; bits != 0; bits &= bits - 1) {
      visit(shards_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))]);
    }
  }
}

void ShardsLock::lock() {
  each([this](Shard& shard) {
    shard.mutex.lock();
    before_ += shard.store.memory();
  });
}

}  // namespace kv
