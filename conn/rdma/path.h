// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The addresses, the device and the route of a connection, for error messages and information
// texts. They remain available after the verbs objects are destroyed.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/error.h"
#include "conn/kit/resolver.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/fabric.h"
#include "conn/rdma/device/route.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class Path {
 public:
  /// Returns the local address of the connection; empty as long as it is unknown (connecting side:
  /// until the connection is established).
  SocketAddress local() const noexcept { return local_.get(); }
  /// Returns the address of the peer; while connecting, the address that is being tried.
  SocketAddress peer() const noexcept { return peer_.get(); }
  void set_peer(const SocketAddress& peer) noexcept { peer_ = CompactAddress(peer); }
  void set_ends(const SocketAddress& local, const SocketAddress& peer) noexcept {
    local_ = CompactAddress(local);
    peer_ = CompactAddress(peer);
  }
  std::optional<bool> is_local() const noexcept;
  /// Inserts "rdma" and the peer's address before the text of `failure`. Without memory the text is
  /// unchanged.
  void name_peer(Failure& failure) const noexcept;

  /// Records the RDMA device and the port that the queue pair of the connection uses.
  void set_device(const Device& device, int port);
  /// Returns the name of the connection's device with its port, such as "mlx5_0/1"; empty until
  /// set_device() is called.
  const std::string& device() const noexcept { return device_; }
  bool iwarp() const noexcept { return iwarp_; }
  void set_route(const Route& route) noexcept { route_ = route; }
  /// Returns the route of the connection (GID, MTU, traffic class): queried from the device if `qp`
  /// is not null, otherwise the last known one.
  const Route& route(ibv_qp* qp, int port) const noexcept;

  /// Returns the connection's network path in one line, such as "rdma mlx5_0/1 gid 3 RoCEv2
  /// 10.0.0.1:40000 > 10.0.0.2:6379 mtu 4096 tc 0". `asked`: the options, from which the traffic
  /// class is taken on iWARP.
  std::string line(const Fabric& asked) const;
  void add_facts(std::vector<std::pair<std::string, std::string>>& facts) const;

 private:
  CompactAddress local_, peer_;
  std::string device_;
  // The last known route; route() updates it from the device.
  mutable Route route_;
  bool iwarp_ = false;
};

}}}  // namespace conn::rdma
