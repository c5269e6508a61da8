// INFO.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "command.h"

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

void server_section(Server& server, Fields& fields) {
  const std::int64_t now = server.now_us();
  const std::int64_t up = (now - server.started_us()) / 1'000'000;
  add(fields, "redis_version", kRedisVersion);
  add(fields, "kv_server_version", kVersion);
  add(fields, "redis_mode", "standalone");
  add(fields, "arch_bits", 8 * sizeof(void*));
  add(fields, "multiplexing_api", "aeconn (libev)");
  add(fields, "process_id", getpid());
  add(fields, "run_id", server.run_id());
  add(fields, "server_time_usec", now);
  add(fields, "uptime_in_seconds", up);
  add(fields, "uptime_in_days", up / 86400);
  add(fields, "hz", 10);
  add(fields, "listeners", fmt::format("{}", fmt::join(server.config.listen, " ")));
}

void clients_section(Server& server, Fields& fields) {
  add(fields, "connected_clients", server.sessions.size());
  add(fields, "maxclients", server.config.maxclients);
  add(fields, "blocked_clients", 0);
  std::map<std::string, std::size_t> transports;
  for (const auto& [id, session] : server.sessions) ++transports[session->info().transport];
  for (const auto& [name, count] : transports) add(fields, "connected_clients_" + name, count);
}

void memory_section(Server& server, Fields& fields) {
  const std::size_t used = server.used_memory(), peak = server.peak_memory();
  add(fields, "used_memory", used);
  add(fields, "used_memory_human", format_memory(used));
  add(fields, "used_memory_rss", resident_bytes());
  add(fields, "used_memory_peak", peak);
  add(fields, "used_memory_peak_human", format_memory(peak));
  add(fields, "used_memory_dataset", server.store.memory());
  add(fields, "mem_clients_normal", server.buffer_bytes);
  add(fields, "maxmemory_clients", server.config.clients_memory_limit);
  add(fields, "maxmemory", server.config.maxmemory);
  add(fields, "maxmemory_human", format_memory(server.config.maxmemory));
  add(fields, "maxmemory_policy", "noeviction");
}

void persistence_section(Server&, Fields& fields) {
  add(fields, "loading", 0);
  add(fields, "rdb_bgsave_in_progress", 0);
  add(fields, "aof_enabled", 0);
}

void stats_section(Server& server, Fields& fields) {
  const Statistics& statistics = server.statistics;
  add(fields, "total_connections_received", statistics.connections_received);
  add(fields, "total_commands_processed", statistics.commands_processed);
  add(fields, "total_net_input_bytes", statistics.bytes_in);
  add(fields, "total_net_output_bytes", statistics.bytes_out);
  add(fields, "rejected_connections", statistics.connections_rejected);
  add(fields, "expired_keys", server.store.expired());
  add(fields, "evicted_keys", 0);
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

void replication_section(Server&, Fields& fields) {
  add(fields, "role", "master");
  add(fields, "connected_slaves", 0);
}

void cpu_section(Server&, Fields& fields) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto text = [](const timeval& t) {
    return fmt::format("{}.{:06}", static_cast<long>(t.tv_sec), static_cast<long>(t.tv_usec));
  };
  add(fields, "used_cpu_sys", text(usage.ru_stime));
  add(fields, "used_cpu_user", text(usage.ru_utime));
}

void modules_section(Server&, Fields&) {}

void commandstats_section(Server& server, Fields& fields) {
  for (const Command& command : commands()) {
    const auto& counts = server.statistics.commands[command.index];
    if (counts.calls == 0 && counts.rejected == 0) continue;
    add(fields, fmt::format("cmdstat_{}", command.name),
        fmt::format("calls={},rejected_calls={},failed_calls={}", counts.calls, counts.rejected,
                    counts.failed));
  }
}

void errorstats_section(Server& server, Fields& fields) {
  for (const auto& [code, count] : server.statistics.errors) {
    add(fields, "errorstat_" + code, fmt::format("count={}", count));
  }
}

void cluster_section(Server&, Fields& fields) { add(fields, "cluster_enabled", 0); }

void keyspace_section(Server& server, Fields& fields) {
  for (std::size_t i = 0; i < server.store.database_count(); ++i) {
    const Database& database = server.store.database(i);
    if (database.size() == 0) continue;
    add(fields, fmt::format("db{}", i),
        fmt::format("keys={},expires={},avg_ttl=0", database.size(), database.volatile_size()));
  }
}

constexpr struct {
  std::string_view name;
  void (*fill)(Server&, Fields&);
  bool by_default;
} kSections[] = {
    {"Server", server_section, true},
    {"Clients", clients_section, true},
    {"Memory", memory_section, true},
    {"Persistence", persistence_section, true},
    {"Stats", stats_section, true},
    {"Replication", replication_section, true},
    {"CPU", cpu_section, true},
    {"Modules", modules_section, true},
    {"Commandstats", commandstats_section, false},
    {"Errorstats", errorstats_section, true},
    {"Cluster", cluster_section, true},
    {"Keyspace", keyspace_section, true},
};

void print(std::string& text, std::string_view name, const Fields& fields) {
  if (!text.empty()) text += "\r\n";
  text += fmt::format("# {}\r\n", name);
  for (const auto& [key, value] : fields) text += fmt::format("{}:{}\r\n", key, value);
}

}  // namespace

void info_command(Call& call) {
  const Arguments wanted = call.argv.subspan(1);
  const auto asked = [wanted](std::string_view name) {
    for (const std::string_view word : wanted) {
      if (is_word(word, name)) return true;
    }
    return false;
  };
  const bool all = asked("all") || asked("everything");
  const bool defaults = wanted.empty() || asked("default");
  std::string text;
  for (const auto& section : kSections) {
    if (!all && !(defaults && section.by_default) && !asked(section.name)) continue;
    Fields fields;
    section.fill(call.server, fields);
    print(text, section.name, fields);
  }
  if (call.server.transport_sections) {
    for (const InfoSection& section : call.server.transport_sections()) {
      if (all || defaults || asked("transports") || asked(section.name)) {
        print(text, section.name, section.fields);
      }
    }
  }
  call.reply.verbatim(text);
}

}  // namespace kv
