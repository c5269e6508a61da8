// SPDX-License-Identifier: BSD-3-Clause
// kv-cli: a client for every transport of the library, with redis-cli's manners.

#include <unistd.h>

#include <CLI/CLI.hpp>

#include "ae/libev_loop.h"
#include "cli_bench.h"
#include "cli_client.h"
#include "cli_pipe.h"
#include "cli_redial.h"
#include "cli_tls.h"
#include "conn/transports/transports.h"
#include "programs/manual/manual.h"
#include "programs/service/standard_streams.h"
#include "resp_reply_format.h"
#include "resp_text.h"

namespace {

struct Options {
  std::string url = "tcp://127.0.0.1:6379";
  std::string password, user = "default";
  std::int64_t repeat = 1;
  std::size_t database = 0, bench = 0;
  bool raw = false, no_raw = false, pipe = false, fail_on_error = false, resp3 = false;
  bool verbose = false, redial = false;
  std::vector<std::string> command;
  kv::CliTls tls;
};

/// Runs commands and prints what they answer.
class Shell {
 public:
  Shell(kv::CliClient& client, const Options& options)
      : client_(client), raw_(options.raw || (!options.no_raw && isatty(STDOUT_FILENO) == 0)) {}

  /// False if the reply was an error.
  bool run(const std::vector<std::string>& command) {
    const kv::Reply reply = client_.call(command);
    const bool text = raw_ || is_report(command);
    std::string out = text ? kv::format_reply_raw(reply) : kv::format_reply(reply);
    if (text && !(out.ends_with('\n') && is_report(command))) out += '\n';
    service::print(out);
    return reply.type != kv::Reply::Type::kError;
  }

  /// A line typed or read; false to end.
  bool run_line(const std::string& line, bool& failed) {
    std::string storage;
    std::vector<kv::TextSpan> spans;
    if (!kv::split_arguments(line, storage, spans)) {
      service::print("(error) unbalanced quotes\n");
      failed = true;
      return true;
    }
    if (spans.empty()) return true;
    std::vector<std::string> command;
    for (const auto& span : spans) command.push_back(storage.substr(span.offset, span.size));
    if (command.size() == 1 && (kv::equals_ignore_case(command[0], "quit") ||
                                kv::equals_ignore_case(command[0], "exit"))) {
      return false;
    }
    failed |= !run(command);
    return true;
  }

 private:
  /// Commands whose one text is for people, whatever the terminal.
  static bool is_report(const std::vector<std::string>& command) {
    const auto is = [&](std::size_t i, std::string_view word) {
      return i < command.size() && kv::equals_ignore_case(command[i], word);
    };
    return is(0, "info") || (is(0, "client") && (is(1, "list") || is(1, "info")));
  }

