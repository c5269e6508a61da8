// SPDX-License-Identifier: BSD-3-Clause
#include "store.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <utility>

namespace kv {
namespace {

/// Approximately what malloc uses for `size` bytes: multiples of 16, including 8 of its own.
std::size_t block_bytes(std::size_t size) noexcept { return (size + 8 + 15) / 16 * 16; }
std::size_t block_bytes(const Entry* entry) noexcept { return block_bytes(entry->block_size()); }

/// The last bytes of a text, fewer than eight, as a number: the first one is the lowest byte.
std::uint64_t tail_of(const char* at, std::size_t size) noexcept {
  if (size >= 4) {
    std::uint32_t low = 0, high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + size - 4, 4);
    return low | static_cast<std::uint64_t>(high) << (8 * (size - 4));
  }
  if (size == 0) return 0;
  const auto byte = [at](std::size_t i) {
    return static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  };
  return byte(0) | byte(size / 2) | byte(size - 1);
}

constexpr std::size_t kAhead = 32 * 1024;
constexpr std::size_t kMostSpare = 1 << 20;

}  // namespace

HashSeed HashSeed::random() {
  std::random_device device;
  const auto word = [&device] {
    return static_cast<std::uint64_t>(device()) << 32 | static_cast<std::uint64_t>(device());
  };
  const std::uint64_t k0 = word();
  return {k0, word()};
}

std::uint64_t siphash13(std::string_view bytes, const HashSeed& seed) noexcept {
  std::uint64_t v0 = seed.k0 ^ 0x736f6d6570736575u, v1 = seed.k1 ^ 0x646f72616e646f6du;
  std::uint64_t v2 = seed.k0 ^ 0x6c7967656e657261u, v3 = seed.k1 ^ 0x7465646279746573u;
  const auto round = [&] {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  };
  const auto take = [&](std::uint64_t word) {
    v3 ^= word;
    round();
    v0 ^= word;
  };
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    take(word);
  }
  take(static_cast<std::uint64_t>(bytes.size()) << 56 | tail_of(at, left));
  v2 ^= 0xff;
  round();
  round();
  round();
  return v0 ^ v1 ^ v2 ^ v3;
}

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
  const Entry head{nullptr, 0, static_cast<std::uint32_t>(key.size()), 0,
                   static_cast<std::uint32_t>(value_capacity)};
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

// --- a shard -------------------------------------------------------------------------------------

Entry** Shard::link_of(const Entry* entry) noexcept {
  Entry** link = bucket(entry->hash);
  while (*link != entry) link = &(*link)->next;
  return link;
}

void Shard::insert(Entry* entry) {
  if (size_ >= heads_.size()) grow();
  Entry** const head = bucket(entry->hash);
  entry->next = *head;
  *head = entry;
  ++size_;
  memory_ += block_bytes(entry);
}

void Shard::grow() {
  constexpr std::size_t kSmallest = 16;
  std::vector<Entry*> old(std::max(kSmallest, 2 * heads_.size()));
  old.swap(heads_);
  memory_ += (heads_.size() - old.size()) * sizeof(Entry*);
  for (Entry* entry : old) {
    while (entry != nullptr) {
      Entry** const head = bucket(entry->hash);
      Entry* const next = std::exchange(entry->next, *head);
      *head = std::exchange(entry, next);
    }
  }
}

Entry* Shard::move(Entry* entry, std::size_t value_capacity, std::size_t keep) {
  const std::size_t before = block_bytes(entry);
  Entry* moved;
  if (entry->shared()) {  // the old value is being sent
    moved = make_entry(entry->key(), value_capacity);
    if (keep != 0) std::memcpy(moved->value_bytes(), entry->value_bytes(), keep);
    take_place(entry, moved);
    drop_entry(entry);
  } else {
    Entry** const link = link_of(entry);
    *link = moved = remake_entry(entry, value_capacity);
  }
  memory_ += block_bytes(moved) - before;
  return moved;
}

/// `fresh` replaces `entry`; the value is not copied.
void Shard::take_place(const Entry* entry, Entry* fresh) noexcept {
  fresh->next = entry->next;
  fresh->hash = entry->hash;
  *link_of(entry) = fresh;
}

void Shard::release(Entry* entry) noexcept {
  memory_ -= block_bytes(entry);
  drop_entry(entry);
}

Entry* Shard::set(Entry* existing, const Key& key, std::string_view value) {
  Entry* entry = existing;
  if (existing == nullptr) {
    entry = make_entry(key.text, full_capacity(key.text.size(), value.size()));
    entry->hash = key.hash;
    try {
      insert(entry);
    } catch (...) {
      drop_entry(entry);
      throw;
    }
  } else {
    // A small value in a much larger block frees the excess memory.
    const bool wasteful =
        existing->value_capacity > 1024 && existing->value_capacity / 4 > value.size();
    if (value.size() > existing->value_capacity || wasteful || existing->shared())
      entry = move(existing, full_capacity(existing->key_size, value.size()), 0);
  }
  if (!value.empty()) std::memcpy(entry->value_bytes(), value.data(), value.size());
  entry->value_size = static_cast<std::uint32_t>(value.size());
  return entry;
}

