// SPDX-License-Identifier: BSD-3-Clause
#include "together.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <thread>

namespace kv {

Together::Together(Config its_config, std::size_t loop_count, Server::Clock its_clock,
                   std::size_t databases)
    : shards(loop_count, databases),
      config(std::move(its_config)),
      clock_(its_clock != nullptr ? its_clock : Server::system_clock()),
      started_us_(clock_()),
      databases_(databases) {
  for (std::size_t i = 0; i < loop_count; ++i) parts_.push_back(std::make_unique<Part>());
}

Together::~Together() = default;

// --- a loop's Server -----------------------------------------------------------------------------

void Together::join(Server& server) {
  const std::lock_guard lock(config_mutex);
  server.config = config;
  parts_[server.loop]->server = &server;
}

void Together::leave(const Server& server) noexcept {
  Part& part = *parts_[server.loop];
  part.server = nullptr;
  part.buffers.store(0, std::memory_order_relaxed);
  part.data.store(server.data_bytes, std::memory_order_relaxed);  // the data stays
}

bool Together::to(std::size_t loop, std::function<void(Server*)> fn) {
  const auto run = [part = parts_[loop].get(), fn = std::move(fn)] { fn(part->server); };
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

// --- connections ---------------------------------------------------------------------------------

bool Together::enter_client(std::int64_t most) noexcept {
  std::int64_t now = clients_;
  while (now < most) {
    if (clients_.compare_exchange_weak(now, now + 1)) return true;
  }
  return false;
}

void Together::log_refused(std::string_view why) {
  refusals_.add(clock_() / 1'000'000, "refused: " + std::string(why), log);
}

void Together::sum_up_refused() { refusals_.sum_up(clock_() / 1'000'000, log); }

// --- limits --------------------------------------------------------------------------------------

void Together::publish(const Server& here, bool exactly) noexcept {
  const auto put = [exactly](std::atomic<std::int64_t>& to, std::int64_t value) {
    const std::int64_t change = value - to.load(std::memory_order_relaxed);
    if (change != 0 && (exactly || change > kGrain || change < -kGrain)) {
      to.store(value, std::memory_order_relaxed);
    }
  };
  Part& part = *parts_[here.loop];
  put(part.data, here.data_bytes + static_cast<std::int64_t>(here.left_behind()));
  put(part.buffers, static_cast<std::int64_t>(here.buffer_bytes));
}

std::size_t Together::used_memory(const Server& here) const noexcept {
  std::int64_t sum =
      here.data_bytes + static_cast<std::int64_t>(here.buffer_bytes + here.left_behind());
  for (std::size_t i = 0; i < loops(); ++i) {
    if (i == here.loop) continue;
    sum += parts_[i]->data.load(std::memory_order_relaxed) +
           parts_[i]->buffers.load(std::memory_order_relaxed);
  }
  // A loop may publish that it freed data before another publishes that it stored them.
  return static_cast<std::size_t>(std::max<std::int64_t>(sum, 0));
}

void Together::limit_clients_memory(Server& here) {
  const std::uint64_t limit = here.config.clients_memory_limit;
  // While each loop stays within its part of the limit, all together do: the others are not read.
  if (limit == 0 || here.buffer_bytes <= limit / loops()) return;
  publish(here, true);
  std::size_t largest = here.loop;
  std::uint64_t most = here.buffer_bytes, others = 0;
  for (std::size_t i = 0; i < loops(); ++i) {
    if (i == here.loop) continue;
    const auto bytes =
        static_cast<std::uint64_t>(parts_[i]->buffers.load(std::memory_order_relaxed));
    others += bytes;
    if (bytes <= most) continue;
    most = bytes;
    largest = i;
  }
  if (here.buffer_bytes + others <= limit) return;
  if (largest == here.loop) {
    here.close_largest(limit > others ? limit - others : 0);
    return publish(here, true);
  }
  Part& part = *parts_[largest];
  if (part.told.exchange(true)) return;
  const bool sent = to(largest, [&part](Server* server) {
    part.told = false;
    if (server != nullptr) server->limit_clients_memory_of_all();
  });
  if (!sent) part.told = false;
}

bool Together::maintain(Server& here, std::int64_t now_ms, std::size_t budget) {
  const std::size_t own = (shards.count() + loops() - 1) / loops();
  bool more = false;
  for (std::size_t i = here.loop; i < shards.count(); i += loops()) {
    ShardLock lock(shards[i], here.data_bytes);
    more |= lock.store().maintain(now_ms, budget / own + 1);
  }
  return more;
}

}  // namespace kv
