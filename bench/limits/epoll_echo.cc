// SPDX-License-Identifier: BSD-3-Clause
// Minimum cost of an echo over sockets: epoll, one read and one write per wake-up.
//
//   epoll-echo tcp://ADDRESS:PORT | unix:///path

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>

#include "echo_server.h"

namespace {

struct Nothing {};

class Socket {
 public:
  Socket(Nothing&, limits::Descriptor fd) : fd_(std::move(fd)) {}

  ssize_t read(std::byte* buffer, std::size_t size) const {
    const ssize_t count = ::read(fd_.get(), buffer, size);
    if (count > 0) return count;
    return count < 0 && (errno == EAGAIN || errno == EINTR) ? limits::kWantRead : limits::kEnd;
  }
  ssize_t write(const std::byte* bytes, std::size_t size) const {
    const ssize_t count = ::send(fd_.get(), bytes, size, MSG_NOSIGNAL);
    if (count >= 0) return count;
    return errno == EAGAIN || errno == EINTR ? limits::kWantWrite : limits::kEnd;
  }
  static bool more_inside() { return false; }

 private:
  limits::Descriptor fd_;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::fputs("usage: epoll-echo tcp://ADDRESS:PORT | unix:///path\n", stderr);
    return 1;
  }
  const limits::ListeningSocket listener(argv[1]);
  Nothing nothing;
  const auto server = std::make_unique<limits::EchoServer<Socket, Nothing>>(listener, nothing);
  std::printf("listening on %s\n", listener.url().c_str());
  std::fflush(stdout);
  server->run();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "epoll-echo: %s\n", error.what());
  return 1;
}
