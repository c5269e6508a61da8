// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Flow control: every number on which the two ends of a connection must agree, and why they fit.
//
// A message takes one receive of the peer. The peer says how many it has (`told`), or is a plain
// peer and has kPlainReceives. The sender counts messages that are not proven to be handled:
//
//   probe      at probe_at(told) unproven messages a question leaves, one at a time. The answer
//              proves all before the question, so two questions have at least probe_at(told) other
//              messages between them. The receiver knows `told` and so knows when a question is
//              due: it counts messages, and questions that are due are free, at any rate.
//   data       waits at told - reserve(told) unproven. That is not before a question is due, so
//              the answer always comes; the reserve holds each control message that may be
//              unhandled at a time (kControlAtOnce), so none of them meets an empty queue; where
//              less was told (not on iWARP, which has no second try) the device tries again.
//   windows    at most kMostAnnounced are open; a window that was filled, or replaced before it was
//              full, pays for the next. The others (kMostAnnounced at first, one for each
//              replacement, which come kWindowsQuiet apart) fit into the least budget.
//   keepalives at most one in kKeepalivePrice from a peer of ours, those behind a stopped loop as
//              many as there are receives: free. So the budget is for what no peer of ours sends.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma::flow {

// --- receives ------------------------------------------------------------------------------------

/// What peers count with that are told nothing: Valkey's programs post so many.
inline constexpr std::uint32_t kPlainReceives = 1024;
/// A peer that tells of fewer is counted as having so many.
inline constexpr std::uint32_t kLeastTold = 8;
/// A queue pair's own receives go back when one in so many is used, in one post.
inline constexpr std::uint32_t kReceiveBatches = 8;
/// Shared receives go back so many at a time, or when one in kReceiveBatches is used.
inline constexpr std::size_t kSharedBatch = 64;
/// Each peer may use one in so many of the shared receives, which a few can use up together; the
/// rest is the device's to try again.
inline constexpr std::uint32_t kSharedParts = 4;
/// The event of the shared queue comes when one in so many is left.
inline constexpr std::uint32_t kShortageAt = 4;
/// A loop with so many connections gives each that counts them kFewReceives of its own, at the
/// price of a question for every few messages: then ten thousand connections fit into eight
/// completion queues of 64 Ki entries.
inline constexpr std::uint64_t kManyConnections = 64;
inline constexpr std::uint32_t kFewReceives = 24;

/// How many the peer can count on: the others wait to go back together.
constexpr std::uint32_t told_of_own(std::uint32_t receives) noexcept {
  return receives - receives / kReceiveBatches;
}
constexpr std::uint32_t told_of_shared(std::uint32_t receives) noexcept {
  return receives / kSharedParts;
}
/// What a sender counts with.
constexpr std::uint64_t counted(std::uint32_t told) noexcept { return std::max(told, kLeastTold); }

// --- control messages ----------------------------------------------------------------------------

/// So many windows that are not full may be announced, the one that is written among them.
inline constexpr std::size_t kMostAnnounced = 16;
/// A peer without data for so long gets a short window in place of several, or of a long one.
inline constexpr ae::Duration kWindowsQuiet = std::chrono::seconds(1);
inline constexpr ae::Duration kLongWindowQuiet = std::chrono::seconds(10);
/// Unhandled at a time: an offer, a keepalive, a question, an answer and a mark.
inline constexpr std::uint64_t kControlAtOnce = 5;
inline constexpr std::uint64_t kMostReserved = 32;
inline constexpr std::uint64_t kProbeAt = 256;
/// Questions of the peer whose answers have not left; one of ours has one.
inline constexpr std::size_t kMostAnswers = 64;
/// How often a peer that cannot be asked gets one more message on trust, where a completion says
/// nothing of its receives.
inline constexpr ae::Duration kPace = std::chrono::milliseconds(10);
/// Half of the shortest interval of keepalives, since clocks differ.
inline constexpr ae::Duration kLeastKeepalive = std::chrono::milliseconds(1);
inline constexpr ae::Duration kKeepalivePrice = kLeastKeepalive / 2;
/// The budget of a peer: control messages a second, and at once, that nothing earned.
inline constexpr std::uint32_t kControlRate = 1000, kControlBurst = 2048;
inline constexpr std::uint32_t kLeastControlRate = 1, kLeastControlBurst = 64;

/// Kept free of data, and of offers that the peer can do without for now.
constexpr std::uint64_t reserve(std::uint64_t counted) noexcept {
  return std::min(counted / 4, kMostReserved);
}
/// Unproven messages at which a question is due: early enough that a bulk sender never waits.
constexpr std::uint64_t probe_at(std::uint64_t counted) noexcept {
  return std::min(counted / 4, kProbeAt);
}
/// With fewer unproven a keepalive leaves, else a write of no bytes, which the peer does not hear.
/// Below probe_at() nobody asks, so there the peer must hear us.
constexpr std::uint64_t keepalive_below(std::uint64_t counted) noexcept {
  return counted / 2 - reserve(counted);
}

// --- the send queue ------------------------------------------------------------------------------

inline constexpr std::uint32_t kLeastSendQueue = 8;
/// Requests that data leaves free, so that a control message finds one.
inline constexpr std::uint32_t kControlSlots = 3;
/// One request in so many asks for a completion: before data finds no room any more.
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
  return true;  // beyond that both are at their most
}
static_assert(all_fit());
static_assert(kPlainReceives / 4 >= kProbeAt && kPlainReceives / 4 >= kMostReserved);
// The least that is told on iWARP.
static_assert(reserve(told_of_own(kFewReceives)) >= kControlAtOnce);
static_assert(kLeastControlBurst >= kMostAnnounced + 2);
static_assert(kLeastControlRate * kWindowsQuiet >= std::chrono::seconds(1));
static_assert(kControlBurst >= kLeastControlBurst && kControlRate >= kLeastControlRate);
static_assert(kMostAnswers >= 1);
static_assert(kControlSlots < kLeastSendQueue && signal_every(kLeastSendQueue) >= 1);

}}}  // namespace conn::rdma::flow
