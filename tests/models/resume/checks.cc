// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/checks.h"

namespace resume_model {
namespace {

void check_offsets(const State& state, int which, Findings& findings) {
  const End& end = state.ends[which];
  if (end.received > state.ends[1 - which].sent) {
    findings.violate(Check::kCount, "more was counted than was sent");
  }
  if (end.read > end.received) findings.violate(Check::kCount, "more was read than came");
  if (end.released > end.sent || end.next > end.sent) {
    findings.violate(Check::kRange, "an offset is beyond what was sent");
  }
}

// What a sender released its peer has counted, or will count when it drains its completions. Not so
// if a device may take completions along, unless the sender waits for the peer's word.
void check_released(const State& state, int which, Findings& findings) {
  const Options& options = findings.options;
  const End& end = state.ends[which];
  const End& peer = state.ends[1 - which];
  int counted = peer.received;
  if (options.release == Release::kCompletion) {
    if (options.completions_lost) return;
    if (end.phase == Phase::kEnded || peer.phase == Phase::kEnded) return;
    if (state.is_live(1 - which)) {
      const auto& waiting = state.queue_pair(1 - which).received;
      for (int i = 0; i < waiting.size; ++i) counted += waiting.items[i].count;
    }
  }
  if (options.release != Release::kPosted && end.released > counted) {
    findings.violate(Check::kRange, "released and not counted");
  }
}

void check_queue_pairs(const State& state, int which, Findings& findings) {
  const End& end = state.ends[which];
  for (int path = 0; path < kMaxPaths; ++path) {
    if (state.paths[path].ends[which].state != QueuePairState::kReady) continue;
    if (end.phase != Phase::kOpen) {
      findings.violate(Check::kFence, "a queue pair works though its path is lost");
    } else if (path != end.path) {
      findings.violate(Check::kOne, "two queue pairs of an end work");
    }
  }
}

}  // namespace

void check(const State& state, Findings& findings) {
  for (const int which : {kClient, kServer}) {
    const End& end = state.ends[which];
    const End& peer = state.ends[1 - which];
    check_offsets(state, which, findings);
    check_released(state, which, findings);
    check_queue_pairs(state, which, findings);
    if (end.phase != Phase::kOpen && !end.peer_windows.empty()) {
      findings.violate(Check::kPath, "windows are kept though their path is lost");
    }
    if (end.reason == Reason::kClosed && peer.phase == Phase::kEnded &&
        peer.reason != Reason::kEndOfStream && peer.reason != Reason::kClosed) {
      findings.violate(Check::kClose, "closed cleanly and the peer has an error");
    }
  }
}

}  // namespace resume_model
