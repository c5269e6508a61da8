// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The client's side of RESP2 and RESP3: parses replies from a byte stream in pieces of any size.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

struct Reply {
  enum class Type {
    kStatus,
    kError,
    kInteger,
    kBulk,
    kNull,
    kArray,
    kMap,
    kSet,
    kPush,
    kDouble,
    kBoolean,
    kBigNumber,
    kVerbatim,
  };
  Type type = Type::kNull;
  std::string text;             ///< of all types with a text; doubles as they were sent
  std::int64_t integer = 0;     ///< integers, and booleans as 0 and 1
  std::vector<Reply> elements;  ///< of a map: key, value, key, value
};

class ReplyParser {
 public:
  enum class Result { kNeedMore, kReply, kError };
  static constexpr std::size_t kDeepest = 64;

  /// Parses on. In any case `used` bytes of `input` are consumed; the next call must start with the
  /// rest. Attributes ("|") are skipped.
  Result next(std::string_view input, std::size_t& used);
  /// The reply after kReply; may be moved from.
  Reply& reply() noexcept { return root_; }
  const std::string& error() const noexcept { return error_; }

 private:
  struct Frame {
    Reply* node;
    std::uint64_t remaining;
  };
  Result fail(std::string text);
  Result take_line(std::string_view line);
  /// Where the next value goes: the root, or a new element of the innermost aggregate.
  Reply& slot();
  /// Call when a value is complete; may complete the aggregates around it.
  void complete();
  bool begin_aggregate(Reply::Type type, std::int64_t size);

  Reply root_, attribute_;
  std::vector<Frame> stack_;
  Reply* bulk_ = nullptr;  ///< waits for bulk_size_ bytes and CR LF
  std::size_t bulk_size_ = 0;
  std::size_t scanned_ = 0;
  std::size_t attribute_depth_ = 0;  ///< stack size at which an attribute began, plus one
  bool done_ = true;
  std::string error_;
};

/// A request in RESP.
void append_request(std::string& out, const std::vector<std::string>& arguments);

}  // namespace kv
