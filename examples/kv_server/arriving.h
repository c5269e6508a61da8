// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A large argument while it comes, in the block where it will stay if it becomes a key's value.

#include <cstddef>
#include <span>
#include <string_view>

#include "dict.h"

namespace kv {

/// A block that was in use a moment ago, and fits the next value of that size: one for each loop.
class SpareEntry {
 public:
  SpareEntry() = default;
  SpareEntry(const SpareEntry&) = delete;
  SpareEntry& operator=(const SpareEntry&) = delete;
  ~SpareEntry() {
    if (entry_ != nullptr) drop_entry(entry_);
  }
  /// A block for that key with room for `value_size` bytes. Throws std::bad_alloc.
  Entry* take(std::string_view key, std::size_t value_size);
  /// Keeps it, or drops it: one use of it ends in either case.
  void put(Entry* entry) noexcept;

 private:
  Entry* entry_ = nullptr;
};

class Arriving {
 public:
  /// Smaller ones go through the input.
  static constexpr std::size_t kLeast = 4096;
  static constexpr std::size_t kMost = std::size_t{0xffffffff} - 4096;

  explicit Arriving(SpareEntry& spare) noexcept : spare_(spare) {}
  Arriving(const Arriving&) = delete;
  Arriving& operator=(const Arriving&) = delete;
  ~Arriving() { end(); }

  /// `size` bytes will come, `have` are there.
  void begin(std::string_view key, std::size_t size, std::string_view have) noexcept;
  bool active() const noexcept { return size_ != 0; }
  /// Bytes that have not come.
  std::size_t missing() const noexcept { return size_ - have_; }
  /// Where the next ones go. There is room for about as many again as have come, so announcing half
  /// a gigabyte costs a client nothing. Empty once it is lost.
  std::span<char> room() noexcept;
  /// There was no memory for it: its bytes are counted and dropped.
  bool lost() const noexcept { return lost_; }
  void commit(std::size_t size) noexcept { have_ += size; }
  std::size_t size() const noexcept { return have_; }
  /// Of one that is not lost.
  const char* data() const noexcept { return lost_ ? nullptr : block_->value_bytes(); }
  std::size_t memory() const noexcept { return block_ == nullptr ? 0 : block_->block_size(); }

  /// The block with all of the value in it, if that is `value`, of `key`; else null. Who takes the
  /// block leaves another there, or null.
  Entry** block_of(std::string_view key, std::string_view value) noexcept;
  void end() noexcept;

 private:
  SpareEntry& spare_;
  Entry* block_ = nullptr;
  std::size_t size_ = 0, have_ = 0;
  bool lost_ = false;
};

}  // namespace kv
