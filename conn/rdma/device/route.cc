// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/route.h"

#include <cstring>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
const char* gid_kind(std::uint32_t gid_type) noexcept {
  switch (gid_type) {
    case IBV_GID_TYPE_IB:
      return "ib";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCEv1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCEv2";
    default:
      return "";
  }
}

Route route_of(const ibv_qp_attr& attributes, int mask) noexcept {
  Route route;
  if ((mask & IBV_QP_AV) == 0) return route;
  const ibv_ah_attr& way = attributes.ah_attr;
  route.known = true;
  route.global = way.is_global != 0;
  route.service_level = way.sl;
  if (route.global) {
    route.gid_index = way.grh.sgid_index;
    route.traffic_class = way.grh.traffic_class;
  } else {
    route.kind = "ib";
  }
  if ((mask & IBV_QP_PATH_MTU) != 0) route.mtu = attributes.path_mtu;
  return route;
}

void read_back(ibv_qp* qp, int port, Route& route) noexcept {
  if (!route.known || route.proven) return;
  route.proven = true;
  ibv_qp_attr attr{};
  ibv_qp_init_attr made{};
  if (ibv_query_qp(qp, &attr, IBV_QP_AV | IBV_QP_PATH_MTU, &made) == 0) {
    // Zeros are ignored: some drivers do not report all values of a queue pair and leave zeros.
    const ibv_ah_attr& way = attr.ah_attr;
    static constexpr ibv_gid kNone{};
    const bool there = std::memcmp(&way.grh.dgid, &kNone, sizeof kNone) != 0;
    if (route.global && way.is_global != 0 && there) {
      route.gid_index = way.grh.sgid_index;
      route.traffic_class = way.grh.traffic_class;
    }
    // Drivers that do not store the service level, such as soft-RoCE, report 0, which is ignored.
    if (way.sl != 0) route.service_level = way.sl;
    if (bytes_of(attr.path_mtu) != 0) route.mtu = attr.path_mtu;
  }
  ibv_gid_entry entry{};
  if (route.global && ibv_query_gid_ex(qp->context, static_cast<std::uint32_t>(port),
                                       route.gid_index, &entry, 0) == 0)
    route.kind = gid_kind(entry.gid_type);
}

unsigned bytes_of(ibv_mtu mtu) noexcept {
  return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << static_cast<unsigned>(mtu) : 0;
}

std::string size_text(std::uint64_t bytes) {
  const char* unit = "";
  for (const char* next : {"k", "m", "g"}) {
    if (bytes == 0 || bytes % 1024 != 0) break;
    bytes /= 1024;
    unit = next;
  }
  return std::to_string(bytes) + unit;
}

}}}  // namespace conn::rdma
