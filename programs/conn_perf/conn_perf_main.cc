// SPDX-License-Identifier: BSD-3-Clause
// conn-perf: measures the transports of aeconn between two processes or two machines.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>

#include "client.h"
#include "conn/options.h"
#include "conn/url/spin_option.h"
#include "loop_counts.h"
#include "plot.h"
#include "programs/manual/manual.h"
#include "programs/service/standard_streams.h"
#include "server.h"
#include "usage.h"
#include "wire.h"

namespace {

/// Parses "64", "1k", "64k", "1m" like the options of a URL. Throws conn::Error.
std::size_t size_of(const std::string& option, const std::string& text) {
  return static_cast<std::size_t>(
      conn::Options{{option, text}}.bytes(option, 0, perf::kHeaderSize, perf::kMostSize));
}

template <class Convert>
auto list_of(const std::string& list, Convert convert) {
  std::vector<std::size_t> values;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    values.push_back(convert(list.substr(at, end - at)));
    at = end + 1;
  }
  return values;
}

/// The client's options as text, before parsing. Defaults are those of the plan.
struct ClientWords {
  const perf::ClientOptions options{};
  const perf::Plan& plan = options.plan;
  std::string mode{to_string(plan.mode)}, reply_size, requests, seconds,
      warmup = conn::time_words(plan.warmup), hold = conn::time_words(options.hold),
      patience = conn::time_words(plan.patience), loops = std::to_string(options.loops),
      spin{conn::spin_words().front()};
  std::string sizes{std::to_string(plan.size)}, connections{std::to_string(plan.connections)},
      depths{std::to_string(plan.depth)};
  bool no_verify = false;
};

constexpr auto kModeWords = [] {
  std::array<std::string_view, perf::kModes.size()> all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = to_string(perf::kModes[i]);
  return all;
}();

perf::Mode mode_of(const std::string& name) {
  for (std::size_t i = 0; i < kModeWords.size(); ++i)
    if (name == kModeWords[i]) return perf::kModes[i];
  throw conn::Error(fmt::format("--mode {}: there is {}", name, fmt::join(kModeWords, ", ")));
}

ae::LoopMaker maker_of(const std::string& name) try {
  return ae::loops_named(name);
} catch (const ae::LoopError& error) {
  throw perf::UsageError("--event-loop: " + std::string(error.what()));
}

void translate(const ClientWords& words, perf::ClientOptions& options) try {
  using std::chrono_literals::operator""h;
  using std::chrono_literals::operator""ms;
  const auto duration = [](const char* option, const std::string& text, ae::Duration least) {
    double seconds = 0;  // also accepts "0.5", unlike options of a URL
    const char* const end = text.data() + text.size();
    if (const auto [stop, error] = std::from_chars(text.data(), end, seconds);
        stop == end && error == std::errc() && seconds < 86400 &&
        (seconds > 0 || (seconds == 0 && least == ae::Duration::zero()))) {
      return std::max(least, ae::Duration(static_cast<std::int64_t>(seconds * 1e9)));
    }
    return conn::Options{{option, text}}.duration(option, least, least, 24h);
  };
  const auto count = [](const char* option, std::uint64_t most) {
    return [option, most](const std::string& text) {
      return static_cast<std::size_t>(conn::Options{{option, text}}.number(option, 1, 1, most));
    };
  };
  options.plan.mode = mode_of(words.mode);
  options.sizes =
      list_of(words.sizes, [](const std::string& text) { return size_of("--sizes", text); });
  options.connections = list_of(words.connections, count("--connections", 1'000'000));
  options.depths = list_of(words.depths, count("--depths", 1'000'000));
  if (!words.reply_size.empty()) options.reply_size = size_of("--reply-size", words.reply_size);
  options.loops = perf::loops_of(words.loops);
  options.spin = conn::parse_spin(words.spin);
  (void)maker_of(options.event_loop);  // throws for an unknown name
  constexpr std::uint64_t kMostRequests = 1'000'000'000'000'000;
  if (!words.requests.empty())
    options.plan.requests = count("--requests", kMostRequests)(words.requests);
  if (!words.seconds.empty()) options.plan.seconds = duration("--seconds", words.seconds, 1ms);
  options.plan.warmup = duration("--warmup", words.warmup, ae::Duration::zero());
  options.plan.patience = duration("--patience", words.patience, 1ms);
  options.hold = duration("--hold", words.hold, ae::Duration::zero());
  options.plan.verify = !words.no_verify;
} catch (const conn::Error& error) {
  throw perf::UsageError(error.what());
}

constexpr const char* kLoops =
    "Event loops, each on a thread of its own; 0: one for each processor";

/// Options common to server and client, in display order.
void add_loop_options(CLI::App& app, std::string& loops, std::string& event_loop, std::string& spin,
                      manual::Values& values) {
  app.add_option("--loops", loops, kLoops)->capture_default_str();
  values
      .add(app.add_option("--event-loop", event_loop, manual::event_loop_help()),
           manual::Value::words(ae::loop_names()))
      ->capture_default_str();
  values.add(app.add_option("--spin", spin, manual::spin_help()), manual::Value::spin())
      ->capture_default_str();
}

