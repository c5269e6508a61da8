// SPDX-License-Identifier: BSD-3-Clause
#include "resp_parser.h"

#include <fmt/format.h>

#include <cstring>

namespace kv {
namespace {

bool ends_line(const char* at) noexcept { return std::memcmp(at, "\r\n", 2) == 0; }

/// Parses the usual length line: `type`, one to nine digits without a leading zero, CR LF. Moves
/// `at` behind it. Returns 0 for every other line.
inline std::size_t take_plain_length(const char*& at, const char* end, char type) noexcept {
  if (end - at < 4 || at[0] != type || at[1] < '1' || at[1] > '9') return 0;
  unsigned value = static_cast<unsigned>(at[1] - '0');
  for (at += 2; !ends_line(at); ++at) {
    const unsigned digit = static_cast<unsigned char>(*at) - unsigned{'0'};
    if (digit > 9 || value > 99'999'999 || end - at < 3) return 0;
    value = value * 10 + digit;
  }
  at += 2;
  return value;
}

}  // namespace

void RequestParser::restart() noexcept {
  step_ = Step::kStart;
  done_ = false;
  position_ = scanned_ = missing_ = 0;
  outside_.size = 0;
  spans_.clear();
  arguments_.clear();
}

RequestParser::Result RequestParser::fail(std::string text) {
  error_ = "Protocol error: " + std::move(text);
  done_ = true;
  return Result::kError;
}

RequestParser::Result RequestParser::next(std::string_view input, const ParserLimits& limits,
                                          bool authenticated) {
  if (done_) {
    if (authenticated && take_plain(input, limits)) return Result::kRequest;
    restart();
  }
  if (step_ == Step::kStart) {
    if (input.empty()) return Result::kNeedMore;
    step_ = input[0] == '*' ? Step::kCount : Step::kInline;
  }
  const Result result = step_ == Step::kInline ? parse_inline(input, limits)
                                               : parse_multibulk(input, limits, authenticated);
  if (result == Result::kRequest) done_ = true;
  return result;
}

/// Parses the usual request, whose arguments are not empty and all there. Returns false for every
/// other one, which is then parsed step by step.
inline bool RequestParser::take_plain(std::string_view input, const ParserLimits& limits) {
  const char* at = input.data();
  const char* const end = at + input.size();
  const std::size_t count = take_plain_length(at, end, '*');
  if (count == 0 || count > input.size() / 4) return false;  // each has more than four bytes
  if (count > static_cast<std::size_t>(limits.arguments)) return false;
  if (arguments_.size() != count) arguments_.resize(count);
  for (std::string_view& argument : arguments_) {
    const std::size_t size = take_plain_length(at, end, '$');
    if (size == 0 || size > static_cast<std::size_t>(limits.bulk)) return false;
    if (static_cast<std::size_t>(end - at) < size + 2) return false;
    argument = {at, size};
    at += size;
    if (!ends_line(at)) return false;
    at += 2;
  }
  position_ = static_cast<std::size_t>(at - input.data());
  return true;
}

RequestParser::Result RequestParser::parse_inline(std::string_view input,
                                                  const ParserLimits& limits) {
  const std::size_t end = input.find('\n', scanned_);
  // The limit is on the line, so that the result does not depend on how it was split.
  if ((end == std::string_view::npos ? input.size() : end) > limits.line) {
    return fail("too big inline request");
  }
  if (end == std::string_view::npos) {
    scanned_ = input.size();
    return Result::kNeedMore;
  }
  std::string_view line = input.substr(0, end);
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (!split_arguments(line, inline_text_, spans_)) return fail("unbalanced quotes in request");
  for (const TextSpan& span : spans_) {
    arguments_.emplace_back(inline_text_.data() + span.offset, span.size);
  }
  position_ = end + 1;
  return Result::kRequest;
}

RequestParser::Line RequestParser::take_line(std::string_view input, std::size_t limit,
                                             std::string_view& line) {
  const std::size_t from = scanned_ > position_ ? scanned_ : position_;
  const auto* found = static_cast<const char*>(
      from < input.size() ? std::memchr(input.data() + from, '\r', input.size() - from) : nullptr);
  const std::size_t end =
      found != nullptr ? static_cast<std::size_t>(found - input.data()) : input.size();
  if (end - position_ > limit) return Line::kTooLong;
  scanned_ = end;
  if (found == nullptr || end + 1 >= input.size()) return Line::kNeedMore;
  if (input[end + 1] != '\n') return Line::kBadEnd;
  line = input.substr(position_, end - position_);
  position_ = end + 2;
  return Line::kReady;
}

std::optional<RequestParser::Result> RequestParser::take_length(std::string_view input,
                                                                std::size_t limit,
                                                                const LengthErrors& errors,
                                                                std::int64_t& length) {
  std::string_view line;
  switch (take_line(input, limit, line)) {
    case Line::kNeedMore:
      return Result::kNeedMore;
    case Line::kTooLong:
      return fail(errors.too_long);
    case Line::kBadEnd:
      return fail(errors.bad_end);
    case Line::kReady:
      break;
  }
  const auto number = parse_integer(line.substr(1));
  if (!number) return fail(errors.invalid);
  length = *number;
  return std::nullopt;
}

RequestParser::Result RequestParser::parse_multibulk(std::string_view input,
                                                     const ParserLimits& limits,
                                                     bool authenticated) {
  static constexpr LengthErrors kCountErrors{"too big mbulk count string",
                                             "expected CR LF after the multibulk length",
                                             "invalid multibulk length"};
  static constexpr LengthErrors kBulkErrors{
      "too big bulk count string", "expected CR LF after the bulk length", "invalid bulk length"};
  if (step_ == Step::kCount) {
    std::int64_t count = 0;
    if (const auto stop = take_length(input, limits.line, kCountErrors, count)) return *stop;
    if (count > limits.arguments) return fail(kCountErrors.invalid);
    if (!authenticated && count > kUnauthenticatedLimits.arguments) {
      return fail("unauthenticated multibulk length");
    }
    remaining_ = count;
    if (remaining_ <= 0) return Result::kRequest;  // an empty request, without a reply
    step_ = Step::kBulk;
  }
  while (remaining_ > 0) {
    if (step_ == Step::kBulk) {
      if (position_ >= input.size()) return Result::kNeedMore;
      if (input[position_] != '$') {
        return fail(fmt::format("expected '$', got '{}'", input[position_]));
      }
      std::int64_t size = 0;
      if (const auto stop = take_length(input, limits.line, kBulkErrors, size)) return *stop;
      if (size < 0 || size > limits.bulk) return fail(kBulkErrors.invalid);
      if (!authenticated && size > kUnauthenticatedLimits.bulk) {
        return fail("unauthenticated bulk length");
      }
      bulk_size_ = static_cast<std::size_t>(size);
      step_ = Step::kData;
    }
    const std::size_t have = input.size() - position_;
    // The end is checked from its first byte on, so that the result does not depend on splits.
    const std::size_t end = position_ + bulk_size_;
    if (have > bulk_size_ &&
        (input[end] != '\r' || (end + 1 < input.size() && input[end + 1] != '\n'))) {
      return fail("expected CR LF after the bulk data");
    }
    if (have < bulk_size_ + 2) {
      missing_ = bulk_size_ + 2 - have;
      return Result::kNeedMore;
    }
    missing_ = 0;
    spans_.push_back({position_, bulk_size_});
    position_ += bulk_size_ + 2;
    step_ = Step::kBulk;
    --remaining_;
  }
  for (const TextSpan& span : spans_) {
    arguments_.emplace_back(input.data() + span.offset, span.size);
  }
  if (outside_.size != 0) arguments_[outside_.index] = {outside_.data, outside_.size};
  return Result::kRequest;
}

std::string_view RequestParser::key_of_large(std::string_view input) const noexcept {
  return input.substr(spans_.back().offset, spans_.back().size);
}

void RequestParser::take_out() noexcept {
  outside_ = {nullptr, spans_.size(), bulk_size_};
  bulk_size_ = 0;
  missing_ = 2;
}

void RequestParser::shrink() {
  if (!done_) return;
  // swap, since "= {}" keeps the capacity.
  std::vector<TextSpan>().swap(spans_);
  std::vector<std::string_view>().swap(arguments_);
  std::string().swap(inline_text_);
}

}  // namespace kv
