// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state that sessions share. Each loop has a Server: sessions, statistics and a copy of the
// configuration, which requests of other loops do not touch. Together has what the loops share.
// Loops meet at a shard's lock, when a connection begins or ends, and when a command asks all of
// them.

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/loop_names.h"
#include "conn/metrics.h"
#include "programs/service/limited_log.h"
#include "references.h"
#include "resp_parser.h"

namespace kv {

class Session;
class Together;

inline constexpr std::string_view kVersion = AECONN_VERSION;
/// The version of Redis whose replies and error texts the commands have; clients check it.
inline constexpr std::string_view kRedisVersion = "7.0.15";

/// The words of --loglevel; the first two log the path of each client's connection.
inline constexpr std::array<std::string_view, 4> kLogLevels{"debug", "verbose", "notice",
                                                            "warning"};

struct Config {
  std::string requirepass;
  std::int64_t maxclients = 10000;
  std::uint64_t maxmemory = 0;                   ///< 0: no limit
  std::uint64_t client_output_limit = 64 << 20;  ///< unsent bytes of one client; 0: no limit
  std::uint64_t client_query_limit = 1 << 30;    ///< bytes of one request; 0: no limit
  /// Bytes of all clients' buffers, the same part for each loop; beyond it the loop's largest
  /// clients are closed. 0: no limit.
  std::uint64_t clients_memory_limit = std::uint64_t{4} << 30;
  std::int64_t timeout_seconds = 0;  ///< after which idle clients are closed; 0: never
  std::string loglevel{kLogLevels[2]};
  bool debug_command = false;  ///< allows DEBUG SLEEP, which blocks the whole loop
  ParserLimits parser;
  bool logs_clients() const noexcept {
    return loglevel == kLogLevels[0] || loglevel == kLogLevels[1];
  }
  std::string event_loop{ae::loop_names().front()};  ///< for INFO and CONFIG GET event-loop
  std::size_t loops = 1;                             ///< set by Together
};

struct Statistics {
  std::uint64_t connections_received = 0, connections_rejected = 0;
  std::uint64_t commands_processed = 0, commands_rejected = 0;
  std::uint64_t error_replies = 0;
  std::uint64_t keyspace_hits = 0, keyspace_misses = 0;
  std::uint64_t bytes_in = 0, bytes_out = 0;
  std::uint64_t output_limit_closed = 0, query_limit_closed = 0, clients_evicted = 0;
  std::uint64_t timed_out = 0, protocol_errors = 0, auth_failures = 0;
  struct PerCommand {
    std::uint64_t calls = 0, rejected = 0, failed = 0;
  };
  std::vector<PerCommand> commands;  ///< by Command::index
  void add(const Statistics& other);
};

/// The counters of Statistics, and their names in INFO and GET /metrics.
struct Counter {
  std::uint64_t Statistics::*member;
  std::string_view info, metric;  ///< metric: "kv_NAME_total"; or "limit=NAME", a label of one
  std::string_view help = {};
};
inline constexpr Counter kCounters[] = {
    {&Statistics::connections_received, "total_connections_received",
     "kv_connections_received_total", "Client connections accepted."},
    {&Statistics::connections_rejected, "rejected_connections", "kv_connections_rejected_total",
     "Client connections rejected because of maxclients."},
    {&Statistics::commands_processed, "total_commands_processed", "kv_commands_processed_total",
     "Commands executed."},
    {&Statistics::commands_rejected, "rejected_commands", "kv_commands_rejected_total",
     "Commands rejected before execution."},
    {&Statistics::error_replies, "total_error_replies", "kv_error_replies_total",
     "Error replies sent."},
    {&Statistics::keyspace_hits, "keyspace_hits", "kv_keyspace_hits_total",
     "Key lookups that found the key."},
    {&Statistics::keyspace_misses, "keyspace_misses", "kv_keyspace_misses_total",
     "Key lookups that did not find the key."},
    {&Statistics::bytes_in, "total_net_input_bytes", "kv_input_bytes_total", "Bytes of requests."},
    {&Statistics::bytes_out, "total_net_output_bytes", "kv_output_bytes_total",
     "Bytes of replies."},
    {&Statistics::protocol_errors, "protocol_errors", "kv_protocol_errors_total",
     "Clients closed because of invalid RESP."},
    {&Statistics::auth_failures, "auth_failures", "kv_auth_failures_total",
     "Failed authentications."},
    {&Statistics::output_limit_closed, "client_output_buffer_limit_disconnections",
     "limit=client-output-buffer-limit"},
    {&Statistics::query_limit_closed, "client_query_buffer_limit_disconnections",
     "limit=client-query-buffer-limit"},
    {&Statistics::clients_evicted, "evicted_clients", "limit=maxmemory-clients"},
    {&Statistics::timed_out, "timed_out_clients", "limit=timeout"},
};

/// The name of a loop's own times among the transports' statistics.
inline constexpr std::string_view kLoopTimes = "Loop";

/// The server of one loop. Must be used and destroyed on its loop's thread.
class Server {
 public:
  using Clock = std::int64_t (*)();  ///< microseconds; setting the date does not change it
  static Clock steady_clock();
  Server(Together& all, std::size_t its_loop);
  /// A server that shares nothing with other loops.
  explicit Server(Clock clock = nullptr);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  explicit Server(std::unique_ptr<Together> own);
  const std::unique_ptr<Together> own_;

