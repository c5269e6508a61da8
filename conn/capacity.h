// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Computes in advance how many connections the process, the machine and a device can hold.

#include <cstdint>
#include <string>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// One limit of the system, and how many connections with the options of one endpoint it allows.
struct AECONN_API Capacity {
  std::string name;               ///< name of the limit: "locked memory (memlock)"
  std::uint64_t most = 0;         ///< the limit: bytes or a count
  std::uint64_t used = 0;         ///< what this process already uses of it, as far as known
  std::uint64_t needed = 0;       ///< what the number of connections asked about needs
  std::uint64_t connections = 0;  ///< how many connections fit; an estimate, low rather than high
  bool bytes = false;             ///< whether the numbers count bytes
  std::string raise;              ///< how to raise the limit, as text for the user

  /// Whether what is needed is still available below the limit.
  bool enough() const noexcept { return used <= most && needed <= most - used; }
  /// Describes the limit: "locked memory (memlock): 8192 KiB, 64 KiB used; 1000 connections of
  /// these options need 65536 KiB, so there is room for 120: raise it with ...". The part after
  /// "65536 KiB" is omitted if enough() is true. `asked_for`: the number of connections.
  std::string text(std::uint64_t asked_for) const;
};

/// Returns the limit on open descriptors, and how many connections with `for_each` descriptors each
/// it allows.
AECONN_API Capacity descriptor_capacity(std::uint64_t connections, std::uint64_t for_each);

}}  // namespace conn
