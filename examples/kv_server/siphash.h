// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SipHash-1-3: a keyed hash. Without the seed a peer cannot choose keys that share one bucket.

#include <cstdint>
#include <cstring>
#include <string_view>

namespace kv {

struct HashSeed {
  std::uint64_t k0 = 0, k1 = 0;
  static HashSeed random();
};

inline std::uint64_t siphash13(std::string_view bytes, const HashSeed& seed) noexcept {
  std::uint64_t v0 = seed.k0 ^ 0x736f6d6570736575u, v1 = seed.k1 ^ 0x646f72616e646f6du;
  std::uint64_t v2 = seed.k0 ^ 0x6c7967656e657261u, v3 = seed.k1 ^ 0x7465646279746573u;
  const auto rotate = [](std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); };
  const auto round = [&] {
    v0 += v1;
    v1 = rotate(v1, 13);
    v1 ^= v0;
    v0 = rotate(v0, 32);
    v2 += v3;
    v3 = rotate(v3, 16);
    v3 ^= v2;
    v0 += v3;
    v3 = rotate(v3, 21);
    v3 ^= v0;
    v2 += v1;
    v1 = rotate(v1, 17);
    v1 ^= v2;
    v2 = rotate(v2, 32);
  };
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    v3 ^= word;
    round();
    v0 ^= word;
  }
  std::uint64_t tail = static_cast<std::uint64_t>(bytes.size()) << 56;
  for (std::size_t i = 0; i < left; ++i) {
    tail |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[i])) << (8 * i);
  }
  v3 ^= tail;
  round();
  v0 ^= tail;
  v2 ^= 0xff;
  round();
  round();
  round();
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace kv
