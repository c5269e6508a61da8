// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Our loop inside the server's: one descriptor that the server polls as a listener's, the listeners
// behind it, and what is configured. One object, made at load; the server's main thread only,
// but for what says otherwise.

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

  /// URLs separated by spaces. Checks them; once listen() has run, listens on what is new and stops
  /// what is gone. Throws conn::Error with a sentence, having changed nothing.
  void set_urls(const std::string& urls);
  const std::string& urls() const noexcept { return urls_; }
  /// A scheme, and options after a "?", for replication to addresses that name none; empty: the
  /// server's own. Throws conn::Error with a sentence, having changed nothing.
  void set_replicate(const std::string& scheme);
  const std::string& replicate() const noexcept { return replicate_; }
  /// How long a server that loads from a connection waits for more: its repl-timeout.
  void set_patience(ae::Duration time) noexcept { patience_ = time; }
  ae::Duration patience() const noexcept { return patience_; }

  /// For the server's listener: begins to listen, and gives it the descriptor. Throws.
  void listen(ServerListener& listener);
  /// Valkey's rdma-port is to listen no more, or on what `listener` has now: listen() follows then.
  void close_port(ServerListener& listener) noexcept;
  /// Whether this is the server's main thread, the loop's. Any thread, also after end().
  static bool here() noexcept;
  /// To the loop. Any thread, also after end().
  static const ae::Poster& poster() noexcept;
  /// The server's turn: what is there is done.
  void turn(ServerLoop* of_server) noexcept;
  void before_sleep() noexcept;
  /// In a child that the server forks: it would keep the ports of a parent that is killed.
  static void forked() noexcept;
  /// The process ends in good order: what was written leaves, and peers hear of the end.
  static void end() noexcept;

  /// A server's object for a connection of ours, in the state `state`.
  ServerConnection* adopt(conn::ConnectionPtr peer);

 private:
  conn::ListenerPtr open(const std::string& url);
  void show_urls();
  /// INFO prints an address for each descriptor. We have one, and the server's rdma-bind may have
  /// no address.
  void show_in(ServerListener& listener) noexcept;

  conn::Registry registry_;
  ae::EpollLoop loop_;
  std::map<std::string, conn::ListenerPtr> listeners_;
  conn::ListenerPtr port_;
  std::string urls_, port_url_, replicate_;
  ae::Duration patience_ = std::chrono::seconds(60);
  bool listening_ = false;
  ServerLoop* of_server_ = nullptr;
  std::string shown_;  // what INFO prints
  char* bind_[1] = {shown_.data()};
};
extern Host* host;  // null after end(); main thread only

void log_warning(const std::string& sentence) noexcept;

/// The table of functions that the server calls.
extern ServerType our_type;
/// Makes the server's tcp and tls types hand addresses that are URLs to ours.
void hook_connects();
/// Null once the server has closed it, in a handler that still runs. Main thread only.
conn::Connection* connection_of(ServerConnection* object) noexcept;
/// Closes every connection; the server's objects stay, and its calls fail.
void close_all() noexcept;
/// Gives a fresh object of such a type our type and this connection.
void become_ours(ServerConnection* object, conn::ConnectionPtr peer, ServerState state);

}  // namespace aeconn_redis
