// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states that a search has seen, each as 128 bits of hash: with a hundred million states the
// probability that two have the same is below 10^-22.

#include <cstdint>
#include <utility>
#include <vector>

#include "tests/models/resume/state.h"

namespace resume_model {

struct StateHash {
  std::uint64_t high = 0, low = 0;
  bool operator==(const StateHash&) const = default;
};
StateHash hash_of(const State& state);

/// Numbers states in the order in which they are added. Open addressing.
class Visited {
 public:
  /// The state's number, and whether it is new.
  std::pair<std::uint32_t, bool> add(const State& state);
  std::uint32_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Slot {
    StateHash hash = {};
    std::uint32_t number = kNone;
  };
  Slot& find(const StateHash& hash);
  void grow();

  std::vector<Slot> slots_ = std::vector<Slot>(1 << 16);
  std::uint32_t size_ = 0;
};

}  // namespace resume_model
