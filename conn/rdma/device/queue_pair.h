// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Moves the queue pair of a connection through its states, and sets its time-outs, retries, route
// and features beyond the standard.
//
// The queue pair is not created through rdma_cm (id->qp stays null), for two reasons. We set its
// time-outs and retries ourselves, instead of those that the peer's rdma_accept() asks for: Valkey
// asks for no receiver-not-ready retry. And it is created on the loop's own device handle, so that
// its asynchronous events reach the right loop.

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/functions.h"
#include "conn/rdma/device/route.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Time-outs and retries of a queue pair.
struct QpTimeouts {
  /// Time that the peer's device waits before it repeats a message that found no posted receive
  /// here. The value is a code, see ibv_modify_qp(3); 12 means 0.64 ms.
  std::uint8_t min_rnr_timer = 12;
  /// Time to wait for the peer's ACK: n means 4.096 us * 2^n, so 14 means 67 ms. With 6 retries, a
  /// dead path is detected after about 0.5 to 1 s.
  std::uint8_t ack_timeout = 14;
  /// The largest value of retry_count. With this value some drivers retry for ever, so the default
  /// is one less.
  static constexpr std::uint8_t kMaybeForEver = 7;
  std::uint8_t retry_count = kMaybeForEver - 1;
  /// Number of retries if the peer has no receive posted; 7: no limit. No limit is needed, because
  /// the deadlines of this library detect dead peers.
  std::uint8_t rnr_retry_count = 7;
  friend bool operator==(const QpTimeouts&, const QpTimeouts&) = default;
};

// Moves the queue pair to state INIT, the first step of its set-up. Throws VerbsError.
void qp_to_init(rdma_cm_id* id, ibv_qp* qp, const Fabric& fabric);
/// Properties of a queue pair that qp_to_ready() sets.
struct QpWishes {
  QpTimeouts timeouts;
  Fabric fabric;
  ibv_mtu mtu{};
  /// True if the link layer of the queue pair's port is InfiniBand, false if it is Ethernet.
  bool infiniband = false;
};
/// Moves the queue pair to state RTR (ready to receive), then to RTS (ready to send). Not for
/// iWARP, where the kernel does this when it sets up the connection. Returns how its packets are
/// routed. Throws VerbsError.
Route qp_to_ready(rdma_cm_id* id, ibv_qp* qp, const QpWishes& wishes);

// Enhanced connection establishment (ECE) negotiates features beyond the standard between two
// devices. offer_ece(), take_ece() and answer_ece() do nothing if one of the devices does not
// support ECE.
/// Connecting side: puts the ECE features that the local device supports into the connect request.
void offer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// Applies the ECE features that the peer offers or has accepted to the queue pair. Call it before
/// the queue pair is ready to receive.
void take_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// Accepting side: puts the ECE features in use into the answer to the connect request. Call it
/// once the queue pair is ready to receive.
inline void answer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept { offer_ece(id, qp); }
/// Returns the ECE vendor and enabled options as text, such as "0x2c9:0x3"; "" if none are enabled.
std::string ece_text(ibv_qp* qp);
/// Moves the queue pair to the error state, which ends all traffic. Posted requests then complete
/// with the status "flushed" (IBV_WC_WR_FLUSH_ERR).
void qp_to_error(ibv_qp* qp) noexcept;
/// Queries the state of the queue pair, which is a slow call. Returns false if the device has
/// stopped the queue pair because of an error, which the peer may have caused.
bool can_send(ibv_qp* qp) noexcept;

}}}  // namespace conn::rdma
