// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What options ask of the network under a queue pair. What is not asked for is as rdma_cm chooses.

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
  std::optional<ibv_mtu> path_mtu;  ///< at most
  bool ece = true;                  ///< enhanced connection establishment, where the device has it

  /// Throws Error for a bad value.
  static Fabric from(OptionReader& options);
  /// What it takes, for a table.
  static std::vector<OptionRow> rows();
  /// Something that ibv_modify_qp() may refuse.
  bool asks() const noexcept {
    return traffic_class || service_level || gid_index || pkey_index || path_mtu;
  }
  /// "traffic-class=32, path-mtu=1024": what it asks for.
  std::string words() const;
};

/// A port of a device, of which something is asked.
struct Port {
  ibv_context* device;
  std::string name;  ///< of the device
  int number;
  bool iwarp;
};

/// Throws VerbsError with a sentence where that port cannot do what is asked for. `from`: the
/// address that connections come from, unset where it may be any. Asks the device, and does so only
/// where there is something to ask.
void check(const Fabric& fabric, const Port& port, const SocketAddress& from);

/// "0 fe80::1 RoCEv2, 1 10.0.0.1 RoCEv2": the GIDs of a port, as many as fit a line.
std::string gids_text(const Port& port);
/// "10.0.0.1" for ::ffff:10.0.0.1.
std::string gid_text(const ibv_gid& gid);

}}}  // namespace conn::rdma
