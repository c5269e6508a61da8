#include "server.h"

#include <cerrno>
#include <chrono>

#include "conn/connection_type.h"
#include "together.h"

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

template <class OneSession>
LoopNetwork<OneSession>::Client::Client(conn::ConnectionPtr from, Server& server)
    : connection(std::move(from)),
      session(server, [&from = *connection] { return describe(from); }) {}

template <class OneSession>
LoopNetwork<OneSession>::LoopNetwork(ae::EventLoop& loop, const conn::Registry& registry,
                                     Server& server)
    : loop_(loop),
      registry_(registry),
      server_(server),
      before_sleep_(loop.add_before_sleep([this] { flush_clients(); })),
      ticker_(loop.add_time_event(
          100ms, [this]() -> ae::Duration { return server_.tick() ? ae::Duration(1ms) : 100ms; })) {
  loop_.add_source(*this);
  if constexpr (!kDivided) server_.request_shutdown = [this](bool) { loop_.stop(); };
  server_.session_killed = [this](Session& session) {
    const auto found = clients_.find(session.id());
    if (found != clients_.end()) queue(*found->second);
  };
  server_.session_ready = [this](Session& session) {
    const auto found = clients_.find(session.id());
    if (found != clients_.end()) run(*found->second);
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
    const ae::LoopTimes times = loop_.times();
    if (times.busy + times.spun + times.slept == ae::Duration::zero()) return sections;
    InfoSection& told = sections.emplace_back(InfoSection{"Loop", {}});
    const auto add = [&told](const char* name, auto value) {
      told.fields.emplace_back(name, std::to_string(value));
    };
    add("loop_busy_ns", times.busy.count());
    add("loop_spun_ns", times.spun.count());
    add("loop_slept_ns", times.slept.count());
    add("spin_hits", times.spin_hits);
    add("spin_misses", times.spin_misses);
    add("spin_probes", times.spin_probes);
    add("spin_budget_ns", times.spin_budget.count());
    add("sleep_cost_ns", times.sleep_cost.count());
    return sections;
  };
}

template <class OneSession>
LoopNetwork<OneSession>::~LoopNetwork() {
  server_.request_shutdown = nullptr;
  server_.session_killed = nullptr;
  server_.session_ready = nullptr;
  server_.transport_sections = nullptr;
  if constexpr (kDivided) {
    for (std::size_t i = 0; i < clients_.size(); ++i) server_.together->leave_client();
  }
  loop_.remove_time_event(ticker_);
  loop_.remove_hook(before_sleep_);
  loop_.remove_source(*this);
}

template <class OneSession>
void LoopNetwork<OneSession>::listen(const std::string& url) {
  listeners_.push_back(registry_.listen(
      loop_, url, [this](conn::ConnectionPtr connection) { accept(std::move(connection)); }));
  listeners_.back()->on_refused(
      [this](const conn::Failure& failure) { server_.log_refused(failure.text); });
  server_.config.listen = urls();
}

template <class OneSession>
std::vector<std::string> LoopNetwork<OneSession>::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_) {
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  }
  return urls;
}

template <class OneSession>
void LoopNetwork<OneSession>::accept(conn::ConnectionPtr connection) {
  if (full()) {
    static constexpr std::string_view kRefusal = "-ERR max number of clients reached\r\n";
    connection->write(kRefusal.data(), kRefusal.size());
    ++server_.statistics.connections_rejected;
    return;
  }
  try {
    auto owned = std::make_unique<Client>(std::move(connection), server_);
    Client& client = *owned;
    clients_.emplace(client.session.id(), std::move(owned));
    watch(client);
  } catch (...) {
    if constexpr (kDivided) server_.together->leave_client();
    throw;
  }
}

/// Several loops count together: that happens when a client comes and when it goes.
template <class OneSession>
bool LoopNetwork<OneSession>::full() {
  if constexpr (kDivided) return !server_.together->enter_client(server_.config.maxclients);
  return clients_.size() >= static_cast<std::size_t>(server_.config.maxclients);
}

/// Reads only what can be executed: the rest stays with the transport, which slows the peer down.
template <class OneSession>
void LoopNetwork<OneSession>::watch(Client& client) {
  const bool wanted = !client.busy && !client.ended && !client.session.wants_close();
  if (wanted == client.connection->has_read_handler()) return;
  if (!wanted) return client.connection->set_read_handler(nullptr);
  client.connection->set_read_handler([this, &client](conn::Connection&) { read(client); });
}

template <class OneSession>
void LoopNetwork<OneSession>::read(Client& client) {
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

template <class OneSession>
void LoopNetwork<OneSession>::run(Client& client) {
  const Session::Progress progress = client.session.execute();
  if constexpr (kDivided)
    server_.limit_clients_memory_of_all();
  else
    server_.limit_clients_memory();
  client.busy = progress == Session::Progress::kMore || progress == Session::Progress::kHeld;
  if constexpr (kDivided) client.busy |= progress == Session::Progress::kWaits;
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

template <class OneSession>
std::size_t LoopNetwork<OneSession>::process_pending() {
  running_.swap(busy_);
  for (Client* client : running_) run(*client);
  const std::size_t count = running_.size();
  running_.clear();
  return count;
}

template <class OneSession>
void LoopNetwork<OneSession>::queue(Client& client) {
  if (client.queued) return;
  client.queued = true;
  dirty_.push_back(&client);
}

template <class OneSession>
void LoopNetwork<OneSession>::flush_clients() {
  flushing_.swap(dirty_);
  for (Client* client : flushing_) {
    client->queued = false;
    if (!client->session.killed()) send(*client);
    if (finished(*client)) drop(*client);
  }
  flushing_.clear();
  if constexpr (kDivided) server_.together->publish(server_, false);
}

template <class OneSession>
void LoopNetwork<OneSession>::send(Client& client) {
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

template <class OneSession>
bool LoopNetwork<OneSession>::finished(const Client& client) {
  if (client.failed || client.session.killed()) return true;
  return client.session.pending_output().empty() &&
         (client.session.wants_close() || (client.ended && !client.busy));
}

template <class OneSession>
void LoopNetwork<OneSession>::drop(Client& client) {
  std::erase(busy_, &client);
  clients_.erase(client.session.id());
  if constexpr (kDivided) server_.together->leave_client();
}

template class LoopNetwork<Session>;
template class LoopNetwork<DividedSession>;

}  // namespace kv
