// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Sockets that were accepted on another loop become connections of this one; tcp and unix share it.

#include <memory>
#include <string>
#include <utility>

#include "ae/abi.h"
#include "conn/core/pending_connection.h"
#include "conn/tcp/socket.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

/// An accepted socket. Dropping it closes it.
class SocketPending final : public PendingConnection {
 public:
  SocketPending(Fd fd, const SocketAddress& peer) : fd_(std::move(fd)), peer_(peer) {}
  std::string peer() const override { return peer_.to_string(); }

 private:
  friend class SocketLoopAcceptor;
  Fd fd_;
  const SocketAddress peer_;
};

/// Makes an accepted socket a connection, ready for data. Throws std::bad_alloc.
ConnectionPtr adopt_accepted(const SocketType& type, ae::EventLoop& loop,
                             std::shared_ptr<const Settings> settings, Fd fd,
                             const SocketAddress& peer, Quota::Place place);

class SocketLoopAcceptor final : public LoopAcceptor {
 public:
  SocketLoopAcceptor(const SocketType& type, ae::EventLoop& loop,
                     std::shared_ptr<const Settings> settings, AcceptHandler accepted);
  ~SocketLoopAcceptor() override;

  const ConnectionType& type() const noexcept override;
  void pause() override;
  void resume() override;
  void on_refused(const RefusedHandler& handler) override;
  void arrive(PendingConnectionPtr arrival) override;
  PendingConnectionPtr give_back() noexcept override;
  void refused(const Failure& why) override;

 private:
  struct Core;
  std::unique_ptr<Core> core_;  // outlives this while its accept handler is running
};

}}}  // namespace conn::tcp
