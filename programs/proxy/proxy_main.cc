// SPDX-License-Identifier: BSD-3-Clause
// aeconn-proxy: joins two transports, for programs that cannot be changed.
//
//   aeconn-proxy --listen unix:///run/db --connect tls+rdma://10.0.0.1:6432?ca=ca.pem
//   aeconn-proxy --listen tls+rdma://10.0.0.1:6432?cert=c.pem&key=k.pem --connect unix:///run/pg

#include <fmt/format.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ae/libev_loop.h"
#include "ae/loop_group.h"
#include "conn/listener_group.h"
#include "conn/transports/transports.h"
#include "programs/manual/manual.h"
#include "programs/service/descriptors.h"
#include "programs/service/signals.h"
#include "programs/service/standard_streams.h"
#include "programs/service/systemd.h"
#include "site.h"

namespace {

void write_log(const std::string& text) { service::complain("aeconn-proxy", text); }

constexpr std::array<std::string_view, 2> kProxyVersions{"v1", "v2"};

struct Plan {
  std::vector<std::string> listen;
  std::string connect;
  /// The protocol of socket-activation sockets, with options.
  std::string activated{service::Activated::kTransports.front()};
  std::size_t loops = 1;
  std::chrono::seconds statistics{0}, grace{10};
};

class Proxy {
 public:
  Proxy(const Plan& plan, proxy::Settings& settings)
      : plan_(plan),
        settings_(settings),
        activated_(plan.activated),
        loops_({.loops = plan.loops, .name = "proxy"}) {
    settings_.connect = conn::Endpoint::parse(plan.connect);
    registry_.require(settings_.connect.scheme).check(settings_.connect);
    proxy::check(settings_);
    sites_.resize(loops_.size());
    loops_.on_each([this](ae::EventLoop& loop, std::size_t i) {
      sites_[i] = std::make_unique<proxy::Site>(loop, registry_, settings_);
    });
  }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;
  ~Proxy() {
    listeners_.clear();
    // Each site must be destroyed on its loop's thread.
    try {
      loops_.on_each([this](ae::EventLoop&, std::size_t i) { sites_[i].reset(); });
    } catch (const std::exception&) {
      // A loop has ended, and its connections and timers with it: the sites must not be touched.
      for (auto& site : sites_) (void)site.release();
    }
  }

  /// Listens and serves until a signal asks to end, then until all relays have closed or --grace
  /// expires.
  void run() {
    ae::LibevLoop loop;
    bool ending = false;
    auto same_until = std::chrono::steady_clock::time_point::min();
    const service::Signals signals(
        loop,
        [&] {
          if (std::chrono::steady_clock::now() < same_until) return;
          if (std::exchange(ending, true)) return loop.stop();
          service::notify("STOPPING=1");
          listeners_.clear();
          drain(loop);
          // timeout(1) and terminals signal a process and its group: that is one request.
          same_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        },
        [this] { reload(); });
    listen();  // a reader of the line that this prints may send a signal
    loop.add_time_event(std::chrono::seconds(1), [this]() -> ae::Duration {
      settings_.failures.sum_up(service::LimitedLog::now(), write_log);
      return std::chrono::seconds(1);
    });
    if (plan_.statistics != std::chrono::seconds(0))
      loop.add_time_event(plan_.statistics, [this]() -> ae::Duration {
        print_statistics();
        return plan_.statistics;
      });
    // A loop ends early if an exception escapes a handler; the program then ends, too.
    std::exception_ptr failure;
    std::thread watcher([this, &failure, poster = loop.poster(), &loop] {
      try {
        loops_.run();
      } catch (...) {
        failure = std::current_exception();
      }
      (void)poster.post([&loop] { loop.stop(); });
    });
    std::exception_ptr ours;
    try {
      service::notify("READY=1");
      loop.run();
      print_statistics();
      close_all();
    } catch (...) {
      ours = std::current_exception();
    }
    loops_.stop();
    watcher.join();
    if (failure || ours) std::rethrow_exception(failure ? failure : ours);
  }

 private:
  void listen() {
    const conn::MakeAcceptHandler make = [this](ae::EventLoop&, std::size_t i) {
      return
          [site = sites_[i].get()](conn::ConnectionPtr client) { site->accept(std::move(client)); };
    };
    for (const std::string& url : plan_.listen)
      listeners_.push_back(conn::listen(registry_, loops_, url, make));
    const int count = service::take_listening_descriptors();
    for (int fd = 3; fd < 3 + count; ++fd)
      listeners_.push_back(conn::adopt_listener(registry_.require(activated_.transport(fd)), loops_,
                                                fd, make, conn::Spread::fewest(),
                                                activated_.options()));
    if (listeners_.empty())
      throw conn::Error("nothing to listen on: give --listen URL, or sockets of socket activation");
    for (const auto& listener : listeners_) {
      listener->on_refused([this](const conn::Failure& why) {
        settings_.failures.add(service::LimitedLog::now(), "refused: " + why.text, write_log);
      });
      for (const conn::Endpoint& at : listener->endpoints())
        service::print("listening on " + at.to_string() + '\n');
    }
  }

  void drain(ae::EventLoop& loop) {
    left_ = sites_.size();
    loops_.on_each([&](ae::EventLoop&, std::size_t i) {
      sites_[i]->drain([this, &loop, poster = loop.poster()] {
        (void)poster.post([this, &loop] {
          if (--left_ == 0) loop.stop();
        });
      });
    });
    loop.add_time_event(plan_.grace, [&loop] {
      loop.stop();
      return ae::kNoMore;
    });
  }

