// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The destination of a client whose URL is a list of schemes with shm in it (shm|tcp://...): the
// hosts and port, or the path, to which the other schemes lead. The socket of option shm-path may
// belong to another server. So the client's hello (set-up message) names the destination, and a
// server refuses one that it does not serve. docs/shm.md has the rules.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

inline constexpr std::size_t kMostDestination = 1024;  ///< bytes of the longest destination

struct Destination {
  /// The destination: addresses and a port, as in "127.0.0.1,[::1]:6379"; or a path, or '@' and an
  /// abstract name, percent-encoded. Empty: the URL has only the path of the shm socket.
  std::string text;
  /// st_dev and st_ino: for a path those of the socket's file; for addresses and abstract names
  /// those of the network namespace that they belong to. 0: unknown.
  std::uint64_t device = 0, inode = 0;
};

/// Whether a text has the form of a destination: printable ASCII without spaces, not too long.
bool is_destination(std::string_view text) noexcept;

/// The destinations that a server serves (addresses or a path), beside the path of its shm socket.
class Served {
 public:
  Served() = default;  ///< serves none
  /// The destinations that a server on `endpoint` serves: none without option shm-path (the path of
  /// the shm socket), else the endpoint's addresses and port, or its path. The hosts must be
  /// numeric. The network namespace is that of the calling thread. If the endpoint has a path, the
  /// server must listen on it already, since the socket's file is part of the destination. Throws
  /// std::bad_alloc.
  explicit Served(const Endpoint& endpoint);

  /// Returns why a client with this destination is refused; empty if it is not. A client without a
  /// destination is not refused. Throws std::bad_alloc.
  std::string why_not(const Destination& asked) const;

 private:
  bool has(std::string_view text) const;

  Destination own_;
  std::vector<std::string> hosts_;  // hosts of the served destination, each as in a URL
  std::string port_;  // port of the served hosts, as in ":6379"; "" if there is a path instead
};

/// Returns the destination of a client's endpoint: its path, or those of the `found` addresses of
/// its hosts that belong to this machine. If there is none, the text is empty and `why` is set to
/// the reason. If there are no addresses at all, a failure that is already in `why` (of the
/// look-up) is kept as the reason. Throws std::bad_alloc.
Destination destination_of(const Endpoint& to, const std::vector<SocketAddress>& found,
                           Failure& why);

}}}  // namespace conn::shm
