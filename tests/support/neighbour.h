// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A well-behaved client next to other traffic: sends a request every other millisecond to an echo
// server. Without the pauses it would itself load an emulated machine.

#include <string>
#include <vector>

#include "ae/event_loop.h"
#include "conn/connection.h"

namespace testing {

class Neighbour {
 public:
  /// Takes over the handlers of the connected `connection` and sends the first request.
  Neighbour(ae::EventLoop& loop, conn::Connection& connection);
  ~Neighbour();
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  std::size_t round_trips = 0;
  std::string trouble;  ///< the first error, or the first wrong answer
  std::vector<ae::Duration> times;

  /// Statistics of `times`, which is emptied: "p50 1.2 ms, p99 3.4 ms, most 5.6 ms of 1000".
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
