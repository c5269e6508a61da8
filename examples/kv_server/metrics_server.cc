// SPDX-License-Identifier: BSD-3-Clause
#include "metrics_server.h"

#include <array>
#include <cerrno>
#include <utility>

#include "conn/metrics.h"

namespace kv {
namespace {

constexpr std::string_view kPlain = "text/plain; charset=utf-8";

}  // namespace

MetricsServer::MetricsServer(ae::EventLoop& loop, const conn::Registry& registry, Gather gather,
                             ae::Duration patience)
    : loop_(loop), registry_(registry), gather_(std::move(gather)), patience_(patience) {}

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
  client.timer = loop_.add_time_event(patience_, [this, id] {
    drop(id);
    return ae::kNoMore;
  });
  client.connection->set_read_handler([this, id](conn::Connection&) { read(id); });
}

void MetricsServer::read(std::uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
  std::array<char, 4096> bytes;
  const ssize_t size = client.connection->read(bytes.data(), bytes.size());
  if (size < 0 && errno == EAGAIN) return;
  const bool waits = client.asked && (!client.answered || client.sent != client.output.size());
  // A client that half-closes after the request still gets the response.
  if (size == 0 && waits) return client.connection->set_read_handler(nullptr);
  if (size <= 0) return drop(id);
  if (client.asked) return;  // a body, or a further request, which is ignored
  const auto result = client.request.feed({bytes.data(), static_cast<std::size_t>(size)});
  if (result == HttpRequest::Result::kMore) return;
  client.asked = true;
  serve(id, result);
}

void MetricsServer::serve(std::uint64_t id, HttpRequest::Result result) {
  const HttpRequest& request = clients_.at(id).request;
  if (result == HttpRequest::Result::kBad)
    return answer(id, http_answer(400, kPlain, "This is no request of HTTP/1.1 or 1.0.\n"));
  if (result == HttpRequest::Result::kTooLarge)
    return answer(id, http_answer(431, kPlain, "The request's head is too large.\n"));
  if (request.path() != "/metrics" && request.path() != "/")
    return answer(
        id, http_answer(404, kPlain, "There is only /metrics.\n", request.method() != "HEAD"));
  if (request.method() != "GET")
    return answer(id, http_answer(405, kPlain, "There is only GET.\n", request.method() != "HEAD",
                                  "Allow: GET\r\n"));
  if (request.path() == "/")
    return answer(id, http_answer(200, kPlain, "kv-server: its metrics are at /metrics\n"));
  gather_([this, id, alive = std::weak_ptr<char>(alive_)](const std::string& text) {
    if (!alive.expired()) answer(id, http_answer(200, conn::kMetricsContentType, text));
  });
}

void MetricsServer::answer(std::uint64_t id, std::string text) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  found->second.output = std::move(text);
  found->second.answered = true;
  send(id);
}

void MetricsServer::send(std::uint64_t id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  Client& client = found->second;
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
  if (found == clients_.end()) return;
  loop_.remove_time_event(found->second.timer);
  clients_.erase(found);
}

}  // namespace kv
