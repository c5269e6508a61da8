// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// LoopCounters: what the core of conn/ counts for each transport on each loop.

#include <cstdint>

#include "ae/abi.h"
#include "conn/failure_kind.h"
#include "conn/histogram.h"

namespace conn { inline namespace AECONN_ABI {

/// Counters of one transport on one loop.
struct LoopCounters {
  std::uint64_t accepted = 0;   ///< connections accepted or adopted
  std::uint64_t connected = 0;  ///< connections established by connect()
  std::uint64_t failed = 0;     ///< connections that ended with an error
  /// Connections that close() or abort() was called for, including failed ones.
  std::uint64_t closed = 0;
  /// Connections that exist now, including those that linger after close().
  std::uint64_t open = 0;
  std::uint64_t bytes_read = 0;     ///< bytes that the program has read
  std::uint64_t bytes_written = 0;  ///< bytes that the program has written
  /// Writes that accepted fewer bytes than given, or none (EAGAIN). A tls connection and the
  /// connection of the transport below it are counted separately.
  std::uint64_t short_writes = 0;
  /// Pending connections that were lost, or were deferred because the process had no descriptors
  /// left.
  std::uint64_t accept_errors = 0;
  std::uint64_t refused = 0;  ///< pending connections refused because of max-connections
  /// For a list of schemes: connections established over another scheme than the first.
  std::uint64_t fallbacks = 0;
  FallbackCounts not_taken{};      ///< skipped schemes of a list, by reason
  FallbackCounts not_connected{};  ///< failed connect() calls, by reason
  Histogram connect_time;          ///< time from connect() until the connection is established
  /// Time from the pending connection until it is established, for transports with a step in
  /// between.
  Histogram accept_time;
};

}}  // namespace conn