  kv::CliClient& client_;
  bool raw_;
};

/// Throws conn::Error if the server refuses.
void demand(kv::CliClient& client, const std::vector<std::string>& command) {
  const kv::Reply reply = client.call(command);
  if (reply.type == kv::Reply::Type::kError) throw conn::Error(command[0] + ": " + reply.text);
}

bool run_input(Shell& shell, const Options& options) {
  const bool prompt = isatty(STDIN_FILENO) != 0;
  bool failed = false;
  service::InputLines input;
  for (std::string line;;) {
    if (prompt) service::print(options.url + "> ");
    if (!input.next(line)) break;
    if (!shell.run_line(line, failed)) break;
    if (failed && options.fail_on_error && !prompt) break;
  }
  return !failed;
}

bool run(Options& options) {
  conn::Registry registry = conn::all_transports();
  registry.on_fallback([&options](const conn::Fallback& fallback) {
    if (options.redial) return;  // which says it itself
    service::complain("kv-cli", fallback.to + " by " + fallback.taken + "; " +
                                    conn::describe(fallback.not_taken));
  });
  options.url = kv::use_tls(registry, options.tls, options.url);
  ae::LibevLoop loop;
  if (options.redial) {
    kv::CliRedial::Plan plan;
    plan.url = options.url;
    plan.command = options.command;
    plan.repeat = options.repeat;
    if (!options.password.empty())
      plan.greeting.push_back({"AUTH", options.user, options.password});
    if (options.resp3) plan.greeting.push_back({"HELLO", "3"});
    if (options.database != 0)
      plan.greeting.push_back({"SELECT", std::to_string(options.database)});
    return kv::CliRedial(loop, registry, std::move(plan)).run() || !options.fail_on_error;
  }
  kv::CliClient client(loop, registry, options.url);
  if (options.verbose) service::complain("kv-cli", client.path());
  if (!options.password.empty()) demand(client, {"AUTH", options.user, options.password});
  if (options.resp3) demand(client, {"HELLO", "3"});
  if (options.database != 0) demand(client, {"SELECT", std::to_string(options.database)});

  if (options.pipe) return kv::run_pipe(client);
  if (options.bench != 0) {
    kv::run_bench(client, options.bench, options.command);
    return true;
  }
  Shell shell(client, options);
  bool good = true;
  if (options.command.empty()) {
    good = run_input(shell, options);
  } else {
    for (std::int64_t i = 0; i < options.repeat || options.repeat < 0; ++i) {
      good = shell.run(options.command) && good;
      if (!good && options.fail_on_error) break;
    }
  }
  return good || !options.fail_on_error;
}

void add_tls_options(CLI::App& app, kv::CliTls& tls, manual::Values& values) {
  const auto text = [&app](const char* flags, std::string& value, const char* description) {
    return app.add_option(flags, value, description)->group("TLS");
  };
  using Value = manual::Value;
  app.add_flag("--tls", tls.on, "TLS over the URL's transport: tcp://... becomes tls://...")
      ->group("TLS");
  values.add(
      text("--cacert,--tls-ca", tls.ca, "Whose certificates count, PEM (the system's authorities)"),
      Value::file());
  values.add(
      text("--cacertdir,--tls-ca-dir", tls.ca_folder, "The same as a folder (openssl rehash)"),
      Value::folder());
  values.add(text("--cert,--tls-cert", tls.cert, "Our certificate and its chain, PEM"),
             Value::file());
  values.add(text("--key,--tls-key", tls.key, "Its private key, PEM"), Value::file());
  text("--sni", tls.name, "The server's name to ask for and to check (the URL's host)");
  app.add_flag("--insecure", tls.insecure, "Take whatever certificate the server shows")
      ->group("TLS");
  text("--tls-ciphers", tls.ciphers, "Ciphers of TLS 1.2");
  text("--tls-ciphersuites", tls.ciphersuites, "Ciphers of TLS 1.3");
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
  app.add_option("--user", options.user, "User for AUTH")->capture_default_str();
  app.add_option("-n", options.database, "Database to SELECT")->capture_default_str();
  app.add_option("-r", options.repeat, "Run the command so many times; -1: forever")
      ->capture_default_str();
  app.add_option("--bench", options.bench, "Measure so many round trips of the command (PING)");
  app.add_flag("--pipe", options.pipe, "Send RESP from standard input and count replies");
  app.add_flag("--raw", options.raw, "Print replies plainly, as into a pipe");
  app.add_flag("--no-raw", options.no_raw, "Print replies as on a terminal");
  app.add_flag("-e", options.fail_on_error, "Exit with 1 if a command gets an error");
  app.add_flag("-3", options.resp3, "Speak RESP3");
  app.add_flag("--verbose", options.verbose, "Say what carries the connection, on standard error");
  app.add_flag("--redial", options.redial,
               "Keep connecting: the command goes on over restarts and flaps (see -r)");
  add_tls_options(app, options.tls, values);
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
  app.prefix_command();  // what follows the command's name is the command's, dashes and all
  try {
    options.command = manual::parse(app, {argv, static_cast<std::size_t>(argc)});
    return run(options) ? 0 : 1;
  } catch (const CLI::ParseError& error) {
    return manual::explain(app, error, 1);
  } catch (const std::exception& error) {
    service::complain("kv-cli", error.what());
    return 1;
  }
}
