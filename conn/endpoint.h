// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Where to listen or connect, as a URL: tcp://127.0.0.1:6379, tcp://*,-[::]:6379, unix:///run/kv,
// rdma://10.0.0.1:6379?window=256k. The scheme selects the transport. A list of schemes, the
// preferred one first, names one place reachable over several transports: rdma|tcp://10.0.0.1:6379.
// Any byte of a path, an option or a host, and the commas between hosts, may be written as %XX (RFC
// 3986); '?' in a path, '&' in an option and '%' itself must be.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/options.h"

namespace conn { inline namespace AECONN_ABI {

/// A parsed URL.
struct AECONN_API Endpoint {
  /// One host of the URL, without the port.
  struct Host {
    std::string name;       ///< name or address, IPv6 without brackets; "*" any IPv4, "::" any IPv6
    bool optional = false;  ///< preceded by "-": not required to listen (Redis's bind rule)
  };

  std::string scheme;       ///< name of the ConnectionType, lower case; a list as it was written
  std::vector<Host> hosts;  ///< several bind addresses, separated by ','; empty for a path
  std::uint16_t port = 0;   ///< 0 asks the listener for a free port
  std::string path;         ///< Unix socket; set for schemes that end in "unix"
  Options options;          ///< the part after the '?'
  bool no_port = false;  ///< the URL has no port; check() of a transport that needs one refuses it

  /// Parses a URL. Throws Error with a sentence that names the URL and the problem.
  static Endpoint parse(std::string_view url);
  /// The URL, which parse() accepts whatever bytes path and options have. All of it is printable
  /// ASCII.
  std::string to_string() const;
  /// Whether the scheme is a list.
  bool is_list() const noexcept { return scheme.find('|') != std::string::npos; }
  /// The schemes of the list; the single scheme if it is not a list.
  std::vector<std::string> schemes() const;
};

/// "127.0.0.1:80", "[::1]:80".
AECONN_API std::string host_port(std::string_view host, std::uint16_t port);

/// local_address() or peer_address() in two parts.
struct Address {
  std::string host;        ///< IPv6 without brackets; the path of a Unix socket
  std::uint16_t port = 0;  ///< 0: a path, or unknown
};
/// Splits a text in the format of host_port(); any other text is a host without a port.
AECONN_API Address split_address(std::string_view text);

}}  // namespace conn
