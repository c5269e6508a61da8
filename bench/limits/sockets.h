// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What the socket echoes share: descriptors, a listening socket, a signal that ends them.

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

/// `result`, unless it is negative: then throws std::system_error for errno.
int required(int result, const char* what);

/// tcp://ADDRESS:PORT or unix:///path. Throws std::runtime_error with a sentence.
class ListeningSocket {
 public:
  explicit ListeningSocket(const std::string& url);
  ListeningSocket(const ListeningSocket&) = delete;
  ListeningSocket& operator=(const ListeningSocket&) = delete;
  ~ListeningSocket();  ///< removes the path of a Unix socket

  int fd() const noexcept { return fd_.get(); }
  /// The URL, with the port that the kernel chose for 0.
  const std::string& url() const noexcept { return url_; }
  /// The next connection, non-blocking, without Nagle's delay; -1 if none waits.
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

/// Readable once SIGINT or SIGTERM has come; they do nothing else from then on.
Descriptor end_signal();

}  // namespace limits
