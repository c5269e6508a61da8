// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The transport tcp, URL tcp://host:port. The host is an IPv4 or IPv6 address or a name; a listener
// may have several addresses.
//
// Options: backlog, accept-batch, max-connections, reuseport, proxy-protocol (listening); source,
// spread, connect-timeout (connecting); nodelay, keepalive, user-timeout, idle-timeout, mptcp,
// bind-device, mark, traffic-class, send-buffer, receive-buffer, linger, end-linger, zero-copy
// (both).

#include "ae/abi.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// The transport tcp: connections over TCP sockets.
class AECONN_API TcpType final : public SocketType {
 public:
  std::string_view name() const noexcept override { return "tcp"; }
  const OptionTable* option_table() const noexcept override { return &table_; }

 protected:
  bool is_tcp() const noexcept override { return true; }
  bool is_family(int family) const noexcept override {
    return family == AF_INET || family == AF_INET6;
  }
  Settings parse(const Options& options) const override { return tcp_settings(options); }
  void check_address(const Endpoint& endpoint) const override;
  std::vector<Bound> bind(const Endpoint& endpoint, const Settings& settings) const override;

 private:
  // Table of this type's options; built by the constructor, since building it may throw.
  const OptionTable& table_ = tcp_options();
};

}}}  // namespace conn::tcp
