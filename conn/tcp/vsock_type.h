// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transport vsock, URL vsock://CID:PORT: stream sockets between a virtual machine and its host.
// CID 2 is the host, 1 is the machine itself; a listener may have "*", any CID. Ports are 1 to
// 65535.
//
// Options: backlog, accept-batch, max-connections (listening); connect-timeout (connecting);
// idle-timeout (both). close() never lingers: the kernel delivers the bytes that a socket has
// accepted.

#include "ae/abi.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// The transport vsock: connections over vsock(7) sockets.
class AECONN_API VsockType final : public SocketType {
 public:
  std::string_view name() const noexcept override { return "vsock"; }
  VsockType();
  const OptionTable* option_table() const noexcept override { return &table_; }

 protected:
  bool is_family(int family) const noexcept override;
  Settings parse(const Options& options) const override;
  void check_address(const Endpoint& endpoint) const override;
  std::vector<Bound> bind(const Endpoint& endpoint, const Settings& settings) const override;

 private:
  // Table of this type's options; built by the constructor, since building it may throw.
  const OptionTable& table_;
};

}}}  // namespace conn::tcp
