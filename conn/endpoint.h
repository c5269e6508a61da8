// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Endpoint: where to listen or connect, as a URL: tcp://127.0.0.1:6379, tcp://*,-[::]:6379,
// unix:///run/kv, rdma://10.0.0.1:6379?window=256k. The scheme selects the transport. A list of
// schemes, the preferred one first, names one place that several transports can reach:
// rdma|tcp://10.0.0.1:6379. Any byte of a path, an option or a host, and the commas between hosts,
// may be written as %XX (RFC 3986). A '?' in a path, a '&' in an option, and '%' itself must be
// written so.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/options.h"

namespace conn { inline namespace AECONN_ABI {

/// The parts of a URL.
struct AECONN_API Endpoint {
  /// One host of a URL, without the port.
  struct Host {
    std::string name;  ///< name or address, IPv6 without brackets; "*": any IPv4, "::": any IPv6
    /// The URL has a "-" before this host: it is no error if listening on it fails (Redis's bind
    /// rule).
    bool optional = false;
  };

  /// Name of the ConnectionType in lower case, or a list of such names separated by '|'.
  std::string scheme;
  std::vector<Host> hosts;  ///< separated by ',' in the URL; empty if the URL has a path
  std::uint16_t port = 0;   ///< 0: the listener asks the kernel for a free port
  std::string path;         ///< path of a Unix socket, for schemes that end in "unix"
  Options options;          ///< the part of the URL after the '?'
  /// The URL has no port, which check() refuses for a transport that needs one.
  bool no_port = false;

  /// Parses a URL. Throws Error with a sentence that names the URL and the problem.
  static Endpoint parse(std::string_view url);
  /// Returns the URL in printable ASCII. parse() accepts it, whatever bytes the path and options
  /// have.
  std::string to_string() const;
  /// Whether the scheme is a list of schemes.
  bool is_list() const noexcept { return scheme.find('|') != std::string::npos; }
  /// Returns the schemes of the list, or the single scheme.
  std::vector<std::string> schemes() const;
};

/// Joins a host and a port: "127.0.0.1:80", "[::1]:80".
AECONN_API std::string host_port(std::string_view host, std::uint16_t port);

/// A text such as local_address() or peer_address() in two parts.
struct Address {
  std::string host;        ///< IPv6 without brackets; the path of a Unix socket
  std::uint16_t port = 0;  ///< 0: the text is a path, or has no port
};
/// Splits a text that host_port() has made; any other text is a host without a port.
AECONN_API Address split_address(std::string_view text);

}}  // namespace conn
