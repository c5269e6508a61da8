// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The connection on which the client asks what the server is and what the load cost it.

#include "facts.h"
#include "load.h"
#include "loop_counts.h"
#include "wire.h"

namespace perf {

class Control {
 public:
  /// Connects and asks once. Throws Failed.
  Control(ClientShared& shared, const conn::Endpoint& to, ae::Duration patience);

  // Each throws Failed.
  Usage work();        ///< CPU time and system calls
  Usage everything();  ///< and memory and descriptors
  /// What each of its loops has done so far; empty where it does not tell.
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
