// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data: binary strings, in shards by a hash of the key. With several loops each shard has a
// lock, which is held only while one command runs. A shard's table grows by itself, so no request
// waits for more than a 256th of the keys to be moved.
//
// An entry is one block: header, key, and value with spare capacity. A lookup touches one bucket
// and one block; a value that fits is replaced without an allocation. A large value is followed by
// a count of its users: it is sent from where it is, and a writer makes a new block meanwhile.

#include <array>
#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "same_bytes.h"

namespace kv {

struct HashSeed {
  std::uint64_t k0 = 0, k1 = 0;
  static HashSeed random();
};
/// SipHash-1-3: a keyed hash. Without the seed a peer cannot choose keys that share one bucket.
std::uint64_t siphash13(std::string_view bytes, const HashSeed& seed) noexcept;

struct Entry {
  Entry* next;
  std::uint64_t hash;
  std::uint32_t key_size, value_size, value_capacity;

  char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
  const char* bytes() const noexcept { return reinterpret_cast<const char*>(this + 1); }
  std::string_view key() const noexcept { return {bytes(), key_size}; }
  std::string_view value() const noexcept { return {bytes() + key_size, value_size}; }
  char* value_bytes() noexcept { return bytes() + key_size; }

  // For large values, from any thread. Only the holder of the shard's lock adds a user, so that an
  // entry without other users stays so while the lock is held.
  static constexpr std::size_t kCounted = 16 * 1024;
  bool counted() const noexcept { return value_capacity >= kCounted; }
  std::uint32_t& users() noexcept {
    char* const end = bytes() + key_size + value_capacity;
    const auto past = reinterpret_cast<std::uintptr_t>(end) % alignof(std::uint32_t);
    return *reinterpret_cast<std::uint32_t*>(end + (0 - past) % alignof(std::uint32_t));
  }
  bool shared() noexcept {
    return counted() && std::atomic_ref(users()).load(std::memory_order_acquire) != 1;
  }
  void add_user() noexcept { std::atomic_ref(users()).fetch_add(1, std::memory_order_relaxed); }
  /// The size of the whole block.
  std::size_t block_size() const noexcept {
    return sizeof(Entry) + key_size + value_capacity + (counted() ? kCountRoom : 0);
  }
  static constexpr std::size_t kCountRoom = 8;
};

/// Allocates a block with one user, which is in no table. Throws std::bad_alloc.
Entry* make_entry(std::string_view key, std::size_t value_capacity);
/// Changes the capacity. `entry` must have one user, and is invalid afterwards unless this throws.
Entry* remake_entry(Entry* entry, std::size_t value_capacity);
/// Removes a user; the last one frees the block. Any thread.
void drop_entry(Entry* entry) noexcept;
/// The value capacity of the smallest block that malloc gives for `value_size`.
std::size_t full_capacity(std::size_t key_size, std::size_t value_size) noexcept;

struct Key {
  std::string_view text;
  std::uint64_t hash;
};

/// A hash table with chaining. Functions that allocate throw std::bad_alloc and then change
/// nothing.
class alignas(64) Shard {
 public:
  Shard() = default;
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;
  ~Shard() { clear(); }

  std::size_t size() const noexcept { return size_; }
  std::size_t memory() const noexcept { return memory_; }  ///< bytes of entries and the table
  /// The entry, valid until the next call that is not const, or null.
  Entry* find(const Key& key) noexcept {
    if (heads_.empty()) return nullptr;
    Entry* entry = *bucket(key.hash);
    while (entry != nullptr && !(entry->hash == key.hash && has_key(*entry, key.text)))
      entry = entry->next;
    return entry;
  }
  /// Creates the key or replaces its value. `existing` is what find() returned; `value` must not
  /// point into this shard.
  Entry* set(Entry* existing, const Key& key, std::string_view value);
  /// Like set(), but `block`, made by make_entry(), holds the key and the value, and becomes the
  /// entry. Stores the replaced block, which may have other users, or null in `block`.
  Entry* adopt(Entry* existing, const Key& key, Entry*& block);
  /// Lengthens the value and makes sure that it has no other users, so that its bytes may be
  /// written. The new bytes are not initialised. Allocates capacity for further growth.
  Entry* lengthen(Entry* entry, std::size_t value_size);
  void erase(Entry* entry) noexcept;
  void clear() noexcept;

  std::mutex mutex;

 private:
  static bool has_key(const Entry& entry, std::string_view key) noexcept {
    return entry.key_size == key.size() && same_bytes(entry.bytes(), key.data(), key.size());
  }
  Entry** bucket(std::uint64_t hash) noexcept { return &heads_[hash & (heads_.size() - 1)]; }
  Entry** link_of(const Entry* entry) noexcept;
  void insert(Entry* entry);
  void grow();
  /// Gives the entry's value that capacity and keeps its first `keep` bytes.
  Entry* move(Entry* entry, std::size_t value_capacity, std::size_t keep);
  void take_place(const Entry* entry, Entry* fresh) noexcept;
  void release(Entry* entry) noexcept;

