// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Connects to one place through the first of several candidates that is ready for data, in the
// order that conn/lists/race.h defines. Used by the composite transport and by Redial; programs use
// those.

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

/// A candidate: a transport and the endpoint it leads to, or the reason why there is none.
struct Candidate {
  std::string scheme;
  ConnectionType* type = nullptr;
  std::string unavailable;  ///< the reason, if `type` is null
  Endpoint to;              ///< with this scheme and the options that its transport knows
};

class Dial {
 public:
  /// Receives the connection, or null and failure(). Runs once, from the loop, and may destroy the
  /// Dial.
  using Done = std::function<void(ConnectionPtr)>;

  /// Starts at once. `timeout` covers all candidates together; `delay` is the head start of each.
  Dial(ae::EventLoop& loop, std::vector<Candidate> candidates, ae::Duration delay,
       ae::Duration timeout, Done done);
  /// Gives up: closes every connection; no handler runs afterwards.
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

  /// After the end: the candidates before the one that was taken, or all of them, in order.
  const std::vector<Skipped>& not_taken() const noexcept { return skipped_; }
  /// Why no candidate was ready.
  const Failure& failure() const noexcept { return failure_; }
  /// The loop is about to be destroyed, together with its connections.
  void abandon() noexcept;

 private:
  struct Attempt {
    Candidate candidate;
    ConnectionPtr connection;
    Failure why;
    SkipReason kind = SkipReason::kOther;
    ae::TimePoint began;
  };

  void go_on(bool inside);
  void start(std::size_t candidate) noexcept;
  void connected(std::size_t candidate);
  void writable(std::size_t candidate);
  void fail_by(std::size_t candidate, const Connection& connection) noexcept;
  void fail(std::size_t candidate, SkipReason kind, Failure why) noexcept;
  void finish();
  void say_why();
  void arm(ae::TimePoint when) noexcept;

  ae::EventLoop& loop_;
  std::vector<Attempt> attempts_;
  Race race_;
  Done done_;
  ConnectionPtr winner_;
  std::vector<Skipped> skipped_;
  Failure failure_;
  ae::TimerId timer_ = 0;
  bool over_ = false;
};

}}  // namespace conn
