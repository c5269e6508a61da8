// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Peers that are plain sockets, for tests of what is on the wire.

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "conn/endpoint.h"
#include "conn/kit/resolver.h"

namespace testing {

/// A blocking stream socket; each call has a time-out of some seconds.
class RawSocket {
 public:
  RawSocket() = default;
  explicit RawSocket(int fd);
  RawSocket(RawSocket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  RawSocket& operator=(RawSocket&& other) noexcept;
  ~RawSocket() { close(); }

  /// Connects; throws std::system_error on failure.
  static RawSocket connect(const conn::Endpoint& to);
  /// Bound to 127.0.0.1 (or `address`) and listening, on `endpoint()`.
  static RawSocket listening(int backlog = 16, const char* address = "127.0.0.1");
  RawSocket accept() const;
  conn::Endpoint endpoint() const;

  int fd() const noexcept { return fd_; }
  void send(std::string_view bytes) const;
  /// Sends without waiting; returns the number of bytes sent.
  std::size_t send_what_fits(std::string_view bytes) const;
  /// Exactly `size` bytes, or fewer at the end of the stream; throws std::system_error on errors.
  std::string receive(std::size_t size) const;
  void half_close() const { ::shutdown(fd_, SHUT_WR); }
  void close() noexcept;
  /// Closes with a reset instead of an end of stream.
  void reset() noexcept;
  int option(int level, int name) const;

 private:
  int fd_ = -1;
};

}  // namespace testing
