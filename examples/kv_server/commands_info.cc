// SPDX-License-Identifier: BSD-3-Clause
// INFO.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "divided.h"

namespace kv {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

template <class Value>
void add(Fields& fields, std::string name, const Value& value) {
  fields.emplace_back(std::move(name), fmt::format("{}", value));
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// What one loop knows, of what was asked for.
struct LoopFacts {
  Statistics statistics;
  std::size_t clients = 0, buffer_bytes = 0, left_behind = 0;
  std::map<std::string, std::size_t> transports;
  std::vector<InfoSection> transport_sections;
};

/// What INFO tells: of one loop, or of all together.
struct Report {
  Report(Server& its_server, const Statistics& counted) : server(its_server), statistics(counted) {}
  Server& server;  ///< whose configuration it is
  const Statistics& statistics;
  std::size_t clients = 0, buffer_bytes = 0, data_bytes = 0, left_behind = 0;
  std::uint64_t expired = 0;
  std::map<std::string, std::size_t> transports;
  std::vector<std::pair<std::size_t, std::size_t>> keyspace;  ///< keys, and those that expire
  std::vector<InfoSection> transport_sections;
  std::span<const LoopFacts> loops;  ///< several, or none
};

void server_section(const Report& report, Fields& fields) {
  const Server& server = report.server;
  add(fields, "redis_version", kRedisVersion);
  add(fields, "kv_server_version", kVersion);
  add(fields, "multiplexing_api", fmt::format("aeconn ({})", server.config.event_loop));
  add(fields, "process_id", getpid());
  add(fields, "uptime_in_seconds", (server.now_us() - server.started_us()) / 1'000'000);
  if (!report.loops.empty()) add(fields, "loops", report.loops.size());
}

void clients_section(const Report& report, Fields& fields) {
  add(fields, "connected_clients", report.clients);
  add(fields, "maxclients", report.server.config.maxclients);
  add(fields, "blocked_clients", 0);
  for (const auto& [name, count] : report.transports) {
    add(fields, "connected_clients_" + name, count);
  }
}

void memory_section(const Report& report, Fields& fields) {
  const std::size_t used = report.data_bytes + report.buffer_bytes + report.left_behind;
  const Config& config = report.server.config;
  add(fields, "used_memory", used);
  add(fields, "used_memory_rss", resident_bytes());
  add(fields, "used_memory_dataset", report.data_bytes);
  add(fields, "mem_clients_normal", report.buffer_bytes);
  add(fields, "maxmemory_clients", config.clients_memory_limit);
  add(fields, "maxmemory", config.maxmemory);
}

void stats_section(const Report& report, Fields& fields) {
  const Statistics& statistics = report.statistics;
  add(fields, "total_connections_received", statistics.connections_received);
  add(fields, "total_commands_processed", statistics.commands_processed);
  add(fields, "total_net_input_bytes", statistics.bytes_in);
  add(fields, "total_net_output_bytes", statistics.bytes_out);
  add(fields, "rejected_connections", statistics.connections_rejected);
  add(fields, "expired_keys", report.expired);
  add(fields, "keyspace_hits", statistics.keyspace_hits);
  add(fields, "keyspace_misses", statistics.keyspace_misses);
  add(fields, "total_error_replies", statistics.error_replies);
  add(fields, "rejected_commands", statistics.commands_rejected);
  add(fields, "protocol_errors", statistics.protocol_errors);
  add(fields, "auth_failures", statistics.auth_failures);
  add(fields, "client_output_buffer_limit_disconnections", statistics.output_limit_closed);
  add(fields, "client_query_buffer_limit_disconnections", statistics.query_limit_closed);
  add(fields, "evicted_clients", statistics.clients_evicted);
  add(fields, "timed_out_clients", statistics.timed_out);
}

void commandstats_section(const Report& report, Fields& fields) {
  for (const Command& command : commands()) {
    const auto& counts = report.statistics.commands[command.index];
    if (counts.calls == 0 && counts.rejected == 0) continue;
    add(fields, fmt::format("cmdstat_{}", command.name),
        fmt::format("calls={},rejected_calls={},failed_calls={}", counts.calls, counts.rejected,
                    counts.failed));
  }
}

void keyspace_section(const Report& report, Fields& fields) {
  for (std::size_t i = 0; i < report.keyspace.size(); ++i) {
    const auto& [keys, expires] = report.keyspace[i];
    if (keys == 0) continue;
    add(fields, fmt::format("db{}", i), fmt::format("keys={},expires={},avg_ttl=0", keys, expires));
  }
}

void loops_section(const Report& report, Fields& fields) {
  for (std::size_t i = 0; i < report.loops.size(); ++i) {
    const LoopFacts& loop = report.loops[i];
    add(fields, fmt::format("loop{}", i),
        fmt::format("connected_clients={},commands_processed={}", loop.clients,
                    loop.statistics.commands_processed));
  }
}

constexpr struct {
  std::string_view name;
  void (*fill)(const Report&, Fields&);
  bool by_default;
} kSections[] = {
    {"Server", server_section, true},
    {"Clients", clients_section, true},
    {"Memory", memory_section, true},
    {"Stats", stats_section, true},
    {"Commandstats", commandstats_section, false},
    {"Keyspace", keyspace_section, true},
    {"Loops", loops_section, true},
};

void print(std::string& text, std::string_view name, const Fields& fields) {
  if (!text.empty()) text += "\r\n";
  text += fmt::format("# {}\r\n", name);
  for (const auto& [key, value] : fields) text += fmt::format("{}:{}\r\n", key, value);
}

/// The sections that a request names.
class Wanted {
 public:
  explicit Wanted(Arguments words) : words_(words.begin(), words.end()) {
    all_ = names("all") || names("everything");
    defaults_ = words_.empty() || names("default");
  }
  bool has(std::string_view section, bool by_default = true) const {
    return all_ || (defaults_ && by_default) || names(section);
  }
  bool has_transport(std::string_view section) const {
    return all_ || defaults_ || names("transports") || names(section);
  }

 private:
  bool names(std::string_view name) const {
    for (const std::string& word : words_) {
      if (is_word(word, name)) return true;
    }
    return false;
  }
  std::vector<std::string> words_;
  bool all_ = false, defaults_ = false;
};

std::map<std::string, std::size_t> count_transports(const Server& server) {
  std::map<std::string, std::size_t> transports;
  for (const auto& [id, session] : server.sessions) ++transports[session->info().transport];
  return transports;
}

std::vector<InfoSection> transport_sections(const Server& server) {
  return server.transport_sections ? server.transport_sections() : std::vector<InfoSection>();
}

void reply_report(Call& call, const Wanted& wanted, const Report& report) {
  std::string text;
  for (const auto& section : kSections) {
    if (!wanted.has(section.name, section.by_default)) continue;
    if (section.fill == loops_section && report.loops.empty()) continue;
    Fields fields;
    section.fill(report, fields);
    print(text, section.name, fields);
  }
  for (const InfoSection& section : report.transport_sections) {
    if (wanted.has_transport(section.name)) print(text, section.name, section.fields);
  }
  call.reply.verbatim(text);
}

LoopFacts facts_of(const Server& server, const Wanted& wanted) {
  LoopFacts facts{server.statistics,
                  server.sessions.size(),
                  server.buffer_bytes,
                  server.left_behind(),
                  {},
                  transport_sections(server)};
  if (wanted.has("Clients")) facts.transports = count_transports(server);
  return facts;
}

/// "rxe0_port1_hw_sent_pkts": a device's own.
bool is_of_port(std::string_view name) {
  constexpr std::string_view kPort = "_port";
  const std::size_t at = name.find(kPort);
  return at != std::string_view::npos && at + kPort.size() < name.size() &&
         name[at + kPort.size()] >= '0' && name[at + kPort.size()] <= '9';
}

/// Counters of the same name are added, but for those that a transport has once for all loops and
/// those that are no sums, of which the first loop tells its own.
void add_sections(std::vector<InfoSection>& to, const std::vector<InfoSection>& from) {
  static constexpr std::string_view kOnce[] = {"registered_bytes", "teardown_failures",
                                               "sessions",         "sessions_dropped",
                                               "spin_budget_ns",   "sleep_cost_ns"};
  for (const InfoSection& section : from) {
    auto known = std::find_if(to.begin(), to.end(),
                              [&](const auto& each) { return each.name == section.name; });
    if (known == to.end()) known = to.insert(to.end(), InfoSection{section.name, {}});
    for (const auto& [name, value] : section.fields) {
      auto field = std::find_if(known->fields.begin(), known->fields.end(),
                                [&name = name](const auto& each) { return each.first == name; });
      if (field == known->fields.end()) {
        known->fields.emplace_back(name, value);
        continue;
      }
      if (std::find(std::begin(kOnce), std::end(kOnce), name) != std::end(kOnce)) continue;
      if (is_of_port(name)) continue;
      field->second = fmt::format(
          "{}", parse_integer(field->second).value_or(0) + parse_integer(value).value_or(0));
    }
  }
}

/// Of all shards, at one moment.
void add_data(Report& report) {
  Server& server = report.server;
  const ShardsLock lock(server.together->shards, server.data_bytes);
  report.keyspace.resize(server.database_count);
  for (std::size_t i = 0; i < server.together->shards.count(); ++i) {
    Store& store = server.together->shards[i].store;
    report.data_bytes += store.memory();
    report.expired += store.expired();
    for (std::size_t db = 0; db < server.database_count; ++db) {
      report.keyspace[db].first += store.database(db).size();
      report.keyspace[db].second += store.database(db).volatile_size();
    }
  }
}

}  // namespace

void info_command(Call& call) {
  Server& server = call.server;
  const Wanted wanted(call.argv.subspan(1));
  Report report(server, server.statistics);
  report.clients = server.sessions.size();
  report.buffer_bytes = server.buffer_bytes;
  report.left_behind = server.left_behind();
  report.data_bytes = server.store.memory();
  report.expired = server.store.expired();
  report.transport_sections = transport_sections(server);
  if (wanted.has("Clients")) report.transports = count_transports(server);
  for (std::size_t i = 0; i < server.database_count; ++i) {
    const Database& database = server.store.database(i);
    report.keyspace.emplace_back(database.size(), database.volatile_size());
  }
  reply_report(call, wanted, report);
}

void info_divided(Call& call) {
  const Wanted wanted(call.argv.subspan(1));
  ask_loops<LoopFacts>(
      call, [wanted](Server& server) { return facts_of(server, wanted); },
      [wanted](Call& resumed, std::vector<LoopFacts>& answers) {
        Statistics sum;
        Report report(resumed.server, sum);
        report.loops = answers;
        for (const LoopFacts& facts : answers) {
          sum.add(facts.statistics);
          report.clients += facts.clients;
          report.buffer_bytes += facts.buffer_bytes;
          report.left_behind += facts.left_behind;
          for (const auto& [name, count] : facts.transports) report.transports[name] += count;
          add_sections(report.transport_sections, facts.transport_sections);
        }
        sum.commands.resize(command_count());  // where a loop has ended it had none
        add_data(report);
        reply_report(resumed, wanted, report);
      });
}

}  // namespace kv
