// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ConnectionBlock: one block of memory that contains a connection and its Carrier.

#include <atomic>
#include <cstddef>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The block of memory that holds a connection and the Carrier that was made with it. It is freed
/// when both are destroyed, in either order, because a connection can change its Carrier.
class AECONN_API ConnectionBlock {
 public:
  /// Allocates memory for a connection together with a Carrier of `size_of_carrier` bytes. Throws
  /// std::bad_alloc.
  static ConnectionBlock& allocate(std::size_t size_of_carrier);
  static ConnectionBlock& of_core(void* core) noexcept;
  static ConnectionBlock& of_carrier(void* carrier) noexcept;
  void* core() noexcept;
  void* carrier() noexcept;
  /// Records that the connection, or the Carrier, was destroyed. To be called once for each of the
  /// two; the second call frees the memory.
  void part_gone() noexcept;

 private:
  std::atomic<std::size_t> parts_{2};
};

}}  // namespace conn
