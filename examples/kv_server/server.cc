// SPDX-License-Identifier: BSD-3-Clause
#include "server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>

#include "conn/connection_type.h"
#include "conn/move.h"
#include "resp_text.h"

namespace kv {
namespace {

using namespace std::chrono_literals;

SessionInfo describe(const conn::Connection& connection) {
  SessionInfo info{
      std::string(connection.type().name()),       list_field(connection.peer_address()),
      list_field(connection.local_address()),      connection.fd(),
      [&connection] { return connection.info(); }, [&connection] { return connection.path(); }};
  // A path has no port, but clients expect one, as Redis shows it.
  if (info.peer.find(':') == std::string::npos) info.peer += ":0";
  return info;
}

/// Whether a connection that was moved has failed on its way, so that its handlers run no more.
bool has_failed(const conn::Connection& connection) {
  return connection.loop() == nullptr || connection.state() == conn::State::kError;
}

}  // namespace

NetworkServer::Client::Client(conn::ConnectionPtr from, Server& server)
    : connection(std::move(from)),
      session(server, [&from = *connection] { return describe(from); }) {}

NetworkServer::NetworkServer(ae::EventLoop& loop, const conn::Registry& registry, Server& server)
    : loop_(loop),
      registry_(registry),
      server_(server),
      ticker_(loop.add_time_event(100ms, [this]() -> ae::Duration {
        server_.tick();
        return 100ms;
      })) {
  loop_.add_source(*this);
  server_.session_killed = [this](Session& session) {
    const auto found = clients_.find(session.id());
    if (found != clients_.end()) drop_if_finished(*found->second);
  };
  server_.session_ready = [this](Session& session) {
    const auto found = clients_.find(session.id());
    if (found != clients_.end()) run(*found->second);
  };
  server_.transports = [this] {
    std::vector<conn::SchemeStatistics> all = conn::scheme_statistics(registry_, loop_);
    const ae::LoopTimes times = loop_.times();
    if (times.busy + times.spun + times.slept == ae::Duration::zero()) return all;
    const auto ns = [](ae::Duration time) { return static_cast<std::uint64_t>(time.count()); };
    all.push_back({std::string(kLoopTimes),
                   {{"loop_busy_ns", ns(times.busy)},
                    {"loop_spun_ns", ns(times.spun)},
                    {"loop_slept_ns", ns(times.slept)},
                    {"spin_hits", times.spin_hits},
                    {"spin_misses", times.spin_misses},
                    {"spin_probes", times.spin_probes},
                    {"spin_budget_ns", ns(times.spin_budget)},
                    {"sleep_cost_ns", ns(times.sleep_cost)}}});
    return all;
  };
}

NetworkServer::~NetworkServer() {
  server_.session_killed = nullptr;
  server_.session_ready = nullptr;
  server_.transports = nullptr;
  for (std::size_t i = 0; i < clients_.size(); ++i) server_.together.leave_client();
  loop_.remove_time_event(ticker_);
  loop_.remove_source(*this);
}

void NetworkServer::listen(const std::string& url) {
  add(registry_.listen(loop_, url,
                       [this](conn::ConnectionPtr connection) { accept(std::move(connection)); }));
  const auto missing = listeners_.back()->not_served();
  if (!missing.empty() && server_.together.log)
    server_.together.log(url + ": " + conn::describe(missing));
}

void NetworkServer::listen(int fd, const service::Activated& speaks) {
  add(registry_.require(speaks.transport(fd))
          .adopt_listener(
              loop_, fd, [this](conn::ConnectionPtr connection) { accept(std::move(connection)); },
              speaks.options()));
}

void NetworkServer::add(conn::ListenerPtr listener) {
  listeners_.push_back(std::move(listener));
  listeners_.back()->on_refused([this](const conn::Failure& failure) {
    server_.together.log_limited("refused: " + failure.text);
  });
}

std::vector<std::string> NetworkServer::urls() const {
  std::vector<std::string> urls;
  for (const auto& listener : listeners_) {
    for (const auto& endpoint : listener->endpoints()) urls.push_back(endpoint.to_string());
  }
  return urls;
}

void NetworkServer::accept(conn::ConnectionPtr connection) {
  if (!server_.together.enter_client(server_.config.maxclients)) {
    static constexpr std::string_view kRefusal = "-ERR max number of clients reached\r\n";
    connection->write(kRefusal.data(), kRefusal.size());
    ++server_.statistics.connections_rejected;
    return;
  }
  try {
    watch(enter(std::move(connection)));
  } catch (...) {
    server_.together.leave_client();
    throw;
  }
}

NetworkServer::Client& NetworkServer::enter(conn::ConnectionPtr connection) {
  auto made = std::make_unique<Client>(std::move(connection), server_);
  Client& client = *made;
  client.session.refer_to_values([this, &client] { value_released(client); });
  if (server_.config.logs_clients() && server_.together.log)
    server_.together.log(
        fmt::format("client {}: {}", client.session.id(), client.connection->path()));
  clients_.emplace(client.session.id(), std::move(made));
  return client;
}

/// Reads only while requests can be executed: otherwise the bytes stay with the transport, which
/// slows the peer down.
void NetworkServer::watch(Client& client) {
  const bool wanted = !client.busy && !client.ended && !client.session.wants_close();
  if (wanted == client.connection->has_read_handler()) return;
  if (!wanted) return client.connection->set_read_handler(nullptr);
  client.connection->set_read_handler([this, &client](conn::Connection&) { read(client); });
}

void NetworkServer::read(Client& client) {
  if (client.session.killed()) return;  // it is dropped soon
  if (client.session.has_room()) [[unlikely]]
    return read_apart(client);
  // No request stays in the scratch memory, so all clients share it and an idle client has none.
  const ssize_t size = client.connection->read(scratch_.get(), kScratch);
  if (size <= 0) [[unlikely]]
    return read_nothing(client, size);
  client.session.show({scratch_.get(), static_cast<std::size_t>(size)});
  run(client);
}

/// Reads a part of a large argument, and what follows it.
void NetworkServer::read_apart(Client& client) {
  const std::span<char> room = client.session.room();
  const iovec pieces[] = {{room.data(), room.size()}, {scratch_.get(), kScratch}};
  const ssize_t size = room.empty() ? client.connection->read(scratch_.get(), kScratch)
                                    : client.connection->readv(pieces, 2);
  if (size <= 0) return read_nothing(client, size);
  const auto all = static_cast<std::size_t>(size);
  const std::size_t there = std::min(all, room.size());
  if (there != 0) client.session.arrived(there);
  client.session.show({scratch_.get(), all - there});
  run(client);
}

/// Called with the result of a read that was 0 or negative.
void NetworkServer::read_nothing(Client& client, ssize_t size) {
  if (size < 0 && errno == EAGAIN) return;
  // After the end of the stream, the replies to earlier requests are still sent.
  client.ended = true;
  client.failed = size < 0;
  watch(client);
  drop_if_finished(client);
}

void NetworkServer::run(Client& client) {
  const Session::Progress progress = client.session.execute();
  if (progress != Session::Progress::kIdle || client.busy || server_.exceeds_clients_memory())
      [[unlikely]]
    run_on(client, progress);
  send(client);
  server_.publish_memory();
}

/// The part of run() for all cases but the usual one.
void NetworkServer::run_on(Client& client, Session::Progress progress) {
  server_.limit_clients_memory();
  if (progress != Session::Progress::kIdle || client.busy) continue_later(client, progress);
}

/// Continues later with a client whose requests could not all be executed.
void NetworkServer::continue_later(Client& client, Session::Progress progress) {
  client.busy = progress != Session::Progress::kIdle && progress != Session::Progress::kDone;
  if (progress == Session::Progress::kMore) {
    busy_.push_back(&client);
    wake();
  }
  if (progress == Session::Progress::kHeld) {
    loop_.add_time_event(100ms, [this, id = client.session.id()] {
      const auto found = clients_.find(id);
      if (found != clients_.end()) run(*found->second);
      return ae::kNoMore;
    });
  }
  watch(client);
}

/// Takes what idle clients have sent meanwhile, and closes those that have sent nothing; the others
/// are closed when their requests have been answered.
void NetworkServer::begin_stop() {
  stops_ = true;
  listeners_.clear();
  std::vector<std::uint64_t> ids;
  for (const auto& [id, client] : clients_) ids.push_back(id);
  for (const std::uint64_t id : ids) {  // a request may end or move another client
    const auto found = clients_.find(id);
    if (found == clients_.end()) continue;
    Client& client = *found->second;
    if (client.connection->has_read_handler()) read(client);
    drop_if_finished(client);
  }
}

std::size_t NetworkServer::run_later() {
  const std::size_t dropped = done_.size();
  for (Client* client : std::exchange(done_, {})) drop(*client);
  if (dropped != 0) server_.publish_memory();
  running_.swap(busy_);
  std::size_t count = 0;
  for (; count < running_.size() && (count == 0 || loop_.has_time()); ++count)
    if (Client* const client = running_[count]) run(*client);
  busy_.insert(busy_.begin(), running_.begin() + static_cast<std::ptrdiff_t>(count),
               running_.end());
  std::erase(busy_, nullptr);
  running_.clear();
  return count + dropped;
}

void NetworkServer::send(Client& client) {
  if (!client.session.killed()) send_output(client);
  drop_if_finished(client);
}

void NetworkServer::send_output(Client& client) {
  if (client.waits || client.session.has_values()) [[unlikely]]
    return send_rest(client);
  const std::string_view output = client.session.text_output();
  if (output.empty()) return;
  const ssize_t size = client.connection->write(output.data(), output.size());
  if (size > 0) client.session.consume_output(static_cast<std::size_t>(size));
  if (size == static_cast<ssize_t>(output.size())) [[likely]]
    return;
  if (size < 0 && errno != EAGAIN) client.failed = true;
  wait_to_send(client, true);
}

/// Does the same for a client that has output waiting, or values to be sent in place.
void NetworkServer::send_rest(Client& client) {
  bool wait = false;
  if (client.session.has_values()) [[unlikely]] {
    send_values(client);
    wait = client.session.value_waits();
  }
  const std::string_view output = client.session.text_output();
  if (!output.empty() && !wait) {
    const ssize_t size = client.connection->write(output.data(), output.size());
    wait = size != static_cast<ssize_t>(output.size());
    if (size >= 0)
      client.session.consume_output(static_cast<std::size_t>(size));
    else if (errno != EAGAIN)
      client.failed = true;
  }
  wait_to_send(client, wait);
}

/// Sets whether the connection calls send_on() when it accepts output again.
void NetworkServer::wait_to_send(Client& client, bool wait) {
  if (wait == client.waits) return;
  if (wait)
    client.connection->set_write_handler([this, &client](conn::Connection&) { send_on(client); });
  else
    client.connection->set_write_handler(nullptr);
  client.waits = wait;
}

/// The connection accepts output again.
void NetworkServer::send_on(Client& client) {
  send(client);
  client.session.note_sent();
}

/// Sends large values in place, and writes the text between them into reserved space.
void NetworkServer::send_values(Client& client) {
  constexpr std::size_t kLongEnd = 1024;  // a longer end is written by send_output()
  conn::Connection& connection = *client.connection;
  Session& session = client.session;
  const auto refused = [&client] { client.failed = errno != EAGAIN; };
  for (;;) {
    const std::string_view text = session.pending_output();
    if (!text.empty()) {
      if (!session.value_waits() && text.size() > kLongEnd) return;
      const std::size_t size = std::min(text.size(), conn::kMaxContiguous);
      const std::span<std::byte> room = connection.reserve(size);
      if (room.empty()) return refused();
      std::memcpy(room.data(), text.data(), size);
      connection.commit(size);
      session.consume_output(size);
    } else if (session.value_waits()) {
      SentValue* value;
      try {
        value = session.begin_value();
      } catch (const std::bad_alloc&) {
        client.failed = true;
        return;
      }
      const std::span bytes(value->entry->value_bytes(), value->bytes);
      value->registered =
          value->pool->registered.find(value->entry, connection.type(), *connection.loop());
      if (value->registered != nullptr) ++value->registered->on_way;
      const conn::Memory* const memory =
          value->registered != nullptr ? value->registered->memory.get() : nullptr;
      if (connection.send({std::as_bytes(bytes), SentValue::release, value, memory}) < 0) {
        refused();
        return session.value_refused(value);
      }
      session.value_taken(value);
    } else {
      return;
    }
  }
}

/// The client may have been waiting for its last value to be released.
void NetworkServer::value_released(Client& client) noexcept {
  client.session.note_sent();
  try {
    drop_if_finished(client);
  } catch (const std::bad_alloc&) {
    // The client's next event drops it.
  }
}

void NetworkServer::drop_soon_if_finished(Client& client) {
  if (client.done || !finished(client)) return;
  done_.push_back(&client);
  client.done = true;
  wake();
}

void NetworkServer::drop(Client& client) {
  std::erase(busy_, &client);
  // Extracted first, so that callbacks do not find the client while it is destroyed.
  const auto gone = clients_.extract(client.session.id());
  server_.together.leave_client();
}

// --- moving a client to another loop -------------------------------------------------------------

/// A client between two loops. Either loop's thread may be the last to release it.
struct NetworkServer::Moving {
  Moving(Together& of_whom, std::unique_ptr<Client> who)
      : together(of_whom), client(std::move(who)) {}
  Moving(const Moving&) = delete;
  Moving& operator=(const Moving&) = delete;
  ~Moving() {
    if (client) together.leave_client();
  }
  Together& together;
  std::unique_ptr<Client> client;  ///< without its connection; null: it has arrived, or stays
};

std::string NetworkServer::move(Session& session, ae::Loops& loops, std::size_t to,
                                std::function<NetworkServer*()> there) {
  const std::uint64_t id = session.id();
  const auto found = clients_.find(id);
  if (found == clients_.end() || found->second->done) return "ERR No such client";
  if (!session.can_leave())
    return fmt::format("ERR client {} waits for the end of a reply: try again", id);
  Client* const client = found->second.get();
  const auto moving = std::make_shared<Moving>(server_.together, nullptr);
  conn::AcceptHandler arrived = [moving, there = std::move(there)](conn::ConnectionPtr connection) {
    if (NetworkServer* const here = there()) here->arrive(*moving, std::move(connection));
  };
  // Nothing is allocated from here on. The other loop may have the client at once.
  moving->client = std::move(found->second);
  session.leave();
  conn::ConnectionPtr connection = std::move(client->connection);
  const conn::ConnectionType& type = connection->type();
  if (!conn::move(connection, loops, to, std::move(arrived))) {
    const int reason = errno;
    client->connection = std::move(connection);
    session.join(server_);
    found->second = std::move(moving->client);
    if (has_failed(*client->connection)) {  // between the loops; its handlers run no more
      client->failed = true;
      drop_if_finished(*client);
      return fmt::format("ERR client {} has failed: {}", id, std::strerror(reason));
    }
    if (reason == EOPNOTSUPP)
      return fmt::format("ERR client {} stays on loop {}: its {} connection cannot move", id,
                         server_.loop, type.name());
    return fmt::format("ERR client {} stays on loop {}: {}", id, server_.loop,
                       std::strerror(reason));
  }
  clients_.erase(found);
  server_.sessions.erase(id);
  std::erase(busy_, client);
  std::replace(running_.begin(), running_.end(), client, static_cast<Client*>(nullptr));
  return {};
}

/// Goes on with a client that comes from another loop. What it had received and not yet executed,
/// and what it had not yet sent, came along.
void NetworkServer::arrive(Moving& moving, conn::ConnectionPtr connection) {
  Client& client = *moving.client;
  try {
    const std::uint64_t id = client.session.id();
    client.connection = std::move(connection);
    client.connection->clear_handlers();  // removes those of the other loop
    client.waits = false;
    client.session.join(server_);
    client.session.refer_to_values([this, &client] { value_released(client); });
    server_.sessions.emplace(id, &client.session);
    clients_.emplace(id, nullptr).first->second = std::move(moving.client);
    client.failed = client.failed || has_failed(*client.connection);
    if (client.failed) return drop_if_finished(client);
    watch(client);
    run(client);
  } catch (const std::bad_alloc&) {
    if (moving.client == nullptr) {
      if (!client.done) drop(client);
    } else {
      moving.client.reset();
      server_.together.leave_client();
    }
  }
}

// --- several loops -------------------------------------------------------------------------------

struct ServerOnLoops::Shared {
  explicit Shared(ae::Loops& its_loops) : loops(its_loops), parts(its_loops.size()) {}
  ae::Loops& loops;
  std::vector<std::weak_ptr<Part>> parts;  ///< each used on its loop's thread
  std::function<void()> loop_left;         ///< constant from the first listen() on
};

/// Owned by the accept handlers of its loop: destroyed with the last of them, on its thread.
struct ServerOnLoops::Part {
  Part(std::shared_ptr<Shared> its_shared, ae::EventLoop& loop, const conn::Registry& registry,
       Together& together, std::size_t index)
      : shared(std::move(its_shared)), server(together, index), network(loop, registry, server) {
    server.move_session = [this](Session& session, std::size_t to) {
      return network.move(session, shared->loops, to, [all = shared, to]() -> NetworkServer* {
        const std::shared_ptr<Part> there = all->parts[to].lock();
        return there ? &there->network : nullptr;
      });
    };
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (shared->loop_left) shared->loop_left();
  }
  const std::shared_ptr<Shared> shared;
  Server server;
  NetworkServer network;
};

ServerOnLoops::ServerOnLoops(ae::Loops& loops, const conn::Registry& registry, Together& together,
                             conn::Stop& stop)
    : loops_(loops),
      registry_(registry),
      together_(together),
      stop_(stop),
      shared_(std::make_shared<Shared>(loops)) {
  std::vector<ae::Poster> posters;
  for (std::size_t i = 0; i < loops.size(); ++i) posters.push_back(loops.poster(i));
  together_.post = [posters = std::move(posters)](std::size_t loop, std::function<void()> fn) {
    return posters[loop].post(std::move(fn));
  };
}

ServerOnLoops::~ServerOnLoops() = default;

void ServerOnLoops::on_loop_left(std::function<void()> handler) {
  shared_->loop_left = std::move(handler);
}

std::shared_ptr<ServerOnLoops::Part> ServerOnLoops::part(ae::EventLoop& loop, std::size_t index) {
  std::weak_ptr<Part>& known = shared_->parts[index];
  std::shared_ptr<Part> made = known.lock();
  if (!made) {
    made = std::make_shared<Part>(shared_, loop, registry_, together_, index);
    known = made;
  }
  return made;
}

void ServerOnLoops::listen(const std::string& url) {
  auto listener = conn::listen(registry_, loops_, url, accepting());
  const auto missing = listener->not_served();
  if (!missing.empty() && together_.log) together_.log(url + ": " + conn::describe(missing));
  add(std::move(listener));
}

void ServerOnLoops::listen(int fd, const service::Activated& speaks) {
  add(conn::adopt_listener(registry_.require(speaks.transport(fd)), loops_, fd, accepting(),
                           conn::Spread::fewest(), speaks.options()));
}

conn::MakeAcceptHandler ServerOnLoops::accepting() {
  return stop_.keep([this](ae::EventLoop& loop, std::size_t index) -> conn::AcceptHandler {
    return [here = part(loop, index)](conn::ConnectionPtr connection) {
      here->network.accept(std::move(connection));
    };
  });
}

void ServerOnLoops::add(conn::ListenerGroupPtr listener) {
  listener->on_refused([&together = together_](const conn::Failure& why) {
    together.log_limited("refused: " + why.text);
  });
  for (const auto& endpoint : listener->endpoints()) urls_.push_back(endpoint.to_string());
  stop_.add(std::move(listener));
}

}  // namespace kv
