// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A random walk over the public API: connections of one transport come, write, read, change their
// handlers, and go, in an order that the seed decides, while the network, the devices and the calls
// below misbehave. What was accepted has to arrive, in order, or an error has to say so; whatever
// happened, everything ends in time and nothing is left.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/simulation/profile.h"

namespace simulation {

struct WalkReport {
  std::string complaint;  ///< what was wrong; empty: nothing
  std::string story;      ///< transport, faults and sizes that the seed chose
  std::uint64_t connections = 0, bytes = 0, faults = 0;
  std::uint64_t most_ends = 0;  ///< that were open at once
};

/// The transports that walks can be made over; a seed picks one unless told.
const std::vector<std::string>& walk_transports();

/// Makes what all walks of a process share: the certificates, while time is still the system's.
void prepare_walks();

/// The loop that all ends of a walk are on.
enum class LoopPlan {
  kSeed,   ///< the seed picks one
  kLibev,  ///< LibevLoop
  kEpoll,  ///< EpollLoop
  kHosted  ///< EpollLoop below a host that polls its descriptor, and nests turns now and then
};
/// AECONN_WALK_LOOP: libev, epoll or hosted.
LoopPlan loop_plan_from_environment();

/// What is not left to the seed.
struct WalkPlan {
  std::string transport = {};     ///< empty: the seed picks one
  std::uint64_t connections = 0;  ///< 0: the seed picks a few; otherwise so many, at the same time
  std::vector<const Profile*> profiles = {};  ///< of the two devices; empty: all that can serve
  LoopPlan loop = LoopPlan::kSeed;
};

/// One walk in this process. The same seed on the same build walks the same way, provided that the
/// process has done nothing else before and its memory is not randomized (setarch -R).
WalkReport walk(std::uint64_t seed, const WalkPlan& plan = {});

/// One whose decisions are these bytes, as long as they last.
WalkReport walk(std::span<const std::uint8_t> choices, const WalkPlan& plan = {});

}  // namespace simulation
