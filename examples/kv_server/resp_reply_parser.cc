// SPDX-License-Identifier: BSD-3-Clause
#include "resp_reply_parser.h"

#include <fmt/format.h>

#include <charconv>

namespace kv {
namespace {

using Type = Reply::Type;

bool parse_number(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

ReplyParser::Result ReplyParser::fail(std::string text) {
  error_ = std::move(text);
  return Result::kError;
}

ReplyParser::Result ReplyParser::next(std::string_view input, std::size_t& used) {
  used = 0;
  if (!error_.empty()) return Result::kError;
  if (done_) {
    root_ = Reply{};
    done_ = false;
  }
  for (;;) {
    const std::string_view rest = input.substr(used);
    if (bulk_ != nullptr) {
      if (rest.size() < bulk_size_ + 2) return Result::kNeedMore;
      if (rest.substr(bulk_size_, 2) != "\r\n") return fail("a bulk reply does not end in CR LF");
      bulk_->text.assign(rest, 0, bulk_size_);
      if (bulk_->type == Type::kVerbatim && bulk_size_ >= 4) bulk_->text.erase(0, 4);  // "txt:"
      bulk_ = nullptr;
      used += bulk_size_ + 2;
      complete();
    } else {
      const std::size_t end = rest.find('\n', scanned_);
      if (end == std::string_view::npos) {
        scanned_ = rest.size();
        return Result::kNeedMore;
      }
      scanned_ = 0;
      if (end < 2 || rest[end - 1] != '\r') return fail("a reply line does not end in CR LF");
      if (take_line(rest.substr(0, end - 1)) == Result::kError) return Result::kError;
      used += end + 1;
    }
    if (done_) return Result::kReply;
  }
}

Reply& ReplyParser::slot() {
  if (stack_.empty()) return root_;
  return stack_.back().node->elements.emplace_back();
}

void ReplyParser::complete() {
  while (!stack_.empty()) {
    if (--stack_.back().remaining > 0) return;
    stack_.pop_back();
    if (attribute_depth_ == stack_.size() + 1) {  // the attribute ends, its value comes now
      attribute_depth_ = 0;
      attribute_ = Reply{};
      return;
    }
  }
  done_ = true;
}

bool ReplyParser::begin_aggregate(Type type, std::int64_t size) {
  if (stack_.size() >= kDeepest) return false;
  Reply& node = slot();
  node.type = type;
  if (size == 0)
    complete();
  else
    stack_.push_back({&node, static_cast<std::uint64_t>(size)});
  return true;
}

ReplyParser::Result ReplyParser::take_line(std::string_view line) {
  const char kind = line[0];
  const std::string_view text = line.substr(1);
  const auto scalar = [&](Type type) {
    Reply& reply = slot();
    reply.type = type;
    reply.text = text;
    complete();
    return Result::kReply;
  };
  std::int64_t number = 0;
  switch (kind) {
    case '+':
      return scalar(Type::kStatus);
    case '-':
      return scalar(Type::kError);
    case ',':
      return scalar(Type::kDouble);
    case '(':
      return scalar(Type::kBigNumber);
    case '_':
      return scalar(Type::kNull);
    case ':':
    case '#': {
      if (kind == '#' && text != "t" && text != "f") return fail("a boolean is neither t nor f");
      if (kind == ':' && !parse_number(text, number)) return fail("a reply has a bad integer");
      Reply& reply = slot();
      reply.type = kind == ':' ? Type::kInteger : Type::kBoolean;
      reply.integer = kind == ':' ? number : text == "t";
      complete();
      return Result::kReply;
    }
    default:
      break;
  }
  static constexpr std::string_view kSized = "$=!*~>%|";
  if (kSized.find(kind) == std::string_view::npos) {
    return fail(fmt::format("a reply starts with the unknown byte 0x{:02x}",
                            static_cast<unsigned char>(kind)));
  }
  if (!parse_number(text, number) || number < -1 || number > INT64_MAX / 4) {
    return fail("a reply has a bad length");
  }
  if (number == -1) {
    slot().type = Type::kNull;
    complete();
    return Result::kReply;
  }
  if (kind == '$' || kind == '=' || kind == '!') {
    bulk_ = &slot();
    bulk_->type = kind == '$' ? Type::kBulk : kind == '=' ? Type::kVerbatim : Type::kError;
    bulk_size_ = static_cast<std::size_t>(number);
    return Result::kNeedMore;
  }
  bool shallow = true;
  if (kind == '|') {
    if (attribute_depth_ != 0) return fail("an attribute inside an attribute");
    if (number == 0) return Result::kNeedMore;
    attribute_ = Reply{};
    attribute_depth_ = stack_.size() + 1;
    if (stack_.size() >= kDeepest) return fail("a reply is nested too deeply");
    stack_.push_back({&attribute_, static_cast<std::uint64_t>(2 * number)});
  } else {
    const Type type = kind == '*'   ? Type::kArray
                      : kind == '~' ? Type::kSet
                      : kind == '>' ? Type::kPush
                                    : Type::kMap;
    shallow = begin_aggregate(type, kind == '%' ? 2 * number : number);
  }
  return shallow ? Result::kNeedMore : fail("a reply is nested too deeply");
}

void append_request(std::string& out, const std::vector<std::string>& arguments) {
  out += fmt::format("*{}\r\n", arguments.size());
  for (const std::string& argument : arguments) {
    out += fmt::format("${}\r\n", argument.size());
    out += argument;
    out += "\r\n";
  }
}

}  // namespace kv
