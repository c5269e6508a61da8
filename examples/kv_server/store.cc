// SPDX-License-Identifier: BSD-3-Clause
#include "store.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace kv {
namespace {

/// Approximately what malloc uses for `size` bytes: multiples of 16, including 8 of its own.
std::size_t block_bytes(std::size_t size) noexcept { return (size + 8 + 15) / 16 * 16; }
std::size_t block_bytes(const Entry* entry) noexcept { return block_bytes(entry->block_size()); }

}  // namespace

// --- entries -------------------------------------------------------------------------------------

std::size_t full_capacity(std::size_t key_size, std::size_t value_size) noexcept {
  const std::size_t head = sizeof(Entry) + key_size;
  if (value_size >= Entry::kCounted) {
    const std::size_t around = head + Entry::kCountRoom;
    return block_bytes(around + value_size) - 8 - around;
  }
  return std::min(block_bytes(head + value_size) - 8 - head, Entry::kCounted - 1);
}

Entry* make_entry(std::string_view key, std::size_t value_capacity) {
  if (key.size() > UINT32_MAX || value_capacity > UINT32_MAX) throw std::bad_alloc();
  const Entry head{nullptr,   0,
                   kNoExpiry, static_cast<std::uint32_t>(key.size()),
                   0,         static_cast<std::uint32_t>(value_capacity),
                   0};
  void* block = std::malloc(head.block_size());
  if (block == nullptr) throw std::bad_alloc();
  auto* entry = new (block) Entry(head);
  if (!key.empty()) std::memcpy(entry->bytes(), key.data(), key.size());
  if (entry->counted()) new (&entry->users()) std::uint32_t(1);
  return entry;
}

Entry* remake_entry(Entry* entry, std::size_t value_capacity) {
  if (value_capacity > UINT32_MAX) throw std::bad_alloc();
  Entry head = *entry;
  head.value_capacity = static_cast<std::uint32_t>(value_capacity);
  void* block = std::realloc(static_cast<void*>(entry), head.block_size());
  if (block == nullptr) throw std::bad_alloc();
  auto* moved = static_cast<Entry*>(block);
  moved->value_capacity = head.value_capacity;
  if (moved->counted()) new (&moved->users()) std::uint32_t(1);
  return moved;
}

void drop_entry(Entry* entry) noexcept {
  if (entry->counted() &&
      std::atomic_ref(entry->users()).fetch_sub(1, std::memory_order_acq_rel) != 1) {
    return;
  }
  std::free(entry);
}

Entry* Database::allocate(std::string_view key, std::uint64_t hash, std::size_t value_size) {
  Entry* entry = make_entry(key, full_capacity(key.size(), value_size));
  entry->hash = hash;
  entry->value_size = static_cast<std::uint32_t>(value_size);
  shared_.memory += block_bytes(entry);
  return entry;
}

Entry* Database::reallocate(Entry* entry, std::size_t value_capacity, std::size_t keep) {
  Entry** link = dict_.link_of(entry);
  const std::size_t before = block_bytes(entry);
  Entry* moved;
  if (entry->shared()) {  // the old value is being sent
    moved = make_entry(entry->key(), value_capacity);
    if (keep != 0) std::memcpy(moved->value_bytes(), entry->value_bytes(), keep);
    take_place(link, entry, moved);
    drop_entry(entry);
  } else {
    moved = remake_entry(entry, value_capacity);
    *link = moved;
    if (moved->expire_ms != kNoExpiry) heap_[moved->heap_index] = moved;
  }
  shared_.memory += block_bytes(moved) - before;
  return moved;
}

/// `fresh` replaces `entry`; the value is not copied.
void Database::take_place(Entry** link, const Entry* entry, Entry* fresh) noexcept {
  fresh->next = entry->next;
  fresh->hash = entry->hash;
  fresh->expire_ms = entry->expire_ms;
  fresh->heap_index = entry->heap_index;
  *link = fresh;
  if (fresh->expire_ms != kNoExpiry) heap_[fresh->heap_index] = fresh;
}

