// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Flow control: every number on which the two ends of a connection must agree, and why they fit.
//
// Each message consumes one receive of the peer. The peer announces how many it has (`told`); a
// plain peer has kPlainReceives. The sender counts the messages that are not yet proven handled:
//
//   probe      Once probe_at(told) messages are unproven the sender sends a probe, one at a time.
//              The answer proves all messages before the probe, so at least probe_at(told) other
//              messages lie between two probes. The receiver knows `told` and counts messages, so
//              it knows when a probe is due; probes that are due are free, at any rate.
//   data       Stops at told - reserve(told) unproven messages. A probe is due before that, so the
//              answer always comes. The reserve covers every control message that may be
//              unhandled at one time (kControlAtOnce), so none of them meets an empty receive
//              queue. Where `told` is too small for that (never on iWARP, which has no retry) the
//              device retries.
//   windows    At most kMostAnnounced are open. A window that was filled, or replaced before it was
//              full, pays for the next one. The others (kMostAnnounced at first, one for each
//              replacement, at least kWindowsQuiet apart) fit into the least budget.
//   keepalives An aeconn peer sends at most one in kKeepalivePrice; behind a stopped loop at most
//              as many queue up as there are receives. Both are free, so the budget is spent only
//              on messages that an aeconn peer does not send.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/window_size.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma::flow {

// --- receives ------------------------------------------------------------------------------------

/// Receives assumed where none are announced: Valkey's programs post this many.
inline constexpr std::uint32_t kPlainReceives = 1024;
/// A peer that announces fewer is counted as having this many.
inline constexpr std::uint32_t kLeastTold = 8;
/// A queue pair's own receives are reposted together, in one post, when one in this many is used.
inline constexpr std::uint32_t kReceiveBatches = 8;
/// Shared receives are reposted in batches of this size, or when one in kReceiveBatches is used.
inline constexpr std::size_t kSharedBatch = 64;
/// Each peer may use one in this many of the shared receives. A few peers can exhaust the queue
/// together; beyond that the device retries.
inline constexpr std::uint32_t kSharedParts = 4;
/// The shared queue raises its event when one in this many of its receives is left.
inline constexpr std::uint32_t kShortageAt = 4;
/// On a loop with this many connections, each connection whose peer counts receives gets
/// kFewReceives of its own, at the price of a probe every few messages: ten thousand connections
/// then fit into eight completion queues of 64 Ki entries.
inline constexpr std::uint64_t kManyConnections = 64;
inline constexpr std::uint32_t kFewReceives = 24;

/// Receives that the peer can count on; the others wait to be reposted as one batch.
constexpr std::uint32_t told_of_own(std::uint32_t receives) noexcept {
  return receives - receives / kReceiveBatches;
}
constexpr std::uint32_t told_of_shared(std::uint32_t receives) noexcept {
  return receives / kSharedParts;
}
/// The number of receives a sender counts with.
constexpr std::uint64_t counted(std::uint32_t told) noexcept { return std::max(told, kLeastTold); }

// --- control messages ----------------------------------------------------------------------------

/// Windows that may be announced and not full, including the one being written.
inline constexpr std::size_t kMostAnnounced = 16;
/// Control messages that may be unhandled at one time: an offer, a keepalive, a probe, an answer
/// and a mark.
inline constexpr std::uint64_t kControlAtOnce = 5;
inline constexpr std::uint64_t kMostReserved = 32;
inline constexpr std::uint64_t kProbeAt = 256;
/// Most probes of the peer that may wait for our answer; an aeconn peer has one outstanding.
inline constexpr std::size_t kMostAnswers = 64;
/// How often a peer that cannot be probed gets one more message without proof, where a completion
/// does not show that the peer had a receive.
inline constexpr ae::Duration kPace = std::chrono::milliseconds(10);
/// kKeepalivePrice is half of the shortest keepalive interval, because clocks differ.
inline constexpr ae::Duration kLeastKeepalive = std::chrono::milliseconds(1);
inline constexpr ae::Duration kKeepalivePrice = kLeastKeepalive / 2;
/// A peer's budget of control messages that it did not earn: per second, and at once.
inline constexpr std::uint32_t kControlRate = 1000, kControlBurst = 2048;
/// The least budget that an aeconn peer does not exceed. The rest is for other implementations.
inline constexpr std::uint32_t kLeastControlRate = 1, kLeastControlBurst = 64;

/// Receives kept free of data, and of offers that the peer does not need yet.
constexpr std::uint64_t reserve(std::uint64_t counted) noexcept {
  return std::min(counted / 4, kMostReserved);
}
/// Number of unproven messages at which a probe is due: early enough that a bulk sender never
/// waits.
constexpr std::uint64_t probe_at(std::uint64_t counted) noexcept {
  return std::min(counted / 4, kProbeAt);
}
/// With fewer unproven messages a keepalive is sent, otherwise a zero-length write, which the
/// peer's software does not see. Below probe_at() no probe is sent, so there the peer must hear
/// keepalives.
constexpr std::uint64_t keepalive_below(std::uint64_t counted) noexcept {
  return counted / 2 - reserve(counted);
}

// --- the send queue ------------------------------------------------------------------------------

inline constexpr std::uint32_t kLeastSendQueue = 8;
/// Send requests that data leaves free, so that a control message always finds one.
inline constexpr std::uint32_t kControlSlots = 3;
/// One request in this many is signaled, so that completions arrive before data runs out of
/// requests.
constexpr std::uint32_t signal_every(std::uint32_t send_queue) noexcept {
  return std::min(send_queue * 3 / 4, send_queue - kControlSlots);
}

// --- what must hold ------------------------------------------------------------------------------

constexpr bool fits(std::uint64_t counted) noexcept {
  return probe_at(counted) >= 1 && probe_at(counted) + reserve(counted) <= counted &&
         keepalive_below(counted) >= probe_at(counted);
}
constexpr bool all_fit() noexcept {
  for (std::uint64_t each = kLeastTold; each <= 2 * kPlainReceives; ++each)
    if (!fits(each)) return false;
  return true;  // above that reserve() and probe_at() are constant
}
static_assert(all_fit());
static_assert(kPlainReceives / 4 >= kProbeAt && kPlainReceives / 4 >= kMostReserved);
// The smallest number of receives that is announced on iWARP.
static_assert(reserve(told_of_own(kFewReceives)) >= kControlAtOnce);
static_assert(kLeastControlBurst >= kMostAnnounced + 2);
static_assert(kLeastControlRate * kWindowsQuiet >= std::chrono::seconds(1));
static_assert(kControlBurst >= kLeastControlBurst && kControlRate >= kLeastControlRate);
static_assert(kMostAnswers >= 1);
static_assert(kControlSlots < kLeastSendQueue && signal_every(kLeastSendQueue) >= 1);

}}}  // namespace conn::rdma::flow
