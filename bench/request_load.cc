// SPDX-License-Identifier: BSD-3-Clause
// Load generator for request-reply servers over any transport of the library; compares each reply
// with the first one. Prints one line of JSON.
//
//   request-load tcp://127.0.0.1:6379 --connections 16 --depth 4 --requests 100000
//       --prepare "SET key value" --value-size 64 --command "GET key"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "ae/loop_names.h"
#include "conn/transports/transports.h"
#include "request_load_protocol.h"
#include "request_load_run.h"

namespace {

struct Settings {
  load::Plan plan;
  std::string url;
  std::string protocol = "resp";
  std::string event_loop = "libev";
  std::vector<std::string> commands, prepare;
  std::size_t value_size = 0;
};

void add_options(CLI::App& app, Settings& set) {
  const auto list = [&](const char* name, std::vector<std::string>& to, const char* text) {
    app.add_option(name, to, text)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  };
  load::Plan& plan = set.plan;
  app.add_option("url", set.url, "The server, such as tcp://127.0.0.1:6379")->required();
  app.add_option("-c,--connections", plan.connections)->check(CLI::PositiveNumber);
  app.add_option("-d,--depth", plan.depth, "Requests in flight on each connection")
      ->check(CLI::PositiveNumber);
  auto* const requests =
      app.add_option("-n,--requests", plan.requests, "Total number of requests (10000)")
          ->check(CLI::PositiveNumber);
  app.add_option("--seconds", plan.seconds, "Duration, instead of a number of requests")
      ->check(CLI::PositiveNumber)
      ->excludes(requests);
  app.add_option("--warmup", plan.warm_up, "Seconds that are not counted");
  app.add_option("--protocol", set.protocol, "resp, memcached, echo or frames");
  app.add_option("--event-loop", set.event_loop, "libev or epoll");
  list("--command", set.commands, "Command to send (PING); may be repeated to alternate");
  list("--prepare", set.prepare, "Command to send once beforehand; may be repeated");
  app.add_option("--value-size", set.value_size,
                 "Number of bytes that replace each word \"value\" in the commands");
  app.add_flag("--new-connections", plan.new_connections,
               "Each request on a new connection, closed after the reply");
}

load::Script learn(ae::EventLoop& loop, const conn::Registry& registry, const Settings& set) {
  const auto protocol = load::make_protocol(set.protocol);
  std::string value;
  while (value.size() < set.value_size) value += static_cast<char>('a' + value.size() % 26);
  std::vector<std::string> requests;
  for (const auto* list : {&set.prepare, &set.commands}) {
    for (const std::string& command : *list) requests.push_back(protocol->request(command, value));
  }
  const auto replies = load::call(loop, registry, set.plan.endpoint, *protocol, requests);
  load::Script script;
  for (std::size_t i = set.prepare.size(); i < requests.size(); ++i) {
    script.add(requests[i], replies[i]);
  }
  script.repeat();
  return script;
}

void print(const Settings& set, const load::Script& script, const load::Result& result) {
  const auto us = [](auto ns) { return static_cast<double>(ns) / 1000; };
  const perf::Histogram& latency = result.latency;
  fmt::print(
      "{{\"connections\": {}, \"depth\": {}, \"request_bytes\": {}, \"reply_bytes\": {}, "
      "\"requests\": {}, \"elapsed_s\": {:.6f}, \"requests_per_s\": {:.1f}, \"latency_us\": "
      "{{\"mean\": {:.1f}, \"p50\": {:.1f}, \"p99\": {:.1f}, \"p99_9\": {:.1f}, \"max\": {:.1f}}}, "
      "\"client_cpu_s\": {:.6f}}}\n",
      set.plan.connections, set.plan.depth, script.request_cycle() / script.commands(),
      script.reply_cycle() / script.commands(), result.requests, result.elapsed_s,
      static_cast<double>(result.requests) / result.elapsed_s, us(latency.mean()),
      us(latency.percentile(50)), us(latency.percentile(99)), us(latency.percentile(99.9)),
      us(latency.max()), result.cpu_s);
}

void run(Settings& set) {
  load::Plan& plan = set.plan;
  if (plan.requests == 0 && plan.seconds == 0) plan.requests = 10'000;
  if (plan.new_connections && plan.depth != 1) {
    throw conn::Error("--new-connections sends one request per connection and excludes --depth");
  }
  if (set.commands.empty()) set.commands = {set.value_size > 0 ? "value" : "PING"};
  plan.endpoint = conn::Endpoint::parse(set.url);
  const conn::Registry registry = conn::all_transports();
  registry.require(plan.endpoint.scheme).check(plan.endpoint);
  const std::unique_ptr<ae::EventLoop> loop = ae::loops_named(set.event_loop)(0);
  const load::Script script = learn(*loop, registry, set);
  print(set, script, load::Run(*loop, registry, plan, script).run());
}

}  // namespace

int main(int argc, char** argv) {
  Settings set;
  try {
    CLI::App app("Closed-loop load for servers that answer requests.", "request-load");
    add_options(app, set);
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app.exit(error) == 0 ? 0 : 1;
    }
    run(set);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "request-load: " << set.url << ": " << error.what() << '\n';
    return 1;
  }
}
