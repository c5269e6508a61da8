// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Peers that are plain sockets, for tests of what the wire sees.

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "conn/endpoint.h"
#include "conn/kit/resolver.h"

namespace testing {

/// A blocking stream socket with a time limit of some seconds on each call.
class RawSocket {
 public:
  RawSocket() = default;
  explicit RawSocket(int fd);
  RawSocket(RawSocket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  RawSocket& operator=(RawSocket&& other) noexcept;
  ~RawSocket() { close(); }

  /// Connects; throws std::system_error where it cannot.
  static RawSocket connect(const conn::Endpoint& to);
  /// Bound to 127.0.0.1 (or `address`) and listening, on `endpoint()`.
  static RawSocket listening(int backlog = 16, const char* address = "127.0.0.1");
  RawSocket accept() const;
  conn::Endpoint endpoint() const;

  int fd() const noexcept { return fd_; }
  void send(std::string_view bytes) const;
  /// Without waiting; how many bytes went.
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
