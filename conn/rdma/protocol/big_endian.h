// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// put() and get(): write and read big-endian numbers in the bytes of a message.

#include <cstddef>
#include <cstdint>
#include <span>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Writes `value` in big-endian order to the first sizeof(Unsigned) bytes of `at`. `at` must have
/// at least that many bytes.
template <class Unsigned>
void put(std::span<std::byte> at, Unsigned value) noexcept {
  for (std::size_t i = 0; i < sizeof value; ++i)
    at[i] = static_cast<std::byte>((value >> (8 * (sizeof value - 1 - i))) & 0xff);
}

/// Reads a big-endian number from the first sizeof(Unsigned) bytes of `at`. `at` must have at least
/// that many bytes.
template <class Unsigned>
Unsigned get(std::span<const std::byte> at) noexcept {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i)
    value = static_cast<Unsigned>((std::uint64_t{value} << 8) | std::to_integer<unsigned>(at[i]));
  return value;
}

}}}  // namespace conn::rdma
