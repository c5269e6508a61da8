// SPDX-License-Identifier: BSD-3-Clause
#include "conn/tcp/connected_socket.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include "conn/tcp/vsock.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

std::string ConnectedSocket::local_address() const { return local_sockaddr().to_string(); }

SocketAddress ConnectedSocket::local_sockaddr() const noexcept {
  if (!fd_) return {};
  SocketAddress local = local_address_of(fd_.get());
  if (is_vsock()) set_own_cid(local, peer_address_of(fd_.get()));
  return local;
}

SocketAddress ConnectedSocket::peer_sockaddr() const noexcept {
  if (client_) return client_->get();
  if (is_inet()) return peer_.get();
  return fd_ ? peer_address_of(fd_.get()) : SocketAddress{};
}

std::string ConnectedSocket::peer_address() const {
  return client_ ? client_->get().to_string() : other_end();
}

/// Returns the address of the other end of the socket.
std::string ConnectedSocket::other_end() const {
  if (is_inet()) return peer_.get().to_string();
  if (!fd_) return {};
  // A client's Unix socket usually has no name, so the listener's path is shown instead.
  std::string name = peer_address_of(fd_.get()).to_string();
  return name.empty() ? local_address_of(fd_.get()).to_string() : name;
}

std::optional<bool> ConnectedSocket::is_local() const {
  // Unknown behind a proxy: a loopback address of the client may belong to the proxy's machine.
  if (client_) return std::nullopt;
  if (is_unix()) return true;
  if (is_vsock()) return fd_ ? is_same_machine(fd_.get()) : std::nullopt;
  const SocketAddress remote = peer_.get();
  if (remote.size == 0) return std::nullopt;
  if (is_loopback(remote)) return true;
  if (!fd_) return std::nullopt;
  return local_address_of(fd_.get()).same_host(remote);
}

std::optional<PeerCredentials> ConnectedSocket::peer_credentials() const {
  // Behind a proxy the socket's credentials would be those of the proxy, not of the client.
  return is_unix() && fd_ && !client_ ? credentials_of(fd_.get()) : std::nullopt;
}

std::vector<std::pair<std::string, std::string>> ConnectedSocket::info() const {
  if (!fd_) return {};
  std::vector<std::pair<std::string, std::string>> facts{{"fd", std::to_string(fd_.get())}};
  facts.emplace_back("unsent", std::to_string(unsent_bytes(fd_.get())));
  if (client_) facts.emplace_back("proxy", printable(other_end()));
  if (is_unix()) {
    if (!client_) add_credentials(fd_.get(), facts);
    return facts;
  }
  if (!is_inet()) return facts;
  int nodelay = 0;
  socklen_t size = sizeof nodelay;
  if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &nodelay, &size) == 0) {
    facts.emplace_back("nodelay", nodelay != 0 ? "yes" : "no");
  }
  if (settings->mptcp) facts.emplace_back("mptcp", speaks_mptcp(fd_.get()) ? "yes" : "plain TCP");
  if (settings->zero_copy != 0)
    facts.emplace_back("zero-copy", zero_copy_given_up ? "given up" : "yes");
  return facts;
}

}}}  // namespace conn::tcp
