// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How the packets of a queue pair are routed: the values passed to ibv_modify_qp(), those that
// ibv_query_qp() reports, and their text in Connection::path().

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/device/functions.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The route of one connected queue pair. Unknown on iWARP, where the kernel sets up the
/// connection.
struct Route {
  bool known = false;
  bool global = false;  ///< true if packets carry GIDs, which is always so on Ethernet
  bool proven = false;  ///< true if read_back() has queried the device for the route
  std::uint8_t gid_index = 0, traffic_class = 0, service_level = 0;
  ibv_mtu mtu{};  ///< MTU of the path to the peer; 0: unknown
  /// Type of the GID: "RoCEv1", "RoCEv2" or "ib"; "" before the device was queried, and if it does
  /// not report the type.
  const char* kind = "";
};

/// Returns the route in the attributes with which a queue pair moves to RTR (ready to receive).
/// `mask`: bits of the attributes that are set, as for ibv_modify_qp().
Route route_of(const ibv_qp_attr& attributes, int mask) noexcept;
/// Updates `route` with the values that the device reports. Values that the driver does not report
/// stay unchanged.
void read_back(ibv_qp* qp, int port, Route& route) noexcept;

/// Returns the name of a GID type, such as "RoCEv2" for IBV_GID_TYPE_ROCE_V2; "" for an unknown
/// type.
const char* gid_kind(std::uint32_t gid_type) noexcept;
/// Converts an MTU code to bytes, such as IBV_MTU_1024 to 1024; 0 for an invalid code.
unsigned bytes_of(ibv_mtu mtu) noexcept;
/// Returns a number of bytes in the format of option values: 64k, 1m, 1000.
std::string size_text(std::uint64_t bytes);

}}}  // namespace conn::rdma
