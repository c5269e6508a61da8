// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A well-behaved client beside whatever happens: a request every other millisecond on its
// connection, to a server that echoes. Without the pauses it would itself be the load on an
// emulated machine.

#include <string>
#include <vector>

#include "ae/event_loop.h"
#include "conn/connection.h"

namespace testing {

class Neighbour {
 public:
  /// Takes over the handlers of a connected connection and sends the first request.
  Neighbour(ae::EventLoop& loop, conn::Connection& connection);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  std::size_t round_trips = 0;
  std::string trouble;  ///< the first error, or what was wrong with an answer
  std::vector<ae::Duration> times;

  /// Of `times`, which it empties: "p50 1.2 ms, p99 3.4 ms, most 5.6 ms of 1000".
  std::string take_figures();

 private:
  void ask();
  void on_readable();
  ae::EventLoop& loop_;
  conn::Connection& connection_;
  ae::TimerId pause_ = 0;
  std::string question_, answer_;
  ae::TimePoint asked_at_;
};

}  // namespace testing
