// SPDX-License-Identifier: BSD-3-Clause
// kv-server: a key-value server over any transport of the library.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <memory>

#include "ae/loop_group.h"
#include "ae/loop_names.h"
#include "command.h"
#include "conn/stop.h"
#include "conn/transports/transports.h"
#include "conn/url/option_table.h"
#include "conn/url/spin_option.h"
#include "metrics_server.h"
#include "programs/manual/manual.h"
#include "programs/service/descriptors.h"
#include "programs/service/signals.h"
#include "programs/service/standard_streams.h"
#include "programs/service/systemd.h"
#include "server.h"

namespace {

constexpr const char* kDefaultUrl = "tcp://127.0.0.1:6379";

void write_log(std::string_view text) { service::complain("kv-server", std::string(text)); }

/// The --tls-* options: options of the TLS transports that hold for all URLs, and can be read again
/// while the server runs.
struct TlsSettings {
  struct Option {
    const char *flag, *key, *description;  ///< `key`: the option of the transport
  };
  static constexpr Option kAll[] = {
      {"--tls-cert", "cert",
       "Certificate and its chain, PEM; several, by commas, are chosen by the name asked for"},
      {"--tls-key", "key", "Private key, in the certificates' order (in the certificate's file)"},
      {"--tls-key-pass-file", "key-pass-file", "File whose first line decrypts the key"},
      {"--tls-ca", "ca", "Whose certificates clients may have, PEM"},
      {"--tls-ca-dir", "ca-dir", "The same as a folder (openssl rehash)"},
      {"--tls-crl", "crl", "Revoked certificates of clients, PEM"},
      {"--tls-auth-clients", "auth-clients",
       "Certificates of clients: no, optional, yes (yes where a CA is given, else no)"},
      {"--tls-alpn", "alpn", "Protocol names for ALPN, by commas"},
      {"--tls-keylog", "keylog",
       "File for session secrets, to decrypt captures: for debugging only"},
  };
  conn::Options options;
  const conn::Registry* registry = nullptr;  // set by attach()

  /// The transport's row, which has the words for completion; null in a build without TLS.
  static const conn::OptionRow* row_of(const conn::Registry& registry, std::string_view key) {
    const conn::ConnectionType* const tls = registry.find("tls");
    const conn::OptionTable* const table = tls != nullptr ? tls->option_table() : nullptr;
    if (table == nullptr) return nullptr;
    for (const conn::OptionGroup& group : table->groups())
      for (const conn::OptionRow& row : group.rows)
        if (row.name() == key) return &row;
    return nullptr;
  }
  /// Configures the registry's TLS transports, whose files reload() will read again.
  void attach(const conn::Registry& its_registry) {
    registry = &its_registry;
    if (options.empty()) return;
    (void)registry->require("tls");  // throws: a build without TLS
    conn::Options all = options;
    const bool ca = !all.text("ca", "").empty() || !all.text("ca-dir", "").empty();
    if (ca && all.text("auth-clients", "").empty()) all.set("auth-clients", "yes");
    for (conn::ConnectionType* type : registry->types())
      if (type->name() == "tls" || type->name().starts_with("tls+")) type->configure(all);
  }
  /// Reads all files again. A transport that cannot use them keeps what it has.
  void reload() const {
    if (registry->find("tls") == nullptr) return;
    try {
      registry->reload_tls();
      write_log("TLS certificates reloaded");
    } catch (const std::exception& error) {
      write_log(std::string("TLS certificates not reloaded, the old ones stay: ") + error.what());
    }
  }
};

/// How long clients may take after a signal to get replies that are under way.
conn::Stop::Settings stopping() {
  return {.limit = std::chrono::seconds(3), .begins = [] { service::notify("STOPPING=1"); }};
}

void report(const conn::Stop::Left& left) {
  if (left.connections == 0) return;
  write_log(fmt::format("{} clients are cut, with {} bytes unsent", left.connections, left.bytes));
}

/// Where clients connect: URLs, and sockets that systemd opened.
struct Places {
  std::vector<std::string> urls, metrics;
  std::string activated{service::Activated::kTransports.front()};
  int descriptors = service::take_listening_descriptors();

