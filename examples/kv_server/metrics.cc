// SPDX-License-Identifier: BSD-3-Clause
#include "metrics.h"

#include <memory>
#include <mutex>
#include <new>
#include <span>

#include "command.h"
#include "figures.h"
#include "together.h"

namespace kv {
namespace {

using Text = conn::MetricsText;
constexpr auto kCounter = Text::Type::kCounter;
constexpr auto kGauge = Text::Type::kGauge;

void write_counters(Text& out, const Statistics& s, const DataFigures& data) {
  constexpr std::string_view kLimit = "limit=";
  for (const Counter& counter : kCounters) {
    if (counter.metric.starts_with(kLimit)) continue;
    out.begin(counter.metric, kCounter, counter.help);
    out.sample({}, s.*counter.member);
  }
  out.begin("kv_expired_keys_total", kCounter, "Keys removed because they expired.");
  out.sample({}, data.expired);
  out.begin("kv_clients_closed_total", kCounter, "Clients closed by a limit.");
  for (const Counter& counter : kCounters) {
    if (!counter.metric.starts_with(kLimit)) continue;
    out.sample({{"limit", std::string(counter.metric.substr(kLimit.size()))}}, s.*counter.member);
  }
  const auto each_command = [&](std::string_view name, std::string_view help, auto member) {
    out.begin(name, kCounter, help);
    for (const Command& command : commands()) {
      const auto& counts = s.commands[command.index];
      if (counts.calls != 0 || counts.rejected != 0)
        out.sample({{"command", std::string(command.name)}}, counts.*member);
    }
  };
  using PerCommand = Statistics::PerCommand;
  each_command("kv_command_calls_total", "Calls per command; unused commands are omitted.",
               &PerCommand::calls);
  each_command("kv_command_failures_total", "Calls per command that ended with an error.",
               &PerCommand::failed);
  each_command("kv_command_rejections_total",
               "Calls per command that were rejected before execution.", &PerCommand::rejected);
}

void write_gauges(Text& out, const Figures& sum, const DataFigures& data, const Config& config,
                  std::size_t loops, std::int64_t started_us) {
  const auto gauge = [&out](std::string_view name, std::string_view help, std::uint64_t value) {
    out.begin(name, kGauge, help);
    out.sample({}, value);
  };
  gauge("kv_loops", "Event loops that serve clients.", loops);
  gauge("kv_start_time_seconds", "Start time of the server in seconds since 1970.",
        static_cast<std::uint64_t>(started_us / 1'000'000));
  gauge("kv_clients", "Connected clients.", sum.clients);
  gauge("kv_clients_limit", "Maximum number of connected clients (maxclients).",
        static_cast<std::uint64_t>(config.maxclients));
  out.begin("kv_memory_bytes", kGauge, "Memory by use.");
  out.sample({{"use", "data"}}, data.bytes);
  out.sample({{"use", "clients"}}, sum.buffer_bytes);
  out.sample({{"use", "values_on_their_way"}}, sum.left_behind);
  gauge("kv_memory_limit_bytes", "maxmemory; 0: no limit.", config.maxmemory);
  out.begin("kv_keys", kGauge, "Keys per database; empty databases are omitted.");
  for (std::size_t db = 0; db < data.keys.size(); ++db)
    if (data.keys[db].first != 0) out.sample({{"db", std::to_string(db)}}, data.keys[db].first);
  out.begin("kv_keys_expiring", kGauge, "Keys with a time to live.");
  for (std::size_t db = 0; db < data.keys.size(); ++db)
    if (data.keys[db].first != 0) out.sample({{"db", std::to_string(db)}}, data.keys[db].second);
}

std::string write(std::span<const Figures> loops, const DataFigures& data, const Config& config,
                  std::int64_t started_us) {
  Figures sum = sum_of(loops);
  std::erase_if(sum.transports, [](const auto& each) { return each.scheme == kLoopTimes; });
  Text own;
  write_counters(own, sum.statistics, data);
  write_gauges(own, sum, data, config, loops.size(), started_us);
  return conn::metrics(sum.transports) + own.text();
}

}  // namespace

std::string metrics_of(Server& server) {
  const Figures figures = figures_of(server, false);
  return write({&figures, 1}, data_of(server), server.config, server.started_us());
}

void gather_metrics(Together& together, ae::Poster here, std::function<void(std::string)> then) {
  struct Asked {  // an answer belongs to its loop until it is posted, the rest to `here`
    std::vector<Figures> answers;
    std::size_t missing;
    std::function<void(std::string)> then;
  };
  const auto asked = std::make_shared<Asked>(
      Asked{std::vector<Figures>(together.loops()), together.loops() + 1, std::move(then)});
  const auto arrived = [&together, here](Asked& all) {
    if (--all.missing != 0 || !here.open()) return;
    Config config;
    {
      const std::lock_guard lock(together.config_mutex);
      config = together.config;
    }
    all.then(write(all.answers, data_of(together), config, together.started_us()));
  };
  for (std::size_t i = 0; i < together.loops(); ++i) {
    const bool posted = together.to(i, [asked, here, arrived, i](Server* server) {
      try {
        if (server != nullptr) asked->answers[i] = figures_of(*server, false);
        (void)here.post([asked, arrived] { arrived(*asked); });
      } catch (const std::bad_alloc&) {  // the waiting client has a time-out
      }
    });
    if (!posted) --asked->missing;
  }
  (void)here.post([asked, arrived] { arrived(*asked); });
}

}  // namespace kv
