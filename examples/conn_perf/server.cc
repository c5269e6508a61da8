#include "server.h"

#include <fmt/format.h>

#include <iostream>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"
#include "descriptors.h"
#include "server_session.h"
#include "signals.h"

namespace perf {

Server::Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, std::string options)
    : loop_(loop), registry_(registry), echo_(echo) {
  shared_.options = std::move(options);
}

void Server::listen(const std::string& url) {
  listeners_.push_back(registry_.listen(
      loop_, url, [this](conn::ConnectionPtr connection) { accept(std::move(connection)); }));
  listeners_.back()->on_refused(
      [](const conn::Failure& failure) { std::cerr << "conn-perf: " << failure.text << '\n'; });
}

std::vector<std::string> Server::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_) {
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  }
  return urls;
}

void Server::accept(conn::ConnectionPtr connection) {
  conn::Connection* const key = connection.get();
  if (echo_)
    sessions_[key] = std::make_unique<EchoSession>(std::move(connection), *this, shared_);
  else
    sessions_[key] = std::make_unique<ProtocolSession>(std::move(connection), *this, shared_);
}

void Server::end(conn::Connection& connection, const std::string& reason) {
  if (!reason.empty()) {
    std::cerr << fmt::format("conn-perf: {} connection {} of {}: {}\n", connection.type().name(),
                             connection.id(), connection.peer_address(), reason);
  }
  sessions_.erase(&connection);
}

void run_server(const std::vector<std::string>& urls, bool echo, const std::string& options) {
  allow_descriptors();
  const conn::Registry registry = conn::all_transports();  // outlives what is made of it
  ae::LibevLoop loop;
  const Signals signals(loop, [&loop] { loop.stop(); });
  Server server(loop, registry, echo, options);
  for (const std::string& url : urls) server.listen(url);
  for (const std::string& url : server.urls()) std::cout << "listening on " << url << std::endl;
  loop.run();
}

}  // namespace perf
