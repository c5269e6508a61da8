// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a connection has to send: texts, and data messages whose bytes follow from their sequence
// numbers. A partial write therefore stores two numbers, not bytes, and many connections share one
// payload.

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire.h"

namespace perf {

/// The bytes that payloads are cut from, at a different place for each sequence number: a piece of
/// another message at the same offset is detected, even if it belongs to another connection.
class Payload {
 public:
  /// Provides bytes for messages of up to `size` bytes. Throws std::bad_alloc.
  void reserve(std::size_t size);
  std::span<const char> of(std::uint64_t sequence, std::size_t size) const noexcept {
    // The upper half of a sequence number identifies the connection. Its factor is odd, so each
    // connection has its own places, and large, so that places of neighbouring connections do not
    // coincide with those of the next messages.
    const std::uint64_t place = sequence + (sequence >> 32) * 0x9e3779b1u;
    return {bytes_->data() + (place * 8) % kPlaces, size - kHeaderSize};
  }
  /// Returns the whole buffer, which the next reserve() that needs more replaces.
  const std::shared_ptr<std::vector<char>>& bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t kPlaces = 64 << 10;
  std::shared_ptr<std::vector<char>> bytes_ = std::make_shared<std::vector<char>>();
};

/// Collects the bytes of one write; shared by all connections of a loop.
class Batch {
 public:
  static constexpr std::size_t kMost = 256 << 10;

  std::span<const iovec> vectors() const noexcept { return {vectors_.data(), count_}; }
  std::size_t size() const noexcept { return size_; }
  void clear() noexcept { count_ = size_ = copied_ = 0; }
  /// Adds as much of `bytes` as fits and returns that size. Long pieces are not copied and must
  /// stay valid until the write.
  std::size_t add(std::span<const char> bytes) noexcept;

 private:
  // Short pieces are copied next to each other, which costs less than a vector for each.
  static constexpr std::size_t kWorthCopying = 8 << 10;
  std::array<iovec, 64> vectors_;
  std::size_t count_ = 0, size_ = 0, copied_ = 0;
  std::vector<char> copies_ = std::vector<char>(kMost);
};

class Outbox {
 public:
  /// Sets kind and size of the data messages, and the sequence number of the first.
  void set_data(Kind kind, std::size_t size, bool verify, std::uint64_t first);
  /// Allows `count` more data messages.
  void add_data(std::uint64_t count) noexcept { end_ += count; }
  /// Ends the data messages: the last one is the message before `sequence`, or one that has already
  /// begun.
  void end_data(std::uint64_t sequence = 0) noexcept { end_ = std::max(begun(), sequence); }
  /// Queues a text, which is sent before data messages that have not begun.
  void add_text(Kind kind, std::uint64_t sequence, std::string_view text);

  /// The sequence number after the last data message that may be sent.
  std::uint64_t end() const noexcept { return end_; }
  bool empty() const noexcept { return texts_.empty() && next_ == end_; }
  /// Whether all messages sent so far are complete.
  bool between_messages() const noexcept { return offset_ == 0 && texts_sent_ == 0; }
  std::size_t text_bytes() const noexcept { return texts_.size(); }
  /// The sequence number after the last data message of which at least one byte was sent.
  std::uint64_t begun() const noexcept { return next_ + (offset_ != 0 ? 1 : 0); }
  /// The sequence number after the last data message that was sent completely.
  std::uint64_t sent() const noexcept { return next_; }

  /// Adds the next bytes to `batch`, as many as fit.
  void gather(const Payload& payload, Batch& batch);
  /// Records that `size` of the gathered bytes were written.
  void advance(std::size_t size) noexcept;

 private:
  bool add_message(const Payload& payload, Batch& batch, std::uint64_t sequence, std::size_t from);

  std::string texts_;
  std::size_t texts_sent_ = 0;
  Kind kind_ = Kind::kData;
  bool verify_ = true;
  std::size_t size_ = kHeaderSize;
  std::uint64_t next_ = 0, end_ = 0;  // sequence numbers: the first not fully sent; where to stop
  std::size_t offset_ = 0;            // bytes already sent of message next_
  std::uint32_t checksum_ = 0;        // checksum of message known_
  std::uint64_t known_ = UINT64_MAX;
};

}  // namespace perf