 public:
  Together& together;
  const std::size_t loop;
  Store& store;
  Config config;
  Statistics statistics;
  std::int64_t data_bytes = 0;  ///< by how much this loop made the shards grow
  /// The sessions by id, which is the order in which they connected.
  std::map<std::uint64_t, Session*> sessions;
  std::size_t buffer_bytes = 0;  ///< memory that peers made all sessions hold
  SpareEntry spare_entry;
  const Pool::Ptr sent_values{new Pool};

  // Set by the network part; may be empty.
  std::function<void(Session&)> session_killed;  ///< closes it soon, and not within this call
  std::function<void(Session&)> session_ready;   ///< calls execute(): other loops have answered
  std::function<std::vector<conn::SchemeStatistics>()> transports;  ///< includes kLoopTimes
  /// Moves the session's client to another loop. Returns "" once it has left, or an error reply.
  /// Empty: there is one loop. Must not be called by the session's own command.
  std::function<std::string(Session&, std::size_t to)> move_session;

  std::int64_t now_us() const { return clock_(); }
  /// Bytes of unreleased values whose clients have been closed.
  std::size_t left_behind() const noexcept { return sent_values->left_behind; }
  /// The bytes of the data, of clients' buffers and of left-behind values, of all loops: this one's
  /// are exact, the others' as they were published.
  std::size_t used_memory() const noexcept;
  /// Publishes this loop's share of the memory if it has changed by more than kGrain.
  static constexpr std::int64_t kGrain = 64 << 10;
  void publish_memory() noexcept {
    const std::int64_t change = held() - published_;
    if (change > kGrain || change < -kGrain) [[unlikely]]
      publish(held());
  }
  bool out_of_memory() const noexcept {
    return config.maxmemory != 0 && used_memory() > config.maxmemory;
  }
  bool password_needed() const noexcept { return !config.requirepass.empty(); }

  /// Applies maxmemory-clients, of which each loop has the same part: closes clients, the largest
  /// first. Must not be called by a command.
  void limit_clients_memory() {
    if (exceeds_clients_memory()) [[unlikely]]
      close_largest();
  }
  bool exceeds_clients_memory() const noexcept {
    return config.clients_memory_limit != 0 &&
           buffer_bytes * config.loops > config.clients_memory_limit;
  }
  /// The regular work, to be called ten times per second.
  void tick();

 private:
  std::int64_t held() const noexcept {
    return data_bytes + static_cast<std::int64_t>(buffer_bytes + left_behind());
  }
  void publish(std::int64_t bytes) noexcept;
  void close_largest();

