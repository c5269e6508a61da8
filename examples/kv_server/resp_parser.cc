// SPDX-License-Identifier: BSD-3-Clause
#include "resp_parser.h"

#include <fmt/format.h>

#include <cstring>

namespace kv {

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

RequestParser::Result RequestParser::next_in_steps(std::string_view input,
                                                   const ParserLimits& limits, bool authenticated) {
  if (done_) restart();
  if (step_ == Step::kStart) {
    if (input.empty()) return Result::kNeedMore;
    step_ = input[0] == '*' ? Step::kCount : Step::kInline;
  }
  const Result result = step_ == Step::kInline ? parse_inline(input, limits)
                                               : parse_multibulk(input, limits, authenticated);
  if (result == Result::kRequest) done_ = true;
  return result;
}

bool RequestParser::set_count(std::size_t count, std::size_t bytes) {
  if (count > bytes / 4) return false;  // each argument takes more than four bytes
  arguments_.resize(count);
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
