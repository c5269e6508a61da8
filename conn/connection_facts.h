// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ConnectionFacts: what a program can ask a connection, at any time and without an effect on it. To
// be used on the thread of the connection's loop.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "conn/peer_credentials.h"
#include "conn/state.h"

struct sockaddr_storage;  // defined in <sys/socket.h>

namespace conn { inline namespace AECONN_ABI {

class ConnectionType;

/// What a Connection reports about itself: its state, addresses, errors and counters.
class AECONN_API ConnectionFacts {
 public:
  State state() const noexcept;  ///< current state of the connection
  /// Text of the connection's first failure; "": it has not failed.
  const std::string& last_error() const noexcept;
  /// The reason why the connection has ended or is about to end; empty: none is known. It may be a
  /// failure that read() has not reported yet.
  const Failure& why_ended() const noexcept;
  /// Code of the failure that last_error() describes; empty: none.
  std::error_code error_code() const noexcept;
  /// The time for which a peer that refused this connection asked the client to wait before the
  /// next attempt; 0: the peer did not ask.
  std::chrono::milliseconds retry_after() const noexcept;
  const ConnectionType& type() const noexcept;  ///< the transport that created this connection
  /// The loop on which this connection runs; null after that loop has ended, and between leave()
  /// and join().
  ae::EventLoop* loop() const noexcept;
  /// The file descriptor that only this connection uses, or -1 if it has none of its own. (With
  /// rdma, descriptors belong to the loop.)
  int fd() const noexcept;
  /// Address of this end: "10.0.0.1:6379", or the path of a Unix socket; "": unknown.
  std::string local_address() const;
  /// Address of the peer, in the format of local_address(). The client of an accepted connection
  /// over a Unix socket or shm usually has no path: the result is then the path of the listener.
  std::string peer_address() const;
  Address local_host_port() const;   ///< local_address() split into host and port
  Address peer_host_port() const;    ///< peer_address() split into host and port
  /// Writes this end's address to `to` as getsockname(2) would, also over rdma, whose connections
  /// have no sockets. Returns the size of the address; 0, with family AF_UNSPEC, if it is unknown,
  /// for example after the connection has ended.
  std::size_t local_sockaddr(sockaddr_storage& to) const noexcept;
  /// Writes the peer's address like local_sockaddr(). Behind a trusted proxy this is the client's
  /// address. The peer of a Unix socket often has no name: its address then consists of the family
  /// alone.
  std::size_t peer_sockaddr(sockaddr_storage& to) const noexcept;
  /// Returns whether the peer is on this host; no value: unknown.
  std::optional<bool> is_local() const;
  /// The network path to the peer: "tcp 10.0.0.2:50400 > 10.0.0.1:6379", see docs/paths.md. "" if
  /// the connection was never established.
  std::string path() const;
  /// Details about the connection for logs, as pairs of a name and a value.
  std::vector<std::pair<std::string, std::string>> info() const;
  std::string peer_certificate() const;  ///< the peer's certificate in PEM format; "": none
  /// The user name of the peer, which option peer-user has determined; "": none.
  std::string peer_user() const;
  /// The process at the other end. Known only over Unix sockets and shm, while they are open;
  /// otherwise no value.
  std::optional<PeerCredentials> peer_credentials() const;
  /// Number of this connection, unique in the process, never reused.
  std::uint64_t id() const noexcept;
  /// Number of bytes read from the connection since it was created.
  std::uint64_t bytes_read() const noexcept;
  /// Number of bytes written to the connection since it was created.
  std::uint64_t bytes_written() const noexcept;

  ConnectionFacts(const ConnectionFacts&) = delete;
  ConnectionFacts& operator=(const ConnectionFacts&) = delete;

 protected:
  ConnectionFacts() = default;
  ~ConnectionFacts() = default;
};

}}  // namespace conn
