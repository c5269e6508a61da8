// SPDX-License-Identifier: BSD-3-Clause
// aeconn-doctor: reports what prevents RDMA on this machine, and at which step a connection fails.
//
//   aeconn-doctor                            checks this machine
//   aeconn-doctor rdma://10.0.0.1:7000       also tests a connection, over tcp as well
//   aeconn-doctor --serve rdma://*:7000      peer for such a test
//   aeconn-doctor --limits rdma://*:7000     limits of a server with these options

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>

#include "ae/libev_loop.h"
#include "conn/transports/transports.h"
#include "programs/doctor/checkup.h"
#include "programs/doctor/dial.h"
#include "programs/doctor/echo.h"
#include "programs/doctor/limits.h"
#include "programs/manual/manual.h"
#include "programs/service/signals.h"
#include "programs/service/standard_streams.h"

namespace {

struct Options {
  doctor::Plan plan;
  std::vector<std::string> serve, limits;
  double timeout = std::chrono::duration<double>(doctor::Plan{}.time_limit).count();
  bool json = false;
};

int run_limits(const conn::Registry& registry, const Options& options) {
  bool enough = true;
  for (const std::string& url : options.limits)
    enough = doctor::print_limits(registry, url, options.plan.connections, options.json) && enough;
  return enough ? 0 : 1;
}

void say_where(const std::vector<conn::Endpoint>& all) {
  for (const conn::Endpoint& each : all) service::print("listening on " + each.to_string() + '\n');
}

int run_server(const conn::Registry& registry, const Options& options) {
  ae::LibevLoop loop;
  doctor::Echo echo(loop, registry);
  const service::Signals signals(loop, [&] { loop.stop(); });
  std::vector<conn::Endpoint> all;
  for (const std::string& url : options.serve) all.push_back(conn::Endpoint::parse(url));
  for (const conn::Endpoint& each : all) registry.require(each.scheme).check(each);
  try {
    for (const conn::Endpoint& each : all) {
      const std::vector<conn::Endpoint> at = echo.listen(each);
      say_where(at);
      std::optional<conn::Endpoint> beside = doctor::over_tcp(registry, each);
      if (!beside || at.empty()) continue;
      beside->port = at.front().port;
      try {
        say_where(echo.listen(*beside));
      } catch (const conn::Error& error) {
        service::print("not over " + beside->scheme + ": " + error.what() + '\n');
      }
    }
  } catch (const conn::Error& error) {
    service::complain("aeconn-doctor", error.what());
    return 1;
  }
  loop.run();
  return 0;
}

int run_check(const conn::Registry& registry, const Options& options) {
  doctor::Verdicts all;
  doctor::check_up(registry, doctor::read_facts(), options.plan, [&](doctor::Verdict verdict) {
    if (!options.json) service::print(doctor::line_of(verdict) + '\n');
    all.push_back(std::move(verdict));
  });
  const doctor::Verdict* const failure = doctor::first_failure(all);
  if (options.json) {
    nlohmann::ordered_json json{{"ok", failure == nullptr}, {"urls", options.plan.urls}};
    json["first_failure"] = failure != nullptr ? doctor::json_of(*failure) : nullptr;
    json["rows"] = nlohmann::ordered_json::array();
    for (const doctor::Verdict& each : all) json["rows"].push_back(doctor::json_of(each));
    service::print(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
  } else if (failure != nullptr) {
    service::print("\nThe first failure is " + failure->row + ". What to do: " + failure->remedy +
                   '\n');
  }
  return failure == nullptr ? 0 : 1;
}

manual::Values add_options(CLI::App& app, Options& options) {
  manual::Values values;
  CLI::Option* const urls =
      values.add(app.add_option("url", options.plan.urls,
                                "URL to connect to, step by step; none: check this machine"),
                 manual::Value::connect_url());
  values
      .add(app.add_option("--serve", options.serve,
                          "Serve as the other end: an echo server, also over tcp on the same port; "
                          "may be repeated"),
           manual::Value::listen_url())
      ->excludes(urls);
  values
      .add(app.add_option("--limits", options.limits,
                          "Check only the limits, for a server on this URL with its options; "
                          "may be repeated"),
           manual::Value::listen_url())
      ->excludes(urls)
      ->excludes("--serve");
  app.add_option("--connections", options.plan.connections,
                 "Number of connections that the limits must allow")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100000000}));
  app.add_option("--timeout", options.timeout, "Time-out of each step of a connection, in seconds")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 3600.0))
      ->check([](const std::string& text) {
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? text + " is no number of seconds"
                                                              : std::string();
      });
  app.add_flag("--json", options.json,
               "Print one line of JSON for all rows, or one for each URL of --limits");
  return values;
}

manual::About about(manual::Values values) {
  return {
      .description =
          {"Without a URL it checks this machine: modules, device files, devices, ports, GIDs, "
           "addresses, MTU, limits; and tests each device with a connection to itself. It prints "
           "one line for each check, and finally what to do about the first failure.",
           "With a URL it also connects to the URL, with the time of each step, and then to the "
           "same address over tcp (tls for tls+rdma). The other end may be aeconn-doctor --serve "
           "or a server of Redis's protocol.",
           "Lines begin with ok; with note, for something that works but is worth knowing; with "
           "FAIL, for something that prevents connections; or with a dash, for something that "
           "could not be checked."},
      .sections =
          {{"EXIT STATUS",
            {"0 if nothing failed, 1 if something did, 2 for an invalid command line, with one "
             "line on standard error. A limit that allows fewer connections than " +
             std::to_string(doctor::Plan{}.connections) +
             " "
             "is a note, and a failure if --connections or --limits is given. With --limits, 2 "
             "also means that the limits could not be determined."}}},
      .examples =
          {{"This machine:", "aeconn-doctor"},
           {"The other end, and from another machine:", "aeconn-doctor --serve rdma://*:7000"},
           {"a connection to it:", "aeconn-doctor rdma://10.0.0.1:7000"},
           {"Limits for five thousand connections:",
            "aeconn-doctor --connections 5000 --limits 'rdma://10.0.0.1:6379?window=256k'"}},
      .see_also = {"kv-server(1)", "conn(7)"},
      .version = AECONN_VERSION,
      .values = std::move(values)};
}

}  // namespace

int main(int argc, char** argv) {
  service::open_standard_streams();
  Options options;
  CLI::App app("Finds what prevents RDMA on this machine, and at which step a connection fails.",
               "aeconn-doctor");
  manual::add_to(app, about(add_options(app, options)));
  manual::add_version(app, "aeconn-doctor");
  try {
    (void)manual::parse(app, {argv, static_cast<std::size_t>(argc)});
    options.plan.all_connections = app.count("--connections") != 0;
    options.plan.time_limit =
        std::chrono::duration_cast<ae::Duration>(std::chrono::duration<double>(options.timeout));
    const conn::Registry registry = conn::all_transports();
    if (!options.limits.empty()) return run_limits(registry, options);
    if (!options.serve.empty()) return run_server(registry, options);
    return run_check(registry, options);
  } catch (const CLI::ParseError& error) {
    return manual::explain(app, error, 2);
  } catch (const service::StreamError& error) {
    service::complain("aeconn-doctor", error.what());
    return 1;
  } catch (const std::exception& error) {
    service::complain("aeconn-doctor", error.what());
    return 2;
  }
}