void Database::release(Entry* entry) noexcept {
  shared_.memory -= block_bytes(entry);
  drop_entry(entry);
}

void Database::account_tables() noexcept {
  const std::size_t bytes = dict_.table_bytes() + heap_.capacity() * sizeof(Entry*);
  shared_.memory += bytes - accounted_;
  accounted_ = bytes;
}

// --- keys ----------------------------------------------------------------------------------------

Entry* Database::find(std::string_view key, std::int64_t now_ms) noexcept {
  Entry** link = dict_.find(key, siphash13(key, shared_.seed));
  if (link == nullptr) return nullptr;
  if ((*link)->expire_ms >= now_ms) return *link;
  erase(*link);
  ++shared_.expired;
  return nullptr;
}

Entry* Database::set(std::string_view key, std::string_view value, std::int64_t now_ms,
                     bool keep_expiry) {
  return set_found(find(key, now_ms), key, value, keep_expiry);
}

Entry* Database::set_found(Entry* existing, std::string_view key, std::string_view value,
                           bool keep_expiry) {
  if (existing == nullptr) {
    Entry* entry = allocate(key, siphash13(key, shared_.seed), value.size());
    if (!value.empty()) std::memcpy(entry->value_bytes(), value.data(), value.size());
    try {
      dict_.insert(entry);
    } catch (...) {
      release(entry);
      throw;
    }
    account_tables();
    return entry;
  }
  // A small value in a much larger block frees the excess memory.
  const bool wasteful =
      existing->value_capacity > 1024 && existing->value_capacity / 4 > value.size();
  Entry* entry = existing;
  if (value.size() > existing->value_capacity || wasteful || existing->shared()) {
    entry = reallocate(existing, full_capacity(existing->key_size, value.size()), 0);
  }
  if (!value.empty()) std::memcpy(entry->value_bytes(), value.data(), value.size());
  entry->value_size = static_cast<std::uint32_t>(value.size());
  if (!keep_expiry && entry->expire_ms != kNoExpiry) heap_remove(entry);
  return entry;
}

Entry* Database::adopt(Entry* existing, Entry*& block, bool keep_expiry) {
  Entry* const entry = block;
  if (existing == nullptr) {
    entry->hash = siphash13(entry->key(), shared_.seed);
    dict_.insert(entry);
    block = nullptr;
    shared_.memory += block_bytes(entry);
    account_tables();
    return entry;
  }
  take_place(dict_.link_of(existing), existing, entry);
  shared_.memory += block_bytes(entry) - block_bytes(existing);
  block = existing;
  if (!keep_expiry && entry->expire_ms != kNoExpiry) heap_remove(entry);
  return entry;
}

Entry* Database::resize(Entry* entry, std::size_t value_size, bool spare) {
  if (value_size > entry->value_capacity || entry->shared()) {
    constexpr std::size_t kMostSpare = 1 << 20;
    const std::size_t extra = !spare ? 0 : value_size < kMostSpare ? value_size : kMostSpare;
    entry = reallocate(entry, full_capacity(entry->key_size, value_size + extra),
                       std::min<std::size_t>(value_size, entry->value_size));
  }
  entry->value_size = static_cast<std::uint32_t>(value_size);
  return entry;
}

void Database::erase(Entry* entry) noexcept {
  if (entry->expire_ms != kNoExpiry) heap_remove(entry);
  release(dict_.remove(dict_.link_of(entry)));
  account_tables();
}

void Database::clear() noexcept {
  dict_.each([this](Entry* entry) { release(entry); });
  dict_.forget_all();
  std::vector<Entry*>().swap(heap_);
  account_tables();
}

std::size_t Database::expire_some(std::int64_t now_ms, std::size_t budget) noexcept {
  std::size_t removed = 0;
  while (removed < budget && !heap_.empty() && heap_[0]->expire_ms < now_ms) {
    erase(heap_[0]);
    ++removed;
  }
  shared_.expired += removed;
  return removed;
}

