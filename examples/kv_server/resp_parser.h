// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The server's side of RESP: parses requests from a byte stream that arrives in pieces of any size.
//
// The parser owns no bytes. Each call gets the unread input from the first byte of the current
// request on. The parser keeps offsets, so the input may move between calls. It allocates memory
// for received bytes only: a count that the peer announces allocates nothing.

#include <cstddef>
#include <cstdint>
#include <cstring>
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
  [[gnu::always_inline]] Result next(std::string_view input, const ParserLimits& limits,
                                     bool authenticated = true) {
    if (done_ && authenticated && take_plain(input, limits)) [[likely]]
      return Result::kRequest;
    return next_in_steps(input, limits, authenticated);
  }

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
  [[gnu::always_inline]] bool take_plain(std::string_view input, const ParserLimits& limits);
  [[gnu::noinline]] bool set_count(std::size_t count, std::size_t bytes);
  [[gnu::noinline]] Result next_in_steps(std::string_view input, const ParserLimits& limits,
                                         bool authenticated);
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

inline bool ends_line(const char* at) noexcept { return std::memcmp(at, "\r\n", 2) == 0; }

/// Parses the usual length line: `type`, one to nine digits without a leading zero, CR LF. Moves
/// `at` behind it, and stores the length. Returns false for every other line.
[[gnu::always_inline]] inline bool take_plain_length(const char*& at, const char* end, char type,
                                                     std::size_t& length) noexcept {
  if (end - at < 4 || at[0] != type) return false;
  length = static_cast<unsigned char>(at[1]) - std::size_t{'0'};
  if (length - 1 > 8) return false;
  for (at += 2; !ends_line(at); ++at) {
    const std::size_t digit = static_cast<unsigned char>(*at) - std::size_t{'0'};
    if (digit > 9 || length > 99'999'999 || end - at < 3) return false;
    length = length * 10 + digit;
  }
  at += 2;
  return true;
}

/// Parses the usual request, whose arguments are not empty and all there. Returns false for every
/// other one, which is then parsed step by step.
inline bool RequestParser::take_plain(std::string_view input, const ParserLimits& limits) {
  // No argument is longer than the whole input.
  if (input.size() > static_cast<std::size_t>(limits.bulk)) return false;
  const char* at = input.data();
  const char* const end = at + input.size();
  std::size_t count;
  if (!take_plain_length(at, end, '*', count)) return false;
  if (count > static_cast<std::size_t>(limits.arguments)) return false;
  if (arguments_.size() != count && !set_count(count, input.size())) return false;
  std::string_view* argument = arguments_.data();
  for (const std::string_view* const last = argument + count; argument != last; ++argument) {
    std::size_t size;
    if (!take_plain_length(at, end, '$', size)) return false;
    if (static_cast<std::size_t>(end - at) < size + 2) return false;
    *argument = {at, size};
    at += size;
    if (!ends_line(at)) return false;
    at += 2;
  }
  position_ = static_cast<std::size_t>(at - input.data());
  return true;
}

}  // namespace kv
