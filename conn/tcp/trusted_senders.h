// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The senders whose connections begin with a header of the PROXY protocol: option proxy-protocol.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class TrustedSenders {
 public:
  TrustedSenders() = default;  ///< trusts nobody
  /// Trusts every sender, for Unix sockets: the permissions of their file decide who can connect.
  static TrustedSenders everybody() noexcept;
  /// Returns an object that trusts the addresses and networks of a list such as
  /// "10.0.0.1,fd00::/8". Throws Error.
  static TrustedSenders parse(std::string_view list);

  /// Whether connections from this address must begin with a header of the PROXY protocol. An
  /// IPv4-mapped IPv6 address is treated like the IPv4 address.
  bool has(const SocketAddress& sender) const noexcept;

 private:
  using Host = std::array<std::uint8_t, 16>;  // an IPv4 address is kept as IPv4-mapped IPv6
  struct Network {
    Host host;
    unsigned bits;
  };

  bool everybody_ = false;
  std::vector<Network> networks_;
};

}}}  // namespace conn::tcp
