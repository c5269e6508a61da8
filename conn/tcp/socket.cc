// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "conn/error.h"
#include "conn/kit/interruption.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

// Sets a socket option and ignores errors: after an error the option has no effect. The kernel
// reduces a buffer size that exceeds its limit.
void set_option(int fd, int level, int name, int value) noexcept {
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

int seconds(ae::Duration time) noexcept {
  return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(time).count());
}

/// Returns true if a TCP socket is connected to itself. That can happen after a connect() to a port
/// of this host that has no listener and is in the ephemeral range: the kernel may choose that same
/// port as the local one.
bool connected_to_itself(int fd, const SocketAddress& to) noexcept {
  if (to.family() == AF_UNIX) return false;
  const SocketAddress local = local_address_of(fd);
  return local.port() == to.port() && local.same_host(to);
}

}  // namespace

Fd open_socket(int family) noexcept {
  return Fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

void apply(const Settings& settings, int fd, int family) noexcept {
  if (settings.send_buffer > 0) set_option(fd, SOL_SOCKET, SO_SNDBUF, settings.send_buffer);
  if (settings.receive_buffer > 0) set_option(fd, SOL_SOCKET, SO_RCVBUF, settings.receive_buffer);
  if (family == AF_UNIX) return;
  if (settings.nodelay) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  if (settings.keepalive > ae::Duration::zero()) {
    // Sets the same keepalive intervals as Redis does: with option keepalive=300s a dead peer is
    // detected after 600 s at most.
    const int idle = std::min(seconds(settings.keepalive), 32767);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(idle / 3, 1));
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  }
  if (settings.user_timeout > ae::Duration::zero()) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(settings.user_timeout).count();
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(ms));
  }
}

void apply_to_adopted(const Settings& settings, int fd, int family) noexcept {
  apply(settings, fd, family);
  if (family == AF_UNIX) return;
  if (!settings.nodelay) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 0);
  if (settings.keepalive == ae::Duration::zero()) set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
  if (settings.user_timeout == ae::Duration::zero())
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

int start_connect(int fd, const SocketAddress& to, const Settings& settings) noexcept {
  if (to.family() != AF_UNIX && settings.source.size != 0) {
    // The local port is chosen by connect() instead of bind(), so that connections to several
    // destinations can share a port.
    set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (to.family() != settings.source.family()) return EAFNOSUPPORT;
    if (::bind(fd, settings.source.get(), settings.source.size) != 0) return errno;
  }
  if (::connect(fd, to.get(), to.size) == 0) {
    return connected_to_itself(fd, to) ? ECONNREFUSED : 0;
  }
  // A connect() that a signal interrupts (EINTR) continues in the background.
  return errno == EINTR ? EINPROGRESS : errno;
}

int connect_result(int fd) noexcept {
  int err = 0;
  socklen_t size = sizeof err;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size) != 0) return errno;
  if (err != 0) return err;
  const SocketAddress peer = peer_address_of(fd);
  if (peer.size == 0) return ENOTCONN;
  return connected_to_itself(fd, peer) ? ECONNREFUSED : 0;
}

bool poll_until(int fd, short events, ae::TimePoint deadline) noexcept {
  while (!Interruption::ends()) {
    const ae::Duration left =
        std::max(ae::Duration(deadline - std::chrono::steady_clock::now()), ae::Duration::zero());
    const auto whole = std::chrono::floor<std::chrono::seconds>(left);
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(whole.count());
    timeout.tv_nsec = static_cast<long>((left - whole).count());
    pollfd entry{fd, events, 0};
    const int rc = ppoll(&entry, 1, &timeout, nullptr);
    if (rc > 0) return true;
    if (rc == 0) return false;
    // poll(2) itself failed: the caller's next operation on the socket reports the error
    if (errno != EINTR) return true;
    (void)Interruption::came();
  }
  return false;
}

SocketAddress local_address_of(int fd) noexcept {
  SocketAddress address;
  socklen_t size = sizeof address.storage;
  if (getsockname(fd, address.get(), &size) == 0) address.size = size;
  return address;
}

SocketAddress peer_address_of(int fd) noexcept {
  SocketAddress address;
  socklen_t size = sizeof address.storage;
  if (getpeername(fd, address.get(), &size) == 0) address.size = size;
  return address;
}

SocketAddress unix_address(const std::string& path) {
  SocketAddress address;
  auto* local = reinterpret_cast<sockaddr_un*>(address.get());
  if (path.empty()) throw Error("a unix endpoint needs the path of its socket");
  if (path.find('\0') != std::string::npos) throw Error("a socket's path cannot hold a NUL byte");
  if (path.size() >= sizeof local->sun_path) {
    throw Error("the path " + path +
                " is too long for a Unix socket: " + std::to_string(path.size()) + " bytes, and " +
                std::to_string(sizeof local->sun_path - 1) + " is the limit");
  }
  local->sun_family = AF_UNIX;
  std::memcpy(local->sun_path, path.c_str(), path.size() + 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

int unsent_bytes(int fd) noexcept {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}}}  // namespace conn::tcp
