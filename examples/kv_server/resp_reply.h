// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The client's side of RESP2 and RESP3: parses replies from a byte stream in pieces of any size,
// and prints them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

struct Reply {
  enum class Type {
    kStatus,  ///< also a double or a big number
    kError,
    kInteger,  ///< also a boolean
    kBulk,     ///< also a verbatim text
    kNull,
    kArray,  ///< also a set; a map is key, value, key, value
    kPush,
  };
  Type type = Type::kNull;
  std::string text;          ///< of all types with a text
  std::int64_t integer = 0;  ///< of kInteger
  std::vector<Reply> elements;
};

class ReplyParser {
 public:
  enum class Result { kNeedMore, kReply, kError };
  static constexpr std::size_t kDeepest = 64;

  /// Parses further bytes. Whatever the result, `used` bytes of `input` are consumed; the next call
  /// must start with the bytes after them.
  Result next(std::string_view input, std::size_t& used);
  /// The reply after kReply; may be moved from.
  Reply& reply() noexcept { return root_; }
  const std::string& error() const noexcept { return error_; }

 private:
  struct Frame {
    Reply* node;
    std::uint64_t remaining;
  };
  /// Returns the reason of a refusal, or "".
  std::string take_line(std::string_view line);
  /// Where the next value goes: the root, or a new element of the innermost aggregate.
  Reply& slot(Reply::Type type);
  /// Call when a value is complete; may complete the aggregates around it.
  void complete();

  Reply root_;
  std::vector<Frame> stack_;
  Reply* bulk_ = nullptr;  ///< waits for bulk_size_ bytes and CR LF
  bool verbatim_ = false;  ///< the bulk starts with its format, "txt:"
  std::size_t bulk_size_ = 0;
  std::size_t scanned_ = 0;
  bool done_ = true;
  std::string error_;
};

/// Returns the reply as redis-cli prints it into a pipe, without the final line end.
std::string format_reply(const Reply& reply);
/// Appends a request in RESP to `out`.
void append_request(std::string& out, const std::vector<std::string>& arguments);

}  // namespace kv
