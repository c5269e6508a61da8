// SPDX-License-Identifier: BSD-3-Clause
#include "server.h"
#include "programs/service/descriptors.h"
#include "programs/service/limited_log.h"
#include "programs/service/signals.h"
#include "programs/service/standard_streams.h"

#include <fmt/format.h>

#include "ae/loop_group.h"
#include "conn/transports/transports.h"
#include "server_loops.h"
#include "server_session.h"
#include "usage.h"

namespace perf {

namespace {

std::unique_ptr<ServerFacts> facts_of_one_loop(std::string options) {
  auto facts = std::make_unique<ServerFacts>();
  facts->options = std::move(options);
  facts->meter = std::make_unique<Meter>();
  facts->loops = std::vector<LoopCounts>(1);
  return facts;
}

void write_log(const std::string& text) { service::complain("conn-perf", text); }

/// Log of failed connections and connection attempts, one per process.
service::LimitedLog& failures() {
  static service::LimitedLog log("connections failed");
  return log;
}
void log_failed(const std::string& line) {
  failures().add(service::LimitedLog::now(), line, write_log);
}
void sum_up_failed(ae::EventLoop& loop) {
  loop.add_time_event(std::chrono::seconds(1), []() -> ae::Duration {
    failures().sum_up(service::LimitedLog::now(), write_log);
    return std::chrono::seconds(1);
  });
}

}  // namespace

Server::Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, std::string options)
    : loop_(loop),
      registry_(registry),
      echo_(echo),
      own_facts_(facts_of_one_loop(std::move(options))),
      shared_(*own_facts_, own_facts_->loops.front(), &loop) {}

Server::Server(ae::EventLoop& loop, const conn::Registry& registry, bool echo, ServerFacts& facts,
               std::size_t index)
    : loop_(loop), registry_(registry), echo_(echo), shared_(facts, facts.loops[index], nullptr) {}

void Server::listen(const std::string& url) {
  listeners_.push_back(registry_.listen(
      loop_, url, [this](conn::ConnectionPtr connection) { accept(std::move(connection)); }));
  listeners_.back()->on_refused(log_refused);
  log_not_served(url, *listeners_.back());
}

std::vector<std::string> Server::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_) {
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  }
  return urls;
}

void Server::accept(conn::ConnectionPtr connection, Count* controls) {
  conn::Connection* const key = connection.get();
  if (echo_)
    sessions_[key] = std::make_unique<EchoSession>(std::move(connection), *this, shared_);
  else
    sessions_[key] =
        std::make_unique<ProtocolSession>(std::move(connection), *this, shared_, controls);
}

void Server::end(conn::Connection& connection, const std::string& reason) {
  if (!reason.empty()) {
    log_failed(fmt::format("{} connection {} of {}: {}", connection.type().name(), connection.id(),
                           connection.peer_address(), reason));
  }
  sessions_.erase(&connection);
}

void log_refused(const conn::Failure& failure) { log_failed(failure.text); }

void log_not_served(const std::string& url, const conn::Listener& listener) {
  const auto missing = listener.not_served();
  if (!missing.empty()) write_log(url + ": " + conn::describe(missing));
}

namespace {

void announce(const std::vector<std::string>& urls) {
  for (const std::string& url : urls) service::print("listening on " + url + '\n');
}

/// Serves on `count` loops, each on its own thread; this thread waits for signals and for their
/// end.
void run_on(std::size_t count, const std::vector<std::string>& urls, bool echo,
            const std::string& options, const ae::Spin& spin, const ae::LoopMaker& make) {
  const conn::Registry registry = conn::all_transports();
  for (const std::string& url : urls) (void)endpoint_of(registry, url);
  const auto its_loop = make(0);
  ae::EventLoop& loop = *its_loop;
  const auto end = [&loop, poster = loop.poster()] { (void)poster.post([&loop] { loop.stop(); }); };
  const service::Signals signals(loop, [&loop] { loop.stop(); });
  ae::LoopGroup loops({.loops = count, .name = "perf", .make = make});
  loops.on_each([&spin](ae::EventLoop& each, std::size_t) { each.set_spin(spin); });
  {
    ServerOnLoops server(loops, registry, echo, options);
    server.on_loop_left(end);
    for (const std::string& url : urls) server.listen(url);
    announce(server.urls());
    sum_up_failed(loop);
    loop.run();
  }
  loops.stop();
  loops.run();  // rethrows what ended a loop
}

}  // namespace

void run_server(const std::vector<std::string>& urls, bool echo, const std::string& options,
                std::size_t loops, const ae::Spin& spin, const ae::LoopMaker& make) {
  service::allow_descriptors();
  if (loops > 1) return run_on(loops, urls, echo, options, spin, make);
  const conn::Registry registry = conn::all_transports();  // outlives everything created from it
  for (const std::string& url : urls) (void)endpoint_of(registry, url);
  const auto its_loop = make(0);
  ae::EventLoop& loop = *its_loop;
  loop.set_spin(spin);
  const service::Signals signals(loop, [&loop] { loop.stop(); });
  Server server(loop, registry, echo, options);
  for (const std::string& url : urls) server.listen(url);
  announce(server.urls());
  sum_up_failed(loop);
  loop.run();
}

}  // namespace perf
