// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connects to one place by the first of several ways that is ready for data, as conn/lists/race.h
// orders them. What the composite transport and Redial have in common; programs use those.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/connection_type.h"
#include "conn/fallback.h"
#include "conn/lists/race.h"

namespace conn { inline namespace AECONN_ABI {

/// One of the ways: a transport and where it leads, or why there is none.
struct Way {
  std::string scheme;
  ConnectionType* type = nullptr;
  std::string unavailable;  ///< the sentence, where `type` is null
  Endpoint to;              ///< of that scheme, with the options it knows
};

class Dial {
 public:
  /// Gets the connection, or null and failure(). Runs once, from the loop, and may destroy the
  /// Dial.
  using Done = std::function<void(ConnectionPtr)>;

  /// Begins at once. `timeout` is for all ways together, `delay` the head start of each.
  Dial(ae::EventLoop& loop, std::vector<Way> ways, ae::Duration delay, ae::Duration timeout,
       Done done);
  /// Gives up: every connection is closed, nothing runs any more.
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

  /// Once it is over: the ways before the one that was taken, or all of them, in order.
  const std::vector<Skipped>& not_taken() const noexcept { return skipped_; }
  /// Why none could be had.
  const Failure& failure() const noexcept { return failure_; }
  /// The loop is about to go, and its connections with it.
  void abandon() noexcept;

 private:
  struct Lane {
    Way way;
    ConnectionPtr connection;
    Failure why;
    SkipReason kind = SkipReason::kOther;
    ae::TimePoint began;
  };

  void go_on(bool inside);
  void start(std::size_t way) noexcept;
  void connected(std::size_t way);
  void writable(std::size_t way);
  void fail_by(std::size_t way, const Connection& connection) noexcept;
  void fail(std::size_t way, SkipReason kind, Failure why) noexcept;
  void finish();
  void say_why();
  void arm(ae::TimePoint when) noexcept;

  ae::EventLoop& loop_;
  std::vector<Lane> lanes_;
  Race race_;
  Done done_;
  ConnectionPtr winner_;
  std::vector<Skipped> skipped_;
  Failure failure_;
  ae::TimerId timer_ = 0;
  bool over_ = false;
};

}}  // namespace conn
