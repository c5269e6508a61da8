// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the packets of a queue pair travel: what ibv_modify_qp() was told and ibv_query_qp() says,
// and their words in Connection::path().

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Of one connected queue pair. Nothing is known on iWARP, where the kernel makes the connection.
struct Route {
  bool known = false;
  bool global = false;  ///< packets name GIDs: always on Ethernet
  bool proven = false;  ///< the device was asked
  std::uint8_t gid_index = 0, traffic_class = 0, service_level = 0;
  ibv_mtu mtu{};  ///< 0: not known
  /// What the GID's packets look like: "RoCEv1", "RoCEv2", "ib"; "" before the device was asked, or
  /// where it cannot tell.
  const char* kind = "";
};

/// What a queue pair is told on its way to RTR; `mask` as for ibv_modify_qp().
Route route_of(const ibv_qp_attr& attributes, int mask) noexcept;
/// Asks the device what of that is so. What a driver does not tell stays as it was told to it.
void read_back(ibv_qp* qp, int port, Route& route) noexcept;

/// "RoCEv2" for IBV_GID_TYPE_ROCE_V2; "" for what is not known.
const char* gid_kind(std::uint32_t gid_type) noexcept;
/// 1024 for IBV_MTU_1024; 0 for what is none.
unsigned bytes_of(ibv_mtu mtu) noexcept;
/// 64k, 1m, 1000: as options are written.
std::string size_text(std::uint64_t bytes);

}}}  // namespace conn::rdma
