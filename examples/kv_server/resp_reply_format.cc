// SPDX-License-Identifier: BSD-3-Clause
// Prints replies in the format of redis-cli, so that scripts work with both.
#include "resp_reply_format.h"

#include <fmt/format.h>

#include "conn/error.h"
#include "resp_text.h"

namespace kv {
namespace {

using Type = Reply::Type;

std::string_view empty_text(Type type) {
  switch (type) {
    case Type::kMap:
      return "(empty hash)\n";
    case Type::kSet:
      return "(empty set)\n";
    case Type::kPush:
      return "(empty push)\n";
    default:
      return "(empty array)\n";
  }
}

std::string format(const Reply& reply, const std::string& prefix);

std::string format_elements(const Reply& reply, const std::string& prefix) {
  if (reply.elements.empty()) return std::string(empty_text(reply.type));
  const bool map = reply.type == Type::kMap;
  const char mark = map ? '#' : reply.type == Type::kSet ? '~' : ')';
  const std::size_t count = map ? reply.elements.size() / 2 : reply.elements.size();
  const std::size_t width = fmt::formatted_size("{}", count);
  const std::string inner = prefix + std::string(width + 2, ' ');
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    // The caller has written the outer index in place of the first element's prefix.
    out += fmt::format("{}{:>{}}{} ", i == 0 ? "" : prefix, i + 1, width, mark);
    if (!map) {
      out += format(reply.elements[i], inner);
      continue;
    }
    out += format(reply.elements[2 * i], inner);
    out.pop_back();
    out += " => " + format(reply.elements[2 * i + 1], inner);
  }
  return out;
}

std::string format(const Reply& reply, const std::string& prefix) {
  switch (reply.type) {
    case Type::kVerbatim:
      return reply.text + '\n';
    case Type::kStatus:
    case Type::kBigNumber:
      return conn::printable(reply.text) + '\n';
    case Type::kError:
      return fmt::format("(error) {}\n", conn::printable(reply.text));
    case Type::kInteger:
      return fmt::format("(integer) {}\n", reply.integer);
    case Type::kDouble:
      return fmt::format("(double) {}\n", conn::printable(reply.text));
    case Type::kBoolean:
      return reply.integer != 0 ? "(true)\n" : "(false)\n";
    case Type::kNull:
      return "(nil)\n";
    case Type::kBulk:
      return quote(reply.text) + '\n';
    default:
      return format_elements(reply, prefix);
  }
}

}  // namespace

std::string format_reply(const Reply& reply) { return format(reply, ""); }

std::string format_reply_raw(const Reply& reply) {
  switch (reply.type) {
    case Type::kNull:
      return {};
    case Type::kInteger:
      return fmt::format("{}", reply.integer);
    case Type::kBoolean:
      return reply.integer != 0 ? "(true)" : "(false)";
    case Type::kArray:
    case Type::kSet:
    case Type::kPush:
    case Type::kMap: {
      std::string out;
      for (std::size_t i = 0; i < reply.elements.size(); ++i) {
        if (i > 0) out += reply.type == Type::kMap && i % 2 == 1 ? ' ' : '\n';
        out += format_reply_raw(reply.elements[i]);
      }
      return out;
    }
    case Type::kError:
      return conn::printable(reply.text);
    default:
      return reply.text;
  }
}

}  // namespace kv
