// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Serves GET /metrics over HTTP on any transport. Each connection serves one request and is closed
// after the response (Connection: close): scrapes are seconds apart.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ae/event_loop.h"
#include "conn/registry.h"
#include "http_request.h"

namespace kv {

/// Use on its loop's thread. Must not outlive the loop.
class MetricsServer {
 public:
  using Then = std::function<void(std::string text)>;
  /// Calls its argument with the text on the server's thread, at once or later. If it never does,
  /// the client is closed after kPatience.
  using Gather = std::function<void(Then)>;
  static constexpr std::size_t kMostClients = 64;  ///< further clients are closed at once
  static constexpr ae::Duration kPatience = std::chrono::seconds(10);  ///< for one exchange

  MetricsServer(ae::EventLoop& loop, const conn::Registry& registry, Gather gather,
                ae::Duration patience = kPatience);
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
    HttpRequest request;
    std::string output;
    std::size_t sent = 0;
    bool answered = false;  // there is output; only the end of the stream is read
    bool asked = false;     // the request is complete
  };

  void accept(conn::ConnectionPtr connection);
  void read(std::uint64_t id);
  void serve(std::uint64_t id, HttpRequest::Result result);
  void answer(std::uint64_t id, std::string text);
  void send(std::uint64_t id);
  void drop(std::uint64_t id);

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  const Gather gather_;
  const ae::Duration patience_;
  std::map<std::uint64_t, Client> clients_;  // by the connection's id
  std::shared_ptr<char> alive_ = std::make_shared<char>();
  std::vector<conn::ListenerPtr> listeners_;
};

}  // namespace kv
