// SPDX-License-Identifier: BSD-3-Clause
// How a SocketType creates connections and listeners, on new sockets and on sockets that the
// program hands over (adopt).

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>

#include "ae/core/fork.h"
#include "conn/core/make_connection.h"
#include "conn/error.h"
#include "conn/tcp/passed_descriptors.h"
#include "conn/tcp/socket_carrier.h"
#include "conn/tcp/socket_listener.h"
#include "conn/tcp/socket_receiver.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

std::unique_ptr<SocketListener> SocketType::listen_to(ae::EventLoop& loop, const Endpoint& endpoint,
                                                      ListenTo to) const {
  check(endpoint);
  std::shared_ptr<const Settings> settings = settings_for(endpoint.options);
  std::vector<Bound> sockets = bind(endpoint, *settings);
  return std::make_unique<SocketListener>(*this, loop, std::move(settings), std::move(sockets),
                                          std::move(to));
}

ListenerPtr SocketType::listen(ae::EventLoop& loop, const Endpoint& endpoint,
                               AcceptHandler accepted) const {
  return listen_to(loop, endpoint, {.accepted = std::move(accepted)});
}

PortListenerPtr SocketType::open_port(ae::EventLoop& loop, const Endpoint& endpoint,
                                      PendingHandler arrived) const {
  return listen_to(loop, endpoint, {.arrived = std::move(arrived)});
}

LoopAcceptorPtr SocketType::open_acceptor(ae::EventLoop& loop, const Endpoint& endpoint,
                                          AcceptHandler accepted) const {
  return std::make_unique<AcceptingListener>(AcceptorPtr<>(
      new SocketAcceptor(*this, loop, settings_for(endpoint.options), std::move(accepted))));
}

namespace {

[[noreturn]] void refuse(int fd, const std::string& why, std::error_code code = {}) {
  throw Error(code, "descriptor " + std::to_string(fd) + " cannot be taken over: " + why);
}
[[noreturn]] void refuse(int fd, int err) {
  refuse(fd, errno_text(err), {err, std::generic_category()});
}

int number_of(int fd, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  if (getsockopt(fd, SOL_SOCKET, option, &value, &size) != 0) refuse(fd, errno);
  return value;
}

void make_ours(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
      fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    refuse(fd, errno);
}

Endpoint endpoint_of(int fd, std::string_view scheme) {
  const SocketAddress local = local_address_of(fd);
  Endpoint endpoint;
  endpoint.scheme = scheme;
  if (local.family() == AF_UNIX) {
    endpoint.path = local.to_string();
  } else {
    endpoint.hosts.push_back({local.host(), false});
    endpoint.port = local.port();
  }
  return endpoint;
}

}  // namespace

/// Checks that `fd` is a stream socket of an address family that this type supports. Returns the
/// family. Throws Error.
int SocketType::check_socket(int fd) const {
  if (number_of(fd, SO_TYPE) != SOCK_STREAM) refuse(fd, "it is not a stream socket");
  const int family = number_of(fd, SO_DOMAIN);
  if (!is_family(family)) refuse(fd, "it is not a " + std::string(name()) + " socket");
  return family;
}

ConnectionPtr SocketType::adopt(ae::EventLoop& loop, int fd) const {
  const int family = check_socket(fd);
  if (number_of(fd, SO_ACCEPTCONN) != 0)
    refuse(fd, "it is no connection, it listens: adopt_listener() takes it");
  SocketAddress peer;
  peer.size = sizeof peer.storage;
  if (getpeername(fd, peer.get(), &peer.size) != 0) refuse(fd, errno);
  if (const Failure why = apply_way(*settings_, fd, family)) refuse(fd, why.text);
  make_ours(fd);
  auto [connection, carrier] = make_connection<SocketCarrier>(loop, *this, settings_);
  apply_to_adopted(*settings_, fd, family);
  Fd owner = family == AF_UNIX ? own_unix_socket(fd) : Fd(fd);
  if (family == AF_UNIX) {
    refuse_descriptors(fd);  // applies to later messages: earlier ones may contain descriptors
    want_no_credentials(fd);
  }
  carrier.adopt({std::move(owner), peer});
  return std::move(connection);
}

std::unique_ptr<SocketListener> SocketType::adopt_to(ae::EventLoop& loop, int fd,
                                                     const Options& options, ListenTo to) const {
  const Options all = options_.merged_with(options);
  auto settings = std::make_shared<const Settings>(parse(all));
  const int family = check_socket(fd);
  if (number_of(fd, SO_ACCEPTCONN) == 0)
    refuse(fd, "it does not listen: call listen() on it first, or adopt() if it is connected");
  // The listener uses a duplicate of `fd`, so that the caller still owns `fd` if a step fails here
  // or later.
  Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) refuse(fd, errno);
  if (const Failure why = apply_way(*settings, copy.get(), family)) refuse(fd, why.text);
  make_ours(copy.get());
  apply_to_adopted(*settings, copy.get(), family);
  std::function<void()> restore;
  struct Undo {  // if adopting fails, restores whether the kernel refuses descriptors
    ~Undo() {
      if (fd >= 0) refuse_descriptors(fd, refused);
    }
    int fd = -1;
    bool refused = false;
  } undo;
  if (family == AF_UNIX) {
    // Accepted sockets inherit both settings: whether the kernel refuses descriptors, and that it
    // reports no credentials. The former is restored when listening ends, because other code or
    // processes may share the listening socket.
    const bool refused = refuses_descriptors(copy.get());
    if (refused == takes_descriptors()) {
      restore = [shared = copy.get(), refused, made_here = ae::MadeHere()] {
        if (!made_here.inherited()) refuse_descriptors(shared, refused);
      };
      undo.fd = fd;
      undo.refused = refused;
    }
    refuse_descriptors(copy.get(), !takes_descriptors());
    want_no_credentials(copy.get());
  }
  if (all.has("backlog") && ::listen(copy.get(), settings->backlog) != 0) refuse(fd, errno);
  std::vector<Bound> sockets;
  Endpoint endpoint = endpoint_of(fd, name());
  sockets.push_back(
      {std::move(copy), std::move(endpoint), std::move(restore), true, all.has("backlog")});
  auto listener = std::make_unique<SocketListener>(*this, loop, std::move(settings),
                                                   std::move(sockets), std::move(to));
  undo.fd = -1;
  return listener;
}

ListenerPtr SocketType::adopt_listener(ae::EventLoop& loop, int fd, AcceptHandler accepted,
                                       const Options& options) const {
  ListenerPtr listener = adopt_to(loop, fd, options, {.accepted = std::move(accepted)});
  Fd(fd).reset();
  return listener;
}

PortListenerPtr SocketType::adopt_port(ae::EventLoop& loop, int fd, PendingHandler arrived,
                                       const Options& options) const {
  return adopt_to(loop, fd, options, {.arrived = std::move(arrived)});
}

ConnectionPtr SocketType::create(ae::EventLoop& loop) const {
  return make_connection<SocketCarrier>(loop, *this, settings_).first;
}

}}}  // namespace conn::tcp
