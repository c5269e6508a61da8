// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data: numbered databases of binary strings with expiry times. There is no clock: operations
// that need the time get it as milliseconds since 1970.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "dict.h"

namespace kv {

struct StoreShared {
  HashSeed seed;
  std::size_t memory = 0;     ///< entries, tables and heaps of all databases
  std::uint64_t expired = 0;  ///< keys removed because they expired
};

class Database {
 public:
  explicit Database(StoreShared& shared) noexcept : shared_(shared) {}
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  ~Database() { clear(); }

  std::size_t size() const noexcept { return dict_.size(); }
  std::size_t volatile_size() const noexcept { return heap_.size(); }

  // Entries stay valid until the next call that is not const; set() and resize() may move the entry
  // that they return. Functions that allocate throw std::bad_alloc and then change nothing.

  /// Returns null if the key does not exist. Removes the key if it has expired.
  Entry* find(std::string_view key, std::int64_t now_ms) noexcept;
  /// Creates the key or replaces its value, and removes its expiry unless `keep_expiry`.
  /// `value` must not point into this database.
  Entry* set(std::string_view key, std::string_view value, std::int64_t now_ms,
             bool keep_expiry = false);
  /// The same if the caller has just found `existing` (null: the key does not exist).
  Entry* set_found(Entry* existing, std::string_view key, std::string_view value,
                   bool keep_expiry = false);
  /// The same with the key and the value in a block of make_entry(), which becomes the entry.
  /// Stores the replaced block, which may have other users, or null in `block`.
  Entry* adopt(Entry* existing, Entry*& block, bool keep_expiry = false);
  /// Changes the length of the value and makes sure that it has no other users, so that its bytes
  /// may be written. Bytes beyond the old length are not initialised. With `spare`, capacity for
  /// further growth is allocated.
  Entry* resize(Entry* entry, std::size_t value_size, bool spare);
  void erase(Entry* entry) noexcept;
  /// kNoExpiry removes the expiry.
  void expire_at(Entry* entry, std::int64_t when_ms);

  void clear() noexcept;
  /// Removes up to `budget` expired keys, the oldest first. Returns how many.
  std::size_t expire_some(std::int64_t now_ms, std::size_t budget) noexcept;
  /// Continues resizing. Returns true while there is more to do.
  bool rehash_some(std::size_t buckets) noexcept;
  /// Frees up to `budget` entries of an unused database. Returns false once it is empty.
  bool destroy_some(std::size_t budget) noexcept;

 private:
  Entry* allocate(std::string_view key, std::uint64_t hash, std::size_t value_size);
  /// Keeps the first `keep` bytes of the value.
  Entry* reallocate(Entry* entry, std::size_t value_capacity, std::size_t keep);
  void take_place(Entry** link, const Entry* entry, Entry* fresh) noexcept;
  void release(Entry* entry) noexcept;
  void account_tables() noexcept;
  void heap_place(std::size_t index, Entry* entry) noexcept;
  void heap_up(std::size_t index, Entry* entry) noexcept;
  void heap_down(std::size_t index, Entry* entry) noexcept;
  void heap_remove(Entry* entry) noexcept;

  StoreShared& shared_;
  Dict dict_;
  std::vector<Entry*> heap_;  ///< entries with an expiry, a binary heap with the earliest on top
  std::size_t accounted_ = 0;
};

class Store {
 public:
  explicit Store(std::size_t databases = 16, HashSeed seed = HashSeed::random());

  std::size_t database_count() const noexcept { return databases_.size(); }
  Database& database(std::size_t index) noexcept { return *databases_[index]; }
  std::size_t memory() const noexcept { return shared_.memory; }
  std::uint64_t expired() const noexcept { return shared_.expired; }

  /// Empties a database. `lazily`: maintain() frees the entries later, in small steps.
  void flush(std::size_t index, bool lazily);
  /// Does background work, limited by `budget`: removes expired keys, frees flushed ones, moves
  /// buckets. Call it several times per second. Returns true if there is more to do at once.
  bool maintain(std::int64_t now_ms, std::size_t budget) noexcept;
  std::size_t expire_some(std::int64_t now_ms, std::size_t budget) noexcept;
  /// Frees up to `budget` entries of lazily flushed databases. Returns true while there are more.
  bool free_some(std::size_t budget) noexcept;

 private:
  StoreShared shared_;
  std::vector<std::unique_ptr<Database>> databases_;
  std::vector<std::unique_ptr<Database>> doomed_;
};

}  // namespace kv
