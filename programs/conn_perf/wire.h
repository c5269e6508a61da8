// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The messages of conn-perf, as bytes. Each begins with a header of 16 bytes, little-endian:
//
//   u32 length     of the whole message
//   u32 checksum   the low half of XXH3_64 over everything after it; 0 in data when not verified
//   u64 word       the kind in the top 8 bits, below it the sequence number
//
// A data message (request, reply, data) has a payload of arbitrary bytes; the others a short text.
// Nothing here does I/O, and no byte a peer sends makes a parser keep more than one such text.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace perf {

inline constexpr std::size_t kHeaderSize = 16;
inline constexpr std::size_t kMostSize = 64 << 20;  ///< of a data message
inline constexpr std::size_t kMostText = 4096;
inline constexpr std::uint64_t kSequenceMask = (std::uint64_t{1} << 56) - 1;

enum class Kind : std::uint8_t {
  kRequest = 1,  ///< client: answer this
  kReply,        ///< server: under the request's sequence number
  kData,         ///< either: one of a stream
  kHello,        ///< client, first of all: what the connection is for
  kHelloReply,
  kEnd,         ///< client: that was the last of the stream, for now
  kAck,         ///< server: what arrived of the stream, and what it sent itself
  kStats,       ///< client: what did it cost the server so far?
  kStatsReply,  ///< server
  kError,       ///< server: why it closes the connection
};
constexpr bool is_data(Kind kind) { return kind <= Kind::kData; }
std::string_view to_string(Kind kind) noexcept;

struct Header {
  std::uint32_t length = 0, checksum = 0;
  std::uint64_t word = 0;

  Kind kind() const noexcept { return static_cast<Kind>(word >> 56); }
  std::uint64_t sequence() const noexcept { return word & kSequenceMask; }
  static Header decode(const char* bytes) noexcept;
  void encode(char* bytes) const noexcept;
};
constexpr std::uint64_t word_of(Kind kind, std::uint64_t sequence) {
  return static_cast<std::uint64_t>(kind) << 56 | (sequence & kSequenceMask);
}

/// The checksum of a message whose payload may lie anywhere.
std::uint32_t checksum(std::uint64_t word, std::span<const char> payload) noexcept;
/// A whole message with a text, at most kMostText of it.
void append_text(std::string& out, Kind kind, std::uint64_t sequence, std::string_view text);

/// A message that is complete and verified.
struct Message {
  Kind kind;
  std::uint64_t sequence;
  std::size_t size;       ///< of the whole message
  std::string_view text;  ///< empty for data; valid until the parser's next call
};

/// Takes a stream of bytes, in pieces of any size.
class Parser {
 public:
  Parser();
  ~Parser();

  /// From here on data messages are taken with any checksum.
  void trust_data() noexcept { verify_ = false; }
  /// The next message that ends in `bytes`, which are cut from the front. Without a value `bytes`
  /// are used up, or error() says what is wrong with them, and the parser is of no further use.
  std::optional<Message> next(std::span<const char>& bytes);
  /// Empty while all is well.
  const std::string& error() const noexcept { return error_; }
  /// True inside a message.
  bool midway() const noexcept { return have_ != 0; }

 private:
  struct Digest;
  bool begin(const char* bytes);
  std::optional<Message> finish(std::uint32_t sum, std::string_view text);
  std::optional<Message> fail(std::string text);
  bool verifies() const noexcept { return verify_ || !is_data(header_.kind()); }

  Header header_;
  std::size_t have_ = 0;  // bytes of the message under way; up to kHeaderSize they are in partial_
  bool verify_ = true;
  char partial_[kHeaderSize];
  std::unique_ptr<Digest> digest_;  // made for the first message that comes in pieces
  std::string text_, error_;
};

}  // namespace perf
