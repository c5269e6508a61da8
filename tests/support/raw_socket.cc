// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/raw_socket.h"

#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "conn/tcp/socket.h"

namespace testing {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

RawSocket::RawSocket(int fd) : fd_(fd) {
  if (fd < 0) fail("socket");
  const timeval limit{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

RawSocket& RawSocket::operator=(RawSocket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.fd_;
    other.fd_ = -1;
  }
  return *this;
}

RawSocket RawSocket::connect(const conn::Endpoint& to) {
  const conn::SocketAddress address =
      to.path.empty() ? conn::resolve(to.hosts.front().name, to.port, false).addresses.front()
                      : conn::tcp::unix_address(to.path);
  RawSocket made(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(made.fd_, address.get(), address.size) != 0) fail("connect");
  return made;
}

RawSocket RawSocket::listening(int backlog, const char* address) {
  const conn::SocketAddress where = conn::resolve(address, 0, true).addresses.front();
  RawSocket made(::socket(where.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(made.fd_, where.get(), where.size) != 0) fail("bind");
  if (::listen(made.fd_, backlog) != 0) fail("listen");
  return made;
}

RawSocket RawSocket::accept() const {
  return RawSocket(::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC));
}

conn::Endpoint RawSocket::endpoint() const {
  const conn::SocketAddress local = conn::tcp::local_address_of(fd_);
  conn::Endpoint endpoint;
  endpoint.scheme = "tcp";
  endpoint.hosts.push_back({local.host(), false});
  endpoint.port = local.port();
  return endpoint;
}

void RawSocket::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) fail("send");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::size_t RawSocket::send_what_fits(std::string_view bytes) const {
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n =
        ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) break;
    sent += static_cast<std::size_t>(n);
  }
  return sent;
}

std::string RawSocket::receive(std::size_t size) const {
  std::string bytes(size, '\0');
  std::size_t got = 0;
  while (got < size) {
    const ssize_t n = ::recv(fd_, bytes.data() + got, size - got, 0);
    if (n < 0) fail("recv");
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  bytes.resize(got);
  return bytes;
}

void RawSocket::close() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void RawSocket::reset() noexcept {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

int RawSocket::option(int level, int name) const {
  int value = -1;
  socklen_t size = sizeof value;
  if (getsockopt(fd_, level, name, &value, &size) != 0) fail("getsockopt");
  return value;
}

}  // namespace testing
