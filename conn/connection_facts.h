// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// ConnectionFacts: what a program can ask a connection, at any time and without an effect on it. To
// be used on the thread of the connection's loop.

#include <chrono>
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
#include "conn/state.h"

namespace conn { inline namespace AECONN_ABI {

class ConnectionType;

/// The facts that a Connection reports about itself.
class AECONN_API ConnectionFacts {
 public:
  State state() const noexcept;                    ///< current state
  const std::string& last_error() const noexcept;  ///< text of the first failure; "": none
  /// Why the connection has ended or is about to end. This may be a failure that read() has not
  /// reported yet; empty: none.
  const Failure& why_ended() const noexcept;
  std::error_code error_code() const noexcept;  ///< code of the failure in last_error()
  /// How long the peer that refused the connection asked to wait; 0: it did not ask.
  std::chrono::milliseconds retry_after() const noexcept;
  const ConnectionType& type() const noexcept;  ///< the transport
  /// The loop of the connection; null after the loop has ended, and between leave() and join().
  ae::EventLoop* loop() const noexcept;
  /// The descriptor that only this connection uses, or -1 (rdma: its descriptors belong to the
  /// loop).
  int fd() const noexcept;
  std::string local_address() const;     ///< "10.0.0.1:6379", or a Unix socket's path; "": unknown
  std::string peer_address() const;      ///< the peer's address, like local_address()
  Address local_host_port() const;       ///< local_address() in two parts
  Address peer_host_port() const;        ///< peer_address() in two parts
  std::optional<bool> is_local() const;  ///< whether the peer is on this host; no value: unknown
  /// The way to the peer: "tcp 10.0.0.2:50400 > 10.0.0.1:6379", see docs/paths.md. "" if the
  /// connection was never established.
  std::string path() const;
  /// Details as names and values, for logs.
  std::vector<std::pair<std::string, std::string>> info() const;
  std::string peer_certificate() const;  ///< the peer's certificate in PEM format; "": none
  std::string peer_user() const;      ///< the user that option peer-user has determined; "": none
  std::uint64_t id() const noexcept;  ///< unique in the process, never reused
  std::uint64_t bytes_read() const noexcept;     ///< number of bytes read since creation
  std::uint64_t bytes_written() const noexcept;  ///< number of bytes written since creation

  ConnectionFacts(const ConnectionFacts&) = delete;
  ConnectionFacts& operator=(const ConnectionFacts&) = delete;

 protected:
  ConnectionFacts() = default;
  ~ConnectionFacts() = default;
};

}}  // namespace conn
