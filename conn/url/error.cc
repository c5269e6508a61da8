// SPDX-License-Identifier: BSD-3-Clause
#include "conn/error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace conn { inline namespace AECONN_ABI {
namespace {

/// Returns whether printing this non-ASCII character would control a terminal, end a line or change
/// the direction of text.
bool acts(std::uint32_t point) noexcept {
  return point < 0xa0 || point == 0x2028 || point == 0x2029 || point == 0x200e || point == 0x200f ||
         (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

/// Returns the length in bytes of the multi-byte character at the start of `text` (RFC 3629); 0 if
/// it is invalid, or acts() is true for it, so that it must not be printed.
std::size_t shown_bytes(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  const std::size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  std::uint32_t point = first & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((at(i) & 0xc0U) != 0x80) return 0;
    point = point << 6 | (at(i) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  return point < kLeast[size] || point > 0x10ffff || surrogate || acts(point) ? 0 : size;
}

}  // namespace

std::string printable(std::string text) noexcept {
  const auto plain = [](unsigned char c) { return c >= ' ' && c < 0x7f; };
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t size = plain(static_cast<unsigned char>(text[i]))
                                 ? 1
                                 : shown_bytes({text.data() + i, text.size() - i});
    if (size == 0) text[i] = '?';
    i += std::max<std::size_t>(size, 1);
  }
  return text;
}

std::string errno_text(int err) { return std::generic_category().message(err); }

Failure errno_failure(int err, const std::string& what) {
  return {std::error_code(err, std::generic_category()), what + ": " + errno_text(err)};
}

Error errno_error(int err, const std::string& what) {
  return {std::error_code(err, std::generic_category()), what + ": " + errno_text(err)};
}

Failure out_of_memory() noexcept {
  return {std::make_error_code(std::errc::not_enough_memory), "out of memory"};
}

}}  // namespace conn
