// SPDX-License-Identifier: BSD-3-Clause
// kv-cli: a client for every transport of the library, with some options of redis-cli.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "ae/libev_loop.h"
#include "cli_client.h"
#include "cli_redial.h"
#include "conn/transports/transports.h"
#include "programs/manual/manual.h"
#include "programs/service/standard_streams.h"
#include "resp_text.h"

namespace {

struct Options {
  std::string url = "tcp://127.0.0.1:6379";
  std::string password;
  std::int64_t repeat = 1;
  std::size_t bench = 0;
  bool pipe = false, fail_on_error = false, resp3 = false, verbose = false, redial = false;
  std::vector<std::string> command;
  conn::Options tls;
};

/// Runs a command and prints the reply. Returns false if it was an error.
bool run_command(kv::CliClient& client, const std::vector<std::string>& command) {
  const kv::Reply reply = client.call(command);
  service::print(kv::format_reply(reply) + '\n');
  return reply.type != kv::Reply::Type::kError;
}

/// Runs lines of standard input up to its end, quit or exit.
bool run_input(kv::CliClient& client, const Options& options) {
  const bool prompt = isatty(STDIN_FILENO) != 0;
  bool good = true;
  service::InputLines input;
  std::string storage;
  std::vector<kv::TextSpan> spans;
  for (std::string line; good || !options.fail_on_error || prompt;) {
    if (prompt) service::print(options.url + "> ");
    if (!input.next(line)) break;
    if (!kv::split_arguments(line, storage, spans)) {
      service::print("unbalanced quotes\n");
      good = false;
      continue;
    }
    if (spans.empty()) continue;
    std::vector<std::string> command;
    for (const auto& span : spans) command.push_back(storage.substr(span.offset, span.size));
    if (command.size() == 1 && (kv::is_word(command[0], "quit") || kv::is_word(command[0], "exit")))
      break;
    good = run_command(client, command) && good;
  }
  return good;
}

/// Measures round trips of one command, one after another; prints one line of results. Returns
/// false if a reply was an error.
bool bench(kv::CliClient& client, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const std::vector<std::string> ping = {"PING"};
  const auto& command = options.command.empty() ? ping : options.command;
  for (std::size_t i = 0; i < std::min<std::size_t>(options.bench / 10, 1000); ++i)
    client.call(command);
  std::vector<double> times(options.bench);  // in microseconds
  double sum = 0;
  std::size_t errors = 0;
  for (double& time : times) {
    const auto sent = Clock::now();
    errors += client.call(command).type == kv::Reply::Type::kError ? 1 : 0;
    time = std::chrono::duration<double, std::micro>(Clock::now() - sent).count();
    sum += time;
  }
  std::sort(times.begin(), times.end());
  const double count = static_cast<double>(times.size());
  // The time that so many percent of all do not exceed.
  const auto percentile = [&times](std::size_t percent) {
    return times[(times.size() * percent + 99) / 100 - 1];
  };
  service::print(fmt::format(
      "{} round trips, {:.0f} per second, latency us: mean {:.1f}, p50 {:.1f}, p99 {:.1f}{}\n",
      times.size(), count * 1e6 / sum, sum / count, percentile(50), percentile(99),
      errors != 0 ? fmt::format(", {} errors", errors) : ""));
  return errors == 0;
}

bool run(Options& options) {
  conn::Registry registry = conn::all_transports();
  registry.on_fallback([&options](const conn::Fallback& fallback) {
    if (options.redial) return;  // CliRedial reports this itself
    service::complain("kv-cli", fallback.to + " by " + fallback.taken + "; " +
                                    conn::describe(fallback.not_taken));
  });
  if (!options.tls.empty()) {
    const std::string scheme = conn::Endpoint::parse(options.url).scheme;
    // A user who names a certificate does not want plain text.
    if (!scheme.starts_with("tls"))
      throw conn::Error(options.url + " is not TLS, and there are options for TLS");
    registry.require(scheme).configure(options.tls);
  }
  std::vector<std::vector<std::string>> greeting;
  if (!options.password.empty()) greeting.push_back({"AUTH", options.password});
  if (options.resp3) greeting.push_back({"HELLO", "3"});
  ae::LibevLoop loop;
  if (options.redial) {
    return kv::CliRedial(loop, registry,
                         {options.url, std::move(greeting), options.command, options.repeat})
               .run() ||
           !options.fail_on_error;
  }
  kv::CliClient client(loop, registry, options.url);
  if (options.verbose) service::complain("kv-cli", client.path());
  for (const auto& each : greeting) {
    const kv::Reply reply = client.call(each);
    if (reply.type == kv::Reply::Type::kError) throw conn::Error(each[0] + ": " + reply.text);
  }

  if (options.pipe) return kv::run_pipe(client);
  if (options.bench != 0) return bench(client, options) || !options.fail_on_error;
  bool good = true;
  if (options.command.empty()) {
    good = run_input(client, options);
  } else {
    for (std::int64_t i = 0; i < options.repeat || options.repeat < 0; ++i) {
      good = run_command(client, options.command) && good;
      if (!good && options.fail_on_error) break;
    }
  }
  return good || !options.fail_on_error;
}

}  // namespace

