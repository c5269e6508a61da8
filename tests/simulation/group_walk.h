// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A random walk of a port that several loops serve: clients come while loops end, the listener
// pauses, goes and comes back, and devices fail, in an order that the seed decides. Every client is
// served by one loop to the end or hears in time that it is not; a loop that ends takes its
// connections along and nothing else.

#include <cstdint>
#include <string>

#include "tests/simulation/profile.h"

namespace simulation {

struct GroupWalkReport {
  std::string complaint;  ///< what was wrong; empty: nothing
  std::string story;      ///< what the seed chose, and what happened
  std::uint64_t connections = 0, served = 0, loops_ended = 0, listeners = 0;
};

/// As walk(): the same seed walks the same way. `transport` empty: the seed picks one.
GroupWalkReport group_walk(std::uint64_t seed, const std::string& transport = {});

}  // namespace simulation
