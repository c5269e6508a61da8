// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the packets of a queue pair are routed: what was passed to ibv_modify_qp(), what
// ibv_query_qp() reports, and the words for it in Connection::path().

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Route of one connected queue pair. Unknown on iWARP, where the kernel makes the connection.
struct Route {
  bool known = false;
  bool global = false;  ///< packets carry GIDs: always on Ethernet
  bool proven = false;  ///< the device was queried
  std::uint8_t gid_index = 0, traffic_class = 0, service_level = 0;
  ibv_mtu mtu{};  ///< 0: unknown
  /// Packet type of the GID: "RoCEv1", "RoCEv2", "ib"; "" before the device was queried, or where
  /// it cannot tell.
  const char* kind = "";
};

/// The route that a queue pair is given on its way to RTR; `mask` as for ibv_modify_qp().
Route route_of(const ibv_qp_attr& attributes, int mask) noexcept;
/// Queries the device and updates `route`. What a driver does not report stays as it was set.
void read_back(ibv_qp* qp, int port, Route& route) noexcept;

/// "RoCEv2" for IBV_GID_TYPE_ROCE_V2; "" for an unknown type.
const char* gid_kind(std::uint32_t gid_type) noexcept;
/// 1024 for IBV_MTU_1024; 0 for an invalid value.
unsigned bytes_of(ibv_mtu mtu) noexcept;
/// A size as options are written: 64k, 1m, 1000.
std::string size_text(std::uint64_t bytes);

}}}  // namespace conn::rdma
