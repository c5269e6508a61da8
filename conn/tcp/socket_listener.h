// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Accepts connections on one or several listening sockets; used by tcp, unix and vsock.

#include <memory>
#include <vector>

#include "ae/abi.h"
#include "conn/core/pending_connection.h"
#include "conn/tcp/socket_type.h"

namespace conn { inline namespace AECONN_ABI { namespace tcp {

class SocketListener final : public PortListener {
 public:
  SocketListener(const SocketType& type, ae::EventLoop& loop,
                 std::shared_ptr<const Settings> settings, std::vector<SocketType::Bound> sockets,
                 ListenTo to);
  ~SocketListener() override;

  const ConnectionType& type() const noexcept override { return type_; }
  std::vector<Endpoint> endpoints() const override;
  void pause() override;
  void hold_back() override;
  void resume() override;
  void on_refused(const RefusedHandler& handler) override;
  std::uint64_t max_connections() const override;
  bool leave(const Handoff* to) noexcept override;
  void arrive(ae::EventLoop& loop) override;

 private:
  class Acceptor;
  const SocketType& type_;
  // may outlive this object, until a running accept handler has returned
  std::unique_ptr<Acceptor> acceptor_;
};

}}}  // namespace conn::tcp
