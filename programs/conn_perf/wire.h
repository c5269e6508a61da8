// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The messages of conn-perf as bytes. Each begins with a 16-byte header, little-endian:
//
//   u32 length     of the whole message
//   u32 checksum   the low half of XXH3_64 over everything after it; 0 in data when not verified
//   u64 word       the kind in the top 8 bits, below it the sequence number
//
// A data message (request, reply, data) has a payload of arbitrary bytes; other messages a short
// text. This code does no I/O, and a parser never buffers more than one such text, whatever the
// peer sends.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace perf {

inline constexpr std::size_t kHeaderSize = 16;
inline constexpr std::size_t kMostSize = 64 << 20;  ///< most bytes of a data message
inline constexpr std::size_t kMostText = 4096;
inline constexpr std::uint64_t kSequenceMask = (std::uint64_t{1} << 56) - 1;

enum class Kind : std::uint8_t {
  kRequest = 1,  ///< from the client: a request to be answered
  kReply,        ///< from the server: the answer, with the request's sequence number
  kData,         ///< from either side: one message of a stream
  kHello,        ///< from the client, first: the purpose of the connection
  kHelloReply,
  kEnd,         ///< from the client: the stream ends here, for now
  kAck,         ///< from the server: what it received of the stream, and what it sent itself
  kStats,       ///< from the client: asks for the server's costs so far
  kStatsReply,  ///< from the server: its costs so far
  kError,       ///< from the server: why it closes the connection
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

/// Returns the checksum of a message; its payload may be anywhere in memory.
std::uint32_t checksum(std::uint64_t word, std::span<const char> payload) noexcept;
/// Appends a complete text message to `out`; `text` is truncated to kMostText.
void append_text(std::string& out, Kind kind, std::uint64_t sequence, std::string_view text);

/// A complete, verified message.
struct Message {
  Kind kind;
  std::uint64_t sequence;
  std::size_t size;       ///< bytes of the whole message
  std::string_view text;  ///< empty in a data message; valid until the parser's next call
};

/// Incremental parser; accepts the stream in pieces of any size.
class Parser {
 public:
  Parser();
  ~Parser();

  /// Stops verifying the checksums of data messages.
  void trust_data() noexcept { verify_ = false; }
  /// Returns the next message that ends in `bytes`, and removes it from their front. Without a
  /// value, either all of `bytes` was consumed, or error() is set and the parser must not be used
  /// any more.
  std::optional<Message> next(std::span<const char>& bytes);
  /// What was wrong with a message; empty unless an error occurred.
  const std::string& error() const noexcept { return error_; }
  /// Whether a message has been received only in part.
  bool midway() const noexcept { return have_ != 0; }

 private:
  struct Digest;
  bool begin(const char* bytes);
  std::optional<Message> finish(std::uint32_t sum, std::string_view text);
  std::optional<Message> fail(std::string text);
  bool verifies() const noexcept { return verify_ || !is_data(header_.kind()); }

  Header header_;
  // received bytes of the current message; the first kHeaderSize are in partial_
  std::size_t have_ = 0;
  bool verify_ = true;
  char partial_[kHeaderSize];
  std::unique_ptr<Digest> digest_;  // created for the first message that arrives in pieces
  std::string text_, error_;
};

}  // namespace perf
