// SPDX-License-Identifier: BSD-3-Clause
#include "resp_reply.h"

#include <fmt/format.h>

#include <charconv>

#include "conn/error.h"

namespace kv {
namespace {

using Type = Reply::Type;

bool parse_number(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

}  // namespace

ReplyParser::Result ReplyParser::next(std::string_view input, std::size_t& used) {
  used = 0;
  if (!error_.empty()) return Result::kError;
  if (done_) root_ = Reply{};
  done_ = false;
  while (!done_) {
    const std::string_view rest = input.substr(used);
    if (bulk_ != nullptr) {
      if (rest.size() < bulk_size_ + 2) return Result::kNeedMore;
      if (rest.substr(bulk_size_, 2) != "\r\n") {
        error_ = "a bulk reply does not end in CR LF";
        return Result::kError;
      }
      bulk_->text.assign(rest, 0, bulk_size_);
      if (verbatim_ && bulk_size_ >= 4) bulk_->text.erase(0, 4);
      bulk_ = nullptr;
      used += bulk_size_ + 2;
      complete();
      continue;
    }
    const std::size_t end = rest.find('\n', scanned_);
    scanned_ = end == std::string_view::npos ? rest.size() : 0;
    if (end == std::string_view::npos) return Result::kNeedMore;
    error_ = end < 2 || rest[end - 1] != '\r' ? "a reply line does not end in CR LF"
                                              : take_line(rest.substr(0, end - 1));
    if (!error_.empty()) return Result::kError;
    used += end + 1;
  }
  return Result::kReply;
}

Reply& ReplyParser::slot(Type type) {
  Reply& reply = stack_.empty() ? root_ : stack_.back().node->elements.emplace_back();
  reply.type = type;
  return reply;
}

void ReplyParser::complete() {
  while (!stack_.empty()) {
    if (--stack_.back().remaining > 0) return;
    stack_.pop_back();
  }
  done_ = true;
}

std::string ReplyParser::take_line(std::string_view line) {
  static constexpr std::string_view kSized = "$=!*~>%";
  const char kind = line[0];
  const std::string_view text = line.substr(1);
  std::int64_t number = 0;
  switch (kind) {
    case '+':
    case ',':
    case '(':
    case '-':
      slot(kind == '-' ? Type::kError : Type::kStatus).text = text;
      complete();
      return {};
    case '#':
      if (text != "t" && text != "f") return "a boolean is neither t nor f";
      slot(Type::kInteger).integer = text == "t";
      complete();
      return {};
    case ':':
      if (!parse_number(text, number)) return "a reply has a bad integer";
      slot(Type::kInteger).integer = number;
      complete();
      return {};
    case '_':
      slot(Type::kNull);
      complete();
      return {};
    default:
      break;
  }
  if (kSized.find(kind) == std::string_view::npos) {
    return fmt::format("a reply starts with the unknown byte 0x{:02x}",
                       static_cast<unsigned char>(kind));
  }
  if (!parse_number(text, number) || number < -1 || number > INT64_MAX / 4)
    return "a reply has a bad length";
  if (number == -1) {
    slot(Type::kNull);
    complete();
  } else if (kind == '$' || kind == '=' || kind == '!') {
    bulk_ = &slot(kind == '!' ? Type::kError : Type::kBulk);
    bulk_size_ = static_cast<std::size_t>(number);
    verbatim_ = kind == '=';
  } else if (stack_.size() >= kDeepest) {
    return "a reply is nested too deeply";
  } else {
    Reply& node = slot(kind == '>' ? Type::kPush : Type::kArray);
    if (number == 0)
      complete();
    else
      stack_.push_back({&node, static_cast<std::uint64_t>(kind == '%' ? 2 * number : number)});
  }
  return {};
}

std::string format_reply(const Reply& reply) {
  switch (reply.type) {
    case Type::kInteger:
      return fmt::format("{}", reply.integer);
    case Type::kError:
      return conn::printable(reply.text);
    case Type::kArray:
    case Type::kPush: {
      std::string out;
      for (const Reply& each : reply.elements) {
        if (&each != reply.elements.data()) out += '\n';
        out += format_reply(each);
      }
      return out;
    }
    default:
      return reply.text;
  }
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
