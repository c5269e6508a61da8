#include "server_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "command.h"
#include "session.h"

namespace kv {
namespace {

constexpr std::uint64_t kRefusedLines = 10;  // in a second

std::int64_t system_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Server::Server(Clock clock, std::size_t databases)
    : store(databases), clock_(clock != nullptr ? clock : system_clock_us), started_us_(clock_()) {
  statistics.commands.resize(command_count());
  for (int i = 0; i < 5; ++i) run_id_ += fmt::format("{:08x}", store.random() & 0xffffffffu);
}

std::size_t Server::peak_memory() noexcept {
  peak_memory_ = std::max(peak_memory_, used_memory());
  return peak_memory_;
}

void Server::reset_statistics() {
  statistics = Statistics{};
  statistics.commands.resize(command_count());
  store.reset_statistics();
}

void Server::log_limited(std::string_view text) {
  const std::int64_t second = now_us() / 1'000'000;
  if (second != log_second_) logged_ = 0;
  log_second_ = second;
  if (++logged_ <= 5 && log) log(text);
}

void Server::log_refused(std::string_view why) {
  sum_up_refused(now_us() / 1'000'000);
  if (++refused_ <= kRefusedLines && log) log(fmt::format("refused: {}", why));
}

void Server::sum_up_refused(std::int64_t second) {
  if (second == refused_second_) return;
  refused_second_ = second;
  if (refused_ > kRefusedLines && log)
    log(fmt::format("{} more refused", refused_ - kRefusedLines));
  refused_ = 0;
}

void Server::limit_clients_memory() {
  if (config.clients_memory_limit == 0 || buffer_bytes <= config.clients_memory_limit) return;
  std::vector<std::pair<std::size_t, Session*>> largest;
  for (const auto& [id, session] : sessions) {
    // Nobody is closed for what an empty buffer holds, or one that is on its way.
    if (session->killed())
      session->drop_buffers();
    else
      session->shrink();
    if (!session->killed()) largest.emplace_back(session->memory(), session);
  }
  std::sort(largest.begin(), largest.end(), std::greater<>());
  for (const auto& [size, session] : largest) {
    if (buffer_bytes <= config.clients_memory_limit) return;
    ++statistics.clients_evicted;
    log_limited(
        fmt::format("client {} closed: it holds {} bytes, and all clients together more "
                    "than maxmemory-clients",
                    session->id(), size));
    session->kill();
    session->drop_buffers();
  }
}

bool Server::tick() {
  const std::int64_t now = now_us();
  sum_up_refused(now / 1'000'000);
  peak_memory();
  const bool more = store.maintain(now / 1000, 1000);
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
