// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The hash table of a database, with chaining. Sizes are powers of two, and resizing is
// incremental: each operation moves one bucket from the old table to the new one, so that none
// takes long.
//
// An entry is one block: header, key, and value with spare capacity. A lookup touches one bucket
// and one block; a value that fits is replaced without an allocation. A large value is followed by
// a count of its users: it is sent from where it is, and a writer makes a new block meanwhile.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "siphash.h"

namespace kv {

inline constexpr std::int64_t kNoExpiry = std::numeric_limits<std::int64_t>::max();

struct Entry {
  Entry* next;
  std::uint64_t hash;
  std::int64_t expire_ms;  ///< absolute Unix time, or kNoExpiry
  std::uint32_t key_size, value_size, value_capacity;
  std::uint32_t heap_index;  ///< index in the database's expiry heap; valid with an expiry

  char* bytes() noexcept { return reinterpret_cast<char*>(this + 1); }
  const char* bytes() const noexcept { return reinterpret_cast<const char*>(this + 1); }
  std::string_view key() const noexcept { return {bytes(), key_size}; }
  std::string_view value() const noexcept { return {bytes() + key_size, value_size}; }
  char* value_bytes() noexcept { return bytes() + key_size; }

  // For large values, from any thread. Only the holder of the database's lock adds a user, so that
  // an entry without other users stays so while the lock is held.
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

/// Links entries. Owns the tables, and not the entries.
class Dict {
 public:
  Dict() = default;
  Dict(const Dict&) = delete;
  Dict& operator=(const Dict&) = delete;
  ~Dict();

  std::size_t size() const noexcept { return tables_[0].used + tables_[1].used; }
  bool rehashing() const noexcept { return rehash_next_ != kNotRehashing; }
  std::size_t table_bytes() const noexcept {
    return (tables_[0].buckets() + tables_[1].buckets()) * sizeof(Entry*);
  }

  /// The link that points to the key's entry (valid until the next call), or null.
  Entry** find(std::string_view key, std::uint64_t hash) noexcept {
    if (rehashing()) rehash(1);
    for (Table& table : tables_) {
      if (table.used == 0) continue;
      for (Entry** link = table.bucket(hash); *link != nullptr; link = &(*link)->next) {
        if ((*link)->hash == hash && (*link)->key() == key) return link;
      }
    }
    return nullptr;
  }
  /// The link that points to `entry`, which must be in the table.
  Entry** link_of(const Entry* entry) noexcept;
  /// The key must not be in the table. Throws std::bad_alloc and then changes nothing.
  void insert(Entry* entry);
  /// Removes the entry from its chain. The caller frees it.
  Entry* remove(Entry** link) noexcept;

  /// Moves up to `buckets` buckets. Returns true while more are left.
  bool rehash(std::size_t buckets) noexcept;

  /// Visits every entry. `visit` may free it if forget_all() follows.
  template <class Visit>
  void each(Visit visit) const {
    for (const Table& table : tables_) {
      for (std::size_t i = 0; i < table.buckets(); ++i) {
        for (Entry *entry = table.heads[i], *next; entry != nullptr; entry = next) {
          next = entry->next;
          visit(entry);
        }
      }
    }
  }
  /// Empties the tables without touching entries.
  void forget_all() noexcept;
  /// Removes any entry; null if there is none. For emptying the table in small steps.
  Entry* pop_any() noexcept;

 private:
  struct Table {
    Entry** heads = nullptr;
    std::size_t mask = 0;
    std::size_t used = 0;
    std::size_t buckets() const noexcept { return heads == nullptr ? 0 : mask + 1; }
    Entry** bucket(std::uint64_t hash) const noexcept { return &heads[hash & mask]; }
  };
  static constexpr std::size_t kNotRehashing = static_cast<std::size_t>(-1);
  static constexpr std::size_t kSmallest = 16;

  static Table make_table(std::size_t buckets);
  void resize(std::size_t buckets);
  void shrink_if_sparse() noexcept;

  Table tables_[2];
  std::size_t rehash_next_ = kNotRehashing;  ///< bucket of tables_[0] to move next
  std::size_t pop_next_ = 0;
};

}  // namespace kv
