#pragma once
// Accepts on one or several sockets; tcp and unix share it.

#include <memory>
#include <vector>

#include "conn/listener.h"
#include "conn/tcp/socket_type.h"

namespace conn::tcp {

class SocketListener final : public Listener {
 public:
  SocketListener(const SocketType& type, ae::EventLoop& loop,
                 std::shared_ptr<const Settings> settings, std::vector<SocketType::Bound> sockets,
                 AcceptHandler accepted);
  ~SocketListener() override;

  const ConnectionType& type() const noexcept override { return type_; }
  std::vector<Endpoint> endpoints() const override;
  void pause() override;
  void resume() override;
  void on_refused(const RefusedHandler& handler) override;

 private:
  class Acceptor;
  friend class ListenerSet;
  const SocketType& type_;
  std::unique_ptr<Acceptor> acceptor_;  // outlives this while its accept handler is running
};

}  // namespace conn::tcp
