// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The server's side of RESP: requests out of a byte stream that may arrive in any pieces.
//
// The parser owns no bytes. It looks at the unread input again and again, always from the first
// byte of the request it is in, and keeps offsets, so the input may move between calls. Memory is
// used for what has arrived only: a count that the peer announces allocates nothing.

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
  std::size_t line = 64 * 1024;  ///< an inline request, or a length line
};
/// What a client may send before AUTH where a password is set.
inline constexpr ParserLimits kUnauthenticatedLimits{16384, 10, 64 * 1024};

class RequestParser {
 public:
  enum class Result {
    kNeedMore,  ///< the request is not complete; call again with more bytes behind the same ones
    kRequest,   ///< arguments() are ready and size() bytes of the input belong to them
    kError,     ///< error() says why; the stream cannot be read any further
  };

  /// `input` starts with the first byte of a request. After kRequest the next call starts anew.
  /// `authenticated` false applies kUnauthenticatedLimits.
  Result next(std::string_view input, const ParserLimits& limits, bool authenticated = true);

  /// Views into `input` (or into the parser for inline requests), valid until the next call of
  /// next() or a change of the input. Empty for an empty line and for "*0", which need no reply.
  std::span<const std::string_view> arguments() const noexcept { return arguments_; }
  std::size_t size() const noexcept { return position_; }
  /// "Protocol error: ...".
  const std::string& error() const noexcept { return error_; }
  /// How many more bytes the argument that is arriving needs; 0 if that is not known.
  std::size_t missing() const noexcept { return missing_; }

  // A large argument can go to memory of its own as it comes, past the input.
  /// After kNeedMore: the size of the argument that is arriving, which begins at size() in the
  /// input; 0 if there is none, or if it is the command's name.
  std::size_t large() const noexcept {
    return missing_ != 0 && !spans_.empty() && outside_.size == 0 ? bulk_size_ : 0;
  }
  /// The argument before it, which is its key if it is a value. `input` as given to next().
  std::string_view key_of_large(std::string_view input) const noexcept;
  /// What next() gets from now on has CR LF at size(), and it is called when the argument's bytes
  /// are where moved_to() says, until arguments() are not needed any more. Once for each request.
  void take_out() noexcept;
  void moved_to(const char* data) noexcept { outside_.data = data; }
  /// Bytes that it has allocated.
  std::size_t memory() const noexcept;
  /// Frees what an unusually long request left behind.
  void shrink();

 private:
  enum class Step { kStart, kInline, kCount, kBulk, kData };

  void restart() noexcept;
  Result fail(std::string text);
  Result parse_inline(std::string_view input, const ParserLimits& limits);
  Result parse_multibulk(std::string_view input, const ParserLimits& limits, bool authenticated);
  struct LengthErrors {
    const char *too_long, *bad_end, *invalid;
  };
  /// The number in the line at position_, behind its first character. Or the result that ends this
  /// call.
  std::optional<Result> take_length(std::string_view input, std::size_t limit,
                                    const LengthErrors& errors, std::int64_t& length);
  enum class Line { kNeedMore, kReady, kTooLong, kBadEnd };
  /// The line at position_ without its end, which must be CR LF.
  Line take_line(std::string_view input, std::size_t limit, std::string_view& line);

  Step step_ = Step::kStart;
  bool done_ = true;            ///< the next call starts a new request
  std::size_t position_ = 0;    ///< read up to here, from the request's first byte
  std::size_t scanned_ = 0;     ///< no end of line before this: a slow peer costs no rescans
  std::int64_t remaining_ = 0;  ///< bulks still to come
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
