// SPDX-License-Identifier: BSD-3-Clause
// INFO and the text of GET /metrics.
#include "metrics_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>

#include "command.h"

namespace kv {
namespace {

/// Returns the sums of all members except `transports`, whose elements are appended.
Figures sum_of(std::span<const Figures> loops) {
  Figures sum;
  sum.statistics.commands.resize(command_count());  // a loop that has ended reports none
  for (const Figures& each : loops) {
    sum.statistics.add(each.statistics);
    sum.clients += each.clients;
    sum.buffer_bytes += each.buffer_bytes;
    sum.left_behind += each.left_behind;
    for (const auto& [name, count] : each.clients_of) sum.clients_of[name] += count;
    sum.transports.insert(sum.transports.end(), each.transports.begin(), each.transports.end());
  }
  return sum;
}

struct Data {
  std::size_t keys, bytes;
};
Data data_of(Store& store) {
  const ShardsLock lock(store);
  return {store.size(), store.memory()};
}

// --- INFO ----------------------------------------------------------------------------------------

/// One section: "# Name", and a line "key:value" for each figure.
class Section {
 public:
  Section(std::string& text, std::string_view name) : text_(text) {
    if (!text_.empty()) text_ += "\r\n";
    text_ += fmt::format("# {}\r\n", name);
  }
  template <class Value>
  void add(std::string_view key, const Value& value) {
    text_ += fmt::format("{}:{}\r\n", key, value);
  }

 private:
  std::string& text_;
};

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// What the reply of INFO is made from.
struct Report {
  const Server& server;  ///< the one that replies: its configuration is reported
  const Figures sum;
  const Data data;
  std::span<const Figures> loops;
};

void server_section(const Report& report, Section& out) {
  const Server& server = report.server;
  out.add("redis_version", kRedisVersion);
  out.add("kv_server_version", kVersion);
  out.add("multiplexing_api", fmt::format("aeconn ({})", server.config.event_loop));
  out.add("process_id", getpid());
  out.add("uptime_in_seconds", (server.now_us() - server.together.started_us) / 1'000'000);
  out.add("loops", report.loops.size());
}

void clients_section(const Report& report, Section& out) {
  out.add("connected_clients", report.sum.clients);
  out.add("maxclients", report.server.config.maxclients);
  out.add("blocked_clients", 0);
  for (const auto& [name, count] : report.sum.clients_of)
    out.add("connected_clients_" + name, count);
}

void memory_section(const Report& report, Section& out) {
  const Config& config = report.server.config;
  out.add("used_memory", report.data.bytes + report.sum.buffer_bytes + report.sum.left_behind);
  out.add("used_memory_rss", resident_bytes());
  out.add("used_memory_dataset", report.data.bytes);
  out.add("mem_clients_normal", report.sum.buffer_bytes);
  out.add("maxmemory_clients", config.clients_memory_limit);
  out.add("maxmemory", config.maxmemory);
}

void stats_section(const Report& report, Section& out) {
  for (const Counter& counter : kCounters)
    out.add(counter.info, report.sum.statistics.*counter.member);
}

void commandstats_section(const Report& report, Section& out) {
  for (const Command& command : commands()) {
    const auto& counts = report.sum.statistics.commands[command.index];
    if (counts.calls == 0 && counts.rejected == 0) continue;
    out.add(fmt::format("cmdstat_{}", command.name),
            fmt::format("calls={},rejected_calls={},failed_calls={}", counts.calls, counts.rejected,
                        counts.failed));
  }
}

void keyspace_section(const Report& report, Section& out) {
  if (report.data.keys != 0)
    out.add("db0", fmt::format("keys={},expires=0,avg_ttl=0", report.data.keys));
}

void loops_section(const Report& report, Section& out) {
  for (std::size_t i = 0; i < report.loops.size(); ++i) {
    const Figures& loop = report.loops[i];
    out.add(fmt::format("loop{}", i),
            fmt::format("connected_clients={},commands_processed={}", loop.clients,
                        loop.statistics.commands_processed));
  }
}

constexpr struct {
  std::string_view name;
  void (*fill)(const Report&, Section&);
} kSections[] = {
    {"Server", server_section},
    {"Clients", clients_section},
    {"Memory", memory_section},
    {"Stats", stats_section},
    {"Keyspace", keyspace_section},
    {"Loops", loops_section},
    {"Commandstats", commandstats_section},
};

/// The sections that a request names. Without a name, or with "default": all but Commandstats. With
/// "all" or "everything": all.
class Wanted {
 public:
  explicit Wanted(Arguments words) : words_(words.begin(), words.end()) {}
  bool has(std::string_view section) const {
    if (names(section) || names("all") || names("everything")) return true;
    return (words_.empty() || names("default")) && section != "Commandstats";
  }
  bool names(std::string_view name) const {
    return std::any_of(words_.begin(), words_.end(), [name](const std::string& word) {
      return std::ranges::equal(word, name, {}, lower, lower);
    });
  }

