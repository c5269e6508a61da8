// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The requests of the RPC servers: 4 bytes of length, big-endian, and as many bytes of payload. The
// reply is framed alike and as long; its payload begins with the result of the work, 8 bytes, and
// continues as the request's does. Replies have the order of the requests.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace peers {

inline constexpr std::size_t kHeader = 4;
inline constexpr std::size_t kMaxPayload = 1 << 20;  // a longer request ends its connection

/// The length of the payload that a header announces. Throws std::length_error if it is too long.
inline std::size_t payload_size(const std::byte* header) {
  std::size_t size = 0;
  for (std::size_t i = 0; i < kHeader; ++i)
    size = size << 8 | std::to_integer<std::size_t>(header[i]);
  if (size > kMaxPayload) throw std::length_error("a request is too long");
  return size;
}

/// The work of a request: `rounds` rounds of a mixing function over its first bytes.
inline std::uint64_t work(std::uint64_t value, unsigned rounds) {
  for (unsigned i = 0; i < rounds; ++i) {
    value += 0x9e3779b97f4a7c15;
    value = (value ^ value >> 31) * 0xbf58476d1ce4e5b9;
  }
  return value;
}

/// Turns a request of `size` bytes, header included, into its reply, in place.
inline void answer(std::byte* frame, std::size_t size, unsigned rounds) {
  std::uint64_t value = 0;
  if (size < kHeader + sizeof value) return;
  std::memcpy(&value, frame + kHeader, sizeof value);
  value = work(value, rounds);
  std::memcpy(frame + kHeader, &value, sizeof value);
}

/// A growing buffer between reads that end anywhere and requests. Where a library reads as soon as
/// it is told that there is something, all connections share one, which stays in the processor's
/// cache: restore() and save() bring and take what a connection had left.
class Input {
 public:
  void restore(std::vector<std::byte>& kept) {
    if (kept.empty()) return;
    begin_ = end_ = 0;
    std::memcpy(space(kept.size()).data(), kept.data(), kept.size());
    end_ = kept.size();
    kept.clear();
  }
  void save(std::vector<std::byte>& kept) {
    kept.assign(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_),
                bytes_.begin() + static_cast<std::ptrdiff_t>(end_));
    begin_ = end_ = 0;
  }

  /// Space for the next read, at least `least` bytes.
  std::span<std::byte> space(std::size_t least) {
    if (begin_ == end_) begin_ = end_ = 0;
    if (bytes_.size() - end_ < least && begin_ > 0) {
      std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    if (bytes_.size() - end_ < least) bytes_.resize(end_ + least);
    return std::span(bytes_).subspan(end_);
  }
  void received(std::size_t size) { end_ += size; }

  /// Answers all whole requests in place. Returns the replies, which are valid until space().
  /// Throws std::length_error.
  std::span<const std::byte> answer_all(unsigned rounds) {
    const std::size_t first = begin_;
    while (end_ - begin_ >= kHeader) {
      std::byte* const frame = bytes_.data() + begin_;
      const std::size_t size = kHeader + payload_size(frame);
      if (end_ - begin_ < size) break;
      answer(frame, size, rounds);
      begin_ += size;
    }
    return std::span(bytes_).subspan(first, begin_ - first);
  }
  std::span<const std::byte> take_all() {
    const std::span all = std::span(bytes_).subspan(begin_, end_ - begin_);
    begin_ = end_;
    return all;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0, end_ = 0;  // received and not yet taken
};

}  // namespace peers