void add_client(CLI::App& client, perf::ClientOptions& options, ClientWords& words,
                manual::Values& values) {
  perf::Plan& plan = options.plan;
  const auto list = [&client](const char* name, std::string& to, const char* text) {
    client.add_option(name, to, text)->capture_default_str();
  };
  values
      .add(client.add_option("url", options.url, "The server's URL, with options of its transport"),
           manual::Value::connect_url())
      ->required();
  values
      .add(client.add_option("--mode", words.mode,
                             manual::listed(kModeWords) + "; connect makes new connections"),
           manual::Value::words(kModeWords))
      ->capture_default_str();
  list("--sizes", words.sizes, "Bytes per message, 16 to 64m; a list such as 64,1k,64k");
  list("--connections", words.connections, "Number of connections; a list");
  list("--depths", words.depths, "Requests in flight on each connection; a list");
  add_loop_options(client, words.loops, options.event_loop, words.spin, values);
  client.add_option("--reply-size", words.reply_size, "Bytes per reply (default: as the request)");
  CLI::Option* const requests =
      client.add_option("--requests", words.requests, "Number of requests to measure");
  client.add_option("--seconds", words.seconds, "Duration of the measurement")
      ->default_str(conn::time_words(words.plan.seconds))
      ->excludes(requests);
  client
      .add_option("--warmup", words.warmup,
                  "Duration of a warm-up before it, excluded from all figures")
      ->capture_default_str();
  client.add_flag("--both-ways", plan.both_ways, "Streams in both directions simultaneously");
  client.add_flag("--echo", plan.echo, "The server is any echo server");
  client.add_flag("--in-place", plan.in_place,
                  "A stream without copies: sent from registered memory, read in place");
  client.add_flag("--no-verify", words.no_verify, "Without checksums");
  client.add_option("--hold", words.hold, "How long to keep idle connections after the figures")
      ->capture_default_str();
  client.add_option("--patience", words.patience, "Give up after this time without progress")
      ->capture_default_str();
  values.add(client.add_option("--json", options.json,
                               "Also write the results to this file; -: only to standard output"),
             manual::Value::file());
  values.add(client.add_option("--csv", options.csv, "The same as CSV"), manual::Value::file());
}

std::size_t server_loops(const std::string& text) try {
  return perf::loops_of(text);
} catch (const conn::Error& error) {
  throw perf::UsageError(error.what());
}

ae::Spin server_spin(const std::string& text) try {
  return conn::parse_spin(text);
} catch (const conn::Error& error) {
  throw perf::UsageError(error.what());
}

std::string join(int argc, char** argv) {
  std::string text;
  for (int i = 2; i < argc; ++i) text.append(i > 2 ? " " : "").append(argv[i]);
  return text;
}

int complain(const std::exception& error, int status) {
  service::complain("conn-perf", error.what());
  return status;
}

int run(int argc, char** argv) {
  CLI::App app("Measures connections over any transport of aeconn.", "conn-perf");
  manual::add_version(app, "conn-perf");
  app.require_subcommand(1);

  CLI::App* const server = app.add_subcommand("server", "Serves clients until SIGTERM");
  std::vector<std::string> urls;
  bool echo = false;
  manual::Values values;
  values
      .add(server->add_option("--listen", urls, "URL to listen on; may be repeated"),
           manual::Value::listen_url())
      ->required();
  ClientWords words;
  std::string loops = words.loops, event_loop = words.options.event_loop, spin = words.spin;
  add_loop_options(*server, loops, event_loop, spin, values);
  server->add_flag("--echo", echo, "Send back all received bytes uninterpreted");

  CLI::App* const client = app.add_subcommand("client", "Loads a server and reports the figures");
  perf::ClientOptions options;
  add_client(*client, options, words, values);

  CLI::App* const plot = app.add_subcommand("plot", "Plots results of --json as PNG and SVG");
  std::vector<std::string> files;
  std::string folder = ".";
  values
      .add(plot->add_option("file", files, "Results of request-response, written by --json"),
           manual::Value::file())
      ->required();
  values.add(plot->add_option("--out", folder, "Folder for the pictures"), manual::Value::folder())
      ->capture_default_str();

  manual::add_to(
      app,
      {.description = {manual::kPlaces},
       .sections = {{"EXIT STATUS",
                     {"0 on success; 1 if a measurement failed; 2 for invalid arguments. "
                      "One line on standard error describes the failure."}}},
       .examples = {{"Requests of 64 and 1024 bytes, on 50 connections:",
                     "conn-perf server --listen rdma://10.0.0.1:6500 &\n"
                     "conn-perf client rdma://10.0.0.1:6500 --sizes 64,1024 --connections 50"}},
       .see_also = {"kv-server(1)", "conn(7)"},
       .version = AECONN_VERSION,
       .values = std::move(values)});
  try {
    (void)manual::parse(app, {argv, static_cast<std::size_t>(argc)});
  } catch (const CLI::RequiredError& error) {
    if (*plot) throw perf::UsageError("plot needs files that conn-perf client --json wrote");
    return manual::explain(app, error, 2);
  } catch (const CLI::ParseError& error) {
    return manual::explain(app, error, 2);
  }
  const std::string command = join(argc, argv);
  if (*server)
    perf::run_server(urls, echo, command, server_loops(loops), server_spin(spin),
                     maker_of(event_loop));
  if (*plot) perf::run_plot(files, folder);
  if (*client) {
    translate(words, options);
    options.command = command;
    perf::run_client(options);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  service::open_standard_streams();
  return run(argc, argv);
} catch (const perf::UsageError& error) {
  return complain(error, 2);
} catch (const std::exception& error) {
  return complain(error, 1);
}
