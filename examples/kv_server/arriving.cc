// SPDX-License-Identifier: BSD-3-Clause
#include "arriving.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace kv {
namespace {

constexpr std::size_t kAhead = 32 * 1024;
constexpr std::size_t kMostSpare = 1 << 20;

}  // namespace

Entry* SpareEntry::take(std::string_view key, std::size_t value_size) {
  const std::size_t capacity = full_capacity(key.size(), value_size);
  if (entry_ != nullptr && capacity >= Entry::kCounted) {
    const std::size_t around = sizeof(Entry) + key.size() + Entry::kCountRoom;
    const std::size_t there = entry_->block_size(), wanted = around + capacity;
    if (there >= wanted && there <= wanted + wanted / 8) {
      Entry* const entry = new (std::exchange(entry_, nullptr))
          Entry{nullptr,   0,
                kNoExpiry, static_cast<std::uint32_t>(key.size()),
                0,         static_cast<std::uint32_t>(there - around),
                0};
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
    block_ = spare_.take(key, std::min(size, have.size() + kAhead));
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
      spare_.put(std::exchange(block_, nullptr));
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
  if (block_ != nullptr) spare_.put(std::exchange(block_, nullptr));
  size_ = have_ = 0;
  lost_ = false;
}

}  // namespace kv