  std::vector<Entry*> heads_;  ///< a power of two, or none
  std::size_t size_ = 0, memory_ = 0;
};

class Store {
 public:
  static constexpr std::size_t kShards = 256;

  /// `locked`: several threads use it, under the shards' locks.
  explicit Store(bool locked = false, HashSeed seed = HashSeed::random())
      : locked_(locked), seed_(seed) {}

  bool locked() const noexcept { return locked_; }
  Key key(std::string_view text) const noexcept { return {text, siphash13(text, seed_)}; }
  /// Uses the upper bits of the hash: the lower bits select the bucket in the shard.
  static std::size_t index_of(const Key& key) noexcept { return key.hash >> 56; }
  Shard& of(const Key& key) noexcept { return shards_[index_of(key)]; }
  std::array<Shard, kShards>& shards() noexcept { return shards_; }

  // Sums over all shards, whose locks must be held.
  std::size_t size() const noexcept;
  std::size_t memory() const noexcept;

 private:
  const bool locked_;
  const HashSeed seed_;
  std::array<Shard, kShards> shards_;
};

/// Adds the change of a shard's memory during its lifetime to `account`.
class Growth {
 public:
  Growth(const Shard& shard, std::int64_t& account) noexcept
      : shard_(shard), account_(account), before_(shard.memory()) {}
  Growth(const Growth&) = delete;
  Growth& operator=(const Growth&) = delete;
  ~Growth() { account_ += static_cast<std::int64_t>(shard_.memory() - before_); }

 private:
  const Shard& shard_;
  std::int64_t& account_;
  const std::size_t before_;
};

/// Locks shards of a store for its lifetime, in ascending order, so that two cannot deadlock.
class ShardsLock {
 public:
  /// Locks all shards.
  explicit ShardsLock(Store& store);
  /// Locks the shards of every `step`-th of `keys`.
  ShardsLock(Store& store, std::span<const std::string_view> keys, std::size_t step);
  ShardsLock(const ShardsLock&) = delete;
  ShardsLock& operator=(const ShardsLock&) = delete;
  ~ShardsLock();

 private:
  void lock();
  Store& store_;
  std::bitset<Store::kShards> chosen_;
};

// --- a large argument while it is received, in the block that becomes the value's entry ----------

/// Keeps the last freed block, which fits the next value of about that size. One per loop.
class SpareEntry {
 public:
  SpareEntry() = default;
  SpareEntry(const SpareEntry&) = delete;
  SpareEntry& operator=(const SpareEntry&) = delete;
  ~SpareEntry() {
    if (entry_ != nullptr) drop_entry(entry_);
  }
  /// Returns a block for that key and `value_size` bytes. Throws std::bad_alloc.
  Entry* take(std::string_view key, std::size_t value_size);
  /// Keeps the block or drops it; the caller's use of it ends.
  void put(Entry* entry) noexcept;

 private:
  Entry* entry_ = nullptr;
};

class Arriving {
 public:
  /// Smaller arguments go through the input buffer.
  static constexpr std::size_t kLeast = 4096;
  static constexpr std::size_t kMost = std::size_t{0xffffffff} - 4096;

  explicit Arriving(SpareEntry& spare) noexcept : spare_(&spare) {}
  Arriving(const Arriving&) = delete;
  Arriving& operator=(const Arriving&) = delete;
  ~Arriving() { end(); }
  /// Takes blocks from `spare` from now on. Null: until another is set, only destroy this object.
  void use(SpareEntry* spare) noexcept { spare_ = spare; }

  /// Starts an argument of `size` bytes, of which `have` was received.
  void begin(std::string_view key, std::size_t size, std::string_view have) noexcept;
  bool active() const noexcept { return size_ != 0; }
  /// The number of bytes that are still to be received.
  std::size_t missing() const noexcept { return size_ - have_; }
  /// Where the next bytes go. The memory is about twice what was received, so an announced length
  /// allocates nothing. Empty once lost().
  std::span<char> room() noexcept;
  /// True if memory ran out: the remaining bytes are counted and dropped.
  bool lost() const noexcept { return lost_; }
  void commit(std::size_t size) noexcept { have_ += size; }
  std::size_t size() const noexcept { return have_; }
  /// The bytes received; null if lost().
  const char* data() const noexcept { return lost_ ? nullptr : block_->value_bytes(); }
  std::size_t memory() const noexcept { return block_ == nullptr ? 0 : block_->block_size(); }

  /// The block, if it is complete and holds `value` of `key`; else null. A caller that takes the
  /// block stores another block or null in its place.
  Entry** block_of(std::string_view key, std::string_view value) noexcept;
  void end() noexcept;

 private:
  SpareEntry* spare_;
  Entry* block_ = nullptr;
  std::size_t size_ = 0, have_ = 0;
  bool lost_ = false;
};

}  // namespace kv
