// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Endpoint: where to listen or connect, as a URL: tcp://127.0.0.1:6379, tcp://*,-[::]:6379,
// unix:///run/kv, `unix:@kv`, rdma://10.0.0.1:6379?window=256k. The scheme selects the transport. A
// list of schemes, the preferred one first, names one server that several transports can reach:
// rdma|tcp://10.0.0.1:6379. In a list that contains shm, an option names the path that shm uses:
// shm|tcp://10.0.0.1:6379?shm-path=/run/kv.shm. Any byte of a path, an option or a host, and the
// commas between hosts, may be written as %XX (RFC 3986). A '?' in a path, a '&' in an option, and
// '%' itself must be written so.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/options.h"

namespace conn { inline namespace AECONN_ABI {

/// Returns whether URLs of this scheme always have a path instead of hosts and a port. True for
/// unix, shm, tls over these, and lists of only such schemes; false for a list of shm and schemes
/// that have hosts. A URL of another scheme has a path if the path follows `//` immediately, as in
/// pipe:///run/kv; check() decides whether its transport takes it.
AECONN_API bool carries_path(std::string_view scheme) noexcept;

/// The parts of a URL: scheme, hosts, port or path, and options.
struct AECONN_API Endpoint {
  /// One of the hosts that a URL names, without the port.
  struct Host {
    /// Host name or address (IPv6 without brackets); "*": any IPv4, "::": any IPv6.
    std::string name;
    /// True if the URL has a "-" before this host: it is then no error if listening on the host
    /// fails (Redis's bind rule).
    bool optional = false;
  };

  /// Name of the ConnectionType in lower case, or a list of such names separated by '|'.
  std::string scheme;
  std::vector<Host> hosts;  ///< hosts, separated by ',' in the URL; empty if the URL has a path
  /// Port number of the URL; 0: a listener lets the kernel choose a free port.
  std::uint16_t port = 0;
  /// Path of a Unix socket, or '@' and an abstract name, if the URL has one: carries_path(). A file
  /// whose name begins with '@' is written `./@name`.
  std::string path;
  Options options;  ///< the options, which are the part of the URL after the '?'
  /// True if the URL has no port at all. check() refuses such a URL if the transport needs a port.
  bool no_port = false;

  /// Parses a URL. Throws Error with a sentence that names the URL and the problem.
  static Endpoint parse(std::string_view url);
  /// Returns the URL in printable ASCII. parse() restores the same endpoint from it, whatever bytes
  /// the path and the options contain.
  std::string to_string() const;
  /// Returns whether the member `scheme` is a list of several schemes, such as "rdma|tcp".
  bool is_list() const noexcept { return scheme.find('|') != std::string::npos; }
  /// Returns each scheme of the member `scheme`: several if it is a list, otherwise one.
  std::vector<std::string> schemes() const;
};

/// Joins a host and a port to one text: "127.0.0.1:80", "[::1]:80".
AECONN_API std::string host_port(std::string_view host, std::uint16_t port);

/// A text such as Connection::local_address() returns, split into host and port.
struct Address {
  std::string host;  ///< IPv6 address without brackets, or another host; or a Unix socket's name
  std::uint16_t port = 0;  ///< port number; 0: the address is a path, or has no port
};
/// Splits a text that host_port() has made into host and port. Any other text is returned as a host
/// without a port.
AECONN_API Address split_address(std::string_view text);

}}  // namespace conn
