// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The invariants that are seen in a state. Others are seen where a step breaks them: protocol.cc.

#include "tests/models/resume/findings.h"
#include "tests/models/resume/state.h"

namespace resume_model {

void check(const State& state, Findings& findings);

}  // namespace resume_model
