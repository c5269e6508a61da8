// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one run of the model assumes, what it checks, and which rule of the protocol it breaks on
// purpose.

#include <cstdint>
#include <string>

namespace resume_model {

constexpr int kClient = 0, kServer = 1;

/// The invariants; README.md says what each one means.
enum class Check : std::uint8_t {
  kCount,
  kFence,
  kOrder,
  kRange,
  kGap,
  kKeep,
  kMemory,
  kPath,
  kEnd,
  kClose,
  kOne,
  kNumber
};

/// One rule of the protocol that is broken. The numbers are those of the table in README.md.
enum class Mutation : std::uint8_t {
  kNone = 0,
  kServerAnswersUnfenced = 1,
  kLostUndrained = 2,
  kOldGenerationTaken = 3,
  kGenerationReused = 4,
  kDisconnectIsEnd = 6,
  kClientDialsUnfenced = 7,
  kOldAnswerTaken = 8,
  kOldOffsetBelieved = 9,
  kOldWindowsKept = 10,
  kServerWaitsUnfenced = 12,
  kAnsweredUndrained = 13,
  kForgetUndrained = 14,
  kForgetBelieved = 15
};

/// When a sender releases what it has sent, and so cannot send it again.
enum class Release : std::uint8_t {
  kCompletion,  ///< when the completion comes: InfiniBand and RoCE
  kPeerWord,    ///< when the peer's software says that it has counted it: iWARP
  kPosted       ///< when it is posted; wrong, and a run shows that
};

struct Options {
  int units[2] = {2, 1};  ///< bytes that the client, the server writes; at most 100
  int window_units = 2;   ///< bytes in a window, at most kMaxWindowUnits
  int windows = 2;        ///< windows for which an end has memory, at most kMaxWindows
  int offered = 1;        ///< windows that an end offers at the same time
  int dials = 2;          ///< attempts of the client to resume, at most kMaxPaths - 1
  int failures = 2;       ///< see State::failures
  Release release = Release::kCompletion;
  bool completions_lost = false;  ///< a device may take completions along that were not polled
  bool closes[2] = {true, false};
  bool closes_early = false;     ///< close() before the peer's last byte has come
  bool forgets = false;          ///< a client that closes while lost asks to be forgotten
  bool goodbye_answered = true;  ///< a close waits for the peer's answer, not for the completion
  Mutation mutation = Mutation::kNone;
  std::uint32_t checks = (1u << static_cast<int>(Check::kNumber)) - 1;  ///< a bit for each Check

  std::uint64_t walks = 0;  ///< random walks instead of the search
  std::uint64_t walk_steps = 2000;
  std::uint64_t seed = 1;
  std::uint64_t limit = 100'000'000;  ///< states of the search

  bool breaks(Mutation rule) const { return mutation == rule; }
  bool checked(Check what) const { return (checks >> static_cast<int>(what) & 1) != 0; }
  /// A refused resume because released bytes are missing is an end that the design allows.
  bool gap_allowed() const { return release == Release::kCompletion && completions_lost; }
};

/// Words of the form name=value; throws std::invalid_argument with a sentence.
Options parse_options(int count, char** words);
/// The list of words for a user.
std::string usage();

const char* name(Check what);

}  // namespace resume_model
