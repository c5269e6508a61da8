// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a program can ask a connection, at any time and without an effect on it. On the thread of
// its loop, as conn::Connection.

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

/// The facts of a Connection.
class AECONN_API ConnectionFacts {
 public:
  State state() const noexcept;                    ///< current state
  const std::string& last_error() const noexcept;  ///< text of the first failure; "" if none
  /// Also a failure that read() has not reported yet.
  const Failure& why_ended() const noexcept;
  std::error_code error_code() const noexcept;             ///< code of last_error()
  std::chrono::milliseconds retry_after() const noexcept;  ///< asked for by the refusing peer, or 0
  const ConnectionType& type() const noexcept;             ///< the transport
  ae::EventLoop* loop() const noexcept;  ///< null after its end, and between leave() and join()
  int fd() const noexcept;  ///< of this connection alone, or -1 (rdma: they belong to the loop)
  std::string local_address() const;     ///< "10.0.0.1:6379"; a path; "" if unknown
  std::string peer_address() const;      ///< as local_address(), of the peer
  Address local_host_port() const;       ///< in two parts
  Address peer_host_port() const;        ///< in two parts
  std::optional<bool> is_local() const;  ///< peer on this host; no value: unknown
  /// "tcp 10.0.0.2:50400 > 10.0.0.1:6379": see docs/paths.md. "" if never established.
  std::string path() const;
  std::vector<std::pair<std::string, std::string>> info() const;  ///< details, for logs
  std::string peer_certificate() const;                           ///< PEM; "" if there is none
  std::string peer_user() const;                 ///< by option peer-user; "" if none
  std::uint64_t id() const noexcept;             ///< unique in the process
  std::uint64_t bytes_read() const noexcept;     ///< since creation
  std::uint64_t bytes_written() const noexcept;  ///< since creation

  ConnectionFacts(const ConnectionFacts&) = delete;
  ConnectionFacts& operator=(const ConnectionFacts&) = delete;

 protected:
  ConnectionFacts() = default;
  ~ConnectionFacts() = default;
};

}}  // namespace conn
