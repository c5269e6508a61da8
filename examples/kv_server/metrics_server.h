// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What INFO and GET /metrics report, and a server of GET /metrics over HTTP on any transport. Each
// connection serves one request and is closed after the response: scrapes are seconds apart.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ae/event_loop.h"
#include "conn/registry.h"
#include "server_state.h"

namespace kv {

/// What one loop reports.
struct Figures {
  Statistics statistics;
  std::size_t clients = 0, buffer_bytes = 0, left_behind = 0;
  std::map<std::string, std::size_t> clients_of;  ///< by transport
  std::vector<conn::SchemeStatistics> transports;
};
/// Call on the server's thread.
Figures figures_of(const Server& server);
/// The text of GET /metrics: the transports' statistics and the server's own figures. Any thread.
std::string metrics_of(std::span<const Figures> loops, Together& together);

/// Use on its loop's thread. Must not outlive the loop.
class MetricsServer {
 public:
  /// Returns the text of a response.
  using Gather = std::function<std::string()>;
  static constexpr std::size_t kMostClients = 64;  ///< further clients are closed at once
  static constexpr std::size_t kMostHead = 8192;   ///< bytes of a request
  static constexpr ae::Duration kTimeout = std::chrono::seconds(10);  ///< for one exchange

  MetricsServer(ae::EventLoop& loop, const conn::Registry& registry, Gather gather,
                ae::Duration timeout = kTimeout);
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;
  ~MetricsServer();

  /// Throws conn::Error.
  void listen(const std::string& url);
  std::vector<std::string> urls() const;

 private:
  struct Client {
    conn::ConnectionPtr connection;
    ae::TimerId timer{};
    std::string request, output;
    std::size_t sent = 0;
  };

  void accept(conn::ConnectionPtr connection);
  void read(std::uint64_t id);
  std::string answer(const std::string& request) const;
  void send(std::uint64_t id);
  void drop(std::uint64_t id);

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  const Gather gather_;
  const ae::Duration timeout_;
  std::map<std::uint64_t, Client> clients_;  // by the connection's id
  std::vector<conn::ListenerPtr> listeners_;
};

}  // namespace kv
