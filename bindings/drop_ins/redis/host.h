// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our loop within the server's: a single descriptor that the server polls like a listener's, the
// listeners behind it, and the configuration. One object, created when the module is loaded. Use it
// on the server's main thread only, unless stated otherwise.

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "ae/epoll_loop.h"
#include "conn/transports/transports.h"
#include "drop_ins/redis/server_abi.h"

namespace aeconn_redis {

class Host {
 public:
  Host();
  ae::EpollLoop& loop() noexcept { return loop_; }
  const conn::Registry& registry() const noexcept { return registry_; }

  /// URLs separated by spaces. Validates them; after listen(), starts listening on new URLs and
  /// stops listening on removed ones. Throws conn::Error, having changed nothing.
  void set_urls(const std::string& urls);
  const std::string& urls() const noexcept { return urls_; }
  /// A scheme, and options after a "?", for replication to addresses without a scheme; empty: the
  /// server's own transport. Throws conn::Error, having changed nothing.
  void set_replicate(const std::string& scheme);
  const std::string& replicate() const noexcept { return replicate_; }
  /// Time-out of reads while the server loads data from a connection: its repl-timeout.
  void set_time_limit(ae::Duration time) noexcept { time_limit_ = time; }
  ae::Duration time_limit() const noexcept { return time_limit_; }

  /// Called for the server's listener: starts listening and stores our descriptor in it. Throws.
  void listen(ServerListener& listener);
  /// Stops listening on Valkey's rdma-port; if `listener` has a new port, listen() follows.
  void close_port(ServerListener& listener) noexcept;
  /// Whether the caller is on the server's main thread, which runs the loop. Any thread, even after
  /// end().
  static bool here() noexcept;
  /// Posts to the loop. Any thread, even after end().
  static const ae::Poster& poster() noexcept;
  /// Called when the server polls our descriptor: handles pending events.
  void turn(ServerLoop* of_server) noexcept;
  void before_sleep() noexcept;
  /// Called in a child that the server forks: closes listeners, which would otherwise keep the
  /// ports occupied if the parent is killed.
  static void forked() noexcept;
  /// Called at an orderly exit: written data is sent, and peers see the end of the connection.
  static void end() noexcept;

  /// Creates a server object in the state `state` for one of our connections.
  ServerConnection* adopt(conn::ConnectionPtr peer);

 private:
  conn::ListenerPtr open(const std::string& url);
  void show_urls();
  /// INFO prints one address per descriptor. We have one descriptor, and the server's rdma-bind may
  /// contain no address.
  void show_in(ServerListener& listener) noexcept;

  conn::Registry registry_;
  ae::EpollLoop loop_;
  std::map<std::string, conn::ListenerPtr> listeners_;
  conn::ListenerPtr port_;
  std::string urls_, port_url_, replicate_;
  ae::Duration time_limit_ = std::chrono::seconds(60);
  bool listening_ = false;
  ServerLoop* of_server_ = nullptr;
  std::string shown_;  // what INFO prints
  char* bind_[1] = {shown_.data()};
};
extern Host* host;  // null after end(); main thread only

void log_warning(const std::string& sentence) noexcept;

/// The table of functions that the server calls, once make_our_type() has filled it for the layout.
extern ServerType our_type;
void make_our_type();
/// Makes the server's tcp and tls types pass addresses that are URLs to our type.
void hook_connects();
/// Null if the server has closed it within a handler that is still running. Main thread only.
conn::Connection* connection_of(ServerConnection* object) noexcept;
/// Closes all connections; the server's objects remain, and calls on them fail.
void close_all() noexcept;
/// Gives a newly created server object our type and the connection.
void become_ours(ServerConnection* object, conn::ConnectionPtr peer, ServerState state);

}  // namespace aeconn_redis