  /// Runs on the loops' threads, which continue briefly to deliver data already accepted.
  void close_all() {
    listeners_.clear();
    loops_.on_each([this](ae::EventLoop&, std::size_t i) { sites_[i].reset(); });
  }

  /// Reloads certificate files; existing connections keep theirs.
  void reload() {
    service::notify(fmt::format("RELOADING=1\nMONOTONIC_USEC={}",
                                std::chrono::duration_cast<std::chrono::microseconds>(
                                    std::chrono::steady_clock::now().time_since_epoch())
                                    .count()));
    std::string why;
    try {
      registry_.reload_tls();
    } catch (const conn::Error& error) {
      why = error.what();
    }
    write_log(why.empty() ? "certificates reloaded"
                          : "certificates not reloaded, the old ones remain: " + why);
    service::notify("READY=1");
  }

  void print_statistics() {
    std::vector<proxy::Counters> each(sites_.size());
    std::vector<std::size_t> open(sites_.size());
    loops_.on_each([&](ae::EventLoop&, std::size_t i) {
      each[i] = sites_[i]->counters();
      open[i] = sites_[i]->open();
    });
    proxy::Counters all;
    std::size_t now = 0;
    for (std::size_t i = 0; i < each.size(); ++i) {
      all += each[i];
      now += open[i];
    }
    const std::string line = fmt::format(
        "open={} accepted={} joined={} failed={} left={} broken={} idle={} bytes-up={} "
        "bytes-down={}",
        now, all.accepted, all.joined, all.failed, all.left, all.broken, all.idle, all.upward,
        all.downward);
    write_log(line);
    service::notify("STATUS=" + line);
  }

  const Plan& plan_;
  proxy::Settings& settings_;
  const service::Activated activated_;
  const conn::Registry registry_ = conn::all_transports();
  ae::LoopGroup loops_;
  std::vector<std::unique_ptr<proxy::Site>> sites_;  // each is used on its loop's thread
  std::vector<conn::ListenerGroupPtr> listeners_;
  std::size_t left_ = 0;  // sites that still have relays while the program is ending
};

}  // namespace

int main(int argc, char** argv) try {
  service::open_standard_streams();
  Plan plan;
  proxy::Settings settings;
  settings.log = write_log;
  CLI::App app("Joins two transports of aeconn: relays connections from one URL to another.",
               "aeconn-proxy");
  manual::Values values;
  values
      .add(app.add_option("--listen", plan.listen, "URL to listen on for clients; may be repeated"),
           manual::Value::listen_url())
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  values
      .add(app.add_option("--connect", plan.connect, "URL to which their connections are relayed"),
           manual::Value::connect_url())
      ->required();
  std::string version;
  values
      .add(app.add_option("--proxy-protocol", version,
                          "Tell the server each client's address by this version of the PROXY "
                          "protocol"),
           manual::Value::words(kProxyVersions))
      ->check(
          CLI::IsMember(std::vector<std::string>(kProxyVersions.begin(), kProxyVersions.end())));
  values
      .add(app.add_option("--activated", plan.activated, service::Activated::kHelp),
           manual::Value::transport(service::Activated::kTransports))
      ->capture_default_str();
  app.add_option("--loops", plan.loops,
                 "Event loops, each on a thread of its own; 0: one for each processor")
      ->check(CLI::Range(std::size_t{0}, std::size_t{256}))
      ->capture_default_str();
  long idle = settings.idle_timeout.count(), statistics = plan.statistics.count(),
       grace = plan.grace.count();
  const auto seconds = [&](const char* flag, long& to, const char* what) {
    app.add_option(flag, to, what)->check(CLI::Range(0L, 1'000'000L))->capture_default_str();
  };
  seconds("--idle-timeout", idle, "Close connections idle for this many seconds; 0: never");
  seconds("--statistics", statistics,
          "Print a line of counters at this interval in seconds; 0: never");
  seconds("--grace", grace, "How long open connections may continue after SIGTERM, in seconds");
  app.add_flag("--verbose", settings.verbose, "Log a line for each connection");
  manual::add_to(
      app,
      {.description = {manual::kPlaces},
       .sections =
           {{"SIGNALS",
             {"SIGINT and SIGTERM end it: it stops listening, and open connections may continue "
              "for --grace; a second signal ends them. SIGHUP reloads certificates and keys."}},
            {"EXIT STATUS",
             {"0 after a signal; 1 for an error, with one line on standard error that "
              "describes it."}}},
       .examples = {{"A database's Unix socket, over RDMA with TLS to another machine:",
                     "aeconn-proxy --listen unix:///run/far/db --connect "
                     "'tls+rdma://10.0.0.1:6432?ca=ca.pem'"}},
       .see_also = {"kv-server(1)", "conn(7)"},
       .version = AECONN_VERSION,
       .values = std::move(values)});
  manual::add_version(app, "aeconn-proxy");
  try {
    (void)manual::parse(app, {argv, static_cast<std::size_t>(argc)});
  } catch (const CLI::ParseError& error) {
    return manual::explain(app, error, 1);
  }
  if (!version.empty())
    settings.proxy_protocol =
        version == kProxyVersions[0] ? conn::ProxyVersion::kV1 : conn::ProxyVersion::kV2;
  settings.idle_timeout = std::chrono::seconds(idle);
  plan.statistics = std::chrono::seconds(statistics);
  plan.grace = std::chrono::seconds(grace);
  service::allow_descriptors();
  Proxy(plan, settings).run();
  return 0;
} catch (const std::exception& error) {
  service::complain("aeconn-proxy", error.what());
  return 1;
}
