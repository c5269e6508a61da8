// SPDX-License-Identifier: BSD-3-Clause
#include "server_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <functional>
#include <new>
#include <thread>

#include "command.h"
#include "session.h"

namespace kv {
void Statistics::add(const Statistics& other) {
  for (const Counter& counter : kCounters) this->*counter.member += other.*counter.member;
  commands.resize(std::max(commands.size(), other.commands.size()));
  for (std::size_t i = 0; i < other.commands.size(); ++i) {
    commands[i].calls += other.commands[i].calls;
    commands[i].rejected += other.commands[i].rejected;
    commands[i].failed += other.commands[i].failed;
  }
}

Server::Clock Server::steady_clock() {
  // Read for every batch of requests, for periods of 100 ms and more: the time of the last tick of
  // the kernel's timer is enough.
  return [] {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return std::int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
  };
}

// --- the server of a loop ------------------------------------------------------------------------

Server::Server(Together& all, std::size_t its_loop)
    : together(all), loop(its_loop), store(all.store), clock_(all.clock) {
  statistics.commands.resize(command_count());
  all.join(*this);
}

Server::Server(Clock clock) : Server(std::make_unique<Together>(Config(), 1, clock)) {}

Server::Server(std::unique_ptr<Together> own)
    : own_(std::move(own)), together(*own_), loop(0), store(own_->store), clock_(own_->clock) {
  statistics.commands.resize(command_count());
  together.join(*this);
}

Server::~Server() {
  publish(data_bytes);  // the data stays
  together.leave(*this);
}

std::size_t Server::used_memory() const noexcept {
  const std::int64_t sum = together.memory.load(std::memory_order_relaxed) + held() - published_;
  // A loop may publish that it freed data before another publishes that it stored them.
  return static_cast<std::size_t>(std::max<std::int64_t>(sum, 0));
}

void Server::publish(std::int64_t bytes) noexcept {
  together.memory.fetch_add(bytes - published_, std::memory_order_relaxed);
  published_ = bytes;
}

void Server::close_largest() {
  const std::uint64_t most = config.clients_memory_limit / config.loops;
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
    together.log_limited(fmt::format(
        "client {} closed: it holds {} bytes, and the clients of its loop more than their part of "
        "maxmemory-clients",
        session->id(), size));
    session->kill();
    session->drop_buffers();
  }
}

void Server::tick() {
  sent_values->registered.sweep();
  together.sum_up_log();
  publish(held());
  limit_clients_memory();
  const std::int64_t now = now_us();
  if (now - tended_us_ < 1'000'000 && now >= tended_us_) return;
  tended_us_ = now;
  for (const auto& [id, session] : sessions) {
    const std::int64_t idle_s = (now - session->last_interaction_us()) / 1'000'000;
    if (idle_s >= 2) session->shrink();
    if (config.timeout_seconds > 0 && idle_s > config.timeout_seconds && !session->killed() &&
        !session->takes_output()) {
      ++statistics.timed_out;
      session->kill();
    }
  }
}

// --- what the loops share ------------------------------------------------------------------------

Together::Together(Config its_config, std::size_t loop_count, Server::Clock its_clock)
    : clock(its_clock != nullptr ? its_clock : Server::steady_clock()),
      started_us(clock()),
      start_date_s(std::chrono::duration_cast<std::chrono::seconds>(
                       std::chrono::system_clock::now().time_since_epoch())
                       .count()),
      store(loop_count > 1),
      config(std::move(its_config)),
      servers_(loop_count) {
  config.loops = loop_count;
}

void Together::join(Server& server) {
  const std::lock_guard lock(config_mutex);
  server.config = config;
  servers_[server.loop] = &server;
}

bool Together::to(std::size_t loop, std::function<void(Server*)> fn) {
  const auto run = [this, loop, fn = std::move(fn)] { fn(servers_[loop]); };
  if (post) return post(loop, run);
  run();
  return true;
}

/// The asking loop waits for this answer, so it is tried again until there is memory for it.
void Together::send_back(std::size_t loop, const std::function<void(Server*)>& fn) noexcept {
  for (;;) {
    try {
      (void)to(loop, fn);
      return;
    } catch (const std::bad_alloc&) {
      std::this_thread::yield();
    }
  }
}

bool Together::enter_client(std::int64_t most) noexcept {
  std::int64_t now = clients_;
  while (now < most) {
    if (clients_.compare_exchange_weak(now, now + 1)) return true;
  }
  return false;
}

}  // namespace kv
