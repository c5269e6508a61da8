// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The control connection, on which the client asks the server for its facts and for what the load
// has cost it.

#include "facts.h"
#include "load.h"
#include "loop_counts.h"
#include "wire.h"

namespace perf {

class Control {
 public:
  /// Connects to the server and queries its facts once. Throws Failed.
  Control(ClientShared& shared, const conn::Endpoint& to, ae::Duration patience);

  // Each of these throws Failed.
  Usage work();        ///< the server's CPU time and system calls
  Usage everything();  ///< the same, and its memory and descriptors
  /// Returns the counts of each server loop so far; empty if the server does not report them.
  std::vector<LoopFacts> loops();
  const Facts& facts() const noexcept { return facts_; }
  const std::string& why_no_calls() const noexcept { return why_no_calls_; }
  const conn::Connection& connection() const noexcept { return *connection_; }

 private:
  Fields exchange(Kind kind, std::string_view text, Kind answer);

  ae::Duration patience_;
  conn::ConnectionPtr connection_;
  Parser parser_;
  Facts facts_;
  std::string why_no_calls_;
};

}  // namespace perf
