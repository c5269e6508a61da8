// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <linux/vm_sockets.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "conn/error.h"
#include "conn/tcp/passed_descriptors.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

// Sets a socket option and ignores errors: after an error the option has no effect. The kernel
// reduces a buffer size that exceeds its limit.
void set_option(int fd, int level, int name, int value) noexcept {
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

// IPPROTO_MPTCP, SOL_MPTCP and MPTCP_INFO, which older C libraries do not name
constexpr int kMptcp = 262, kMptcpLevel = 284, kMptcpInfo = 1;

int seconds(ae::Duration time) noexcept {
  return static_cast<int>(std::chrono::ceil<std::chrono::seconds>(time).count());
}

/// Returns true if a TCP socket is connected to itself. That can happen after a connect() to a port
/// of this host that has no listener and is in the ephemeral range: the kernel may choose that same
/// port as the local one.
bool connected_to_itself(int fd, const SocketAddress& to) noexcept {
  if (to.family() != AF_INET && to.family() != AF_INET6) return false;
  const SocketAddress local = local_address_of(fd);
  return local.port() == to.port() && local.same_host(to);
}

}  // namespace

Fd open_socket(int family, bool mptcp) noexcept {
  return Fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, mptcp ? kMptcp : 0));
}

Failure open_socket_for(const Settings& settings, int family, Fd& out) {
  Fd fd = open_socket(family, settings.mptcp);
  if (!fd) {
    const std::error_code code(errno, std::generic_category());
    // EPROTONOSUPPORT: the kernel was built without Multipath TCP; ENOPROTOOPT: it is switched off.
    if (settings.mptcp && (code.value() == EPROTONOSUPPORT || code.value() == ENOPROTOOPT)) {
      return {code,
              "option mptcp=yes: this kernel offers no Multipath TCP; set the sysctl "
              "net.mptcp.enabled to 1, or leave the option out"};
    }
    return {code, errno_text(code.value())};
  }
  if (family == AF_UNIX) {
    refuse_descriptors(fd.get());
    fd = own_unix_socket(fd.release());
  }
  apply(settings, fd.get(), family);
  if (Failure failure = apply_way(settings, fd.get(), family)) return failure;
  out = std::move(fd);
  return {};
}

bool speaks_mptcp(int fd) noexcept {
  int protocol = 0;
  socklen_t size = sizeof protocol;
  if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0 || protocol != kMptcp)
    return false;
  // The beginning of the kernel's struct mptcp_info: six numbers of one byte each and two unused
  // bytes, then the flags. The lowest flag says that the connection has fallen back to plain TCP.
  struct {
    std::array<std::uint8_t, 8> numbers;
    std::uint32_t flags;
  } info{};
  size = sizeof info;
  return getsockopt(fd, kMptcpLevel, kMptcpInfo, &info, &size) == 0 && (info.flags & 1U) == 0;
}

Failure apply_way(const Settings& settings, int fd, int family) {
  const auto failed = [](const std::string& option) {
    const int err = errno;
    std::string text = "option " + option + ": " + errno_text(err);
    if (err == ENODEV) text = "option " + option + ": this machine has no such network device";
    if (err == EPERM) text += "; the process needs the capability CAP_NET_ADMIN or CAP_NET_RAW";
    return Failure({err, std::generic_category()}, std::move(text));
  };
  if (settings.mark != 0 &&
      setsockopt(fd, SOL_SOCKET, SO_MARK, &settings.mark, sizeof settings.mark) != 0)
    return failed("mark=" + std::to_string(settings.mark));
  if (const std::string& device = settings.bind_device;
      !device.empty() && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, device.c_str(),
                                    static_cast<socklen_t>(device.size() + 1)) != 0)
    return failed("bind-device=" + device);
  if (settings.traffic_class < 0) return {};
  // Packets that an IPv6 socket sends over IPv4 have a field of their own for the traffic class.
  if (family == AF_INET6) set_option(fd, IPPROTO_IP, IP_TOS, settings.traffic_class);
  const int level = family == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  const int name = family == AF_INET6 ? IPV6_TCLASS : IP_TOS;
  if (setsockopt(fd, level, name, &settings.traffic_class, sizeof settings.traffic_class) != 0)
    return failed("traffic-class=" + std::to_string(settings.traffic_class));
  return {};
}

