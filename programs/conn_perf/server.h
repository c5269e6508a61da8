// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The server's side: answers requests, takes and sends streams, tells what it all cost.

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

/// What all connections of a server share, on any of its loops.
struct ServerFacts {
  std::string options;  ///< of the command line
  std::unique_ptr<const Meter> meter;
  std::vector<LoopCounts> loops;
};

/// What the connections of one loop share.
struct ServerShared {
  const ServerFacts& facts;
  LoopCounts& counts;
  Payload payload;
  Batch batch;
  std::vector<char> room = std::vector<char>(256 << 10);  ///< for what one read() gives
  const ae::EventLoop* only_loop;                         ///< null where there are several

  ServerShared(const ServerFacts& of_all, LoopCounts& of_loop, const ae::EventLoop* only)
      : facts(of_all), counts(of_loop), only_loop(only) {}
};

/// One connection. It is gone once `ended` ran.
class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;
};

/// On one loop: all of a server, or the part of a ServerOnLoops that is this loop's.
class Server {
 public:
  /// With `echo` it sends back what it reads and understands nothing. `options` are for the record.
  Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, std::string options);
  /// The part for loop `index`. Borrows `facts`.
  Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, ServerFacts& facts,
         std::size_t index);

  /// Throws conn::Error.
  void listen(const std::string& url);
  std::vector<std::string> urls() const;

  /// Serves a connection. `controls`, if not null, counts those that ask for costs.
  void accept(conn::ConnectionPtr connection, Count* controls = nullptr);
  /// For sessions: `connection` is over; a reason is logged.
  void end(conn::Connection& connection, const std::string& reason);

 private:
  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  bool echo_;
  std::unique_ptr<ServerFacts> own_facts_;  // null for a part
  ServerShared shared_;
  std::vector<conn::ListenerPtr> listeners_;
  std::unordered_map<conn::Connection*, std::unique_ptr<Session>> sessions_;
};

/// How a listener says in the log whom it refused. Any thread.
void log_refused(const conn::Failure& failure);
/// Says which of a list of schemes are not served, and why.
void log_not_served(const std::string& url, const conn::Listener& listener);

/// `conn-perf server`: until SIGTERM or SIGINT.
void run_server(const std::vector<std::string>& urls, bool echo, const std::string& options,
                std::size_t loops, const ae::Spin& spin, const ae::LoopMaker& make);

}  // namespace perf