  /// The default URL is used only if there is no other URL and no socket.
  void or_default() {
    if (urls.empty() && descriptors == 0) urls.push_back(kDefaultUrl);
  }
  void listen(kv::MetricsServer& server) const {
    for (const std::string& url : metrics) server.listen(url);
    for (const std::string& url : server.urls()) service::print("metrics on " + url + '\n');
  }
  template <class Network>
  void listen(Network& network) const {
    for (const std::string& url : urls) network.listen(url);
    const service::Activated speaks(activated);
    for (int fd = 3; fd < 3 + descriptors; ++fd) network.listen(fd, speaks);
    for (const std::string& url : network.urls()) service::print("listening on " + url + '\n');
    service::notify("READY=1");
  }
};

/// Serves on this thread's loop.
void serve(const kv::Config& config, TlsSettings& tls, const Places& places, const ae::Spin& spin) {
  const conn::Registry registry = conn::all_transports();  // must outlive what it creates
  tls.attach(registry);
  const auto its_loop = ae::loops_named(config.event_loop)(0);
  ae::EventLoop& loop = *its_loop;
  loop.set_spin(spin);
  kv::Together together(config, 1);
  together.log = write_log;
  together.request_shutdown = [&loop] { loop.stop(); };
  kv::Server server(together, 0);
  const conn::Stop stop(loop, stopping());
  const service::Signals signals(loop, nullptr, [&] { tls.reload(); });
  kv::NetworkServer network(loop, registry, server);
  kv::MetricsServer metrics(loop, registry, [&] {
    const kv::Figures figures = kv::figures_of(server);
    return kv::metrics_of({&figures, 1}, together);
  });
  places.listen(metrics);
  places.listen(network);
  loop.run();
  report(stop.left());
}

/// Serves on several loops, each on its own thread; the main thread waits for signals and their
/// end.
void serve_on(std::size_t count, const kv::Config& config, TlsSettings& tls, const Places& places,
              const ae::Spin& spin) {
  const conn::Registry registry = conn::all_transports();
  tls.attach(registry);
  const ae::LoopMaker make = ae::loops_named(config.event_loop);
  const auto its_loop = make(0);
  ae::EventLoop& loop = *its_loop;
  const auto end = [&loop, poster = loop.poster()] { (void)poster.post([&loop] { loop.stop(); }); };
  std::unique_ptr<kv::Together> together;  // outlives the loops
  ae::LoopGroup loops({.loops = count, .name = "kv", .make = make});
  loops.on_each([&spin](ae::EventLoop& each, std::size_t) { each.set_spin(spin); });
  together = std::make_unique<kv::Together>(config, loops.size());
  together->log = write_log;
  together->request_shutdown = end;
  {
    conn::Stop stop(loop, loops, stopping());
    const service::Signals signals(loop, nullptr, [&] { tls.reload(); });
    kv::ServerOnLoops server(loops, registry, *together, stop);
    server.on_loop_left(end);
    kv::MetricsServer metrics(loop, registry, [&] {
      std::vector<kv::Figures> figures(loops.size());
      loops.on_each([&](ae::EventLoop&, std::size_t i) {
        if (const kv::Server* each = together->server(i)) figures[i] = kv::figures_of(*each);
      });
      return kv::metrics_of(figures, *together);
    });
    places.listen(metrics);
    places.listen(server);
    loop.run();
    report(stop.left());
  }
  loops.stop();
  loops.run();
}

}  // namespace

