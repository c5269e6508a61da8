// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The settings of a measurement and its results.

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ae/time.h"
#include "conn/endpoint.h"
#include "conn/error.h"
#include "facts.h"
#include "histogram.h"

namespace perf {

enum class Mode : std::uint8_t { kRequestResponse, kStream, kConnect, kIdle };
constexpr std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kRequestResponse:
      return "request-response";
    case Mode::kStream:
      return "stream";
    case Mode::kConnect:
      return "connect";
    case Mode::kIdle:
      return "idle";
  }
  return "";
}

inline constexpr std::array kModes{Mode::kRequestResponse, Mode::kStream, Mode::kConnect,
                                   Mode::kIdle};

/// One measurement: one point of a sweep. The defaults are those of the program.
struct Plan {
  Mode mode = Mode::kRequestResponse;
  conn::Endpoint endpoint;
  std::size_t connections = 1, depth = 1, size = 64, reply_size = 64;
  std::uint64_t requests = 0;  ///< number of requests; 0: run for `seconds`
  ae::Duration seconds = std::chrono::seconds(3), warmup = std::chrono::seconds(1);
  ae::Duration patience = std::chrono::seconds(60);  ///< longest time without progress
  bool verify = true, echo = false, both_ways = false;
  bool in_place = false;  ///< a stream is sent from registered memory and read without a copy
};

/// One loop's share of a measurement.
struct LoopShare {
  /// connections open at the end; in Mode::kConnect, connections made during it
  std::uint64_t connections = 0;
  std::uint64_t requests = 0;  ///< requests; for a stream, messages
};

struct Result {
  Plan plan;
  std::uint64_t requests = 0;  ///< requests; for a stream, messages, both directions together
  std::uint64_t bytes = 0;     ///< bytes of messages, both directions together
  ae::Duration elapsed{};
  Histogram latency;
  /// Usage during the measured time; in Mode::kIdle, since before the connections were opened.
  Usage client;
  std::optional<Usage> server;
  std::vector<LoopShare> client_loops;
  std::vector<LoopShare> server_loops;  ///< empty if the server does not report them
};

/// Thrown if a measurement cannot continue; its text is one sentence.
class Failed : public conn::Error {
 public:
  using conn::Error::Error;
};

}  // namespace perf