int main(int argc, char** argv) {
  service::open_standard_streams();
  Options options;
  CLI::App app("Talks RESP to a key-value server over any transport of aeconn.", "kv-cli");
  manual::Values values;
  values
      .add(app.add_option("-u,--url", options.url, "The server's URL"),
           manual::Value::connect_url())
      ->capture_default_str();
  app.add_option("-a,--pass", options.password, "Password for AUTH");
  app.add_option("-r", options.repeat, "Run the command so many times; -1: forever")
      ->capture_default_str();
  CLI::Option* const bench =
      app.add_option("--bench", options.bench, "Measure so many round trips of the command (PING)")
          ->check(CLI::Range(std::size_t{1}, std::size_t{100'000'000}));
  CLI::Option* const pipe =
      app.add_flag("--pipe", options.pipe, "Send RESP from standard input and count replies")
          ->excludes(bench);
  app.add_flag("-e", options.fail_on_error, "Exit with 1 if a command gets an error");
  app.add_flag("-3", options.resp3, "Speak RESP3");
  app.add_flag("--verbose", options.verbose, "Say what carries the connection, on standard error");
  app.add_flag("--redial", options.redial,
               "Keep connecting: the command goes on over restarts and flaps (see -r)")
      ->excludes(bench)
      ->excludes(pipe);
  const auto tls = [&](const char* flag, const char* key, const char* description) {
    return app
        .add_option_function<std::string>(
            flag, [&options, key](const std::string& value) { options.tls.set(key, value); },
            description)
        ->group("TLS; the URL takes these options and more");
  };
  values.add(tls("--cacert", "ca", "Whose certificates count, PEM (the system's authorities)"),
             manual::Value::file());
  values.add(tls("--cert", "cert", "The client's certificate and its chain, PEM"),
             manual::Value::file());
  values.add(tls("--key", "key", "Its private key, PEM"), manual::Value::file());
  tls("--sni", "server-name", "The server's name to ask for and to check (the URL's host)");
  app.add_flag_callback(
         "--insecure", [&options] { options.tls.set("verify", "no"); },
         "Accept any certificate of the server")
      ->group("TLS; the URL takes these options and more");
  app.add_option("command", options.command, "A command; without one, lines of standard input");
  manual::add_to(
      app,
      {.description = {manual::kPlaces,
                       "Without a command it reads commands from standard input, a line each."},
       .sections = {{"EXIT STATUS",
                     {"0; 1 if there is no connection, if standard input or output fails, "
                      "with one line on standard error, and with -e after a reply that is an "
                      "error. --pipe: 1 after any error; where the server is silent for 30 s "
                      "while replies are awaited it gives up."}}},
       .examples = {{"One command over TLS over RDMA:",
                     "kv-cli -u 'tls+rdma://10.0.0.1:6379?ca=ca.pem' GET greeting"}},
       .see_also = {"kv-server(1)", "conn(7)"},
       .version = AECONN_VERSION,
       .values = std::move(values)});
  manual::add_version(app, "kv-cli");
  app.positionals_at_end();
  app.prefix_command();  // words after the command's name are its arguments, also with dashes
  try {
    options.command = manual::parse(app, {argv, static_cast<std::size_t>(argc)});
    if (options.pipe && !options.command.empty())
      throw conn::Error("--pipe takes no command: it sends what it reads from standard input");
    return run(options) ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    return manual::explain(app, error, 1);
  } catch (const std::exception& error) {
    service::complain("kv-cli", error.what());
    return 1;
  }
}
