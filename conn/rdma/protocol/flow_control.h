// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Flow control: all numbers on which the two ends of a connection must agree, and the reasons why
// they fit together.
//
// Each message consumes one posted receive of the peer. A peer announces in its hello (private data
// of rdma_cm) how many it has (`announced`); a peer that sends no hello, such as Valkey, is assumed
// to have kPlainReceives. A sender counts its unproven messages: those of which it has no proof yet
// that the peer has handled them. The receiver limits control messages by a budget (ControlBudget);
// messages that an aeconn peer must send are not charged to it.
//
//   probe      At probe_at(announced) unproven messages the sender sends a probe; only one probe is
//              outstanding at a time. The answer proves all messages before the probe, so at least
//              probe_at(announced) other messages lie between two probes. The receiver knows
//              `announced` and counts messages too, so it knows when a probe is due. A probe that
//              is due is never charged to the budget, however often probes are due.
//   data       Data stops at announced - reserve(announced) unproven messages. A probe is due
//              before that, so its answer always comes. The reserve covers all control messages
//              that may be unhandled at one time (kControlAtOnce), so that none of them meets an
//              empty receive queue. Where `announced` is too small for that, the device retries.
//              (On iWARP, which has no retry, it is never too small.)
//   windows    At most kMostAnnounced windows are announced and not yet full. For each window that
//              was filled, or replaced before it was full, one later offer is not charged to the
//              budget. The other offers are charged: kMostAnnounced at first, then one for each
//              replacement, at least kWindowsQuiet apart. The smallest budget (kLeastControlRate,
//              kLeastControlBurst) allows these.
//   keepalives An aeconn peer sends at most one keepalive per kKeepalivePrice. If the receiver's
//              loop is stopped, at most as many keepalives queue up as there are receives. None of
//              these is charged to the budget; only keepalives beyond that rate are.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/protocol/window_size.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma::flow {

// --- posted receives -----------------------------------------------------------------------------

/// Number of posted receives that a peer is assumed to have if it announces no number when it
/// connects: Valkey's programs post this many.
inline constexpr std::uint32_t kPlainReceives = 1024;
/// Least number of posted receives that a peer is assumed to have, even if it announces fewer.
inline constexpr std::uint32_t kLeastAnnounced = 8;
/// Used receives of a queue pair's own receive queue are reposted in one batch when
/// 1/kReceiveBatches of the queue's receives are used.
inline constexpr std::uint32_t kReceiveBatches = 8;
/// Used receives of a shared receive queue are reposted in batches of this many, or earlier if
/// 1/kReceiveBatches of the queue's receives are used.
inline constexpr std::size_t kSharedBatch = 64;
/// On a shared receive queue, 1/kSharedParts of the queue's receives are announced to each peer.
/// More than kSharedParts busy peers can thus exhaust the queue; their devices then retry.
inline constexpr std::uint32_t kSharedParts = 4;
/// A shared receive queue raises its event (limit reached) when only 1/kShortageAt of its receives
/// are left.
inline constexpr std::uint32_t kShortageAt = 4;
/// On an event loop with at least kManyConnections connections, a new connection posts only
/// kFewReceives receives if its peer stops sending before it exceeds the announced number. Such a
/// peer must send a probe every few messages, but 10,000 connections fit into eight completion
/// queues of 64 Ki entries.
inline constexpr std::uint64_t kManyConnections = 64;
inline constexpr std::uint32_t kFewReceives = 24;

/// Returns how many receives are announced to the peer of a queue pair that has `receives` receives
/// of its own. The others might be used already, and wait to be reposted in one batch.
constexpr std::uint32_t announced_of_own(std::uint32_t receives) noexcept {
  return receives - receives / kReceiveBatches;
}
constexpr std::uint32_t announced_of_shared(std::uint32_t receives) noexcept {
  return receives / kSharedParts;
}
/// Returns how many posted receives a sender counts on if its peer has announced `announced`: that
/// number, but at least kLeastAnnounced.
constexpr std::uint64_t counted(std::uint32_t announced) noexcept {
  return std::max(announced, kLeastAnnounced);
}

// --- limits for control messages -----------------------------------------------------------------

