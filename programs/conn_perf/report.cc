// SPDX-License-Identifier: BSD-3-Clause
#include "report.h"

#include <fmt/format.h>

#include <memory>

#include "output_file.h"

namespace perf {
namespace {

const Usage* usage_of(const Result& result, bool server) {
  if (!server) return &result.client;
  return result.server ? &*result.server : nullptr;
}

std::string decimal(std::optional<double> value, int digits = 2) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}
std::string number(std::optional<std::uint64_t> value) {
  return value ? std::to_string(*value) : "-";
}
double seconds(ae::Duration time) { return std::chrono::duration<double>(time).count(); }
double microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1000; }

/// Describes one side. Texts from the server are untrusted, so they pass through conn::printable().
std::string side(const char* name, const Facts& facts) {
  const std::string who = conn::printable(
      fmt::format("{}: aeconn {}, {}, {} processors, device {}, MTU {}, options: {}", name,
                  facts.version, facts.kernel, facts.processors,
                  facts.device.empty() ? "-" : facts.device, number(facts.mtu), facts.options));
  if (facts.path.empty()) return who + '\n';
  return who + '\n' + conn::printable(fmt::format("{}, path: {}", name, facts.path)) + '\n';
}

/// How a loop with spinning enabled spent its time; empty for other loops.
std::string waiting(const char* name, const Usage& usage) {
  if (!usage.busy_ns) return {};
  const auto of = [](std::optional<std::uint64_t> value) { return value.value_or(0); };
  const double all =
      static_cast<double>(of(usage.busy_ns) + of(usage.spun_ns) + of(usage.slept_ns)) / 100;
  const auto part = [&](std::optional<std::uint64_t> ns) {
    return all > 0 ? static_cast<double>(of(ns)) / all : 0;
  };
  return fmt::format(
      "  {} loop: busy {:.1f} %, spun {:.1f} %, slept {:.1f} %; spins: {} hits, {} misses, {} "
      "probes, budget {:.1f} us\n",
      name, part(usage.busy_ns), part(usage.spun_ns), part(usage.slept_ns), of(usage.spin_hits),
      of(usage.spin_misses), of(usage.spin_probes), microseconds(of(usage.spin_budget_ns)));
}

class Table final : public Report {
 public:
  explicit Table(Output out) : out_(std::move(out)) {}

  void begin(const Sides& sides, const Plan& plan) override {
    out_(side("client", sides.client));
    out_(sides.server ? side("server", *sides.server) : "server: any echo server, unknown\n");
    for (const std::string& note : sides.notes) out_("note: " + conn::printable(note) + '\n');
    out_(fmt::format("{} over {}{}{}\n", to_string(plan.mode), plan.endpoint.scheme,
                     plan.both_ways ? ", both ways at once" : "",
                     plan.mode == Mode::kIdle ? "; bytes and descriptors of one connection"
                                              : "; latency in us"));
    if (plan.mode == Mode::kIdle) {
      row({"connections", "rss server", "pinned server", "fds server", "rss client",
           "pinned client", "fds client"});
    } else {
      row({"connections", "depth", "size", "requests", "elapsed s", "requests/s", "MB/s", "mean",
           "p50", "p99", "p99.9", "max", "cpu s/M cl", "cpu s/M srv", "calls/r cl", "calls/r srv"});
    }
  }

  void result(const Result& result) override {
    const Plan& plan = result.plan;
    std::vector<std::string> cells{std::to_string(plan.connections)};
    const auto add = [&cells](std::string cell) { cells.push_back(std::move(cell)); };
    if (plan.mode == Mode::kIdle) {
      for (const bool server : {true, false}) {
        for (const auto what : {&Usage::resident, &Usage::pinned, &Usage::descriptors})
          add(number(per_connection(result, what, server)));
      }
      row(cells);
      return loops(result);
    }
    const Histogram& latency = result.latency;
    const bool timed = latency.count() != 0;
    add(plan.mode == Mode::kRequestResponse ? std::to_string(plan.depth) : "-");
    add(std::to_string(plan.size));
    add(std::to_string(result.requests));
    add(decimal(seconds(result.elapsed), 3));
    add(decimal(per_second(result, result.requests), 0));
    add(decimal(per_second(result, result.bytes) / 1e6));
    add(timed ? decimal(latency.mean() / 1000, 1) : "-");
    for (const double p : {50.0, 99.0, 99.9, 100.0})
      add(timed ? decimal(microseconds(latency.percentile(p)), 1) : "-");
    for (const bool server : {false, true}) add(decimal(cpu_per_million(result, server)));
    for (const bool server : {false, true}) add(decimal(calls_per_request(result, server)));
    row(cells);
    loops(result);
  }

  void end() override {}

