// SPDX-License-Identifier: BSD-3-Clause
// kv-server: a key-value server over any transport of the library.

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <thread>

#include "ae/loop_group.h"
#include "ae/loop_names.h"
#include "command.h"
#include "conn/transports/transports.h"
#include "conn/url/spin_option.h"
#include "metrics.h"
#include "metrics_server.h"
#include "programs/manual/manual.h"
#include "programs/service/signals.h"
#include "programs/service/standard_streams.h"
#include "programs/service/systemd.h"
#include "server.h"
#include "server_loops.h"
#include "tls_settings.h"

namespace {

constexpr const char* kDefaultUrl = "tcp://127.0.0.1:6379";

void write_log(std::string_view text) { service::complain("kv-server", std::string(text)); }

void reload_certificates(kv::TlsSettings& tls) {
  if (!tls.attached()) return;
  const std::string reason = tls.reload();
  write_log(reason.empty() ? "TLS certificates reloaded"
                           : "TLS certificates not reloaded, the old ones stay: " + reason);
}

void end_service(ae::EventLoop& loop) {
  service::notify("STOPPING=1");
  loop.stop();
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

void serve(kv::Server& server, kv::TlsSettings& tls, const Places& places, const ae::Spin& spin) {
  const conn::Registry registry = conn::all_transports();  // must outlive what it creates
  tls.attach(registry);
  const auto its_loop = ae::loops_named(server.config.event_loop)(0);
  ae::EventLoop& loop = *its_loop;
  loop.set_spin(spin);
  const service::Signals signals(
      loop, [&] { end_service(loop); }, [&] { reload_certificates(tls); });
  kv::NetworkServer network(loop, registry, server);
  kv::MetricsServer metrics(loop, registry, [&server](const kv::MetricsServer::Then& then) {
    then(kv::metrics_of(server));
  });
  places.listen(metrics);
  places.listen(network);
  loop.run();
}

/// Serves on several loops, each on its own thread; the main thread waits for signals and their
/// end.
void serve_on(std::size_t count, const kv::Config& config, kv::TlsSettings& tls,
              const Places& places, const ae::Spin& spin) {
  const conn::Registry registry = conn::all_transports();
  tls.attach(registry);
  const ae::LoopMaker make = ae::loops_named(config.event_loop);
  const auto its_loop = make(0);
  ae::EventLoop& loop = *its_loop;
  const auto end = [&loop, poster = loop.poster()] { (void)poster.post([&loop] { loop.stop(); }); };
  kv::Together together(config, count);
  together.log = write_log;
  together.request_shutdown = [end](bool) { end(); };
  const service::Signals signals(
      loop, [&] { end_service(loop); }, [&] { reload_certificates(tls); });
  ae::LoopGroup loops({.loops = count, .name = "kv", .make = make});
  loops.on_each([&spin](ae::EventLoop& each, std::size_t) { each.set_spin(spin); });
  {
    kv::ServerOnLoops server(loops, registry, together);
    server.on_loop_left(end);
    kv::MetricsServer metrics(loop, registry, [&](kv::MetricsServer::Then then) {
      kv::gather_metrics(together, loop.poster(), std::move(then));
    });
    places.listen(metrics);
    places.listen(server);
    loop.run();
  }
  loops.stop();
  loops.run();
}

/// The number of processors, counted as LoopGroup does.
std::size_t processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<std::size_t>(CPU_COUNT(&set))
                                                     : std::thread::hardware_concurrency();
}

}  // namespace

int main(int argc, char** argv) try {
  service::open_standard_streams();
  kv::TlsSettings tls;
  kv::Server server;
  server.log = write_log;

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
           constexpr auto kMost = static_cast<std::int64_t>(kv::Together::kMostLoops);
           if (!number || *number < 0 || *number > kMost)
             throw conn::Error(fmt::format(
                 "--loops {}: a number from 0 to {} is wanted, 0 for one on each processor", text,
                 kMost));
           loops = static_cast<std::size_t>(*number);
         },
         "Event loops that serve, each on a thread of its own; 0: one for each processor")
      ->default_str(std::to_string(loops));
  values
      .add(app.add_option_function<std::string>(
               "--event-loop",
               [&server](const std::string& name) {
                 (void)ae::loops_named(name);  // throws for an unknown name
                 server.config.event_loop = name;
               },
               manual::event_loop_help()),
           manual::Value::words(ae::loop_names()))
      ->default_str(server.config.event_loop);
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
            [&server, option, parameter](const std::string& value) {
              const std::string reason = kv::configure(server, parameter, value);
              if (!reason.empty()) throw CLI::ValidationError(option, reason);
            },
            description)
        ->default_str(fallback);
  };
  // 64mb in Redis is 64 * 1024 * 1024 bytes, as is 64m in an option.
  const auto memory = [](std::uint64_t bytes) { return conn::size_words(bytes) + 'b'; };
  const kv::Config& config = server.config;
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
  setting("--maxmemory-clients", "maxmemory-clients",
          "Memory of all clients' requests and replies; the largest are closed beyond it",
          memory(config.clients_memory_limit));
  setting("--timeout", "timeout", "Close clients idle for so many seconds; 0: never",
          std::to_string(config.timeout_seconds));
  values.add(
      setting("--loglevel", "loglevel",
              manual::listed(kv::kLogLevels) + "; the first two log what carries each client",
              config.loglevel),
      manual::Value::words(kv::kLogLevels));
  app.add_flag("--enable-debug-command", server.config.debug_command,
               "Let clients use DEBUG SLEEP, which stops the server for everybody");
  for (const kv::TlsSettings::Option& each : kv::TlsSettings::options()) {
    values
        .add(app.add_option_function<std::string>(
                 each.flag,
                 [&tls, key = each.key](const std::string& value) { tls.set(key, value); },
                 each.description),
             manual::Value::of(each.words, each.place))
        ->group(
            "TLS, for tls:// and other tls URLs, which take more; SIGHUP reads the files again");
  }
  manual::add_to(
      app,
      {.description =
           {manual::kPlaces,
            "It keeps what it is given in memory, and is an example of the library more than a "
            "database: nothing is written to disk."},
       .sections = {{"SIGNALS",
                     {"SIGINT and SIGTERM end it, after replies that are under way. SIGHUP reads "
                      "certificates and keys again."}},
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

  places.or_default();
  if (loops == 0) loops = std::clamp<std::size_t>(processors(), 1, kv::Together::kMostLoops);
  if (loops == 1)
    serve(server, tls, places, spin);
  else
    serve_on(loops, server.config, tls, places, spin);
  return 0;
} catch (const std::exception& error) {
  service::complain("kv-server", error.what());
  return 1;
}
