// SPDX-License-Identifier: BSD-3-Clause
#include "dict.h"

#include <cstdlib>
#include <new>
#include <random>
#include <utility>

namespace kv {
HashSeed HashSeed::random() {
  std::random_device device;
  const auto word = [&device] {
    return static_cast<std::uint64_t>(device()) << 32 | static_cast<std::uint64_t>(device());
  };
  const std::uint64_t k0 = word();
  return {k0, word()};
}

Dict::~Dict() { forget_all(); }

Dict::Table Dict::make_table(std::size_t buckets) {
  Table table;
  // calloc gets a large table as zero pages from the kernel, so no memory is touched here.
  table.heads = static_cast<Entry**>(std::calloc(buckets, sizeof(Entry*)));
  if (table.heads == nullptr) throw std::bad_alloc();
  table.mask = buckets - 1;
  return table;
}

void Dict::resize(std::size_t buckets) {
  if (tables_[0].heads == nullptr) {
    tables_[0] = make_table(buckets);
  } else {
    tables_[1] = make_table(buckets);
    rehash_next_ = 0;
  }
}

Entry** Dict::link_of(const Entry* entry) noexcept {
  for (const Table& table : tables_) {
    if (table.used == 0) continue;
    for (Entry** link = table.bucket(entry->hash); *link != nullptr; link = &(*link)->next) {
      if (*link == entry) return link;
    }
  }
  return nullptr;
}

void Dict::insert(Entry* entry) {
  if (tables_[0].heads == nullptr) {
    resize(kSmallest);
  } else if (!rehashing() && tables_[0].used >= tables_[0].buckets()) {
    resize(tables_[0].buckets() * 2);
  }
  if (rehashing()) rehash(1);
  Table& table = tables_[rehashing() ? 1 : 0];
  Entry** head = table.bucket(entry->hash);
  entry->next = *head;
  *head = entry;
  ++table.used;
}

Entry* Dict::remove(Entry** link) noexcept {
  Entry* entry = *link;
  // During a rehash a new entry is in the new table although its old bucket may not have moved
  // yet, so only a search of the new chain tells which table's count to decrease.
  Table* table = &tables_[0];
  if (rehashing()) {
    for (Entry** other = tables_[1].bucket(entry->hash); *other != nullptr;
         other = &(*other)->next) {
      if (*other == entry) table = &tables_[1];
    }
  }
  *link = entry->next;
  --table->used;
  shrink_if_sparse();
  return entry;
}

void Dict::shrink_if_sparse() noexcept {
  const Table& table = tables_[0];
  if (rehashing() || table.buckets() <= kSmallest || table.used * 8 >= table.buckets()) return;
  std::size_t wanted = kSmallest;
  while (wanted < table.used * 2) wanted *= 2;
  try {
    resize(wanted);
  } catch (const std::bad_alloc&) {
    // The large table stays in use.
  }
}

bool Dict::rehash(std::size_t buckets) noexcept {
  if (!rehashing()) return false;
  Table& old = tables_[0];
  Table& fresh = tables_[1];
  std::size_t empty_left = buckets * 10;  // bounds the time for long runs of empty buckets
  while (buckets > 0 && old.used > 0) {
    while (old.heads[rehash_next_] == nullptr) {
      ++rehash_next_;
      if (--empty_left == 0) return true;
    }
    Entry* entry = std::exchange(old.heads[rehash_next_++], nullptr);
    while (entry != nullptr) {
      Entry* next = entry->next;
      Entry** head = fresh.bucket(entry->hash);
      entry->next = *head;
      *head = entry;
      --old.used;
      ++fresh.used;
      entry = next;
    }
    --buckets;
  }
  if (old.used > 0) return true;
  std::free(old.heads);
  old = std::exchange(fresh, Table{});
  rehash_next_ = kNotRehashing;
  return false;
}

void Dict::forget_all() noexcept {
  for (Table& table : tables_) {
    std::free(table.heads);
    table = Table{};
  }
  rehash_next_ = kNotRehashing;
  pop_next_ = 0;
}

Entry* Dict::pop_any() noexcept {
  for (Table& table : tables_) {
    while (table.used > 0) {
      Entry*& head = table.heads[pop_next_ & table.mask];
      if (head == nullptr) {
        ++pop_next_;
        continue;
      }
      Entry* entry = std::exchange(head, head->next);
      --table.used;
      return entry;
    }
  }
  return nullptr;
}

}  // namespace kv
