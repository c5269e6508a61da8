// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a queue pair that a connection is set up with: its time-outs and retries, its route
// and the features beyond the standard.
//
// The queue pair does not belong to rdma_cm (id->qp stays null). So we set its time-outs and
// retries ourselves instead of taking those of the peer's accept (Valkey's allows no
// receiver-not-ready retry), and it lives on the loop's own device handle, whose asynchronous
// events therefore reach the right loop.

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/functions.h"
#include "conn/rdma/device/route.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Time-outs and retries of a queue pair.
struct QpTimeouts {
  /// How long the peer must wait before it repeats a message for which no receive was posted here.
  /// The value is a code from ibv_modify_qp(3); 12 means 0.64 ms.
  std::uint8_t min_rnr_timer = 12;
  /// The time to wait for the peer's ACK is 4.096 us * 2^n; n = 14 is 67 ms. With 6 retries a dead
  /// path is detected after about 0.5-1 s.
  std::uint8_t ack_timeout = 14;
  /// The largest value of retry_count; some drivers retry for ever with it, so one less is used.
  static constexpr std::uint8_t kMaybeForEver = 7;
  std::uint8_t retry_count = kMaybeForEver - 1;
  /// Retries while the peer has no receive posted; 7 means for ever, because the library's own
  /// deadlines detect dead peers.
  std::uint8_t rnr_retry_count = 7;
  /// Whether all members of both objects are equal.
  friend bool operator==(const QpTimeouts&, const QpTimeouts&) = default;
};

// Moves the queue pair to state INIT, the first step of its set-up. Throws VerbsError.
void qp_to_init(rdma_cm_id* id, ibv_qp* qp, const Fabric& fabric);
/// Properties that a queue pair is to have once it is connected.
struct QpWishes {
  QpTimeouts timeouts;
  Fabric fabric;
  ibv_mtu mtu{};
  /// Whether the link layer of the queue pair's port is InfiniBand, not Ethernet.
  bool infiniband = false;
};
/// Moves the queue pair to state RTR (ready to receive), then to RTS (ready to send). Not for
/// iWARP, where the kernel does this when it sets up the connection. Returns how its packets are
/// routed. Throws VerbsError.
Route qp_to_ready(rdma_cm_id* id, ibv_qp* qp, const QpWishes& wishes);

// Enhanced connection establishment (ECE) negotiates device features beyond the standard that both
// devices have. offer_ece(), take_ece() and answer_ece() do nothing if one of the devices has no
// ECE.
/// Puts the ECE features that this side's device supports into the connect request. For the side
/// that connects.
void offer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// Applies the ECE features that the peer offers or has accepted to the queue pair. Call it before
/// the queue pair is ready to receive.
void take_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// Puts the ECE features in use into the answer to the connect request. For the side that accepts,
/// once its queue pair is ready to receive.
inline void answer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept { offer_ece(id, qp); }
/// Returns the ECE vendor and enabled options as text, such as "0x2c9:0x3"; "" if none are enabled.
std::string ece_text(ibv_qp* qp);
/// Moves the queue pair to the error state, which ends all traffic: posted requests complete as
/// flushed.
void qp_to_error(ibv_qp* qp) noexcept;
/// Asks the device whether the queue pair still carries out requests. Returns false if the device
/// has stopped it because of an error, which the peer may have caused. A slow call.
bool can_send(ibv_qp* qp) noexcept;

}}}  // namespace conn::rdma
