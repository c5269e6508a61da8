// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Breadth-first search through all states that can be reached, so that a violation is found by one
// of the shortest ways to it.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/models/resume/findings.h"
#include "tests/models/resume/state.h"

namespace resume_model {

using Reasons = std::map<std::pair<Reason, Reason>, std::uint64_t>;  ///< client's, server's

struct SearchReport {
  std::uint64_t states = 0, steps = 0;
  bool limited = false;           ///< Options::limit was reached: the rest is not known
  std::uint64_t standstills = 0;  ///< states that are not over and have no step
  /// States from which no complete end can be reached though there is a dial left, neither end has
  /// ended, and neither knows the peer's goodbye.
  std::uint64_t hopeless = 0;
  Reasons reasons = {};               ///< of the states that are over
  std::vector<std::string> way = {};  ///< the steps to a violation, or to what cannot end well
};

SearchReport search(Findings& findings);

}  // namespace resume_model