  const Clock clock_;
  std::int64_t published_ = 0, tended_us_ = 0;
};

class Together {
 public:
  Together(Config its_config, std::size_t loop_count, Server::Clock its_clock = nullptr);
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  // Must not change once the loops serve.
  /// Runs a function on a loop's thread; returns false if that loop has ended. Empty: all loops are
  /// on one thread, and functions run at once.
  std::function<bool(std::size_t loop, std::function<void()>)> post;
  std::function<void()> request_shutdown;
  std::function<void(std::string_view)> log;  ///< any thread
  const Server::Clock clock;
  const std::int64_t started_us;
  const std::int64_t start_date_s;  ///< seconds since 1970
  Store store;

  // The authoritative configuration. Each Server has a copy.
  std::mutex config_mutex;
  Config config;

  std::size_t loops() const noexcept { return servers_.size(); }
  void join(Server& server);
  void leave(const Server& server) noexcept { servers_[server.loop] = nullptr; }
  /// Returns a loop's Server, or null if that has left. Call it on that loop's thread.
  Server* server(std::size_t loop) const noexcept { return servers_[loop]; }
  /// Runs `fn` on a loop's thread with its Server, or null if that has left. Returns false if `fn`
  /// will not run.
  bool to(std::size_t loop, std::function<void(Server*)> fn);
  /// Asks every loop (this one at once), and runs `then` on this loop once all have answered. A
  /// loop that has ended, or has no memory for an answer, gives an empty answer. Nothing blocks
  /// meanwhile, so `then` may rely on `here` only: sessions may have ended.
  template <class Answer>
  void ask(Server& here, std::function<Answer(Server&)> question,
           std::function<void(std::vector<Answer>&)> then);

  std::uint64_t next_session_id() noexcept { return ++last_session_id_; }
  /// Returns false if there are `most` clients already; otherwise leave_client() must follow.
  bool enter_client(std::int64_t most) noexcept;
  void leave_client() noexcept { --clients_; }
  /// Logs what peers can cause: up to ten lines per second, then the number of further ones. Any
  /// thread.
  void log_limited(const std::string& text) { limited_.add(clock() / 1'000'000, text, log); }
  void sum_up_log() { limited_.sum_up(clock() / 1'000'000, log); }

  std::atomic<std::int64_t> memory{0};  ///< what all loops have published

 private:
  void send_back(std::size_t loop, const std::function<void(Server*)>& fn) noexcept;

  std::vector<Server*> servers_;  ///< each used on its loop's thread
  std::atomic<std::uint64_t> last_session_id_{0};
  std::atomic<std::int64_t> clients_{0};
  service::LimitedLog limited_{"lines like these"};
};

template <class Answer>
void Together::ask(Server& here, std::function<Answer(Server&)> question,
                   std::function<void(std::vector<Answer>&)> then) {
  struct Asked {  // used on this loop's thread
    std::vector<Answer> answers;
    std::size_t missing;
    std::function<void(std::vector<Answer>&)> then;
  };
  const std::size_t self = here.loop;
  auto asked = std::make_shared<Asked>();
  asked->answers.resize(loops());
  asked->missing = loops();
  asked->then = std::move(then);
  const auto arrived = [](Asked& all) {
    if (--all.missing == 0) all.then(all.answers);
  };
  asked->answers[self] = question(here);
  for (std::size_t i = 0; i < loops(); ++i) {
    if (i == self) continue;
    const auto work = [this, self, i, question, asked, arrived](Server* there) {
      Answer& answer = asked->answers[i];  // used on that loop only until it is sent back
      try {
        if (there != nullptr) answer = question(*there);
      } catch (const std::bad_alloc&) {
        answer = Answer();
      }
      send_back(self, [asked, arrived](Server* back) {
        if (back != nullptr) arrived(*asked);
      });
    };
    try {
      if (!to(i, work)) --asked->missing;
    } catch (const std::bad_alloc&) {
      --asked->missing;
    }
  }
  arrived(*asked);
}

}  // namespace kv
