// SPDX-License-Identifier: BSD-3-Clause
#include "server_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "command.h"
#include "session.h"
#include "together.h"

namespace kv {
namespace {

constexpr std::size_t kMaintained = 1000;  // keys that a loop expires, frees and moves in one tick

std::int64_t system_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void Statistics::add(const Statistics& other) {
  for (const Counter& counter : kCounters) this->*counter.member += other.*counter.member;
  commands.resize(std::max(commands.size(), other.commands.size()));
  for (std::size_t i = 0; i < other.commands.size(); ++i) {
    commands[i].calls += other.commands[i].calls;
    commands[i].rejected += other.commands[i].rejected;
    commands[i].failed += other.commands[i].failed;
  }
}

Server::Clock Server::system_clock() { return system_clock_us; }

Server::Server(Clock clock, std::size_t databases)
    : store(databases),
      together(nullptr),
      loop(0),
      database_count(databases),
      clock_(clock != nullptr ? clock : system_clock_us),
      started_us_(clock_()) {
  statistics.commands.resize(command_count());
}

Server::Server(Together& all, std::size_t its_loop)
    : store(0),
      together(&all),
      loop(its_loop),
      database_count(all.database_count()),
      request_shutdown(all.request_shutdown),
      log(all.log),
      clock_(all.clock()),
      started_us_(all.started_us()) {
  statistics.commands.resize(command_count());
  all.join(*this);
}

Server::~Server() {
  if (together != nullptr) together->leave(*this);
}

std::uint64_t Server::next_session_id() noexcept {
  return together != nullptr ? together->next_session_id() : ++last_session_id_;
}

bool Server::out_of_memory_of_all() const noexcept {
  return config.maxmemory != 0 && together->used_memory(*this) > config.maxmemory;
}

void Server::limit_clients_memory_of_all() { together->limit_clients_memory(*this); }

void Server::adopt_config() {
  const std::lock_guard lock(together->config_mutex);
  config = together->config;
}

void Server::log_limited(std::string_view text) {
  const std::int64_t second = now_us() / 1'000'000;
  if (second != log_second_) logged_ = 0;
  log_second_ = second;
  if (++logged_ <= 5 && log) log(text);
}

void Server::log_refused(std::string_view why) {
  refusals_.add(now_us() / 1'000'000, "refused: " + std::string(why), log);
}

void Server::limit_clients_memory() {
  if (config.clients_memory_limit == 0 || buffer_bytes <= config.clients_memory_limit) return;
  close_largest(config.clients_memory_limit);
}

void Server::close_largest(std::uint64_t most) {
  std::vector<std::pair<std::size_t, Session*>> largest;
  for (const auto& [id, session] : sessions) {
    // Empty buffers, and those of killed sessions, are freed first: no client is closed for them.
    if (session->killed())
      session->drop_buffers();
    else
      session->shrink();
    if (!session->killed()) largest.emplace_back(session->memory(), session);
  }
  std::sort(largest.begin(), largest.end(), std::greater<>());
  for (const auto& [size, session] : largest) {
    if (buffer_bytes <= most) return;
    ++statistics.clients_evicted;
    log_limited(
        fmt::format("client {} closed: it holds {} bytes, and all clients together more "
                    "than maxmemory-clients",
                    session->id(), size));
    session->kill();
    session->drop_buffers();
  }
}

bool Server::tend(std::int64_t now_us) {
  refusals_.sum_up(now_us / 1'000'000, log);
  return store.maintain(now_us / 1000, kMaintained);
}

bool Server::tend_all(std::int64_t now_us) {
  together->sum_up_refused();
  const bool more = together->maintain(*this, now_us / 1000, kMaintained);
  together->publish(*this, true);
  limit_clients_memory_of_all();
  return more;
}

bool Server::tick() {
  sent_values->registered.sweep();
  const std::int64_t now = now_us();
  const bool more = together != nullptr ? tend_all(now) : tend(now);
  if (now - tended_us_ < 1'000'000 && now >= tended_us_) return more;
  tended_us_ = now;
  for (const auto& [id, session] : sessions) {
    const std::int64_t idle_s = (now - session->last_interaction_us()) / 1'000'000;
    if (idle_s >= 2) session->shrink();
    if (config.timeout_seconds > 0 && idle_s > config.timeout_seconds && !session->killed()) {
      ++statistics.timed_out;
      session->kill();
    }
  }
  return more;
}

}  // namespace kv
