// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The other end of a dial: sends back what it gets.

#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "ae/libev_loop.h"
#include "conn/registry.h"

namespace doctor {

/// Connections of one loop, each with its echo.
class Echo {
 public:
  explicit Echo(ae::EventLoop& loop, const conn::Registry& registry)
      : loop_(loop), registry_(registry) {}

  /// Where it listens. Throws conn::Error.
  std::vector<conn::Endpoint> listen(const conn::Endpoint& at);

 private:
  struct Client {
    conn::ConnectionPtr connection;
    std::string unsent;  // while there is some, nothing is read: a peer that reads slowly is slowed
  };
  void serve(Client& client);

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  std::unordered_map<conn::Connection*, Client> clients_;
  std::vector<conn::ListenerPtr> listeners_;
};

/// An echo with a loop and thread of its own, until it is destroyed.
class EchoThread {
 public:
  /// Throws conn::Error where it cannot listen.
  EchoThread(const conn::Registry& registry, const conn::Endpoint& at);
  ~EchoThread();
  EchoThread(const EchoThread&) = delete;
  EchoThread& operator=(const EchoThread&) = delete;

  const conn::Endpoint& at() const noexcept { return at_; }  ///< with the port that it got

 private:
  ae::LibevLoop loop_;
  Echo echo_;
  conn::Endpoint at_;
  std::thread thread_;
};

}  // namespace doctor
