// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the core counts for each transport on each loop.

#include <cstdint>

#include "ae/abi.h"
#include "conn/failure_kind.h"
#include "conn/histogram.h"

namespace conn { inline namespace AECONN_ABI {

/// Counters of one type on one loop.
struct LoopCounters {
  std::uint64_t accepted = 0;       ///< accepted or adopted
  std::uint64_t connected = 0;      ///< established by connect()
  std::uint64_t failed = 0;         ///< ended by an error
  std::uint64_t closed = 0;         ///< closed by close() or abort(), also after a failure
  std::uint64_t open = 0;           ///< connections that exist now, including those that linger
  std::uint64_t bytes_read = 0;     ///< by the program
  std::uint64_t bytes_written = 0;  ///< by the program
  /// Writes that took less than they were given, or nothing (EAGAIN). Connections of tls and of the
  /// transport below it are counted separately.
  std::uint64_t short_writes = 0;
  /// Pending connections lost, or deferred because descriptors ran out.
  std::uint64_t accept_errors = 0;
  std::uint64_t refused = 0;    ///< pending connections beyond max-connections
  std::uint64_t fallbacks = 0;  ///< list of schemes: connections by another scheme than the first
  FallbackCounts not_taken{};   ///< schemes of a list that were not taken, by reason
  FallbackCounts not_connected{};  ///< failed connect() calls, by reason
  Histogram connect_time;          ///< from connect() until established
  /// From the pending connection until established, if there is a step in between.
  Histogram accept_time;
};

}}  // namespace conn
