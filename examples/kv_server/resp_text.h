// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Numbers, sizes and quoting by Redis's rules. Pure functions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// The bytes that a string has allocated; a short string allocates none.
inline std::size_t heap_bytes(const std::string& text) noexcept {
  return text.capacity() > std::string().capacity() ? text.capacity() + 1 : 0;
}

inline char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
/// Whether `text` is `word` in upper or lower case. `word` must be in lower case.
inline bool is_word(std::string_view text, std::string_view word) noexcept {
  if (text.size() != word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (lower(text[i]) != word[i]) return false;
  }
  return true;
}

/// A decimal integer exactly as Redis prints it: no '+', no leading zeros, no "-0", no spaces.
std::optional<std::int64_t> parse_integer(std::string_view text) noexcept;
/// Writes digits at `out` (room for 20 characters) and returns how many.
std::size_t format_integer(char* out, std::int64_t value) noexcept;
/// The same for the length of a text, of which most have less than 100 bytes.
inline std::size_t format_length(char* out, std::size_t length) noexcept {
  if (length >= 100) [[unlikely]]
    return format_integer(out, static_cast<std::int64_t>(length));
  if (length < 10) {
    out[0] = static_cast<char>('0' + length);
    return 1;
  }
  const auto short_length = static_cast<unsigned>(length);
  out[0] = static_cast<char>('0' + short_length / 10);
  out[1] = static_cast<char>('0' + short_length % 10);
  return 2;
}

/// Parses a size in bytes: "100", "100k" (1000), "100kb" (1024), and with m, mb, g, gb, b.
std::optional<std::uint64_t> parse_memory(std::string_view text) noexcept;
/// Splits a line into arguments: "..." with \n \r \t \b \a \xHH and \c escapes, '...' with \',
/// separated by blanks. The arguments' bytes are appended to `storage` and their
/// (offset, size) into `spans`. False for unbalanced quotes or text right after a closing quote.
struct TextSpan {
  std::size_t offset, size;
};
bool split_arguments(std::string_view line, std::string& storage, std::vector<TextSpan>& spans);

/// For lines of fields separated by spaces, as of CLIENT LIST: a space becomes '_', and any other
/// character that is not printable ASCII becomes '?'.
std::string list_field(std::string text) noexcept;

/// The time does not depend on where the texts differ.
bool equals_constant_time(std::string_view a, std::string_view b) noexcept;

}  // namespace kv
