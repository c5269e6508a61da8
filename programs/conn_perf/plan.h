// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What is measured, and what came out.

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

/// One measurement: a point of a sweep. What it has by default is what the program does.
struct Plan {
  Mode mode = Mode::kRequestResponse;
  conn::Endpoint endpoint;
  std::size_t connections = 1, depth = 1, size = 64, reply_size = 64;
  std::uint64_t requests = 0;  ///< 0: `seconds` decides
  ae::Duration seconds = std::chrono::seconds(3), warmup = std::chrono::seconds(1);
  ae::Duration patience = std::chrono::seconds(60);  ///< without any progress
  bool verify = true, echo = false, both_ways = false;
  bool in_place = false;  ///< a stream is sent from where it lies, and read where it arrived
};

/// What one loop had of a measurement.
struct LoopShare {
  std::uint64_t connections = 0;  ///< open at its end; of Mode::kConnect: made in it
  std::uint64_t requests = 0;     ///< messages, of a stream
};

struct Result {
  Plan plan;
  std::uint64_t requests = 0;  ///< messages, of a stream; of both ways together
  std::uint64_t bytes = 0;     ///< of messages, both directions together
  ae::Duration elapsed{};
  Histogram latency;
  /// In the time that was measured; for idle: since before the connections.
  Usage client;
  std::optional<Usage> server;
  std::vector<LoopShare> client_loops;
  std::vector<LoopShare> server_loops;  ///< empty where the server does not tell
};

/// A measurement that cannot go on, in one sentence.
class Failed : public conn::Error {
 public:
  using conn::Error::Error;
};

}  // namespace perf
