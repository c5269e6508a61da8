// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many connections this process, machine and device have room for, computed before it fails.

#include <cstdint>
#include <string>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// One limit, and what connections of one endpoint's options make of it.
struct AECONN_API Capacity {
  std::string name;               ///< "locked memory (memlock)"
  std::uint64_t most = 0;         ///< the limit: bytes or a count
  std::uint64_t used = 0;         ///< of it, by this process, as far as that can be known
  std::uint64_t needed = 0;       ///< for as many connections as was asked for
  std::uint64_t connections = 0;  ///< so many have room; an estimate, rather too few than too many
  bool bytes = false;             ///< what the numbers count
  std::string raise;              ///< how to raise it, for a person

  /// Whether what is needed has room.
  bool enough() const noexcept { return used <= most && needed <= most - used; }
  /// "locked memory (memlock): 8192 KiB, 64 KiB used; 1000 connections of these options need 65536
  /// KiB, so there is room for 120: raise it with ...". Without the last part where it is enough.
  std::string text(std::uint64_t asked_for) const;
};

/// The limit of open files, for connections that have a descriptor each.
AECONN_API Capacity descriptor_capacity(std::uint64_t connections, std::uint64_t for_each);

}}  // namespace conn