int main(int argc, char** argv) try {
  service::open_standard_streams();
  TlsSettings tls;
  kv::Config config;

  CLI::App app("A key-value server that speaks RESP over any transport of aeconn.", "kv-server");
  Places places;
  manual::Values values;
  values
      .add(app.add_option("--listen", places.urls,
                          "Where to listen, a URL; may be repeated (" + std::string(kDefaultUrl) +
                              ", unless systemd hands over sockets)"),
           manual::Value::listen_url())
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  values
      .add(app.add_option("--metrics", places.metrics,
                          "Where to answer GET /metrics over HTTP, in Prometheus's text format: a "
                          "URL, of any transport; may be repeated. It asks for no password"),
           manual::Value::listen_url())
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  values
      .add(app.add_option("--activated", places.activated, service::Activated::kHelp),
           manual::Value::transport(service::Activated::kTransports))
      ->capture_default_str();
  std::size_t loops = 1;
  app.add_option_function<std::string>(
         "--loops",
         [&loops](const std::string& text) {
           const auto number = kv::parse_integer(text);
           if (!number || *number < 0 || *number > 256)
             throw conn::Error("--loops " + text +
                               ": a number from 0 to 256 is wanted, 0 for one "
                               "on each processor");
           loops = static_cast<std::size_t>(*number);
         },
         "Event loops that serve, each on a thread of its own; 0: one for each processor")
      ->default_str(std::to_string(loops));
  values
      .add(app.add_option_function<std::string>(
               "--event-loop",
               [&config](const std::string& name) {
                 (void)ae::loops_named(name);  // throws for an unknown name
                 config.event_loop = name;
               },
               manual::event_loop_help()),
           manual::Value::words(ae::loop_names()))
      ->default_str(config.event_loop);
  ae::Spin spin;
  values
      .add(app.add_option_function<std::string>(
               "--spin", [&spin](const std::string& text) { spin = conn::parse_spin(text); },
               manual::spin_help()),
           manual::Value::spin())
      ->default_str(std::string(conn::spin_words().front()));
  const auto setting = [&](const char* option, const char* parameter,
                           const std::string& description, const std::string& fallback) {
    return app
        .add_option_function<std::string>(
            option,
            [&config, option, parameter](const std::string& value) {
              const std::string reason = kv::configure(config, parameter, value);
              if (!reason.empty()) throw CLI::ValidationError(option, reason);
            },
            description)
        ->default_str(fallback);
  };
  // 64mb in Redis is 64 * 1024 * 1024 bytes, as is 64m in an option.
  const auto memory = [](std::uint64_t bytes) { return conn::size_words(bytes) + 'b'; };
  setting("--requirepass", "requirepass", "Password that clients must AUTH with", "");
  setting("--maxclients", "maxclients", "Most clients at one time",
          std::to_string(config.maxclients));
  setting("--maxmemory", "maxmemory",
          "Memory limit, such as 100mb; writes fail beyond it; 0: no limit",
          std::to_string(config.maxmemory));
  setting("--proto-max-bulk-len", "proto-max-bulk-len", "Largest argument",
          memory(static_cast<std::uint64_t>(config.parser.bulk)));
  setting("--client-output-limit", "client-output-buffer-limit",
          "Unsent replies after which a client is closed", memory(config.client_output_limit));
  setting("--client-query-limit", "client-query-buffer-limit",
          "Longest request; a client that sends more is closed", memory(config.client_query_limit));
  setting(
      "--maxmemory-clients", "maxmemory-clients",
      "Memory of all clients' requests and replies, divided evenly among the loops; the largest "
      "clients are closed beyond it",
      memory(config.clients_memory_limit));
  setting("--timeout", "timeout", "Close clients idle for so many seconds; 0: never",
          std::to_string(config.timeout_seconds));
  values.add(
      setting("--loglevel", "loglevel",
              manual::listed(kv::kLogLevels) + "; the first two log what carries each client",
              config.loglevel),
      manual::Value::words(kv::kLogLevels));
  app.add_flag("--enable-debug-command", config.debug_command,
               "Let clients use DEBUG SLEEP, which stops the loop of the client that uses it");
  {
    const conn::Registry registry = conn::all_transports();
    for (const TlsSettings::Option& each : TlsSettings::kAll) {
      const conn::OptionRow* const row = TlsSettings::row_of(registry, each.key);
      values
          .add(
              app.add_option_function<std::string>(
                  each.flag,
                  [&tls, key = each.key](const std::string& value) { tls.options.set(key, value); },
                  each.description),
              row != nullptr ? manual::Value::of(row->words(), row->place())
                             : manual::Value::of({}, conn::OptionPlace::kNone))
          ->group(
              "TLS, for tls:// and other tls URLs, which take more; SIGHUP reads the files again");
    }
  }
  manual::add_to(
      app,
      {.description =
           {manual::kPlaces,
            "It keeps what it is given in memory, and is an example of the library more than a "
            "database: nothing is written to disk."},
       .sections =
           {{"SIGNALS",
             {"SIGINT and SIGTERM end it, after replies that are under way, which get three "
              "seconds; a second signal ends it at once. SIGHUP reads certificates and "
              "keys again."}},
            {"EXIT STATUS",
             {"0 after a signal or SHUTDOWN; 1 for a mistake, with one line "
              "on standard error that says which."}}},
       .examples =
           {{"TCP and RDMA on one address, four loops:",
             "kv-server --listen tcp://10.0.0.1:6379 --listen rdma://10.0.0.1:6379 --loops 4"},
            {"With metrics for Prometheus:",
             "kv-server --listen tcp://10.0.0.1:6379 --metrics tcp://10.0.0.1:9121"},
            {"TLS over RDMA:",
             "kv-server --listen tls+rdma://10.0.0.1:6379 --tls-cert cert.pem --tls-key key.pem"}},
       .see_also = {"kv-cli(1)", "conn-perf(1)", "aeconn-proxy(1)", "conn(7)"},
       .version = AECONN_VERSION,
       .values = std::move(values)});
  manual::add_version(app, "kv-server");
  try {
    (void)manual::parse(app, {argv, static_cast<std::size_t>(argc)});
  } catch (const CLI::ParseError& error) {
    return manual::explain(app, error, 1);
  }

  service::allow_descriptors();  // for maxclients
  places.or_default();
  if (loops == 1)
    serve(config, tls, places, spin);
  else
    serve_on(loops, config, tls, places, spin);
  return 0;
} catch (const std::exception& error) {
  service::complain("kv-server", error.what());
  return 1;
}
