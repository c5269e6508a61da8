// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The acceptor of one loop for tcp, unix and vsock: turns sockets accepted on another loop into
// connections of this loop.

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ae/abi.h"
#include "conn/core/acceptor_base.h"
#include "conn/tcp/socket.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// A socket that was accepted but is not a connection yet. Destroying this object closes the
/// socket.
class SocketPending final : public PendingConnection {
 public:
  /// `type`, whose listener has accepted the socket, must outlive this object.
  SocketPending(const SocketType& type, Accepted socket)
      : type_(type), socket_(std::move(socket)) {}
  std::string peer() const override { return socket_.client_address(); }
  void refuse(std::string_view why) noexcept override;
  Accepted take_socket() noexcept { return std::move(socket_); }

 private:
  const SocketType& type_;
  Accepted socket_;
};

/// Makes a connection in state kConnected from an accepted socket. Throws std::bad_alloc.
ConnectionPtr adopt_accepted(const SocketType& type, ae::EventLoop& loop,
                             std::shared_ptr<const Settings> settings, Accepted socket,
                             Quota::Place place);

class SocketAcceptor final : public AcceptorBase {
 public:
  SocketAcceptor(const SocketType& type, ae::EventLoop& loop,
                 std::shared_ptr<const Settings> settings, AcceptHandler accepted)
      : AcceptorBase(type, ConnectionSet::of(loop).ready(loop), settings->accept_batch,
                     std::move(accepted)),
        settings_(std::move(settings)) {}

 private:
  void begin(PendingConnectionPtr arrival) override;

  const std::shared_ptr<const Settings> settings_;
};

}}}  // namespace conn::tcp
