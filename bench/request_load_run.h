// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Closed-loop load: each connection keeps `depth` requests in flight, and each reply must equal the
// script's reply byte for byte.

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
  std::uint64_t requests = 0;  ///< 0: as many as fit into `seconds`
  double seconds = 0;
  double warm_up = 0;            ///< seconds before counting begins
  bool new_connections = false;  ///< one connection per request; depth is 1
};

struct Result {
  std::uint64_t requests = 0;
  double elapsed_s = 0;
  double cpu_s = 0;  ///< of this process during the measurement
  perf::Histogram latency;
};

/// Sends the requests one after the other on a connection of its own and returns the replies.
/// Throws conn::Error.
std::vector<std::string> call(ae::EventLoop& loop, const conn::Registry& registry,
                              const conn::Endpoint& endpoint, const Protocol& protocol,
                              const std::vector<std::string>& requests);

class Client;

class Run {
 public:
  /// Borrows all arguments.
  Run(ae::EventLoop& loop, const conn::Registry& registry, const Plan& plan, const Script& script);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run();

  /// Throws conn::Error if a connection fails or a reply is wrong.
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
  std::uint64_t replies_ = 0, replies_seen_ = 0;  // total; at the last check for progress
  bool measuring_ = false, over_ = false;
  std::uint64_t begun_ = 0;
  double cpu_begun_ = 0;
  Result result_;
  std::string failure_;
  std::vector<char> buffer_;
};

}  // namespace load
