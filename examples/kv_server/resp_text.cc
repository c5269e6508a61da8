// SPDX-License-Identifier: BSD-3-Clause
#include "resp_text.h"

#include <charconv>

namespace kv {
namespace {

bool is_space(char c) noexcept {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f';
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  const char l = lower(c);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

char unescape(char c) noexcept {
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'b':
      return '\b';
    case 'a':
      return '\a';
    default:
      return c;
  }
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) noexcept {
  if (text.empty()) return std::nullopt;
  const bool negative = text[0] == '-';
  const std::size_t first = negative ? 1 : 0;
  if (text == "0") return 0;
  if (first == text.size() || text[first] < '1' || text[first] > '9') return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::size_t format_integer(char* out, std::int64_t value) noexcept {
  return static_cast<std::size_t>(std::to_chars(out, out + 20, value).ptr - out);
}

std::optional<std::uint64_t> parse_memory(std::string_view text) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  static constexpr struct {
    std::string_view name;
    std::uint64_t factor;
  } kUnits[] = {{"", 1},           {"b", 1},           {"k", 1000},
                {"kb", 1u << 10},  {"m", 1000 * 1000}, {"mb", 1u << 20},
                {"g", 1000000000}, {"gb", 1u << 30}};
  for (const auto& known : kUnits) {
    if (!is_word(unit, known.name)) continue;
    if (value > UINT64_MAX / known.factor) return std::nullopt;
    return value * known.factor;
  }
  return std::nullopt;
}

bool split_arguments(std::string_view line, std::string& storage, std::vector<TextSpan>& spans) {
  storage.clear();
  spans.clear();
  std::size_t i = 0;
  const auto ends_here = [&](std::size_t at) { return at >= line.size() || is_space(line[at]); };
  for (;;) {
    while (i < line.size() && is_space(line[i])) ++i;
    if (i >= line.size()) return true;
    const std::size_t start = storage.size();
    char quoted = 0;
    for (;; ++i) {
      if (i >= line.size()) {
        if (quoted != 0) return false;
        break;
      }
      const char c = line[i];
      if (quoted == 0) {
        if (is_space(c) || c == '\0') {
          if (c == '\0') i = line.size();  // Redis reads the line as a C string
          break;
        }
        if (c == '"' || c == '\'')
          quoted = c;
        else
          storage += c;
      } else if (c == quoted) {
        if (!ends_here(i + 1)) return false;
        ++i;
        break;
      } else if (quoted == '"' && c == '\\' && i + 3 < line.size() && line[i + 1] == 'x' &&
                 hex_digit(line[i + 2]) >= 0 && hex_digit(line[i + 3]) >= 0) {
        storage += static_cast<char>(hex_digit(line[i + 2]) * 16 + hex_digit(line[i + 3]));
        i += 3;
      } else if (quoted == '"' && c == '\\' && i + 1 < line.size()) {
        storage += unescape(line[++i]);
      } else if (quoted == '\'' && c == '\\' && i + 1 < line.size() && line[i + 1] == '\'') {
        storage += line[++i];
      } else {
        storage += c;
      }
    }
    spans.push_back({start, storage.size() - start});
  }
}

std::string list_field(std::string text) noexcept {
  for (char& c : text) c = c == ' ' ? '_' : c < '!' || c > '~' ? '?' : c;
  return text;
}

bool equals_constant_time(std::string_view a, std::string_view b) noexcept {
  // Reads as many bytes as `a` has, which the client sent, independent of `b`.
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(other);
  }
  volatile unsigned result = difference;
  return result == 0;
}

}  // namespace kv
