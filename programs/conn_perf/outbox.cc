// SPDX-License-Identifier: BSD-3-Clause
#include "outbox.h"

#include <cstring>

namespace perf {

void Payload::reserve(std::size_t size) {
  const std::size_t wanted = (size + kPlaces + 7) / 8 * 8;
  if (wanted <= bytes_->size()) return;
  bytes_ = std::make_shared<std::vector<char>>(wanted);  // the old bytes may still be in use
  std::uint64_t state = 0x9e3779b97f4a7c15u;  // xorshift: the same bytes in every process
  for (std::size_t i = 0; i < wanted; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes_->data() + i, &state, 8);
  }
}

std::size_t Batch::add(std::span<const char> bytes) noexcept {
  const std::size_t size = std::min(bytes.size(), kMost - size_);
  if (size == 0) return 0;
  const bool copies = size < kWorthCopying;
  char* const copy = copies_.data() + copied_;
  if (copies) {
    std::memcpy(copy, bytes.data(), size);
    copied_ += size;
  }
  iovec* const last = count_ == 0 ? nullptr : &vectors_[count_ - 1];
  if (copies && last != nullptr && static_cast<char*>(last->iov_base) + last->iov_len == copy) {
    last->iov_len += size;
  } else {
    if (count_ == vectors_.size()) {
      if (copies) copied_ -= size;
      return 0;
    }
    vectors_[count_++] = {copies ? copy : const_cast<char*>(bytes.data()), size};
  }
  size_ += size;
  return size;
}

void Outbox::set_data(Kind kind, std::size_t size, bool verify, std::uint64_t first) {
  kind_ = kind;
  size_ = size;
  verify_ = verify;
  next_ = end_ = first;
  offset_ = 0;
  known_ = UINT64_MAX;
}

void Outbox::add_text(Kind kind, std::uint64_t sequence, std::string_view text) {
  append_text(texts_, kind, sequence, text);
}

void Outbox::gather(const Payload& payload, Batch& batch) {
  batch.clear();
  std::uint64_t sequence = next_;
  if (offset_ != 0 && !add_message(payload, batch, sequence++, offset_)) return;
  const std::span<const char> texts = std::span<const char>(texts_).subspan(texts_sent_);
  if (batch.add(texts) != texts.size()) return;
  while (sequence < end_ && add_message(payload, batch, sequence, 0)) ++sequence;
}

/// Returns false if the batch filled up before the end of the message.
bool Outbox::add_message(const Payload& payload, Batch& batch, std::uint64_t sequence,
                         std::size_t from) {
  const std::span<const char> data = payload.of(sequence, size_);
  if (from < kHeaderSize) {
    const std::uint64_t word = word_of(kind_, sequence);
    if (known_ != sequence) {
      checksum_ = verify_ ? checksum(word, data) : 0;
      known_ = sequence;
    }
    char header[kHeaderSize];
    Header{static_cast<std::uint32_t>(size_), checksum_, word}.encode(header);
    const std::span<const char> rest = std::span<const char>(header).subspan(from);
    if (batch.add(rest) != rest.size()) return false;
    from = kHeaderSize;
  }
  const std::span<const char> rest = data.subspan(from - kHeaderSize);
  return batch.add(rest) == rest.size();
}

void Outbox::advance(std::size_t size) noexcept {
  const auto take = [&size](std::size_t most) {
    const std::size_t part = std::min(size, most);
    size -= part;
    return part;
  };
  if (offset_ != 0) {
    offset_ += take(size_ - offset_);
    if (offset_ < size_) return;
    offset_ = 0;
    ++next_;
  }
  texts_sent_ += take(texts_.size() - texts_sent_);
  if (texts_sent_ == texts_.size()) {
    texts_.clear();
    texts_sent_ = 0;
  }
  next_ += size / size_;
  offset_ = size % size_;
}

}  // namespace perf
