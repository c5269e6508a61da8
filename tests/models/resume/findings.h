// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What a run has found: the first violation of an invariant, and how often each event happened.

#include <cstdint>
#include <string>

#include "tests/models/resume/options.h"

namespace resume_model {

/// Things that a run must reach to be worth something. A search counts each step once.
enum class Event : std::uint8_t {
  kPathLost,
  kPathLostThoughItWorks,
  kCompletionsLost,
  kNeverEstablished,
  kDial,
  kAttemptGivenUp,
  kRequestLost,
  kRequestDoubled,
  kRequestOld,
  kResumeAccepted,
  kResumed,
  kAnswerOld,
  kRefusedOver,
  kRefusedGap,
  kCountedWhileDraining,
  kSentAgain,
  kLateWrite,
  kFencedWrite,
  kLeftWindowRead,
  kEndOfStream,
  kEndOfStreamWhileLost,
  kClosed,
  kClosedWhileLost,
  kForgotten,
  kExpired,
  kNumber
};
const char* name(Event what);

struct Findings {
  const Options& options;
  std::string violation = {};
  std::uint64_t events[static_cast<int>(Event::kNumber)] = {};

  void note(Event what) { ++events[static_cast<int>(what)]; }
  /// Keeps the first violation of an invariant that this run checks.
  void violate(Check what, const char* text) {
    if (!options.checked(what) || !violation.empty()) return;
    violation = std::string(resume_model::name(what)) + ": " + text;
  }
};

}  // namespace resume_model
