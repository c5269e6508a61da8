// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data of several loops: a key's hash selects the shard, and each shard has its own lock.
// Several locks are taken in ascending order, each once, so they cannot deadlock. A lock is held
// only while one command runs.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "store.h"

namespace kv {

struct alignas(64) Shard {
  Shard(std::size_t databases, HashSeed seed) : store(databases, seed) {}
  std::mutex mutex;
  Store store;  ///< guarded by `mutex`
};

class Shards {
 public:
  static constexpr std::size_t kMost = 1024;

  /// Makes eight shards per loop, so that two loops seldom need the same one.
  Shards(std::size_t loops, std::size_t databases, HashSeed seed = HashSeed::random());

  std::size_t count() const noexcept { return shards_.size(); }  ///< a power of two
  Shard& operator[](std::size_t index) noexcept { return *shards_[index]; }
  /// Uses the upper bits of the hash: the lower bits select the bucket in the shard.
  std::size_t index_of(std::string_view key) const noexcept {
    return siphash13(key, seed_) >> shift_;
  }

 private:
  const HashSeed seed_;
  int shift_;
  std::vector<std::unique_ptr<Shard>> shards_;
};

/// Locks one shard for its lifetime. Adds the change of the shard's memory to `account`.
class ShardLock {
 public:
  ShardLock(Shard& shard, std::int64_t& account)
      : shard_(shard), lock_(shard.mutex), account_(account), before_(shard.store.memory()) {}
  ShardLock(const ShardLock&) = delete;
  ShardLock& operator=(const ShardLock&) = delete;
  ~ShardLock() { account_ += static_cast<std::int64_t>(shard_.store.memory() - before_); }
  Store& store() noexcept { return shard_.store; }

 private:
  Shard& shard_;
  const std::lock_guard<std::mutex> lock_;
  std::int64_t& account_;
  const std::size_t before_;
};

/// Locks several shards for its lifetime.
class ShardsLock {
 public:
  /// Locks all shards.
  ShardsLock(Shards& shards, std::int64_t& account);
  /// Locks the shards of every `step`-th of `keys`.
  ShardsLock(Shards& shards, std::int64_t& account, std::span<const std::string_view> keys,
             std::size_t step);
  ShardsLock(const ShardsLock&) = delete;
  ShardsLock& operator=(const ShardsLock&) = delete;
  ~ShardsLock();

  /// The store of a key whose shard is locked.
  Store& of(std::string_view key) const noexcept { return shards_[shards_.index_of(key)].store; }

 private:
  template <class Visit>
  void each(Visit visit) const;
  void lock();

  Shards& shards_;
  std::int64_t& account_;
  std::array<std::uint64_t, Shards::kMost / 64> chosen_{};  ///< one bit per shard
  std::size_t before_ = 0;
};

}  // namespace kv
