// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Echo server: the peer of a test connection.

#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/registry.h"

namespace doctor {

/// The echo connections of one loop.
class Echo {
 public:
  explicit Echo(ae::EventLoop& loop, const conn::Registry& registry)
      : loop_(loop), registry_(registry) {}

  /// Listens on `at` and returns the actual endpoints. Throws conn::Error.
  std::vector<conn::Endpoint> listen(const conn::Endpoint& at);

 private:
  struct Client {
    conn::ConnectionPtr connection;
    // bytes to echo; while there are any nothing is read, which slows the peer down
    std::string unsent;
  };
  void serve(Client& client);

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  std::unordered_map<conn::Connection*, Client> clients_;
  std::vector<conn::ListenerPtr> listeners_;
};

/// An echo server with its own loop and thread, until destruction.
class EchoThread {
 public:
  /// Starts the server on `at`. Throws conn::Error if it cannot listen.
  EchoThread(const conn::Registry& registry, const conn::Endpoint& at);
  ~EchoThread();
  EchoThread(const EchoThread&) = delete;
  EchoThread& operator=(const EchoThread&) = delete;

  const conn::Endpoint& at() const noexcept { return at_; }  ///< the endpoint, with the actual port

 private:
  ae::LibevLoop loop_;
  Echo echo_;
  conn::Endpoint at_;
  std::thread thread_;
};

}  // namespace doctor
