// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// LoopCounters: the statistics that the library keeps for each transport on each loop.

#include <cstdint>

#include "ae/abi.h"
#include "conn/failure_kind.h"
#include "conn/histogram.h"

namespace conn { inline namespace AECONN_ABI {

/// Statistics of one transport's connections on one loop.
struct LoopCounters {
  std::uint64_t accepted = 0;   ///< number of connections accepted by listeners or adopted
  std::uint64_t connected = 0;  ///< number of connections established by connect()
  std::uint64_t failed = 0;     ///< number of connections that ended with an error
  /// Number of connections for which the program called close() or abort(), including failed ones.
  std::uint64_t closed = 0;
  /// Number of connections that exist now, including those that still deliver data after close().
  std::uint64_t open = 0;
  std::uint64_t bytes_read = 0;     ///< number of bytes that the program has read from connections
  std::uint64_t bytes_written = 0;  ///< number of bytes that the program has written to connections
  /// Number of writes that accepted fewer bytes than given, or none (EAGAIN). A tls connection and
  /// the connection of the transport below it are counted separately.
  std::uint64_t short_writes = 0;
  /// Number of pending connections that were lost, or were not accepted yet because the process had
  /// no free file descriptors.
  std::uint64_t accept_errors = 0;
  /// Number of pending connections that were refused because of option max-connections or, for tls,
  /// by the listener of the transport below.
  std::uint64_t refused = 0;
  /// For a list of schemes: number of connections that use another scheme than the list's first.
  std::uint64_t fallbacks = 0;
  FallbackCounts not_taken{};  ///< for a list of schemes: how often a scheme was skipped, by reason
  FallbackCounts not_connected{};  ///< number of failed connect() calls, by reason
  Histogram connect_time;  ///< durations from connect() until the connection was established
  /// Durations from the arrival of a pending connection until it was established, for transports
  /// with a step in between, such as a handshake.
  Histogram accept_time;
};

}}  // namespace conn