Entry* Shard::adopt(Entry* existing, const Key& key, Entry*& block) {
  Entry* const entry = block;
  if (existing == nullptr) {
    entry->hash = key.hash;
    insert(entry);
  } else {
    take_place(existing, entry);
    memory_ += block_bytes(entry) - block_bytes(existing);
  }
  block = existing;
  return entry;
}

Entry* Shard::lengthen(Entry* entry, std::size_t value_size) {
  constexpr std::size_t kMostGrowth = 1 << 20;
  if (value_size > entry->value_capacity || entry->shared()) {
    const std::size_t wanted = value_size + std::min(value_size, kMostGrowth);
    entry = move(entry, full_capacity(entry->key_size, wanted), entry->value_size);
  }
  entry->value_size = static_cast<std::uint32_t>(value_size);
  return entry;
}

void Shard::erase(Entry* entry) noexcept {
  *link_of(entry) = entry->next;
  --size_;
  release(entry);
}

void Shard::clear() noexcept {
  for (Entry* entry : heads_)
    while (entry != nullptr) release(std::exchange(entry, entry->next));
  std::vector<Entry*>().swap(heads_);
  size_ = memory_ = 0;
}

// --- the store -----------------------------------------------------------------------------------

std::size_t Store::size() const noexcept {
  std::size_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.size();
  return sum;
}

std::size_t Store::memory() const noexcept {
  std::size_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.memory();
  return sum;
}

ShardsLock::ShardsLock(Store& store) : store_(store) {
  if (!store.locked()) return;
  chosen_.set();
  lock();
}

ShardsLock::ShardsLock(Store& store, std::span<const std::string_view> keys, std::size_t step)
    : store_(store) {
  if (!store.locked()) return;
  for (std::size_t i = 0; i < keys.size(); i += step)
    chosen_.set(Store::index_of(store.key(keys[i])));
  lock();
}

void ShardsLock::lock() {
  for (std::size_t i = 0; i < Store::kShards; ++i)
    if (chosen_[i]) store_.shards()[i].mutex.lock();
}

ShardsLock::~ShardsLock() {
  if (!store_.locked()) return;
  for (std::size_t i = 0; i < Store::kShards; ++i)
    if (chosen_[i]) store_.shards()[i].mutex.unlock();
}

// --- arguments that arrive -----------------------------------------------------------------------

Entry* SpareEntry::take(std::string_view key, std::size_t value_size) {
  const std::size_t capacity = full_capacity(key.size(), value_size);
  if (entry_ != nullptr && capacity >= Entry::kCounted) {
    const std::size_t around = sizeof(Entry) + key.size() + Entry::kCountRoom;
    const std::size_t there = entry_->block_size(), wanted = around + capacity;
    if (there >= wanted && there <= wanted + wanted / 8) {
      Entry* const entry = new (std::exchange(entry_, nullptr))
          Entry{nullptr, 0, static_cast<std::uint32_t>(key.size()), 0,
                static_cast<std::uint32_t>(there - around)};
      std::memcpy(entry->bytes(), key.data(), key.size());
      new (&entry->users()) std::uint32_t(1);
      return entry;
    }
  }
  return make_entry(key, capacity);
}

void SpareEntry::put(Entry* entry) noexcept {
  if (entry->counted() && !entry->shared() && entry->block_size() <= kMostSpare)
    std::swap(entry, entry_);
  if (entry != nullptr) drop_entry(entry);
}

void Arriving::begin(std::string_view key, std::size_t size, std::string_view have) noexcept {
  size_ = size;
  have_ = have.size();
  try {
    block_ = spare_->take(key, std::min(size, have.size() + kAhead));
    if (!have.empty()) std::memcpy(block_->value_bytes(), have.data(), have.size());
  } catch (const std::bad_alloc&) {
    lost_ = true;
  }
}

std::span<char> Arriving::room() noexcept {
  if (lost_) return {};
  if (have_ == block_->value_capacity) {
    try {
      block_ = remake_entry(block_, full_capacity(block_->key_size, std::min(size_, 2 * have_)));
    } catch (const std::bad_alloc&) {
      spare_->put(std::exchange(block_, nullptr));
      lost_ = true;
      return {};
    }
  }
  return {block_->value_bytes() + have_,
          std::min(size_, std::size_t{block_->value_capacity}) - have_};
}

Entry** Arriving::block_of(std::string_view key, std::string_view value) noexcept {
  if (block_ == nullptr || value.data() != data() || key != block_->key()) return nullptr;
  block_->value_size = static_cast<std::uint32_t>(size_);
  return &block_;
}

void Arriving::end() noexcept {
  if (Entry* const block = std::exchange(block_, nullptr)) {
    if (spare_ != nullptr)
      spare_->put(block);
    else
      drop_entry(block);
  }
  size_ = have_ = 0;
  lost_ = false;
}

}  // namespace kv
