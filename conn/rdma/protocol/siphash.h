// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, "SipHash: a fast short-input PRF",
// 2012). It authenticates short messages and needs no cryptography library.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

using SipKey = std::array<std::byte, 16>;
using SipHash = std::array<std::byte, 16>;

/// Returns the SipHash-2-4 of `bytes` with 128 bits of output, in the byte order of the reference
/// test vectors. `bytes` may have any length. Allocates no memory.
SipHash siphash128(const SipKey& key, std::span<const std::byte> bytes) noexcept;

/// Computes the SipHash-2-4 (128 bits) of data in several pieces, which are passed to add() in
/// order. The object contains state derived from the key, so keep it as secret as the key.
class SipHasher {
 public:
  explicit SipHasher(const SipKey& key) noexcept;
  void add(std::span<const std::byte> bytes) noexcept;
  /// Returns the hash of all bytes that were added. Call it once; no other function may be called
  /// after it.
  SipHash finish() noexcept;

 private:
  void rounds(int count) noexcept;
  void compress(std::uint64_t word) noexcept;

  std::array<std::uint64_t, 4> state_;
  std::uint64_t pending_ = 0;  // up to 7 bytes that do not fill a word yet, the first one lowest
  std::uint8_t length_ = 0;    // number of bytes added so far, modulo 256
};

/// Returns true if the two hashes are equal. The running time does not depend on where they differ,
/// so it reveals nothing about a secret hash.
bool equal_in_constant_time(const SipHash& a, const SipHash& b) noexcept;

}}}  // namespace conn::rdma