/// Greatest number of receive windows that may be announced to one peer and not yet full, including
/// the one that the peer is writing into.
inline constexpr std::size_t kMostAnnounced = 16;
/// Greatest number of control messages of one sender that its peer might not have handled yet: an
/// offer of a window, a keepalive, a probe, an answer to a probe, and a mark (of a change to
/// another window).
inline constexpr std::uint64_t kControlAtOnce = 5;
inline constexpr std::uint64_t kMostReserved = 32;
inline constexpr std::uint64_t kProbeAt = 256;
/// Greatest number of probes of the peer that may wait for our answer. (An aeconn peer has at most
/// one probe outstanding.)
inline constexpr std::size_t kMostAnswers = 64;
/// Interval between two data messages to a peer that might have no free receive, if nothing can
/// prove that it has one: it answers no probes, and completions prove nothing (iWARP).
inline constexpr ae::Duration kPace = std::chrono::milliseconds(10);
/// kLeastKeepalive: the shortest keepalive interval. kKeepalivePrice: the shortest average time
/// between two keepalives of a peer that is accepted; half of that interval, because the clocks of
/// the two ends may differ.
inline constexpr ae::Duration kLeastKeepalive = std::chrono::milliseconds(1);
inline constexpr ae::Duration kKeepalivePrice = kLeastKeepalive / 2;
/// Budget for those control messages of a peer that follow from no action of ours, such as the
/// offer of a window although we filled none: messages per second, and messages at once.
inline constexpr std::uint32_t kControlRate = 1000, kControlBurst = 2048;
/// A budget (messages per second, and messages at once) that an aeconn peer never exceeds. The
/// budget in use, kControlRate and kControlBurst, is larger, because other implementations send
/// more.
inline constexpr std::uint32_t kLeastControlRate = 1, kLeastControlBurst = 64;

/// Returns how many of the peer's `counted` posted receives are reserved for control messages, so
/// that control messages always find a receive. Data, and offers of windows that the peer does not
/// need yet, must not use them.
constexpr std::uint64_t reserve(std::uint64_t counted) noexcept {
  return std::min(counted / 4, kMostReserved);
}
/// Returns the number of unproven messages (not known to be handled by the peer) at which a probe
/// is due. The number is low enough that the answer arrives before a bulk sender has to stop.
constexpr std::uint64_t probe_at(std::uint64_t counted) noexcept {
  return std::min(counted / 4, kProbeAt);
}
/// Returns the number of unproven messages (not known to be handled by the peer) from which an idle
/// connection sends zero-length writes instead of keepalives: these consume no receive, but the
/// peer's software does not notice them. The number is at least probe_at(), because below that the
/// connection sends no probes either, and the peer must hear something.
constexpr std::uint64_t keepalive_below(std::uint64_t counted) noexcept {
  return counted / 2 - reserve(counted);
}

/// Returns the number of unproven messages (not known to be handled by the peer) from which no
/// keepalive is sent to a peer whose software is silent. Data stops at a lower number. At least
/// kControlAtOnce of the peer's receives stay free for other control messages.
constexpr std::uint64_t last_keepalive_below(std::uint64_t counted) noexcept {
  return counted - std::min(std::max(reserve(counted) / 2, kControlAtOnce), counted);
}

// --- slots of the send queue ---------------------------------------------------------------------

inline constexpr std::uint32_t kLeastSendQueue = 8;
/// Number of slots in the send queue that data must not use, so that a control message always finds
/// a slot.
inline constexpr std::uint32_t kControlSlots = 3;
/// Returns the interval, in send requests, at which a completion is requested: often enough that
/// completions free slots of the send queue before data uses up all of them.
constexpr std::uint32_t signal_every(std::uint32_t send_queue) noexcept {
  return std::min(send_queue * 3 / 4, send_queue - kControlSlots);
}

// --- checks at compile time ----------------------------------------------------------------------

constexpr bool fits(std::uint64_t counted) noexcept {
  return probe_at(counted) >= 1 && probe_at(counted) + reserve(counted) <= counted &&
         keepalive_below(counted) >= probe_at(counted);
}
constexpr bool all_fit() noexcept {
  for (std::uint64_t each = kLeastAnnounced; each <= 2 * kPlainReceives; ++each)
    if (!fits(each)) return false;
  return true;  // reserve() and probe_at() are constant for larger arguments
}
static_assert(all_fit());
static_assert(kPlainReceives / 4 >= kProbeAt && kPlainReceives / 4 >= kMostReserved);
// iWARP does not retry a message that finds no receive. Even with the smallest receive queue, all
// control messages that can be under way at one time must therefore find a reserved receive.
static_assert(reserve(announced_of_own(kFewReceives)) >= kControlAtOnce);
static_assert(kLeastControlBurst >= kMostAnnounced + 2);
static_assert(kLeastControlRate * kWindowsQuiet >= std::chrono::seconds(1));
static_assert(kControlBurst >= kLeastControlBurst && kControlRate >= kLeastControlRate);
static_assert(kMostAnswers >= 1);
static_assert(kControlSlots < kLeastSendQueue && signal_every(kLeastSendQueue) >= 1);

}}}  // namespace conn::rdma::flow
