// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The server's side of RESP: parses requests from a byte stream that arrives in pieces of any size.
//
// The parser owns no bytes. Each call gets the unread input from the first byte of the current
// request on. The parser keeps offsets, so the input may move between calls. It allocates memory
// for received bytes only: a count that the peer announces allocates nothing.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "resp_text.h"

namespace kv {

struct ParserLimits {
  std::int64_t bulk = 512 << 20;  ///< proto-max-bulk-len
  std::int64_t arguments = 1024 * 1024;
  std::size_t line = 64 * 1024;  ///< of an inline request or a length line
};
/// The limits before AUTH if a password is set.
inline constexpr ParserLimits kUnauthenticatedLimits{16384, 10, 64 * 1024};

class RequestParser {
 public:
  enum class Result {
    kNeedMore,  ///< the request is not complete; call again with more bytes appended
    kRequest,   ///< arguments() are ready and size() bytes of the input belong to them
    kError,     ///< error() has the reason; the stream cannot be parsed further
  };

  /// `input` starts with the first byte of a request. The call after kRequest starts a new request.
  /// `authenticated` false applies kUnauthenticatedLimits.
  Result next(std::string_view input, const ParserLimits& limits, bool authenticated = true);

  /// Views into `input` (or into the parser for inline requests), valid until the next call of
  /// next() or a change of the input. Empty for an empty line and for "*0", which get no reply.
  std::span<const std::string_view> arguments() const noexcept { return arguments_; }
  std::size_t size() const noexcept { return position_; }
  /// Returns the reason of kError: "Protocol error: ...".
  const std::string& error() const noexcept { return error_; }
  /// The missing bytes of the argument that is being received; 0 if unknown.
  std::size_t missing() const noexcept { return missing_; }

  // A large argument can be received into memory of its own, outside of the input.
  /// After kNeedMore: the size of the argument that is being received, which begins at size() in
  /// the input; 0 if there is none, or if it is the command's name.
  std::size_t large() const noexcept {
    return missing_ != 0 && !spans_.empty() && outside_.size == 0 ? bulk_size_ : 0;
  }
  /// The argument before that of large(): its key, if that is a value. `input` as given to next().
  std::string_view key_of_large(std::string_view input) const noexcept;
  /// Declares that the argument of large() is received elsewhere: in the input, CR LF follows at
  /// size(). Call next() again once moved_to() has the complete bytes, which must stay valid as
  /// long as arguments() is used. At most once per request.
  void take_out() noexcept;
  void moved_to(const char* data) noexcept { outside_.data = data; }
  /// The bytes that the parser has allocated.
  std::size_t memory() const noexcept {
    return spans_.capacity() * sizeof(TextSpan) + arguments_.capacity() * sizeof(std::string_view) +
           heap_bytes(inline_text_);
  }
  /// Frees memory that a long request left behind.
  void shrink();

 private:
  enum class Step { kStart, kInline, kCount, kBulk, kData };

  void restart() noexcept;
  Result fail(std::string text);
  bool take_plain(std::string_view input, const ParserLimits& limits);
  Result parse_inline(std::string_view input, const ParserLimits& limits);
  Result parse_multibulk(std::string_view input, const ParserLimits& limits, bool authenticated);
  struct LengthErrors {
    const char *too_long, *bad_end, *invalid;
  };
  /// Parses the number in the line at position_, after its first character. Returns nullopt, or the
  /// result of the call if it ends here.
  std::optional<Result> take_length(std::string_view input, std::size_t limit,
                                    const LengthErrors& errors, std::int64_t& length);
  enum class Line { kNeedMore, kReady, kTooLong, kBadEnd };
  /// The line at position_ without its end, which must be CR LF.
  Line take_line(std::string_view input, std::size_t limit, std::string_view& line);

  Step step_ = Step::kStart;
  bool done_ = true;            ///< the next call starts a new request
  std::size_t position_ = 0;    ///< parsed up to here, from the request's first byte
  std::size_t scanned_ = 0;     ///< there is no line end before this; avoids rescans
  std::int64_t remaining_ = 0;  ///< bulks not yet parsed
  std::size_t bulk_size_ = 0;
  std::size_t missing_ = 0;
  struct {
    const char* data = nullptr;
    std::size_t index = 0, size = 0;
  } outside_;  ///< the argument that is not in the input
  std::vector<TextSpan> spans_;
  std::vector<std::string_view> arguments_;
  std::string inline_text_;
  std::string error_;
};

}  // namespace kv
