// SPDX-License-Identifier: BSD-3-Clause
// INFO.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "divided.h"
#include "figures.h"

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

/// The input of a reply.
struct Report {
  const Server& server;  ///< the one that replies: its configuration is reported
  const Figures sum;
  const DataFigures data;
  std::span<const Figures> loops;
};

void server_section(const Report& report, Fields& fields) {
  const Server& server = report.server;
  add(fields, "redis_version", kRedisVersion);
  add(fields, "kv_server_version", kVersion);
  add(fields, "multiplexing_api", fmt::format("aeconn ({})", server.config.event_loop));
  add(fields, "process_id", getpid());
  add(fields, "uptime_in_seconds", (server.now_us() - server.started_us()) / 1'000'000);
  if (server.together != nullptr) add(fields, "loops", report.loops.size());
}

void clients_section(const Report& report, Fields& fields) {
  add(fields, "connected_clients", report.sum.clients);
  add(fields, "maxclients", report.server.config.maxclients);
  add(fields, "blocked_clients", 0);
  for (const auto& [name, count] : report.sum.clients_of) {
    add(fields, "connected_clients_" + name, count);
  }
}

void memory_section(const Report& report, Fields& fields) {
  const Config& config = report.server.config;
  add(fields, "used_memory", report.data.bytes + report.sum.buffer_bytes + report.sum.left_behind);
  add(fields, "used_memory_rss", resident_bytes());
  add(fields, "used_memory_dataset", report.data.bytes);
  add(fields, "mem_clients_normal", report.sum.buffer_bytes);
  add(fields, "maxmemory_clients", config.clients_memory_limit);
  add(fields, "maxmemory", config.maxmemory);
}

void stats_section(const Report& report, Fields& fields) {
  for (const Counter& counter : kCounters)
    add(fields, std::string(counter.info), report.sum.statistics.*counter.member);
  add(fields, "expired_keys", report.data.expired);
}

void commandstats_section(const Report& report, Fields& fields) {
  for (const Command& command : commands()) {
    const auto& counts = report.sum.statistics.commands[command.index];
    if (counts.calls == 0 && counts.rejected == 0) continue;
    add(fields, fmt::format("cmdstat_{}", command.name),
        fmt::format("calls={},rejected_calls={},failed_calls={}", counts.calls, counts.rejected,
                    counts.failed));
  }
}

void keyspace_section(const Report& report, Fields& fields) {
  for (std::size_t i = 0; i < report.data.keys.size(); ++i) {
    const auto& [keys, expires] = report.data.keys[i];
    if (keys == 0) continue;
    add(fields, fmt::format("db{}", i), fmt::format("keys={},expires={},avg_ttl=0", keys, expires));
  }
}

void loops_section(const Report& report, Fields& fields) {
  for (std::size_t i = 0; i < report.loops.size(); ++i) {
    const Figures& loop = report.loops[i];
    add(fields, fmt::format("loop{}", i),
        fmt::format("connected_clients={},commands_processed={}", loop.clients,
                    loop.statistics.commands_processed));
  }
}

constexpr struct {
  std::string_view name;
  void (*fill)(const Report&, Fields&);
  bool by_default = true;
} kSections[] = {
    {"Server", server_section},
    {"Clients", clients_section},
    {"Memory", memory_section},
    {"Stats", stats_section},
    {"Commandstats", commandstats_section, false},
    {"Keyspace", keyspace_section},
    {"Loops", loops_section},
};

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
  bool names(std::string_view name) const {
    return std::any_of(words_.begin(), words_.end(),
                       [name](const std::string& word) { return is_word(word, name); });
  }

 private:
  std::vector<std::string> words_;
  bool all_ = false, defaults_ = false;
};

/// "rxe0_port1_hw_sent_pkts": a counter of a device.
bool is_of_port(std::string_view name) {
  constexpr std::string_view kPort = "_port";
  const std::size_t at = name.find(kPort);
  return at != std::string_view::npos && at + kPort.size() < name.size() &&
         name[at + kPort.size()] >= '0' && name[at + kPort.size()] <= '9';
}

/// The counters of one transport, in its order. Those of several loops are added, except counters
/// that belong to the process or are no sums: of these the first loop's is shown.
conn::Statistics add_up(const Figures& sum, std::string_view transport) {
  static constexpr std::string_view kOnce[] = {"registered_bytes", "teardown_failures",
                                               "sessions",         "sessions_dropped",
                                               "spin_budget_ns",   "sleep_cost_ns"};
  conn::Statistics total;
  for (const conn::SchemeStatistics& each : sum.transports) {
    if (each.scheme != transport) continue;
    for (const auto& [name, value] : each.statistics) {
      const auto known =
          std::find_if(total.begin(), total.end(),
                       [&name = name](const auto& field) { return field.first == name; });
      if (known == total.end())
        total.emplace_back(name, value);
      else if (std::find(std::begin(kOnce), std::end(kOnce), name) == std::end(kOnce) &&
               !is_of_port(name))
        known->second += value;
    }
  }
  return total;
}

void print(std::string& text, std::string_view name, const Fields& fields) {
  if (!text.empty()) text += "\r\n";
  text += fmt::format("# {}\r\n", name);
  for (const auto& [key, value] : fields) text += fmt::format("{}:{}\r\n", key, value);
}

void reply_info(Call& call, const Wanted& wanted, std::span<const Figures> loops) {
  const Report report{call.server, sum_of(loops), data_of(call.server), loops};
  std::string text;
  for (const auto& section : kSections) {
    if (!wanted.has(section.name, section.by_default)) continue;
    if (section.fill == loops_section && call.server.together == nullptr) continue;
    Fields fields;
    section.fill(report, fields);
    print(text, section.name, fields);
  }
  std::vector<std::string_view> shown;
  for (const conn::SchemeStatistics& each : report.sum.transports) {
    if (std::find(shown.begin(), shown.end(), each.scheme) != shown.end()) continue;
    shown.push_back(each.scheme);
    const std::string name = each.scheme == kLoopTimes ? each.scheme : "Transport_" + each.scheme;
    if (!wanted.has(name) && !wanted.names("transports")) continue;
    Fields fields;
    for (const auto& [key, value] : add_up(report.sum, each.scheme)) add(fields, key, value);
    print(text, name, fields);
  }
  call.reply.verbatim(text);
}

void info_command(Call& call) {
  const Wanted wanted(call.argv.subspan(1));
  const Figures own = figures_of(call.server, wanted.has("Clients"));
  reply_info(call, wanted, {&own, 1});
}

void info_divided(Call& call) {
  const Wanted wanted(call.argv.subspan(1));
  ask_loops<Figures>(
      call, [wanted](Server& server) { return figures_of(server, wanted.has("Clients")); },
      [wanted](Call& resumed, std::vector<Figures>& answers) {
        reply_info(resumed, wanted, answers);
      });
}

constexpr Command kTable[] = {
    {"info", -1, 0, info_command, 0, 0, 0, info_divided},
};

}  // namespace

std::span<const Command> info_commands() { return kTable; }

}  // namespace kv
