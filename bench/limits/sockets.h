// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Shared by the socket echoes: descriptors, a listening socket, a signal that ends them.

#include <sys/epoll.h>

#include <cstdint>
#include <string>
#include <utility>

namespace limits {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

/// Returns `result` if it is not negative; otherwise throws std::system_error for errno.
int required(int result, const char* what);

/// tcp://ADDRESS:PORT or unix:///path. Throws std::runtime_error.
class ListeningSocket {
 public:
  explicit ListeningSocket(const std::string& url);
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  ~ListeningSocket();  ///< removes the Unix socket's path

  int fd() const noexcept { return fd_.get(); }
  /// The URL with the actual port, if port 0 was given.
  const std::string& url() const noexcept { return url_; }
  /// The next connection, non-blocking and with TCP_NODELAY; -1 if none is pending.
  int accept() const;

 private:
  void listen_tcp(const std::string& address);
  void listen_unix();
  Descriptor fd_;
  std::string url_, path_;
};

class Epoll {
 public:
  Epoll();
  void add(int fd, std::uint32_t events);
  void change(int fd, std::uint32_t events);
  int wait(epoll_event* events, int size, int timeout_ms = -1) const;

 private:
  Descriptor fd_;
};

/// Becomes readable on SIGINT or SIGTERM; from then on the signals have no other effect.
Descriptor end_signal();

}  // namespace limits
