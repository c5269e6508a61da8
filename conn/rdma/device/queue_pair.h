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
  /// How long the peer must wait after we had no receive: code of ibv_modify_qp(3); 12 is 0.64 ms.
  std::uint8_t min_rnr_timer = 12;
  /// ACK time-out 4.096 us * 2^n; 14 is 67 ms. With 6 retries a dead path is detected after about
  /// 0.5-1 s.
  std::uint8_t ack_timeout = 14;
  /// The largest retry_count; some drivers take it as "for ever".
  static constexpr std::uint8_t kMaybeForEver = 7;
  std::uint8_t retry_count = kMaybeForEver - 1;
  std::uint8_t rnr_retry_count = 7;  ///< for ever; our own deadlines detect dead peers
};

// Steps of a queue pair's set-up. They throw VerbsError.
void qp_to_init(rdma_cm_id* id, ibv_qp* qp, const Fabric& fabric);
/// Requested properties of a queue pair.
struct QpWishes {
  QpTimeouts timeouts;
  Fabric fabric;
  ibv_mtu mtu{};            ///< 0: the path's MTU
  bool infiniband = false;  ///< its port's link layer is InfiniBand
};
/// Moves it to ready to receive, then to ready to send. Not for iWARP, where the kernel does this
/// with the connection. Returns how its packets are routed.
Route qp_to_ready(rdma_cm_id* id, ibv_qp* qp, const QpWishes& wishes);

// Enhanced connection establishment (ECE): features beyond the standard that both devices have.
// These functions do nothing where one of the devices has none.
/// For a queue pair that connects: puts what its device supports into the request.
void offer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// Applies what the peer offers, or has accepted; before the queue pair is ready to receive.
void take_ece(rdma_cm_id* id, ibv_qp* qp) noexcept;
/// For a queue pair that accepts and is ready: puts the options in use into the answer.
inline void answer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept { offer_ece(id, qp); }
/// "0x2c9:3", the vendor and the enabled options; "" if there are none.
std::string ece_text(ibv_qp* qp);
/// Ends all traffic: posted requests complete as flushed.
void qp_to_error(ibv_qp* qp) noexcept;

}}}  // namespace conn::rdma
