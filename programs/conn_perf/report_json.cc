// SPDX-License-Identifier: BSD-3-Clause
#include <nlohmann/json.hpp>

#include "output_file.h"
#include "report.h"

namespace perf {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json us(std::uint64_t ns) { return static_cast<double>(ns) / 1000; }

Json side(const Facts& facts) {
  return {{"version", facts.version},
          {"kernel", facts.kernel},
          {"processors", facts.processors},
          {"device", facts.device.empty() ? Json(nullptr) : Json(facts.device)},
          {"mtu", or_null(facts.mtu)},
          {"path", facts.path.empty() ? Json(nullptr) : Json(facts.path)},
          {"options", facts.options}};
}

void add_idle(Json& json, const Result& result) {
  Json& each = json["per_connection"];
  for (const bool server : {true, false}) {
    const std::string who = server ? "server_" : "client_";
    each[who + "rss_bytes"] = or_null(per_connection(result, &Usage::resident, server));
    each[who + "pinned_bytes"] = or_null(per_connection(result, &Usage::pinned, server));
    each[who + "descriptors"] = or_null(per_connection(result, &Usage::descriptors, server));
  }
}

void add_load(Json& json, const Result& result) {
  const Plan& plan = result.plan;
  const Histogram& latency = result.latency;
  const bool request = plan.mode == Mode::kRequestResponse;
  json["depth"] = request ? Json(plan.depth) : Json(nullptr);
  json["size"] = plan.size;
  json["reply_size"] =
      plan.mode != Mode::kStream || plan.both_ways ? Json(plan.reply_size) : Json(nullptr);
  if (plan.mode == Mode::kStream) json["both_ways"] = plan.both_ways;
  json["requests"] = result.requests;
  json["elapsed_s"] = std::chrono::duration<double>(result.elapsed).count();
  json["requests_per_s"] = per_second(result, result.requests);
  json["mb_per_s"] = per_second(result, result.bytes) / 1e6;
  json["latency_us"] = nullptr;
  if (latency.count() != 0) {
    json["latency_us"] = {{"mean", latency.mean() / 1000},
                          {"p50", us(latency.percentile(50))},
                          {"p99", us(latency.percentile(99))},
                          {"p99_9", us(latency.percentile(99.9))},
                          {"max", us(latency.max())}};
  }
  json["cpu_s_per_million"] = {{"client", or_null(cpu_per_million(result, false))},
                               {"server", or_null(cpu_per_million(result, true))}};
  json["syscalls_per_request"] = {{"client", or_null(calls_per_request(result, false))},
                                  {"server", or_null(calls_per_request(result, true))}};
  Json& buckets = json["histogram"] = Json::array();
  latency.for_each([&](std::uint64_t low, std::uint64_t high, std::uint64_t count) {
    buckets.push_back({us(low + (high - low) / 2), count});
  });
}

Json waiting(const Usage& usage) {
  if (!usage.busy_ns) return nullptr;
  return {{"busy_ns", or_null(usage.busy_ns)},
          {"spun_ns", or_null(usage.spun_ns)},
          {"slept_ns", or_null(usage.slept_ns)},
          {"spin_hits", or_null(usage.spin_hits)},
          {"spin_misses", or_null(usage.spin_misses)},
          {"spin_probes", or_null(usage.spin_probes)},
          {"spin_budget_us", us(usage.spin_budget_ns.value_or(0))}};
}

void add_waiting(Json& json, const Result& result) {
  const bool server_spins = result.server && result.server->busy_ns;
  if (!result.client.busy_ns && !server_spins) return;
  json["waiting"] = {{"client", waiting(result.client)},
                     {"server", server_spins ? waiting(*result.server) : Json(nullptr)}};
}

Json loops_of(const std::vector<LoopShare>& all, bool idle) {
  Json json = Json::array();
  for (const LoopShare& each : all) {
    json.push_back({{"connections", each.connections}});
    if (!idle) json.back()["requests"] = each.requests;
  }
  return json;
}

void add_loops(Json& json, const Result& result) {
  if (!on_several_loops(result)) return;
  const bool idle = result.plan.mode == Mode::kIdle;
  const bool known = !result.server_loops.empty();
  json["loops"] = {{"client", loops_of(result.client_loops, idle)},
                   {"server", known ? loops_of(result.server_loops, idle) : Json(nullptr)}};
}

class JsonReport final : public Report {
 public:
  explicit JsonReport(const std::string& path) : file_(path) {}

  void begin(const Sides& sides, const Plan& plan) override {
    json_ = {{"tool", "conn-perf"},
             {"version", sides.client.version},
             {"client", side(sides.client)},
             {"server", sides.server ? side(*sides.server) : Json(nullptr)},
             {"verify", plan.verify},
             {"notes", sides.notes},
             {"results", Json::array()}};
  }
  void result(const Result& result) override {
    Json json{{"transport", result.plan.endpoint.scheme},
              {"mode", to_string(result.plan.mode)},
              {"connections", result.plan.connections}};
    if (result.plan.mode == Mode::kIdle)
      add_idle(json, result);
    else
      add_load(json, result);
    add_loops(json, result);
    add_waiting(json, result);
    json_["results"].push_back(std::move(json));
  }
  void end() override {
    // Invalid UTF-8 in a name is replaced instead of failing at the very end.
    file_.write(json_.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n');
    file_.finish();
  }

 private:
  OutputFile file_;
  Json json_;
};

}  // namespace

std::unique_ptr<Report> make_json(const std::string& path) {
  return std::make_unique<JsonReport>(path);
}

}  // namespace perf
