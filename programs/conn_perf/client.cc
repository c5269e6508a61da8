// SPDX-License-Identifier: BSD-3-Clause
#include "client.h"
#include "programs/service/descriptors.h"
#include "programs/service/signals.h"
#include "programs/service/standard_streams.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>

#include "ae/loop_names.h"
#include "conn/transports/transports.h"
#include "control.h"
#include "load_loops.h"
#include "loop_counts.h"
#include "report.h"
#include "usage.h"

namespace perf {
namespace {

using namespace std::chrono_literals;

/// Progress line on standard error; prints nothing if that is not a terminal.
class Progress {
 public:
  Progress(ae::EventLoop& loop, Phases& load) : loop_(loop), load_(load), since_(loop.now()) {
    if (isatty(STDERR_FILENO) == 0) return;
    timer_ = loop_.add_time_event(500ms, [this]() -> ae::Duration { return show(), 500ms; });
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() {
    if (timer_ == 0) return;
    loop_.remove_time_event(timer_);
    clear();
  }
  /// Clears the progress line so that other output can be printed.
  void clear() const {
    if (timer_ != 0) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  void show() {
    const Plan& plan = load_.plan();
    const Phases::Standing now = load_.standing();
    const double time = std::chrono::duration<double>(loop_.now() - since_).count();
    std::cerr << fmt::format(
                     "\r{} over {}, connections {} of {}, depth {}, size {}: {} requests, "
                     "{:.1f} s\x1b[K",
                     to_string(plan.mode), plan.endpoint.scheme, now.opened, plan.connections,
                     plan.depth, plan.size, now.begun, time)
              << std::flush;
  }

  ae::EventLoop& loop_;
  Phases& load_;
  ae::TimePoint since_;
  ae::TimerId timer_ = 0;
};

class Client {
 public:
  Client(ClientShared& shared, ClientOptions& options) : shared_(shared), options_(options) {
    if (options.loops > 1)
      loops_.emplace(shared.loop, shared.registry, options.loops, options.spin,
                     ae::loops_named(options.event_loop));
    loops_ ? meter_.emplace(loops_->group()) : meter_.emplace();
    Plan& plan = options_.plan;
    if (!plan.echo) control_ = std::make_unique<Control>(shared_, plan.endpoint, plan.patience);
    if (options_.json != "-" && options_.csv != "-") reports_.push_back(make_table(service::print));
    if (!options_.json.empty()) reports_.push_back(make_json(options_.json));
    if (!options_.csv.empty()) reports_.push_back(make_csv(options_.csv));
  }

  void run() {
    sweep();
    for (const auto& report : reports_) report->end();
  }

 private:
  void sweep() {
    for (const std::size_t connections : options_.connections) {
      for (const std::size_t size : options_.sizes) {
        for (const std::size_t depth : options_.depths) {
          Plan plan = options_.plan;
          plan.connections = connections;
          plan.size = size;
          plan.depth = depth;
          plan.reply_size = options_.reply_size != 0 ? options_.reply_size : size;
          let_go();
          if (loops_) {
            LoadOnLoops load(*loops_, plan);
            measure(load);
          } else {
            Load load(shared_, plan);
            measure(load);
          }
          if (asked_to_end_) return;
        }
      }
    }
  }

  void measure(Phases& load) {
    const Plan& plan = load.plan();
    const bool idle = plan.mode == Mode::kIdle;
    Result result;
    result.plan = plan;
    std::optional<Progress> progress(std::in_place, shared_.loop, load);
    std::optional<Usage> server_before;
    std::vector<LoopFacts> loops_before;
    Usage client_before;
    const auto snapshot = [&] {  // own usage comes last: it excludes the cost of the queries
      if (control_) {
        loops_before = control_->loops();
        server_before = idle ? control_->everything() : control_->work();
      }
      client_before = usage(idle);
    };
    if (idle) {
      settle(load);
      snapshot();
    }
    if (plan.mode != Mode::kConnect) load.open();
    progress->clear();
    if (!begun_) begin(load);
    if (idle) {
      // Transports release the buffers of idle connections after one second.
      load.pass(2s, asked_to_end_);
    } else {
      if (plan.warmup > 0s) load.run(0, plan.warmup);
      snapshot();
      load.run(plan.requests, plan.seconds);
    }
    result.client = usage(idle).since(client_before);
    if (control_) {
      result.server = (idle ? control_->everything() : control_->work()).since(*server_before);
      result.server_loops = shares(loops_before, control_->loops(), plan.mode == Mode::kConnect);
    }
    load.store(result);
    progress.reset();  // clears the progress line
    for (const auto& report : reports_) report->result(result);
    if (idle && options_.hold > 0s) hold(load);
  }

  /// With several loops, the loops' waiting times are not included.
  Usage usage(bool idle) const {
    Usage now = idle ? meter_->everything() : meter_->work();
    if (!loops_) now.add_loop(shared_.loop.times());
    return now;
  }

  /// Waits briefly until the server has noticed the end of earlier connections: on a server with
  /// several loops they would influence how the next connections are spread.
  void let_go() {
    if (!control_) return;
    for (int i = 0; i < 100; ++i) {
      const std::vector<LoopFacts> loops = control_->loops();
      if (loops.size() < 2) return;
      std::uint64_t open = 0;
      for (const LoopFacts& each : loops) open += each.open;
      if (!open_before_) open_before_ = open;
      if (open <= *open_before_) return;
      shared_.loop.add_time_event(10ms, [this] { return shared_.loop.stop(), ae::kNoMore; });
      shared_.loop.run();
    }
  }

  /// Waits while the server is still releasing the memory of earlier connections.
  void settle(Phases& load) {
    if (!control_) return;
    std::optional<std::uint64_t> last = control_->everything().resident;
    for (int i = 0; i < 50; ++i) {
      load.pass(200ms, asked_to_end_);
      const std::optional<std::uint64_t> now = control_->everything().resident;
      if (now == last) return;
      last = now;
    }
  }

  /// The connections and requests of each server loop between two queries.
  static std::vector<LoopShare> shares(const std::vector<LoopFacts>& before,
                                       const std::vector<LoopFacts>& after, bool connecting) {
    std::vector<LoopShare> all;
    for (std::size_t i = 0; i < after.size() && after.size() == before.size(); ++i) {
      all.push_back({connecting ? after[i].begun - before[i].begun : after[i].open,
                     after[i].requests - before[i].requests});
    }
    return all;
  }

  void begin(Phases& load) {
    begun_ = true;
    const Plan& plan = load.plan();
    Sides sides;
    sides.client = Facts::of_process(options_.command);
    if (control_) {
      sides.client.add_way(control_->connection());
      sides.server = control_->facts();
      if (!control_->why_no_calls().empty())
        sides.notes.push_back("server: " + control_->why_no_calls());
    } else {
      load.with_sample([&](const conn::Connection& sample) { sides.client.add_way(sample); });
    }
    if (!meter_->why_no_calls().empty()) sides.notes.push_back("client: " + meter_->why_no_calls());
    if (!plan.verify) sides.notes.emplace_back("payloads are NOT verified (--no-verify)");
    for (const auto& report : reports_) report->begin(sides, plan);
  }

  void hold(Phases& load) {
    const service::Signals signals(shared_.loop, [this] {
      asked_to_end_ = true;
      shared_.loop.stop();
    });
    load.pass(options_.hold, asked_to_end_);
  }

  ClientShared& shared_;
  ClientOptions& options_;
  std::optional<ClientLoops> loops_;
  std::optional<Meter> meter_;
  std::unique_ptr<Control> control_;
  std::vector<std::unique_ptr<Report>> reports_;
  std::optional<std::uint64_t>
      open_before_;  // other clients' connections, if the server has several loops
  bool begun_ = false, asked_to_end_ = false;
};

/// Whether both names are those of one file other than a device; it may not exist yet.
bool one_file(const std::string& a, const std::string& b) {
  namespace fs = std::filesystem;
  std::error_code unknown;
  if (a.empty() || b.empty() || fs::is_character_file(a, unknown)) return false;
  const auto whole = [&](const std::string& name) {
    return fs::weakly_canonical(fs::absolute(name, unknown), unknown);
  };
  return whole(a) == whole(b);
}

void demand(bool good, const char* sentence) {
  if (!good) throw UsageError(sentence);
}

void check(const ClientOptions& options) {
  const Plan& plan = options.plan;
  const bool request = plan.mode == Mode::kRequestResponse, stream = plan.mode == Mode::kStream;
  demand(request || options.depths == std::vector<std::size_t>{1},
         "--depths requires --mode request-response: other modes do not queue");
  demand(!plan.both_ways || stream, "--both-ways requires --mode stream");
  demand(!plan.in_place || (stream && !plan.both_ways),
         "--in-place requires --mode stream in one direction");
  demand(!plan.echo || !stream,
         "--echo and --mode stream cannot be combined: an echo server does not count a stream");
  demand(!plan.echo || options.reply_size == 0,
         "--echo and --reply-size cannot be combined: an echo is as long as its request");
  demand(options.hold == 0s || plan.mode == Mode::kIdle, "--hold requires --mode idle");
  demand(options.json != "-" || options.csv != "-",
         "only one of --json and --csv can go to standard output");
  demand(!one_file(options.json, options.csv), "--json and --csv must name two files");
}

}  // namespace

void run_client(ClientOptions options) {
  check(options);
  conn::Registry registry = conn::all_transports();  // must outlive everything created from it
  std::once_flag told;                               // only the first fallback is logged
  registry.on_fallback([&told](const conn::Fallback& fallback) {
    std::call_once(told, [&] {
      service::complain("conn-perf", fallback.to + " by " + fallback.taken + "; " +
                                         conn::describe(fallback.not_taken));
    });
  });
  Plan& plan = options.plan;
  plan.endpoint = endpoint_of(registry, options.url);
  // Many simultaneous handshakes take long on a slow machine.
  if (!plan.endpoint.options.has("connect-timeout"))
    plan.endpoint.options.set("connect-timeout", "60s");
  const std::uint64_t descriptors = service::allow_descriptors();
  const bool each_has_one = registry.require(plan.endpoint.scheme).capabilities().descriptor;
  for (const std::size_t count : options.connections) {
    // Each loop needs a few descriptors of its own.
    if (each_has_one && count + 56 + 8 * options.loops > descriptors) {
      throw Failed(
          fmt::format("{} connections do not fit: this process may have {} descriptors "
                      "(ulimit -n)",
                      count, descriptors));
    }
  }
  const auto its_loop = ae::loops_named(options.event_loop)(0);
  ae::EventLoop& loop = *its_loop;
  if (options.loops == 1) loop.set_spin(options.spin);
  ClientShared shared(loop, registry);
  Client(shared, options).run();
}

}  // namespace perf
