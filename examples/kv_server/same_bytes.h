// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Compares short texts, such as keys and the names of commands, without a call of memcmp().

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kv {

/// Whether the first and the last sizeof(Word) bytes of two texts are the same. Neither text may be
/// shorter than that.
template <class Word>
[[gnu::always_inline]] inline bool same_ends(const char* one, const char* other,
                                             std::size_t size) noexcept {
  Word first[2], last[2];
  std::memcpy(&first[0], one, sizeof(Word));
  std::memcpy(&first[1], other, sizeof(Word));
  std::memcpy(&last[0], one + size - sizeof(Word), sizeof(Word));
  std::memcpy(&last[1], other + size - sizeof(Word), sizeof(Word));
  return first[0] == first[1] && last[0] == last[1];
}

/// Whether two texts of `size` bytes are the same.
[[gnu::always_inline]] inline bool same_bytes(const char* one, const char* other,
                                              std::size_t size) noexcept {
  if (size > 16) return std::memcmp(one, other, size) == 0;
  if (size >= 8) return same_ends<std::uint64_t>(one, other, size);
  if (size >= 4) return same_ends<std::uint32_t>(one, other, size);
  if (size >= 2) return same_ends<std::uint16_t>(one, other, size);
  return size == 0 || *one == *other;
}

}  // namespace kv
