// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Computes in advance how many connections the process, the machine and a device can hold.

#include <cstdint>
#include <string>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// One limit of the system, and how many connections to one endpoint it allows with the endpoint's
/// options.
struct AECONN_API Capacity {
  std::string name;          ///< name of this limit, for people: "locked memory (memlock)"
  std::uint64_t most = 0;    ///< value of this limit, in bytes or as a count
  std::uint64_t used = 0;    ///< the part of `most` that this process already uses, as far as known
  std::uint64_t needed = 0;  ///< the part of `most` that the requested number of connections needs
  /// Number of connections that the unused part of the limit allows: an estimate, rather too low
  /// than too high.
  std::uint64_t connections = 0;
  bool bytes = false;  ///< true if `most`, `used` and `needed` are bytes, not counts
  std::string raise;   ///< tells the user how to raise this limit, as a part of a sentence

  /// Returns whether the part of the limit that is not used yet covers what is needed.
  bool enough() const noexcept { return used <= most && needed <= most - used; }
  /// Describes the limit: "locked memory (memlock): 8192 KiB, 64 KiB used; 1000 connections of
  /// these options need 65536 KiB, so there is room for 120: raise it with ...". The part after
  /// "65536 KiB" is omitted if enough() is true. `asked_for`: the number of connections, here 1000.
  std::string text(std::uint64_t asked_for) const;
};

/// Returns the limit on open file descriptors, what `connections` connections need of it, and how
/// many it allows, if each connection uses `for_each` descriptors.
AECONN_API Capacity descriptor_capacity(std::uint64_t connections, std::uint64_t for_each);

}}  // namespace conn
