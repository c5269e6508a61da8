// SPDX-License-Identifier: BSD-3-Clause
#include "wire.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace perf {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are copied as they are");

std::uint32_t low_half(XXH64_hash_t hash) { return static_cast<std::uint32_t>(hash); }

}  // namespace

struct Parser::Digest {
  XXH3_state_t state;
};

std::string_view to_string(Kind kind) noexcept {
  switch (kind) {
    case Kind::kRequest:
      return "request";
    case Kind::kReply:
      return "reply";
    case Kind::kData:
      return "data";
    case Kind::kHello:
      return "hello";
    case Kind::kHelloReply:
      return "hello reply";
    case Kind::kEnd:
      return "end";
    case Kind::kAck:
      return "acknowledgement";
    case Kind::kStats:
      return "query";
    case Kind::kStatsReply:
      return "query reply";
    case Kind::kError:
      return "error";
  }
  return "unknown";
}

Header Header::decode(const char* bytes) noexcept {
  Header header;
  std::memcpy(&header.length, bytes, 4);
  std::memcpy(&header.checksum, bytes + 4, 4);
  std::memcpy(&header.word, bytes + 8, 8);
  return header;
}

void Header::encode(char* bytes) const noexcept {
  std::memcpy(bytes, &length, 4);
  std::memcpy(bytes + 4, &checksum, 4);
  std::memcpy(bytes + 8, &word, 8);
}

std::uint32_t checksum(std::uint64_t word, std::span<const char> payload) noexcept {
  constexpr std::size_t kSmall = 512;
  if (payload.size() <= kSmall) {  // copying costs less than setting up an incremental hash
    char whole[8 + kSmall];
    std::memcpy(whole, &word, 8);
    if (!payload.empty()) std::memcpy(whole + 8, payload.data(), payload.size());
    return low_half(XXH3_64bits(whole, 8 + payload.size()));
  }
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, &word, 8);
  XXH3_64bits_update(&state, payload.data(), payload.size());
  return low_half(XXH3_64bits_digest(&state));
}

void append_text(std::string& out, Kind kind, std::uint64_t sequence, std::string_view text) {
  text = text.substr(0, kMostText);
  Header header{static_cast<std::uint32_t>(kHeaderSize + text.size()), 0, word_of(kind, sequence)};
  header.checksum = checksum(header.word, text);
  char bytes[kHeaderSize];
  header.encode(bytes);
  out.append(bytes, kHeaderSize).append(text);
}

Parser::Parser() = default;
Parser::~Parser() = default;

std::optional<Message> Parser::next(std::span<const char>& bytes) {
  if (!error_.empty()) return std::nullopt;
  if (have_ == 0 && bytes.size() >= kHeaderSize) {  // usual case: complete, no buffering
    if (!begin(bytes.data())) return std::nullopt;
    if (bytes.size() >= header_.length) {
      const std::span<const char> whole = bytes.first(header_.length);
      bytes = bytes.subspan(header_.length);
      const std::uint32_t sum =
          verifies() ? low_half(XXH3_64bits(whole.data() + 8, whole.size() - 8)) : 0;
      const bool has_text = !is_data(header_.kind());
      return finish(
          sum, has_text ? std::string_view(whole.data() + kHeaderSize, whole.size() - kHeaderSize)
                        : std::string_view());
    }
  }
  if (have_ < kHeaderSize) {
    const std::size_t part = std::min(kHeaderSize - have_, bytes.size());
    if (part != 0) std::memcpy(partial_ + have_, bytes.data(), part);
    have_ += part;
    bytes = bytes.subspan(part);
    if (have_ < kHeaderSize || !begin(partial_)) return std::nullopt;
    text_.clear();
    if (verifies()) {
      if (!digest_) digest_ = std::make_unique<Digest>();
      XXH3_64bits_reset(&digest_->state);
      XXH3_64bits_update(&digest_->state, partial_ + 8, 8);
    }
  }
  const std::size_t part = std::min(header_.length - have_, bytes.size());
  if (verifies()) XXH3_64bits_update(&digest_->state, bytes.data(), part);
  if (!is_data(header_.kind())) text_.append(bytes.data(), part);
  have_ += part;
  bytes = bytes.subspan(part);
  if (have_ < header_.length) return std::nullopt;
  return finish(verifies() ? low_half(XXH3_64bits_digest(&digest_->state)) : 0, text_);
}

bool Parser::begin(const char* bytes) {
  header_ = Header::decode(bytes);
  const auto kind = header_.kind();
  if (kind < Kind::kRequest || kind > Kind::kError) {
    fail(fmt::format("a message of the unknown kind {}", static_cast<unsigned>(kind)));
  } else if (header_.length < kHeaderSize || header_.length > kMostSize) {
    fail(fmt::format("a message of {} bytes; {} to {} are allowed", header_.length, kHeaderSize,
                     kMostSize));
  } else if (!is_data(kind) && header_.length - kHeaderSize > kMostText) {
    fail(fmt::format("a text of {} bytes; at most {} are allowed", header_.length - kHeaderSize,
                     kMostText));
  }
  return error_.empty();
}

std::optional<Message> Parser::finish(std::uint32_t sum, std::string_view text) {
  have_ = 0;
  if (verifies() && sum != header_.checksum) {
    return fail(fmt::format("{} {} of {} bytes: the checksum is {:08x}, the bytes give {:08x}",
                            to_string(header_.kind()), header_.sequence(), header_.length,
                            header_.checksum, sum));
  }
  return Message{header_.kind(), header_.sequence(), header_.length, text};
}

std::optional<Message> Parser::fail(std::string text) {
  error_ = std::move(text);
  return std::nullopt;
}

}  // namespace perf
