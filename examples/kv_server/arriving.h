// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A large argument while it is received, in the block in which it stays if it becomes a value.

#include <cstddef>
#include <span>
#include <string_view>

#include "dict.h"

namespace kv {

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

  explicit Arriving(SpareEntry& spare) noexcept : spare_(spare) {}
  Arriving(const Arriving&) = delete;
  Arriving& operator=(const Arriving&) = delete;
  ~Arriving() { end(); }

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
  SpareEntry& spare_;
  Entry* block_ = nullptr;
  std::size_t size_ = 0, have_ = 0;
  bool lost_ = false;
};

}  // namespace kv
