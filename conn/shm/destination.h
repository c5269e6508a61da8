// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The destination of a client whose URL is a list with shm in it: the hosts and port, or the path,
// that the other schemes lead to. The socket of option shm-path may be that of another server, so a
// hello names its destination, and the server compares. docs/shm.md has the rules.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI { namespace shm {

inline constexpr std::size_t kMostDestination = 1024;  ///< bytes of the longest text

struct Destination {
  /// Addresses and a port: "127.0.0.1,[::1]:6379"; or a path, or '@' and an abstract name,
  /// percent-encoded. Empty: the client's URL is a path of shm and nothing else.
  std::string text;
  /// st_dev and st_ino of what gives the text its meaning: the client's network namespace, or for a
  /// path the socket's file. 0: unknown.
  std::uint64_t device = 0, inode = 0;
};

/// Whether a text may be that of a destination: printable ASCII without spaces, not too long.
bool is_destination(std::string_view text) noexcept;

/// The destinations that a server serves, beside the path of its shm socket.
class Served {
 public:
  Served() = default;  ///< serves none
  /// Serves the addresses and port, or the path, that the endpoint has beside option shm-path; none
  /// without that option. The hosts are numeric. The network namespace is that of the calling
  /// thread. A path must be listened on already. Throws std::bad_alloc.
  explicit Served(const Endpoint& endpoint);

  /// Returns why a client with this destination is refused; empty if it is not. A client without a
  /// destination is not refused. Throws std::bad_alloc.
  std::string why_not(const Destination& asked) const;

 private:
  bool has(std::string_view text) const;

  Destination own_;
};

/// Finds the destination of a client's endpoint: resolves its hosts, and keeps those addresses that
/// belong to this machine.
class DestinationLookup {
 public:
  /// With a failure, the destination is empty.
  using Done = std::function<void(Destination, Failure)>;
  /// Starts. `done` is called once, by the loop, never before the constructor returns; it may
  /// destroy this object. Throws std::bad_alloc.
  DestinationLookup(ae::EventLoop& loop, const Endpoint& to, Done done);
  ~DestinationLookup();
  DestinationLookup(const DestinationLookup&) = delete;
  DestinationLookup& operator=(const DestinationLookup&) = delete;

  /// Does the same, but blocks until `deadline` at most. Throws std::bad_alloc.
  static Destination wait(const Endpoint& to, ae::TimePoint deadline, Failure& why);

 private:
  void next_host();
  void resolved(Resolved answer);
  void finish();

  ae::EventLoop& loop_;
  const Endpoint to_;
  Done done_;
  std::vector<SocketAddress> found_;
  Failure failure_;       // of the last host that could not be resolved
  std::size_t host_ = 0;  // index in to_.hosts of the next host to resolve
  std::unique_ptr<Resolution> resolution_;
  ae::TimerId timer_ = 0;  // for an endpoint that has a path
};

}}}  // namespace conn::shm
