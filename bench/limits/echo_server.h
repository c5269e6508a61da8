// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A single-threaded, level-triggered echo on epoll: one read and one write per wake-up of a
// connection. Bytes that a write did not accept are kept for the connection, which is not read
// meanwhile.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <vector>

#include "sockets.h"

namespace limits {

/// Results of a Stream's read or write other than a byte count.
enum : ssize_t { kWantRead = -1, kWantWrite = -2, kEnd = -3 };

/// Stream: constructible from (Context&, Descriptor), with
///   ssize_t read(std::byte*, std::size_t), ssize_t write(const std::byte*, std::size_t):
///     a positive number of bytes, or one of the constants above;
///   bool more_inside(): read() has buffered data that the descriptor will not announce.
template <class Stream, class Context>
class EchoServer {
 public:
  EchoServer(const ListeningSocket& listener, Context& context)
      : listener_(listener), context_(context), signal_(end_signal()) {
    epoll_.add(listener_.fd(), EPOLLIN);
    epoll_.add(signal_.get(), EPOLLIN);
  }

  /// Runs until SIGINT or SIGTERM.
  void run() {
    std::array<epoll_event, 256> events;
    for (;;) {
      const int count = epoll_.wait(events.data(), static_cast<int>(events.size()));
      for (int i = 0; i < count; ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == signal_.get()) return;
        if (fd == listener_.fd()) {
          accept();
        } else {
          serve(fd);
        }
      }
    }
  }

 private:
  struct Connection {
    Connection(Context& context, int fd) : stream(context, Descriptor(fd)) {}
    Stream stream;
    std::uint32_t interest = EPOLLIN;
    std::vector<std::byte> kept;  // read but not yet written, starting at `next`
    std::size_t next = 0;
  };

  void accept() {
    for (int i = 0; i < 64; ++i) {
      const int fd = listener_.accept();
      if (fd < 0) return;
      const auto index = static_cast<std::size_t>(fd);
      if (connections_.size() <= index) connections_.resize(index + 1);
      connections_[index] = std::make_unique<Connection>(context_, fd);
      epoll_.add(fd, EPOLLIN);
    }
  }

  void serve(int fd) {
    std::unique_ptr<Connection>& connection = connections_[static_cast<std::size_t>(fd)];
    const ssize_t wanted = echo(*connection);
    if (wanted == kEnd) {
      connection.reset();
      return;
    }
    const std::uint32_t interest = wanted == kWantRead ? EPOLLIN : EPOLLOUT;
    if (connection->interest == interest) return;
    epoll_.change(fd, interest);
    connection->interest = interest;
  }

  /// Returns which event the connection waits for.
  ssize_t echo(Connection& connection) {
    if (!connection.kept.empty()) {
      const ssize_t wanted = write_kept(connection);
      if (!connection.kept.empty()) return wanted;
    }
    do {
      const ssize_t size = connection.stream.read(buffer_.data(), buffer_.size());
      if (size < 0) return size;
      const ssize_t written =
          connection.stream.write(buffer_.data(), static_cast<std::size_t>(size));
      if (written == kEnd) return kEnd;
      if (written == size) continue;
      connection.kept.assign(buffer_.data() + (written > 0 ? written : 0), buffer_.data() + size);
      return written > 0 ? ssize_t{kWantWrite} : written;
    } while (connection.stream.more_inside());
    return kWantRead;
  }

  ssize_t write_kept(Connection& connection) {
    std::vector<std::byte>& kept = connection.kept;
    const ssize_t written =
        connection.stream.write(kept.data() + connection.next, kept.size() - connection.next);
    if (written < 0) return written;
    connection.next += static_cast<std::size_t>(written);
    if (connection.next == kept.size()) {
      kept = {};
      connection.next = 0;
    }
    return kWantWrite;
  }

  const ListeningSocket& listener_;
  Context& context_;
  Descriptor signal_;
  Epoll epoll_;
  std::vector<std::unique_ptr<Connection>> connections_;  // by descriptor
  std::array<std::byte, 64 * 1024> buffer_;
};

}  // namespace limits
