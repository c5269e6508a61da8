// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Random walks, for streams that are too long to be searched through.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/models/resume/findings.h"
#include "tests/models/resume/search.h"

namespace resume_model {

struct WalksReport {
  std::uint64_t walks = 0, steps = 0;
  std::uint64_t unfinished = 0;  ///< walks that stood still, or had no steps left
  std::uint64_t complete = 0;
  std::uint64_t resumes = 0;          ///< requests that the server accepted
  Reasons reasons = {};               ///< of the walks that are over
  std::vector<std::string> way = {};  ///< the steps of the walk that has a violation
};

/// The same seed takes the same walks. Violations and events are those of all steps that were
/// possible on the way, taken or not.
WalksReport walk(Findings& findings);

}  // namespace resume_model
