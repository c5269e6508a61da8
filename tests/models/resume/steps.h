// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What may happen next: every step of the two ends, the network, the devices and connection
// management that is possible in a state.

#include <functional>
#include <string>

#include "tests/models/resume/findings.h"
#include "tests/models/resume/state.h"

namespace resume_model {

enum class StepKind : Byte {
  kWrite,
  kSayGoodbye,
  kPollReceived,
  kPollSent,
  kPollUnfenced,
  kRead,
  kLosePath,
  kLoseDevice,
  kExpire,
  kDeliver,
  kCut,
  kDial,
  kDialToForget,
  kGiveUpDial,
  kDialFails,
  kMessage,
  kMessageLost,
  kMessageDoubled,
  kNumber
};

struct Step {
  StepKind kind;
  int subject;  ///< the end; a path for the network; the kind of message for connection management
  int detail;
};
std::string describe(const Step& step);
/// Random walks take these seldom, or they would do little else.
bool is_failure(StepKind kind);

using StepHandler = std::function<void(const Step&, const State& next)>;

/// Calls the handler with each state that one step leads to. It is simplified, and its invariants
/// are checked.
void for_each_step(const State& state, Findings& findings, const StepHandler& handler);

}  // namespace resume_model
