// SPDX-License-Identifier: BSD-3-Clause
#include "metrics_server.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "conn/metrics.h"

namespace kv {

MetricsServer::MetricsServer(ae::EventLoop& loop, const conn::Registry& registry, Gather gather,
                             ae::Duration timeout)
    : loop_(loop), registry_(registry), gather_(std::move(gather)), timeout_(timeout) {}

MetricsServer::~MetricsServer() {
  listeners_.clear();
  while (!clients_.empty()) drop(clients_.begin()->first);
}

void MetricsServer::listen(const std::string& url) {
  listeners_.push_back(registry_.listen(
      loop_, url, [this](conn::ConnectionPtr connection) { accept(std::move(connection)); }));
}

std::vector<std::string> MetricsServer::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_)
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  return urls;
}

void MetricsServer::accept(conn::ConnectionPtr connection) {
  if (clients_.size() >= kMostClients) return;
  const std::uint64_t id = connection->id();
  Client& client = clients_[id];
  client.connection = std::move(connection);
  client.timer = loop_.add_time_event(timeout_, [this, id] {
    drop(id);
    return ae::kNoMore;
  });
  client.connection->set_read_handler([this, id](conn::Connection&) { read(id); });
}

void MetricsServer::read(std::uint64_t id) {
  Client& client = clients_.at(id);
  char bytes[4096];
  const ssize_t size = client.connection->read(bytes, sizeof bytes);
  if (size < 0 && errno == EAGAIN) return;
  const bool answered = !client.output.empty();
  // A client that half-closes after the request still gets the response.
  if (size == 0 && client.sent != client.output.size())
    return client.connection->set_read_handler(nullptr);
  if (size <= 0) return drop(id);
  if (answered) return;  // a body, or a further request, which is ignored
  client.request.append(bytes, static_cast<std::size_t>(size));
  const bool whole = client.request.find("\r\n\r\n") != std::string::npos;
  if (!whole && client.request.size() <= kMostHead) return;
  client.output = answer(client.request);
  send(id);
}

std::string MetricsServer::answer(const std::string& request) const {
  const auto response = [](std::string_view status, std::string_view type, std::string_view body) {
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
        status, type, body.size(), body);
  };
  if (request.starts_with("GET /metrics HTTP/1.") && request.size() <= kMostHead)
    return response("200 OK", conn::kMetricsContentType, gather_());
  return response("404 Not Found", "text/plain", "There is only GET /metrics.\n");
}

void MetricsServer::send(std::uint64_t id) {
  Client& client = clients_.at(id);
  conn::Connection& connection = *client.connection;
  while (client.sent < client.output.size()) {
    const ssize_t size =
        connection.write(client.output.data() + client.sent, client.output.size() - client.sent);
    if (size < 0 && errno != EAGAIN) return drop(id);
    if (size <= 0) {
      if (!connection.has_write_handler())
        connection.set_write_handler([this, id](conn::Connection&) { send(id); });
      return;
    }
    client.sent += static_cast<std::size_t>(size);
  }
  connection.set_write_handler(nullptr);
  // The client closes first: closing with unread bytes could reset the connection before the
  // response was delivered.
  if (!connection.has_read_handler() || connection.shutdown() != 0) drop(id);
}

void MetricsServer::drop(std::uint64_t id) {
  const auto found = clients_.find(id);
  loop_.remove_time_event(found->second.timer);
  clients_.erase(found);
}

}  // namespace kv
