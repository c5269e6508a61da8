// SPDX-License-Identifier: BSD-3-Clause
#include "metrics.h"

#include <memory>
#include <mutex>
#include <new>
#include <span>

#include "command.h"
#include "conn/metrics.h"
#include "together.h"

namespace kv {
namespace {

using Text = conn::MetricsText;
constexpr auto kCounter = Text::Type::kCounter;
constexpr auto kGauge = Text::Type::kGauge;

/// Of one loop.
struct Figures {
  Statistics statistics;
  std::size_t clients = 0, buffer_bytes = 0, left_behind = 0;
  std::vector<TransportCounters> transports;
};

/// Of the data, wherever it is.
struct Data {
  std::size_t bytes = 0;
  std::uint64_t expired = 0;
  std::vector<std::pair<std::size_t, std::size_t>> keys;  ///< by database: all, those that expire
};

Figures figures_of(const Server& server) {
  return {
      server.statistics, server.sessions.size(), server.buffer_bytes, server.left_behind(),
      server.transport_counters ? server.transport_counters() : std::vector<TransportCounters>()};
}

void add(Data& data, Store& store) {
  data.bytes += store.memory();
  data.expired += store.expired();
  for (std::size_t db = 0; db < data.keys.size(); ++db) {
    data.keys[db].first += store.database(db).size();
    data.keys[db].second += store.database(db).volatile_size();
  }
}

void write_counters(Text& out, const Statistics& s, const Data& data) {
  const auto counter = [&out](std::string_view name, std::string_view help, std::uint64_t value) {
    out.begin(name, kCounter, help);
    out.sample({}, value);
  };
  counter("kv_connections_received_total", "Client connections accepted.", s.connections_received);
  counter("kv_connections_rejected_total", "Client connections rejected because of maxclients.",
          s.connections_rejected);
  counter("kv_commands_processed_total", "Commands executed.", s.commands_processed);
  counter("kv_commands_rejected_total", "Commands rejected before execution.", s.commands_rejected);
  counter("kv_error_replies_total", "Error replies sent.", s.error_replies);
  counter("kv_keyspace_hits_total", "Key lookups that found the key.", s.keyspace_hits);
  counter("kv_keyspace_misses_total", "Key lookups that did not find the key.", s.keyspace_misses);
  counter("kv_expired_keys_total", "Keys removed because they expired.", data.expired);
  counter("kv_input_bytes_total", "Bytes of requests.", s.bytes_in);
  counter("kv_output_bytes_total", "Bytes of replies.", s.bytes_out);
  counter("kv_protocol_errors_total", "Clients closed because of invalid RESP.", s.protocol_errors);
  counter("kv_auth_failures_total", "Failed authentications.", s.auth_failures);
  out.begin("kv_clients_closed_total", kCounter, "Clients closed by a limit.");
  out.sample({{"limit", "client-output-buffer-limit"}}, s.output_limit_closed);
  out.sample({{"limit", "client-query-buffer-limit"}}, s.query_limit_closed);
  out.sample({{"limit", "maxmemory-clients"}}, s.clients_evicted);
  out.sample({{"limit", "timeout"}}, s.timed_out);
  const auto each_command = [&](std::string_view name, std::string_view help, auto member) {
    out.begin(name, kCounter, help);
    for (const Command& command : commands()) {
      if (command.index >= s.commands.size()) continue;
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

void write_gauges(Text& out, const Figures& sum, const Data& data, const Config& config,
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

std::string write(std::span<const Figures> loops, const Data& data, const Config& config,
                  std::int64_t started_us) {
  Figures sum;
  std::vector<conn::SchemeStatistics> transports;
  for (const Figures& each : loops) {
    sum.statistics.add(each.statistics);
    sum.clients += each.clients;
    sum.buffer_bytes += each.buffer_bytes;
    sum.left_behind += each.left_behind;
    for (const TransportCounters& one : each.transports)
      transports.push_back({one.transport, one.counters});
  }
  Text own;
  write_counters(own, sum.statistics, data);
  write_gauges(own, sum, data, config, loops.size(), started_us);
  return conn::metrics(transports) + own.text();
}

Data data_of(Together& together) {
  Data data;
  data.keys.resize(together.database_count());
  std::int64_t grown = 0;  // nothing does
  const ShardsLock lock(together.shards, grown);
  for (std::size_t i = 0; i < together.shards.count(); ++i) add(data, together.shards[i].store);
  return data;
}

}  // namespace

std::string metrics_of(Server& server) {
  Data data;
  data.keys.resize(server.database_count);
  add(data, server.store);
  const Figures figures = figures_of(server);
  return write({&figures, 1}, data, server.config, server.started_us());
}

void gather_metrics(Together& together, ae::Poster here, std::function<void(std::string)> then) {
  struct Asked {  // each answer is its loop's until it is posted; the rest is of `here`
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
        if (server != nullptr) asked->answers[i] = figures_of(*server);
        (void)here.post([asked, arrived] { arrived(*asked); });
      } catch (const std::bad_alloc&) {  // who waits for it has a time limit
      }
    });
    if (!posted) --asked->missing;
  }
  (void)here.post([asked, arrived] { arrived(*asked); });
}

}  // namespace kv
