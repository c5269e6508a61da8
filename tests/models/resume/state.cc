// SPDX-License-Identifier: BSD-3-Clause
#include "tests/models/resume/state.h"

#include <algorithm>
#include <cstring>

#include "tests/models/resume/protocol.h"

namespace resume_model {

State initial_state(const Options& options) {
  State state{};
  state.failures = byte(options.failures);
  state.dials = byte(options.dials);
  state.paths[0].used = 1;
  for (QueuePair& end : state.paths[0].ends) end.state = QueuePairState::kReady;
  Findings none{options};
  for (const int end : {kClient, kServer}) Software(state, end, none).offer_windows();
  return state;
}

void simplify(State& state) {
  for (Path& path : state.paths) {
    if (path.ends[kClient].state != QueuePairState::kError ||
        path.ends[kServer].state != QueuePairState::kError) {
      continue;
    }
    path = {};
    path.used = 1;
    for (QueuePair& end : path.ends) end.state = QueuePairState::kError;
  }
  Message* messages = state.messages.items;
  std::sort(messages, messages + state.messages.size,
            [](const Message& a, const Message& b) { return std::memcmp(&a, &b, sizeof a) < 0; });
}

bool is_complete(const State& state, const Options& options) {
  if (!state.is_over()) return false;
  for (const int closer : {kClient, kServer}) {
    const End& peer = state.ends[1 - closer];
    if (options.closes[closer] && peer.reason == Reason::kEndOfStream) return true;
  }
  return false;
}

}  // namespace resume_model
