// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/tcp_type.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "conn/error.h"
#include "conn/kit/resolver.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {
namespace {

/// Returns whether `err` means that this machine does not have the address. bind() then skips the
/// address. It fails only if a host has no other address and is not optional (no "-" precedes it).
bool address_missing(int err) noexcept {
  return err == EADDRNOTAVAIL || err == EAFNOSUPPORT || err == ENOPROTOOPT ||
         err == EPROTONOSUPPORT || err == ESOCKTNOSUPPORT || err == EPFNOSUPPORT;
}

/// Listens on `address` and stores the socket in `out`. Returns the failure; empty: none.
Failure listen_on(const SocketAddress& address, const Settings& settings, Fd& out) {
  const auto failed = [&] {
    const int err = errno;
    return errno_failure(err, "listen on " + address.to_string());
  };
  Fd fd;
  if (const Failure why = open_socket_for(settings, address.family(), fd))
    return {why.code, "listen on " + address.to_string() + ": " + why.text};
  const int yes = 1;
  // SO_REUSEADDR lets a restarted server listen at once, while old connections are in TIME_WAIT.
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) return failed();
  if (settings.reuseport && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) != 0) {
    return failed();
  }
  // Makes the socket accept IPv6 only, so that a server can listen on "*" and "::" together.
  if (address.family() == AF_INET6 &&
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes) != 0) {
    return failed();
  }
  if (::bind(fd.get(), address.get(), address.size) != 0) return failed();
  if (::listen(fd.get(), settings.backlog) != 0) return failed();
  out = std::move(fd);
  return {};
}

}  // namespace

void TcpType::check_address(const Endpoint& endpoint) const {
  if (!endpoint.path.empty() || endpoint.hosts.empty()) {
    throw Error("a tcp URL needs a host, as in tcp://127.0.0.1:6379");
  }
  if (endpoint.no_port) throw Error("a tcp URL needs a port, as in tcp://127.0.0.1:6379");
}

std::vector<SocketType::Bound> TcpType::bind(const Endpoint& endpoint,
                                             const Settings& settings) const {
  // With port 0 the kernel chooses a port for the first address, and the others use the same one.
  // If that port is taken on one of them, all are bound again with another port.
  constexpr int kTries = 16;
  for (int attempt = 1;; ++attempt) {
    std::vector<Bound> sockets;
    std::uint16_t port = endpoint.port;
    Failure last;
    bool again = false;
    for (const Endpoint::Host& host : endpoint.hosts) {
      const Resolved found = resolve(host.name, port, true);
      if (found.failure) {
        last = found.failure;
        if (host.optional) continue;
        throw Error(last.code, endpoint.to_string() + ": " + last.text);
      }
      bool any = false;
      for (SocketAddress address : found.addresses) {
        address.set_port(port);
        Fd fd;
        if (Failure why = listen_on(address, settings, fd)) {
          last = std::move(why);
          const int err = last.code.value();
          if (err == EADDRINUSE && endpoint.port == 0 && port != 0 && attempt < kTries) {
            again = true;
            break;
          }
          // Skips the address: a name may have addresses of both families on a machine that
          // supports only one.
          if (address_missing(err)) continue;
          throw Error(last.code, endpoint.to_string() + ": " + last.text);
        }
        any = true;
        const SocketAddress local = local_address_of(fd.get());
        port = local.port();
        Endpoint real;
        real.scheme = endpoint.scheme;
        real.hosts.push_back({local.host(), false});
        real.port = port;
        sockets.push_back({std::move(fd), std::move(real), nullptr});
      }
      if (again) break;
      if (!any && !host.optional) throw Error(last.code, endpoint.to_string() + ": " + last.text);
    }
    if (again) continue;
    if (sockets.empty()) throw Error(last.code, endpoint.to_string() + ": " + last.text);
    return sockets;
  }
}

}}}  // namespace conn::tcp
