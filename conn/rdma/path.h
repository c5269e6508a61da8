// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where a connection runs: its addresses, device and route, for people. What is known stays known
// after the queue pair and the device are gone.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/route.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Path {
 public:
  const SocketAddress& local() const noexcept { return local_; }  ///< unset until established
  const SocketAddress& peer() const noexcept { return peer_; }    ///< or the one being tried
  void set_peer(const SocketAddress& peer) noexcept { peer_ = peer; }
  void set_ends(const SocketAddress& local, const SocketAddress& peer) noexcept {
    local_ = local;
    peer_ = peer;
  }
  std::optional<bool> is_local() const noexcept;

  /// The connection gets a queue pair on this device.
  void set_device(const Device& device, int port);
  const std::string& device() const noexcept { return device_; }  ///< "mlx5_0/1"
  bool iwarp() const noexcept { return iwarp_; }
  void set_route(const Route& route) noexcept { route_ = route; }
  /// As set, or as read back from the device if `qp` is not null.
  const Route& route(ibv_qp* qp, int port) const noexcept;

  /// "rdma mlx5_0/1 gid 3 RoCEv2 10.0.0.1:40000 > 10.0.0.2:6379 mtu 4096 tc 0"
  std::string line(const Fabric& asked) const;
  void add_facts(std::vector<std::pair<std::string, std::string>>& facts) const;

 private:
  SocketAddress local_, peer_;
  std::string device_;
  mutable Route route_;  // read back on demand
  bool iwarp_ = false;
};

}}}  // namespace conn::rdma
