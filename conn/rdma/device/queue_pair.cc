// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/queue_pair.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

void apply(const QpTimeouts& timeouts, ibv_qp_attr& attributes, int mask) noexcept {
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) attributes.min_rnr_timer = timeouts.min_rnr_timer;
  if ((mask & IBV_QP_TIMEOUT) != 0) attributes.timeout = timeouts.ack_timeout;
  if ((mask & IBV_QP_RETRY_CNT) != 0) attributes.retry_cnt = timeouts.retry_count;
  if ((mask & IBV_QP_RNR_RETRY) != 0) attributes.rnr_retry = timeouts.rnr_retry_count;
}

void apply(const Fabric& fabric, ibv_qp_attr& attributes, int mask) {
  if (fabric.pkey_index && (mask & IBV_QP_PKEY_INDEX) != 0)
    attributes.pkey_index = *fabric.pkey_index;
  if ((mask & IBV_QP_AV) == 0) return;
  ibv_ah_attr& way = attributes.ah_attr;
  if (way.is_global == 0 && (fabric.traffic_class || fabric.gid_index))
    throw VerbsError(Failure{std::make_error_code(std::errc::invalid_argument),
                             fabric.words() +
                                 ": packets of this InfiniBand subnet name no GID and have no "
                                 "traffic class; service-level is what they have"});
  if (fabric.service_level) way.sl = *fabric.service_level;
  if (fabric.traffic_class) way.grh.traffic_class = *fabric.traffic_class;
  if (fabric.gid_index) way.grh.sgid_index = *fabric.gid_index;
}

Route modify_qp(rdma_cm_id* id, ibv_qp* qp, ibv_qp_state state, const QpWishes& wishes,
                const char* step) {
  ibv_qp_attr attributes{};
  int mask = 0;
  attributes.qp_state = state;
  if (rdma_init_qp_attr(id, &attributes, &mask) != 0)
    throw VerbsError(fmt::format("rdma_init_qp_attr ({})", step), errno);
  // Older kernels also set bits in the mask that are valid for Ethernet only. On InfiniBand these
  // must be cleared, as librdmacm does for the queue pairs that it creates.
  constexpr int kEthernetBits = 0xe00000;
  if (wishes.infiniband && state == IBV_QPS_RTR) mask &= ~kEthernetBits;
  if (state != IBV_QPS_INIT) apply(wishes.timeouts, attributes, mask);
  apply(wishes.fabric, attributes, mask);
  if (wishes.mtu != 0 && (mask & IBV_QP_PATH_MTU) != 0) attributes.path_mtu = wishes.mtu;
  // Allows the peer only RDMA writes, whatever access it requested: the protocol uses no RDMA READ
  // and no atomics.
  if (state == IBV_QPS_INIT) attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (const int err = ibv_modify_qp(qp, &attributes, mask); err != 0)
    throw VerbsError(wishes.fabric.asks()
                         ? fmt::format("the device refuses one of {}, at ibv_modify_qp ({})",
                                       wishes.fabric.words(), step)
                         : fmt::format("ibv_modify_qp ({})", step),
                     err);
  return route_of(attributes, mask);
}

}  // namespace

void qp_to_init(rdma_cm_id* id, ibv_qp* qp, const Fabric& fabric) {
  modify_qp(id, qp, IBV_QPS_INIT, {.timeouts = {}, .fabric = fabric}, "INIT");
}
Route qp_to_ready(rdma_cm_id* id, ibv_qp* qp, const QpWishes& wishes) {
  const Route route = modify_qp(id, qp, IBV_QPS_RTR, wishes, "RTR");
  modify_qp(id, qp, IBV_QPS_RTS, wishes, "RTS");
  return route;
}

void offer_ece(rdma_cm_id* id, ibv_qp* qp) noexcept {
  ibv_ece ece{};
  if (ibv_query_ece(qp, &ece) == 0 && ece.vendor_id != 0) (void)rdma_set_local_ece(id, &ece);
}

void take_ece(rdma_cm_id* id, ibv_qp* qp) noexcept {
  ibv_ece ece{};
  // A failure is ignored, because the connection also works without ECE.
  if (rdma_get_remote_ece(id, &ece) == 0 && ece.vendor_id != 0) (void)ibv_set_ece(qp, &ece);
}

std::string ece_text(ibv_qp* qp) {
  ibv_ece ece{};
  if (ibv_query_ece(qp, &ece) != 0 || ece.vendor_id == 0 || ece.options == 0) return {};
  return fmt::format("{:#x}:{:#x}", ece.vendor_id, ece.options);
}

void qp_to_error(ibv_qp* qp) noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // This call fails only if the device is gone, and then the queue pair has no traffic to end.
  (void)ibv_modify_qp(qp, &attributes, IBV_QP_STATE);
}

bool can_send(ibv_qp* qp) noexcept {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made{};
  return ibv_query_qp(qp, &attributes, IBV_QP_STATE, &made) == 0 &&
         attributes.qp_state == IBV_QPS_RTS;
}

}}}  // namespace conn::rdma
