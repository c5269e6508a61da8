// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The state that all sessions of a loop share: configuration, data, statistics, the list of
// sessions, and functions that the network part sets. With several loops each loop has a Server;
// what they share is in Together (together.h).

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ae/loop_names.h"
#include "arriving.h"
#include "conn/metrics.h"
#include "programs/service/limited_log.h"
#include "references.h"
#include "resp_parser.h"
#include "store.h"

namespace kv {

class Session;
class Together;
struct Command;

inline constexpr std::string_view kVersion = AECONN_VERSION;
/// The version of Redis whose commands and error texts are implemented; clients check it.
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
  /// Bytes of all clients' buffers; beyond it the largest clients are closed. 0: no limit.
  std::uint64_t clients_memory_limit = std::uint64_t{4} << 30;
  std::int64_t timeout_seconds = 0;  ///< after which idle clients are closed; 0: never
  std::string loglevel{kLogLevels[2]};
  bool debug_command = false;  ///< allows DEBUG SLEEP, which blocks the whole loop
  ParserLimits parser;
  bool logs_clients() const noexcept {
    return loglevel == kLogLevels[0] || loglevel == kLogLevels[1];
  }
  std::string event_loop{ae::loop_names().front()};  ///< for INFO and CONFIG GET event-loop
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

class Server {
 public:
  using Clock = std::int64_t (*)();  ///< microseconds since 1970
  static Clock system_clock();
  explicit Server(Clock clock = nullptr, std::size_t databases = 16);
  /// The server of one of several loops, without data of its own. Must be used and destroyed on its
  /// loop's thread.
  Server(Together& together, std::size_t loop);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Config config;
  Store store;  ///< empty with several loops
  Statistics statistics;
  Together* const together;  ///< null with one loop
  const std::size_t loop;
  const std::size_t database_count;
  std::int64_t data_bytes = 0;  ///< with several loops: by how much this loop made the shards grow
  /// By id, in the order of connecting.
  std::map<std::uint64_t, Session*> sessions;
  std::size_t buffer_bytes = 0;  ///< memory that peers made all sessions hold
  SpareEntry spare_entry;
  const Pool::Ptr sent_values{new Pool};

  // Set by the network part and by main(); may be empty.
  std::function<void(bool now)> request_shutdown;
  std::function<void(Session&)> session_killed;  ///< closes it soon, and not within this call
  std::function<void(Session&)> session_ready;   ///< calls execute(): other loops have answered
  std::function<std::vector<conn::SchemeStatistics>()> transports;  ///< and kLoopTimes
  std::function<void(std::string_view)> log;

  std::int64_t now_us() const { return clock_(); }
  std::int64_t started_us() const noexcept { return started_us_; }
  std::uint64_t next_session_id() noexcept;
  /// Bytes of unreleased values whose clients have been closed.
  std::size_t left_behind() const noexcept { return sent_values->left_behind; }
  std::size_t used_memory() const noexcept { return store.memory() + buffer_bytes + left_behind(); }
  bool out_of_memory() const noexcept {
    return config.maxmemory != 0 && used_memory() > config.maxmemory;
  }
  bool password_needed() const noexcept { return !config.requirepass.empty(); }
  /// The same for one of several loops.
  bool out_of_memory_of_all() const noexcept;
  void limit_clients_memory_of_all();
  void adopt_config();
  /// Logs at most five lines per second, so that no peer can fill a disk.
  void log_limited(std::string_view text);
  /// Logs a refused connection: up to ten lines per second, then the number of further ones.
  void log_refused(std::string_view why);

  /// Closes clients, the largest first, down to maxmemory-clients. Must not be called by a command.
  void limit_clients_memory();
  /// The same, down to `most` bytes.
  void close_largest(std::uint64_t most);

  /// The regular work, to be called ten times per second: expiry, resizing, idle buffers, idle
  /// clients. Returns true if there is more to do at once.
  bool tick();

 private:
  bool tend(std::int64_t now_us);
  bool tend_all(std::int64_t now_us);

  Clock clock_;
  std::int64_t started_us_;
  std::uint64_t last_session_id_ = 0;
  std::int64_t log_second_ = 0;
  int logged_ = 0;
  service::LimitedLog refusals_{"refused"};
  std::int64_t tended_us_ = 0;
};

}  // namespace kv
