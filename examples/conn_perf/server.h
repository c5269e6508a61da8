#pragma once
// The server's side: answers requests, takes and sends streams, tells what it all cost.

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ae/event_loop.h"
#include "conn/registry.h"
#include "facts.h"
#include "outbox.h"

namespace perf {

/// What the connections of a server share.
struct ServerShared {
  Payload payload;
  Batch batch;
  std::vector<char> room = std::vector<char>(256 << 10);  ///< for what one read() gives
  Meter meter;
  std::string options;  ///< of the command line
};

/// One connection. It is gone once `ended` ran.
class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;
};

class Server {
 public:
  /// With `echo` it sends back what it reads and understands nothing. `options` are for the record.
  Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, std::string options);

  /// Throws conn::Error.
  void listen(const std::string& url);
  std::vector<std::string> urls() const;

  /// For sessions: `connection` is over; a reason is logged.
  void end(conn::Connection& connection, const std::string& reason);

 private:
  void accept(conn::ConnectionPtr connection);

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  bool echo_;
  ServerShared shared_;
  std::vector<conn::ListenerPtr> listeners_;
  std::unordered_map<conn::Connection*, std::unique_ptr<Session>> sessions_;
};

/// `conn-perf server`: until SIGTERM or SIGINT.
void run_server(const std::vector<std::string>& urls, bool echo, const std::string& options);

}  // namespace perf
