// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Server side: answers requests, receives and sends streams, reports the cost.

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/event_loop.h"
#include "ae/loop_names.h"
#include "conn/registry.h"
#include "facts.h"
#include "loop_counts.h"
#include "outbox.h"

namespace perf {

/// State shared by all connections of a server, on all loops.
struct ServerFacts {
  std::string options;  ///< the options of the command line
  std::unique_ptr<const Meter> meter;
  std::vector<LoopCounts> loops;
};

/// State shared by the connections of one loop.
struct ServerShared {
  const ServerFacts& facts;
  LoopCounts& counts;
  Payload payload;
  Batch batch;
  std::vector<char> room = std::vector<char>(256 << 10);  ///< buffer for one read()
  const ae::EventLoop* only_loop;  ///< the server's loop; null if it has several

  ServerShared(const ServerFacts& of_all, LoopCounts& of_loop, const ae::EventLoop* only)
      : facts(of_all), counts(of_loop), only_loop(only) {}
};

/// One connection. It is destroyed by Server::end().
class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;
};

/// A server on one loop: a whole server, or one loop's part of a ServerOnLoops.
class Server {
 public:
  /// With `echo`, returns all bytes uninterpreted. `options` are recorded in the report.
  Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, std::string options);
  /// Makes the part of a ServerOnLoops on loop `index`. Borrows `facts`.
  Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, ServerFacts& facts,
         std::size_t index);

  /// Listens on a URL. Throws conn::Error.
  void listen(const std::string& url);
  std::vector<std::string> urls() const;

  /// Serves a connection. `controls`, if not null, counts control connections.
  void accept(conn::ConnectionPtr connection, Count* controls = nullptr);
  /// Called by sessions when `connection` has ended; a non-empty reason is logged.
  void end(conn::Connection& connection, const std::string& reason);

 private:
  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  bool echo_;
  std::unique_ptr<ServerFacts> own_facts_;  // null if this is a part of a ServerOnLoops
  ServerShared shared_;
  std::vector<conn::ListenerPtr> listeners_;
  std::unordered_map<conn::Connection*, std::unique_ptr<Session>> sessions_;
};

/// Logs a connection attempt that failed or was refused by the listener. Thread-safe.
void log_refused(const conn::Failure& failure);
/// Logs which schemes of a list are not served, and why.
void log_not_served(const std::string& url, const conn::Listener& listener);

/// `conn-perf server`: serves until SIGTERM or SIGINT. Throws conn::Error; UsageError for URLs that
/// are invalid.
void run_server(const std::vector<std::string>& urls, bool echo, const std::string& options,
                std::size_t loops, const ae::Spin& spin, const ae::LoopMaker& make);

}  // namespace perf
