// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The socket of a connection and the addresses of its ends, from which the facts of the connection
// (CarrierFacts) are read.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/kit/resolver.h"
#include "conn/spi/carrier.h"
#include "conn/tcp/settings.h"
#include "conn/tcp/socket.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class ConnectedSocket : public CarrierFacts {
 public:
  explicit ConnectedSocket(std::shared_ptr<const Settings> its) noexcept
      : settings(std::move(its)) {}

  /// Takes over the socket `its`, whose other end is `peer`.
  void set(Fd its, const SocketAddress& peer) noexcept {
    fd_ = std::move(its);
    peer_ = CompactAddress(peer);
  }
  /// Sets the address of the client whose proxy is the peer. Throws std::bad_alloc.
  void set_client(const SocketAddress& client) {
    client_ = std::make_unique<const CompactAddress>(client);
  }
  /// The descriptor; empty before the connection is established, and once it is closed.
  Fd& descriptor() noexcept { return fd_; }
  bool is_unix() const noexcept { return peer_.family() == AF_UNIX; }
  bool is_vsock() const noexcept { return peer_.family() == AF_VSOCK; }
  /// Whether this is a TCP socket. Only TCP sockets linger after close(): on others, the kernel
  /// always delivers the bytes that the socket has accepted.
  bool is_inet() const noexcept { return !is_unix() && !is_vsock(); }

  std::string local_address() const override;
  std::string peer_address() const override;
  SocketAddress local_sockaddr() const noexcept override;
  SocketAddress peer_sockaddr() const noexcept override;
  std::optional<bool> is_local() const override;
  int fd() const noexcept override { return fd_.get(); }
  std::vector<std::pair<std::string, std::string>> info() const override;
  std::optional<PeerCredentials> peer_credentials() const override;

  std::shared_ptr<const Settings> settings;  ///< the options of the connection
  bool zero_copy_given_up = false;           ///< true if send() copies, despite option zero-copy

 private:
  std::string other_end() const;

  Fd fd_;
  CompactAddress peer_;  // peer's address; for unix and vsock only its family (the rest is queried)
  // Address of the client whose proxy is the peer; null: the peer is the client itself.
  std::unique_ptr<const CompactAddress> client_;
};

}}}  // namespace conn::tcp
