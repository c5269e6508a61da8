// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The memory of a connection.

#include <cstddef>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The memory of a connection and of the carrier that was made with it. Either may go first: a
/// connection can change its carrier.
class AECONN_API ConnectionBlock {
 public:
  /// Throws std::bad_alloc.
  static ConnectionBlock& allocate(std::size_t size_of_carrier);
  static ConnectionBlock& of_core(void* core) noexcept;
  static ConnectionBlock& of_carrier(void* carrier) noexcept;
  void* core() noexcept;
  void* carrier() noexcept;
  void part_gone() noexcept;  ///< called once for the connection and once for the carrier

 private:
  std::size_t parts_ = 2;
};

}}  // namespace conn
