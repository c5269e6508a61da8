// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Dial: connects to one endpoint through the first of several candidates that is ready for data, in
// the order that conn/lists/race.h defines. Programs do not use it directly, but through the
// transport for lists of schemes (FallbackType) or Redial.

#include <cstddef>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "ae/abi.h"
#include "ae/event_loop.h"
#include "conn/connection.h"
#include "conn/connection_type.h"
#include "conn/fallback.h"
#include "conn/lists/race.h"

namespace conn { inline namespace AECONN_ABI {

/// One candidate of a list of schemes: a transport and the endpoint to connect to with it, or the
/// reason why this transport is not available.
struct Candidate {
  std::string scheme;
  ConnectionType* type = nullptr;
  /// Reason why this transport is not available; set only if `type` is null.
  std::string unavailable;
  /// The endpoint to connect to. Its scheme is `scheme`, and it has only those options that this
  /// transport knows.
  Endpoint to;
};

/// Returns the error code of an operation for which every scheme of a list failed: that of the last
/// scheme that was tried; if all schemes are unavailable, that of the last scheme.
std::error_code code_of(const std::vector<Skipped>& all) noexcept;

class Dial {
 public:
  /// Receives the connection, or null after a failure; failure() then has the reason. Called once,
  /// from the loop. The function may destroy the Dial.
  using Done = std::function<void(ConnectionPtr)>;

  /// Starts to connect. `timeout` is the limit for all candidates together. `delay` is the head
  /// start of each candidate: how long it is tried before the next one starts as well.
  Dial(ae::EventLoop& loop, std::vector<Candidate> candidates, ae::Duration delay,
       ae::Duration timeout, Done done);
  /// Closes every connection that was not passed to `done`; no handler runs afterwards.
  ~Dial();
  Dial(const Dial&) = delete;
  Dial& operator=(const Dial&) = delete;

  /// Returns, once `done` was called, the candidates that were not used, in order, and why: those
  /// before the one whose connection `done` received, or all of them after a failure.
  const std::vector<Skipped>& not_taken() const noexcept { return skipped_; }
  /// Returns why no candidate became ready for data; empty after success.
  const Failure& failure() const noexcept { return failure_; }
  /// Stops connecting without calling `done`. To be called when the loop is about to be destroyed
  /// together with its connections.
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
  void say_why() noexcept;
  std::string why_not_ready(std::size_t candidate, ae::TimePoint now) const;
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
