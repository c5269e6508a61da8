// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Arithmetic for estimates, whose operands a user chooses.

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns the sum; the largest number instead of one that is larger.
inline std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/// Returns the product; the largest number instead of one that is larger.
inline std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

}}  // namespace conn