 private:
  std::vector<std::string> words_;
};

/// Whether a counter is one of a device's port, such as "rxe0_port1_hw_sent_pkts".
bool is_of_port(std::string_view name) {
  constexpr std::string_view kPort = "_port";
  const std::size_t at = name.find(kPort);
  return at != std::string_view::npos && at + kPort.size() < name.size() &&
         name[at + kPort.size()] >= '0' && name[at + kPort.size()] <= '9';
}

/// The counters of one transport, in its order. Those of several loops are added, except counters
/// that belong to the process or are no sums: of these the first loop's is shown.
conn::Statistics add_up(const Figures& sum, std::string_view transport) {
  static constexpr std::string_view kOnce[] = {
      "registered_bytes", "teardown_failures", "room_for_connections", "limits_too_low", "sessions",
      "sessions_dropped", "certificates_end",  "spin_budget_ns",       "sleep_cost_ns"};
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

void reply_info(Call& call, const Wanted& wanted, std::span<const Figures> loops) {
  const Report report{call.server, sum_of(loops), data_of(call.server.store), loops};
  std::string text;
  for (const auto& section : kSections) {
    if (!wanted.has(section.name)) continue;
    Section out(text, section.name);
    section.fill(report, out);
  }
  std::vector<std::string_view> shown;
  for (const conn::SchemeStatistics& each : report.sum.transports) {
    if (std::find(shown.begin(), shown.end(), each.scheme) != shown.end()) continue;
    shown.push_back(each.scheme);
    const std::string name = each.scheme == kLoopTimes ? each.scheme : "Transport_" + each.scheme;
    if (!wanted.has(name) && !wanted.names("transports")) continue;
    Section out(text, name);
    for (const auto& [key, value] : add_up(report.sum, each.scheme)) out.add(key, value);
  }
  call.reply.verbatim(text);
}

// --- GET /metrics --------------------------------------------------------------------------------

using Text = conn::MetricsText;
constexpr auto kCounter = Text::Type::kCounter;
constexpr auto kGauge = Text::Type::kGauge;

void write_counters(Text& out, const Statistics& s) {
  constexpr std::string_view kLimit = "limit=";
  for (const Counter& counter : kCounters) {
    if (counter.metric.starts_with(kLimit)) continue;
    out.begin(counter.metric, kCounter, counter.help);
    out.sample({}, s.*counter.member);
  }
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

void write_gauges(Text& out, const Figures& sum, const Data& data, const Config& config,
                  std::int64_t start_date_s) {
  const auto gauge = [&out](std::string_view name, std::string_view help, std::uint64_t value) {
    out.begin(name, kGauge, help);
    out.sample({}, value);
  };
  gauge("kv_loops", "Event loops that serve clients.", config.loops);
  gauge("kv_start_time_seconds", "Start time of the server in seconds since 1970.",
        static_cast<std::uint64_t>(start_date_s));
  gauge("kv_clients", "Connected clients.", sum.clients);
  gauge("kv_clients_limit", "Maximum number of connected clients (maxclients).",
        static_cast<std::uint64_t>(config.maxclients));
  out.begin("kv_memory_bytes", kGauge, "Memory by use.");
  out.sample({{"use", "data"}}, data.bytes);
  out.sample({{"use", "clients"}}, sum.buffer_bytes);
  out.sample({{"use", "values_on_their_way"}}, sum.left_behind);
  gauge("kv_memory_limit_bytes", "maxmemory; 0: no limit.", config.maxmemory);
  gauge("kv_keys", "Keys.", data.keys);
}

}  // namespace

Figures figures_of(const Server& server) {
  Figures figures{
      server.statistics, server.sessions.size(), server.buffer_bytes, server.left_behind(), {}, {}};
  if (server.transports) figures.transports = server.transports();
  for (const auto& [id, session] : server.sessions) ++figures.clients_of[session->info().transport];
  return figures;
}

void info_command(Call& call) {
  ask_loops<Figures>(
      call, figures_of,
      [wanted = Wanted(call.argv.subspan(1))](Call& resumed, std::vector<Figures>& answers) {
        reply_info(resumed, wanted, answers);
      });
}

std::string metrics_of(std::span<const Figures> loops, Together& together) {
  Figures sum = sum_of(loops);
  std::erase_if(sum.transports, [](const auto& each) { return each.scheme == kLoopTimes; });
  const auto config = [&together] {
    const std::lock_guard lock(together.config_mutex);
    return together.config;
  }();
  Text own;
  write_counters(own, sum.statistics);
  write_gauges(own, sum, data_of(together.store), config, together.start_date_s);
  return conn::metrics(sum.transports) + own.text();
}

}  // namespace kv
