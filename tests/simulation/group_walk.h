// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A random walk of a port that several loops serve: clients connect while loops end, the listener
// pauses, is destroyed and is created again, and devices fail, in an order that the seed decides.
// Each client must either be served by one loop to the end or learn in time that it is not served;
// the end of a loop must affect that loop's connections only.

#include <cstdint>
#include <string>

#include "tests/simulation/profile.h"

namespace simulation {

struct GroupWalkReport {
  std::string complaint;  ///< what was wrong; empty: success
  std::string story;      ///< what the seed chose, and the events
  std::uint64_t connections = 0, served = 0, loops_ended = 0, listeners = 0;
};

/// As walk(): the same seed gives the same walk. `transport` empty: the seed picks one.
GroupWalkReport group_walk(std::uint64_t seed, const std::string& transport = {});

}  // namespace simulation
