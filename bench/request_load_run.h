// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Closed-loop load: every connection keeps `depth` requests under way, and every reply has to be,
// byte for byte, what the script says.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "conn/registry.h"
#include "programs/conn_perf/histogram.h"
#include "request_load_protocol.h"

namespace load {

struct Plan {
  conn::Endpoint endpoint;
  std::size_t connections = 1;
  std::size_t depth = 1;
  std::uint64_t requests = 0;  ///< 0: as many as `seconds` allow
  double seconds = 0;
  double warm_up = 0;            ///< seconds that are not counted
  bool new_connections = false;  ///< each request on a connection of its own; depth is 1
};

struct Result {
  std::uint64_t requests = 0;
  double elapsed_s = 0;
  double cpu_s = 0;  ///< of this process, meanwhile
  perf::Histogram latency;
};

/// Sends one request after the other on a connection of its own and returns the replies. Throws
/// conn::Error.
std::vector<std::string> call(ae::EventLoop& loop, const conn::Registry& registry,
                              const conn::Endpoint& endpoint, const Protocol& protocol,
                              const std::vector<std::string>& requests);

class Client;

class Run {
 public:
  /// Borrows everything.
  Run(ae::EventLoop& loop, const conn::Registry& registry, const Plan& plan, const Script& script);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

  /// Throws conn::Error: no connection, or a wrong reply.
  Result run();

 private:
  friend class Client;
  void connect_more();
  void connected();
  void begin();
  void measure();
  void finish();
  void fail(std::string reason);
  /// How many of `wanted` further requests may be sent.
  std::size_t grant(std::size_t wanted) noexcept;
  void completed(std::uint64_t ns) noexcept;

  ae::EventLoop& loop_;
  const conn::Registry& registry_;
  const Plan& plan_;
  const Script& script_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::size_t started_ = 0, connected_ = 0;
  std::uint64_t budget_ = UINT64_MAX;  // requests that may still be sent
  std::uint64_t under_way_ = 0;
  std::uint64_t replies_ = 0, replies_seen_ = 0;  // of all, and when patience was last looked at
  bool measuring_ = false, over_ = false;
  std::uint64_t begun_ = 0;
  double cpu_begun_ = 0;
  Result result_;
  std::string failure_;
  std::vector<char> buffer_;
};

}  // namespace load
