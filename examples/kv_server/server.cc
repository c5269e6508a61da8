#include "server.h"

#include <cerrno>
#include <chrono>

#include "conn/connection_type.h"

namespace kv {
namespace {

using namespace std::chrono_literals;

SessionInfo describe(const conn::Connection& connection) {
  SessionInfo info{std::string(connection.type().name()), connection.peer_address(),
                   connection.local_address(), connection.fd(),
                   [&connection] { return connection.info(); }};
  // A path has no port; clients expect one, as Redis shows it.
  if (info.peer.find(':') == std::string::npos) info.peer += ":0";
  return info;
}

}  // namespace

NetworkServer::Client::Client(conn::ConnectionPtr from, Server& server)
    : connection(std::move(from)),
      session(server, [&from = *connection] { return describe(from); }) {}

NetworkServer::NetworkServer(ae::EventLoop& loop, const conn::Registry& registry, Server& server)
    : loop_(loop),
      registry_(registry),
      server_(server),
      before_sleep_(loop.add_before_sleep([this] { flush_clients(); })),
      ticker_(loop.add_time_event(
          100ms, [this]() -> ae::Duration { return server_.tick() ? ae::Duration(1ms) : 100ms; })) {
  loop_.add_source(*this);
  server_.request_shutdown = [this](bool) { loop_.stop(); };
  server_.session_killed = [this](Session& session) {
    const auto found = clients_.find(session.id());
    if (found != clients_.end()) queue(*found->second);
  };
  server_.transport_sections = [this] {
    std::vector<InfoSection> sections;
    for (const auto& type : registry_.types()) {
      InfoSection& section =
          sections.emplace_back(InfoSection{"Transport_" + std::string(type->name()), {}});
      for (const auto& [name, value] : type->statistics(loop_)) {
        section.fields.emplace_back(name, std::to_string(value));
      }
    }
    return sections;
  };
}

NetworkServer::~NetworkServer() {
  server_.request_shutdown = nullptr;
  server_.session_killed = nullptr;
  server_.transport_sections = nullptr;
  loop_.remove_time_event(ticker_);
  loop_.remove_hook(before_sleep_);
  loop_.remove_source(*this);
}

void NetworkServer::listen(const std::string& url) {
  listeners_.push_back(registry_.listen(
      loop_, url, [this](conn::ConnectionPtr connection) { accept(std::move(connection)); }));
  listeners_.back()->on_refused(
      [this](const conn::Failure& failure) { server_.log_refused(failure.text); });
  server_.config.listen = urls();
}

std::vector<std::string> NetworkServer::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_) {
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  }
  return urls;
}

void NetworkServer::accept(conn::ConnectionPtr connection) {
  if (clients_.size() >= static_cast<std::size_t>(server_.config.maxclients)) {
    static constexpr std::string_view kRefusal = "-ERR max number of clients reached\r\n";
    connection->write(kRefusal.data(), kRefusal.size());
    ++server_.statistics.connections_rejected;
    return;
  }
  auto owned = std::make_unique<Client>(std::move(connection), server_);
  Client& client = *owned;
  clients_.emplace(client.session.id(), std::move(owned));
  watch(client);
}

/// Reads only what can be executed: the rest stays with the transport, which slows the peer down.
void NetworkServer::watch(Client& client) {
  const bool wanted = !client.busy && !client.ended && !client.session.wants_close();
  if (wanted == client.connection->has_read_handler()) return;
  if (!wanted) return client.connection->set_read_handler(nullptr);
  client.connection->set_read_handler([this, &client](conn::Connection&) { read(client); });
}

void NetworkServer::read(Client& client) {
  if (client.session.killed()) return;  // it goes before the loop sleeps
  std::span<char> room;
  try {
    room = client.session.prepare();
  } catch (const std::bad_alloc&) {
    return client.session.kill();  // the others go on
  }
  const ssize_t size = client.connection->read(room.data(), room.size());
  if (size < 0 && errno == EAGAIN) return;
  if (size <= 0) {
    // At end of stream the replies to what came before are still sent.
    client.ended = true;
    client.failed = size < 0;
    watch(client);
    return queue(client);
  }
  client.session.commit(static_cast<std::size_t>(size));
  run(client);
}

void NetworkServer::run(Client& client) {
  const Session::Progress progress = client.session.execute();
  server_.limit_clients_memory();
  client.busy = progress == Session::Progress::kMore || progress == Session::Progress::kHeld;
  if (progress == Session::Progress::kMore) busy_.push_back(&client);
  if (progress == Session::Progress::kHeld) {
    loop_.add_time_event(100ms, [this, id = client.session.id()] {
      const auto found = clients_.find(id);
      if (found != clients_.end()) run(*found->second);
      return ae::kNoMore;
    });
  }
  watch(client);
  queue(client);
}

std::size_t NetworkServer::process_pending() {
  running_.swap(busy_);
  for (Client* client : running_) run(*client);
  const std::size_t count = running_.size();
  running_.clear();
  return count;
}

void NetworkServer::queue(Client& client) {
  if (client.queued) return;
  client.queued = true;
  dirty_.push_back(&client);
}

void NetworkServer::flush_clients() {
  flushing_.swap(dirty_);
  for (Client* client : flushing_) {
    client->queued = false;
    if (!client->session.killed()) send(*client);
    if (finished(*client)) drop(*client);
  }
  flushing_.clear();
}

void NetworkServer::send(Client& client) {
  const std::string_view output = client.session.pending_output();
  if (!output.empty()) {
    const ssize_t size = client.connection->write(output.data(), output.size());
    if (size >= 0)
      client.session.consume_output(static_cast<std::size_t>(size));
    else if (errno != EAGAIN)
      client.failed = true;
  }
  const bool wait = !client.session.pending_output().empty();
  if (wait == client.connection->has_write_handler()) return;
  if (!wait) return client.connection->set_write_handler(nullptr);
  client.connection->set_write_handler([this, &client](conn::Connection&) { queue(client); });
}

bool NetworkServer::finished(const Client& client) {
  if (client.failed || client.session.killed()) return true;
  return client.session.pending_output().empty() &&
         (client.session.wants_close() || (client.ended && !client.busy));
}

void NetworkServer::drop(Client& client) {
  std::erase(busy_, &client);
  clients_.erase(client.session.id());
}

}  // namespace kv
