// SPDX-License-Identifier: BSD-3-Clause
#include "sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace limits {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int required(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

ListeningSocket::ListeningSocket(const std::string& url) : url_(url) {
  if (url.starts_with("tcp://")) {
    listen_tcp(url.substr(6));
  } else if (url.starts_with("unix:///")) {
    path_ = url.substr(7);
    listen_unix();
  } else {
    throw std::runtime_error("\"" + url + "\" is neither tcp://ADDRESS:PORT nor unix:///path");
  }
}

ListeningSocket::~ListeningSocket() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void ListeningSocket::listen_tcp(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (port.empty() || ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    throw std::runtime_error("\"" + url_ + "\" is not tcp://ADDRESS:PORT");
  }
  sockaddr_storage bound{};
  socklen_t size = found->ai_addrlen;
  std::memcpy(&bound, found->ai_addr, size);
  ::freeaddrinfo(found);
  auto* const raw = reinterpret_cast<sockaddr*>(&bound);
  fd_ = Descriptor(
      required(::socket(bound.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket"));
  const int on = 1;
  required(::setsockopt(fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "SO_REUSEADDR");
  required(::bind(fd(), raw, size), ("cannot listen on " + url_).c_str());
  required(::listen(fd(), 4096), "listen");
  required(::getsockname(fd(), raw, &size), "getsockname");
  const auto chosen =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  url_ = "tcp://" + address.substr(0, colon + 1) + std::to_string(chosen);
}

void ListeningSocket::listen_unix() {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path_.size() >= sizeof name.sun_path) throw std::runtime_error(path_ + " is too long");
  std::memcpy(name.sun_path, path_.c_str(), path_.size() + 1);
  struct stat old {};
  if (::stat(path_.c_str(), &old) == 0 && S_ISSOCK(old.st_mode)) ::unlink(path_.c_str());
  fd_ = Descriptor(
      required(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket"));
  required(::bind(fd(), reinterpret_cast<const sockaddr*>(&name), sizeof name),
           ("cannot listen on " + url_).c_str());
  required(::listen(fd(), 4096), "listen");
}

int ListeningSocket::accept() const {
  const int fd = ::accept4(fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return -1;
    required(fd, "accept4");
  }
  const int on = 1;
  if (path_.empty()) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

Epoll::Epoll() : fd_(required(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {}

void Epoll::add(int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  required(::epoll_ctl(fd_.get(), EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

void Epoll::change(int fd, std::uint32_t events) {
  epoll_event event{.events = events, .data = {.fd = fd}};
  required(::epoll_ctl(fd_.get(), EPOLL_CTL_MOD, fd, &event), "epoll_ctl");
}

int Epoll::wait(epoll_event* events, int size, int timeout_ms) const {
  const int count = ::epoll_wait(fd_.get(), events, size, timeout_ms);
  return count < 0 && errno == EINTR ? 0 : required(count, "epoll_wait");
}

Descriptor end_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  return Descriptor(required(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), "signalfd"));
}

}  // namespace limits
