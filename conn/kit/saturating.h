// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Arithmetic that does not wrap around, for estimates from numbers that a user chooses.

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns a + b; UINT64_MAX if the sum does not fit in 64 bits.
inline std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/// Returns a * b; UINT64_MAX if the product does not fit in 64 bits.
inline std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

}}  // namespace conn
