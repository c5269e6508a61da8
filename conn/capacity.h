// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Computes in advance how many connections the process, machine and device can hold.

#include <cstdint>
#include <string>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// One limit, and its effect on connections with the options of one endpoint.
struct AECONN_API Capacity {
  std::string name;               ///< "locked memory (memlock)"
  std::uint64_t most = 0;         ///< the limit: bytes or a count
  std::uint64_t used = 0;         ///< the part this process uses, as far as known
  std::uint64_t needed = 0;       ///< for the number of connections asked about
  std::uint64_t connections = 0;  ///< how many connections fit; an estimate, low rather than high
  bool bytes = false;             ///< whether the numbers count bytes
  std::string raise;              ///< how to raise the limit, as text for the user

  /// Whether the needed amount is available.
  bool enough() const noexcept { return used <= most && needed <= most - used; }
  /// "locked memory (memlock): 8192 KiB, 64 KiB used; 1000 connections of these options need 65536
  /// KiB, so there is room for 120: raise it with ...". The last part is omitted if it is enough().
  std::string text(std::uint64_t asked_for) const;
};

/// The limit of open files, for connections with `for_each` descriptors each.
AECONN_API Capacity descriptor_capacity(std::uint64_t connections, std::uint64_t for_each);

}}  // namespace conn