 private:
  void loops(const Result& result) {
    out_(waiting("client", result.client));
    if (result.server) out_(waiting("server", *result.server));
    if (!on_several_loops(result)) return;
    loops_of("client", result.client_loops, result.plan.mode);
    if (!result.server_loops.empty()) loops_of("server", result.server_loops, result.plan.mode);
  }
  /// Connections and requests of each loop.
  void loops_of(const char* side, const std::vector<LoopShare>& all, Mode mode) {
    std::string line = fmt::format("  {}, by loop: connections", side);
    for (const LoopShare& each : all) line += fmt::format(" {}", each.connections);
    if (mode != Mode::kIdle) line += ", requests";
    for (const LoopShare& each : all)
      if (mode != Mode::kIdle) line += fmt::format(" {}", each.requests);
    out_(line + '\n');
  }
  void row(const std::vector<std::string>& cells) {
    std::string line;
    for (const std::string& cell : cells) {
      const std::size_t width = widths_.size() < cells.size() ? cell.size() + 1 : 0;
      if (width != 0) widths_.push_back(std::max<std::size_t>(width, 9));
      const std::size_t at = static_cast<std::size_t>(&cell - cells.data());
      line += fmt::format("{:>{}}", cell, widths_[at]);
      if (at + 1 < cells.size()) line += ' ';
    }
    out_(line + '\n');
  }

  Output out_;
  std::vector<std::size_t> widths_;
};

class Csv final : public Report {
 public:
  explicit Csv(const std::string& path) : file_(path) {}

  void begin(const Sides&, const Plan&) override {
    file_.write(
        "transport,mode,verify,connections,depth,size,reply_size,requests,elapsed_s,"
        "requests_per_s,mb_per_s,mean_us,p50_us,p99_us,p99_9_us,max_us,"
        "client_cpu_s_per_million,server_cpu_s_per_million,"
        "client_syscalls_per_request,server_syscalls_per_request,"
        "server_rss_bytes,server_pinned_bytes,server_descriptors,"
        "client_rss_bytes,client_pinned_bytes,client_descriptors\n");
  }
  void result(const Result& result) override {
    const Plan& plan = result.plan;
    const Histogram& latency = result.latency;
    const bool idle = plan.mode == Mode::kIdle, timed = latency.count() != 0;
    // A missing value is an empty cell.
    const auto cell = [](std::optional<double> value) {
      return value ? fmt::format("{:.10g}", *value) : std::string();
    };
    const auto when = [&](bool known, double value) { return known ? cell(value) : std::string(); };
    std::string line = fmt::format(
        "{},{},{},{},{},{},{},{}", plan.endpoint.scheme, to_string(plan.mode),
        plan.verify ? "yes" : "no", plan.connections,
        plan.mode == Mode::kRequestResponse ? std::to_string(plan.depth) : "",
        idle ? "" : std::to_string(plan.size), idle ? "" : std::to_string(plan.reply_size),
        idle ? "" : std::to_string(result.requests));
    const auto add = [&line](const std::string& text) { line += "," + text; };
    add(when(!idle, seconds(result.elapsed)));
    add(when(!idle, per_second(result, result.requests)));
    add(when(!idle, per_second(result, result.bytes) / 1e6));
    add(when(timed, latency.mean() / 1000));
    for (const double p : {50.0, 99.0, 99.9, 100.0})
      add(when(timed, microseconds(latency.percentile(p))));
    for (const bool server : {false, true}) add(cell(cpu_per_million(result, server)));
    for (const bool server : {false, true}) add(cell(calls_per_request(result, server)));
    for (const bool server : {true, false}) {
      for (const auto what : {&Usage::resident, &Usage::pinned, &Usage::descriptors}) {
        const auto value = per_connection(result, what, server);
        add(value ? std::to_string(*value) : "");
      }
    }
    file_.write(line + '\n');
  }
  void end() override { file_.finish(); }

 private:
  OutputFile file_;
};

}  // namespace

std::optional<std::uint64_t> per_connection(const Result& result,
                                            std::optional<std::uint64_t> Usage::*what,
                                            bool server) {
  const Usage* const usage = usage_of(result, server);
  if (result.plan.mode != Mode::kIdle || usage == nullptr || !(usage->*what)) return std::nullopt;
  return *(usage->*what) / result.plan.connections;
}

std::optional<double> cpu_per_million(const Result& result, bool server) {
  const Usage* const usage = usage_of(result, server);
  if (usage == nullptr || !usage->cpu_ns || result.requests == 0) return std::nullopt;
  return static_cast<double>(*usage->cpu_ns) / 1e9 / (static_cast<double>(result.requests) / 1e6);
}

std::optional<double> calls_per_request(const Result& result, bool server) {
  const Usage* const usage = usage_of(result, server);
  if (usage == nullptr || !usage->system_calls || result.requests == 0) return std::nullopt;
  return static_cast<double>(*usage->system_calls) / static_cast<double>(result.requests);
}

bool on_several_loops(const Result& result) {
  return result.client_loops.size() > 1 || result.server_loops.size() > 1;
}

double per_second(const Result& result, std::uint64_t what) {
  const double time = seconds(result.elapsed);
  return time > 0 ? static_cast<double>(what) / time : 0;
}

std::unique_ptr<Report> make_table(Output out) { return std::make_unique<Table>(std::move(out)); }
std::unique_ptr<Report> make_csv(const std::string& path) { return std::make_unique<Csv>(path); }

}  // namespace perf
