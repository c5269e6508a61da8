// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Options for the network below a queue pair. What is not set is left to rdma_cm.

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
  std::optional<ibv_mtu> path_mtu;  ///< upper limit
  bool ece = true;                  ///< enhanced connection establishment, where the device has it

  /// Throws Error for a bad value.
  static Fabric from(OptionReader& options);
  /// The options it accepts, for a table.
  static std::vector<OptionRow> rows();
  /// It sets something that ibv_modify_qp() may refuse.
  bool asks() const noexcept {
    return traffic_class || service_level || gid_index || pkey_index || path_mtu;
  }
  /// Its settings as text: "traffic-class=32, path-mtu=1024".
  std::string words() const;
};

/// A port of a device, to be queried.
struct Port {
  ibv_context* device;
  std::string name;  ///< of the device
  int number;
  bool iwarp;
};

/// Throws VerbsError with an explanation where the port does not support what is set. `from`: the
/// address that connections come from, unset where it may be any. Queries the device only where
/// there is something to check.
void check(const Fabric& fabric, const Port& port, const SocketAddress& from);

/// The GIDs of a port, as many as fit a line: "0 fe80::1 RoCEv2, 1 10.0.0.1 RoCEv2".
std::string gids_text(const Port& port);
/// A GID as text; "10.0.0.1" for ::ffff:10.0.0.1.
std::string gid_text(const ibv_gid& gid);

}}}  // namespace conn::rdma
