// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where to listen or connect, as a URL: tcp://127.0.0.1:6379, tcp://*,-[::]:6379, unix:///run/kv,
// rdma://10.0.0.1:6379?window=256k. Changing the scheme changes the transport. Several schemes, the
// preferred one first, are one place that can be reached in several ways: rdma|tcp://10.0.0.1:6379.
// Any byte of a path or an option may be written as %XX (RFC 3986), and so may a host's and the
// commas between hosts; '?' in a path, '&' in an option and '%' itself must be.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/options.h"

namespace conn { inline namespace AECONN_ABI {

/// A URL in its parts.
struct AECONN_API Endpoint {
  /// Where it leads, before the port.
  struct Host {
    std::string name;       ///< name or address, IPv6 without brackets; "*" any IPv4, "::" any IPv6
    bool optional = false;  ///< "-" before it: listening goes on without it (Redis's bind rule)
  };

  std::string scheme;       ///< name of the ConnectionType, lower case; a list as it was written
  std::vector<Host> hosts;  ///< several bind addresses, separated by ','; empty for a path
  std::uint16_t port = 0;   ///< 0 asks the listener for a free port
  std::string path;         ///< Unix socket; set for schemes that end in "unix"
  Options options;          ///< after the '?'
  bool no_port = false;     ///< the URL named none; transports that need one refuse it in check()

  /// Throws Error with a sentence that names the URL and what is wrong.
  static Endpoint parse(std::string_view url);
  /// As it would be parsed, whatever bytes path and options have. All of it is printable ASCII.
  std::string to_string() const;
  /// Whether the scheme has several.
  bool is_list() const noexcept { return scheme.find('|') != std::string::npos; }
  /// The names in the list; the scheme alone where it is none.
  std::vector<std::string> schemes() const;
};

/// "127.0.0.1:80", "[::1]:80".
AECONN_API std::string host_port(std::string_view host, std::uint16_t port);

/// What local_address() and peer_address() say, in two parts.
struct Address {
  std::string host;        ///< IPv6 without brackets; the path of a Unix socket
  std::uint16_t port = 0;  ///< 0: a path, or not known
};
/// The parts of a text as host_port() makes it; anything else is a host without a port.
AECONN_API Address split_address(std::string_view text);

}}  // namespace conn
