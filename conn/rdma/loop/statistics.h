// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Counters of an event loop's RDMA state: for the whole loop, and for each device.

#include <cstdint>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct LoopStatistics {
  std::uint64_t cm_events = 0, doorbells = 0, work_requests = 0, control_sent = 0;
  /// Number of those `work_requests` that contain their data (IBV_SEND_INLINE).
  std::uint64_t inline_sends = 0;
  std::uint64_t control_received = 0, protocol_errors = 0, peers_dead = 0, rejected = 0;
  std::uint64_t windows = 0;
  std::uint64_t control_floods = 0, peer_windows_refused = 0, memory_refusals = 0;
  std::uint64_t bytes_copied_in = 0, bytes_copied_out = 0;
  /// Numbers of times that a connection with bytes to send had to wait, by reason (enum Stall).
  std::uint64_t stalls_window = 0, stalls_receives = 0, stalls_send_queue = 0;
  /// resumes: continuations of a connection on a new network path. lost: connections that have no
  /// path now. resumes_refused: refused requests for a new path. bytes_resent: bytes that were sent
  /// again.
  std::uint64_t resumes = 0, lost = 0, resumes_refused = 0, bytes_resent = 0;
  /// Number of sessions (connections that can resume) that ended at the request of a peer that
  /// closed while its network path was lost.
  std::uint64_t forgotten = 0;
  /// Result of the check of the system's limits when the last listener was started.
  /// room_for_connections: number of connections that the lowest limit allows; 0: unknown.
  /// limits_too_low: number of limits that are too low for the configured number of connections.
  std::uint64_t room_for_connections = 0, limits_too_low = 0;
};

/// Counters of one DeviceContext (what the connections of one loop share on one device).
struct ContextCounters {
  std::uint64_t completions = 0, completion_events = 0, arms = 0, async_events = 0;
  std::uint64_t receive_shortages = 0, receives_lost = 0;
  ContextCounters& operator+=(const ContextCounters& other) noexcept {
    completions += other.completions;
    completion_events += other.completion_events;
    arms += other.arms;
    async_events += other.async_events;
    receive_shortages += other.receive_shortages;
    receives_lost += other.receives_lost;
    return *this;
  }
};

}}}  // namespace conn::rdma