void apply(const Settings& settings, int fd, int family) noexcept {
  if (settings.send_buffer > 0) set_option(fd, SOL_SOCKET, SO_SNDBUF, settings.send_buffer);
  if (settings.receive_buffer > 0) set_option(fd, SOL_SOCKET, SO_RCVBUF, settings.receive_buffer);
  if (family != AF_INET && family != AF_INET6) return;
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
  if (family != AF_INET && family != AF_INET6) return;
  if (!settings.nodelay) set_option(fd, IPPROTO_TCP, TCP_NODELAY, 0);
  if (settings.keepalive == ae::Duration::zero()) set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
  if (settings.user_timeout == ae::Duration::zero())
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
}

/// Lets the kernel try for `limit` to connect the vsock socket `fd`; by default it tries for two
/// seconds.
static void set_connect_time(int fd, ae::Duration limit) noexcept {
  const auto us = std::chrono::ceil<std::chrono::microseconds>(limit).count();
  const timeval time{us / 1'000'000, us % 1'000'000};
  (void)setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &time, sizeof time);
}

int start_connect(int fd, const SocketAddress& to, const Settings& settings) noexcept {
  if (to.family() != AF_UNIX && settings.source.size != 0) {
    // The local port is chosen by connect() instead of bind(), so that connections to several
    // destinations can share a port.
    set_option(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
    if (to.family() != settings.source.family()) return EAFNOSUPPORT;
    if (::bind(fd, settings.source.get(), settings.source.size) != 0) return errno;
  }
  if (to.family() == AF_VSOCK) set_connect_time(fd, settings.connect_timeout);
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

SocketAddress local_address_of(int fd) noexcept {
  SocketAddress address;
  socklen_t size = sizeof address.storage;
  if (getsockname(fd, address.get(), &size) == 0) address.size = size;
  return address;
}

std::optional<PeerCredentials> credentials_of(int fd) noexcept {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return PeerCredentials{peer.pid, peer.uid, peer.gid};
}

void add_credentials(int fd, std::vector<std::pair<std::string, std::string>>& facts) {
  const std::optional<PeerCredentials> peer = credentials_of(fd);
  if (!peer) return;
  facts.emplace_back("peer-pid", std::to_string(peer->pid));
  facts.emplace_back("peer-uid", std::to_string(peer->uid));
  facts.emplace_back("peer-gid", std::to_string(peer->gid));
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
  // An abstract name is as long as the address says, so it has no NUL byte at its end.
  const bool abstract = is_abstract(path);
  if (path == "@") throw Error("the abstract name after '@' is missing, as in unix:@kv");
  if (!abstract && path.find('\0') != std::string::npos)
    throw Error("a socket's path cannot hold a NUL byte");
  const std::size_t most = sizeof local->sun_path - (abstract ? 0 : 1);
  if (path.size() > most) {
    throw Error((abstract ? "the abstract name " : "the path ") + path +
                " is too long for a Unix socket: " + std::to_string(path.size()) + " bytes, and " +
                std::to_string(most) + " is the limit");
  }
  local->sun_family = AF_UNIX;
  if (abstract) {
    // The kernel's form of an abstract name: a NUL byte takes the place of the '@'.
    std::memcpy(local->sun_path + 1, path.data() + 1, path.size() - 1);
    address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    return address;
  }
  std::memcpy(local->sun_path, path.c_str(), path.size() + 1);
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

int unsent_bytes(int fd) noexcept {
  int bytes = 0;
  return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

}}}  // namespace conn::tcp