bool Database::rehash_some(std::size_t buckets) noexcept {
  if (!dict_.rehashing()) return false;
  const bool more = dict_.rehash(buckets);
  account_tables();
  return more;
}

bool Database::destroy_some(std::size_t budget) noexcept {
  std::vector<Entry*>().swap(heap_);
  for (; budget > 0; --budget) {
    Entry* entry = dict_.pop_any();
    if (entry == nullptr) return false;
    release(entry);
  }
  return true;
}

// --- expiry heap ---------------------------------------------------------------------------------

void Database::expire_at(Entry* entry, std::int64_t when_ms) {
  if (when_ms == kNoExpiry) {
    if (entry->expire_ms != kNoExpiry) heap_remove(entry);
    return;
  }
  if (entry->expire_ms == kNoExpiry) {
    heap_.push_back(entry);
    entry->heap_index = static_cast<std::uint32_t>(heap_.size() - 1);
    account_tables();
  }
  const bool earlier = when_ms < entry->expire_ms;
  entry->expire_ms = when_ms;
  if (earlier)
    heap_up(entry->heap_index, entry);
  else
    heap_down(entry->heap_index, entry);
}

void Database::heap_place(std::size_t index, Entry* entry) noexcept {
  heap_[index] = entry;
  entry->heap_index = static_cast<std::uint32_t>(index);
}

void Database::heap_up(std::size_t index, Entry* entry) noexcept {
  while (index > 0 && heap_[(index - 1) / 2]->expire_ms > entry->expire_ms) {
    heap_place(index, heap_[(index - 1) / 2]);
    index = (index - 1) / 2;
  }
  heap_place(index, entry);
}

void Database::heap_down(std::size_t index, Entry* entry) noexcept {
  for (;;) {
    std::size_t child = 2 * index + 1;
    if (child >= heap_.size()) break;
    if (child + 1 < heap_.size() && heap_[child + 1]->expire_ms < heap_[child]->expire_ms) ++child;
    if (heap_[child]->expire_ms >= entry->expire_ms) break;
    heap_place(index, heap_[child]);
    index = child;
  }
  heap_place(index, entry);
}

void Database::heap_remove(Entry* entry) noexcept {
  const std::size_t index = entry->heap_index;
  Entry* last = heap_.back();
  heap_.pop_back();
  entry->expire_ms = kNoExpiry;
  if (last == entry) return;
  if (index > 0 && heap_[(index - 1) / 2]->expire_ms > last->expire_ms)
    heap_up(index, last);
  else
    heap_down(index, last);
}

// --- the store -----------------------------------------------------------------------------------

Store::Store(std::size_t databases, HashSeed seed) {
  shared_.seed = seed;
  for (std::size_t i = 0; i < databases; ++i) {
    databases_.push_back(std::make_unique<Database>(shared_));
  }
}

void Store::flush(std::size_t index, bool lazily) {
  if (databases_[index]->size() == 0) return;
  auto fresh = std::make_unique<Database>(shared_);
  fresh.swap(databases_[index]);
  if (lazily) doomed_.push_back(std::move(fresh));
}

std::size_t Store::expire_some(std::int64_t now_ms, std::size_t budget) noexcept {
  std::size_t removed = 0;
  for (auto& database : databases_) {
    if (removed < budget) removed += database->expire_some(now_ms, budget - removed);
  }
  return removed;
}

bool Store::maintain(std::int64_t now_ms, std::size_t budget) noexcept {
  bool more = expire_some(now_ms, budget) == budget;
  for (auto& database : databases_) more |= database->rehash_some(budget);
  if (!doomed_.empty()) more |= free_some(budget);
  return more;
}

bool Store::free_some(std::size_t budget) noexcept {
  if (doomed_.empty()) return false;
  if (!doomed_.back()->destroy_some(budget)) doomed_.pop_back();
  return !doomed_.empty();
}

}  // namespace kv
