// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Options for the packets of a queue pair: traffic class, MTU, GID and others. For an option that
// is not set, rdma_cm chooses the value.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/functions.h"
#include "conn/url/option_table.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct Fabric {
  std::optional<std::uint8_t> traffic_class, service_level, gid_index;
  std::optional<std::uint16_t> pkey_index;
  /// Largest path MTU that the queue pair may use; no value: rdma_cm chooses it.
  std::optional<ibv_mtu> path_mtu;
  /// True: use enhanced connection establishment (ECE) if both devices support it.
  bool ece = true;

  /// Reads the options of this struct from those of a URL. Throws Error for a bad value.
  static Fabric from(OptionReader& options);
  /// Returns the rows that describe the options of this struct in the table of all options.
  static std::vector<OptionRow> rows();
  /// Returns true if an option is set that the device may refuse in ibv_modify_qp().
  bool asks() const noexcept {
    return traffic_class || service_level || gid_index || pkey_index || path_mtu;
  }
  /// Returns the options that are set as text, such as "traffic-class=32, path-mtu=1024".
  std::string words() const;

  friend bool operator==(const Fabric&, const Fabric&) = default;
};

/// A port of an RDMA device.
struct Port {
  ibv_context* device;
  std::string name;  ///< name of the device, such as mlx5_0
  int number;
  bool iwarp;
};

/// Throws VerbsError with an explanation if the port does not support an option that is set.
/// `from`: the local address of the connections, unset if it may be any. Queries the device only if
/// an option must be checked.
void check(const Fabric& fabric, const Port& port, const SocketAddress& from);

/// Lists the GIDs of a port, up to eight, such as "0 fe80::1 RoCEv2, 1 10.0.0.1 RoCEv2".
std::string gids_text(const Port& port);
/// Returns a GID as text; "10.0.0.1" for ::ffff:10.0.0.1.
std::string gid_text(const ibv_gid& gid);

}}}  // namespace conn::rdma
