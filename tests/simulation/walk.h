// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A random walk over the public API: connections of one transport are made, write, read, change
// their handlers, and are closed, in an order that the seed decides, while the network, the devices
// and the calls below misbehave. Accepted bytes must arrive, in order, or an error must be
// reported; in any case everything must end in time and nothing may be left over.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/simulation/profile.h"

namespace simulation {

struct WalkReport {
  std::string complaint;  ///< what was wrong; empty: success
  std::string story;      ///< transport, faults and sizes that the seed chose
  std::uint64_t connections = 0, bytes = 0, faults = 0;
  std::uint64_t most_ends = 0;  ///< highest number of ends open at once
  std::uint64_t resumes = 0;    ///< new paths that ends have found; each connection has two ends
  std::uint64_t forgotten = 0;  ///< ends that ended because their peers had closed without a path
  std::uint64_t errors = 0;     ///< with WalkPlan::resume: ends that failed
};

/// The transports that a walk can use; a seed picks one of them unless WalkPlan names one.
const std::vector<std::string>& walk_transports();

/// Creates what all walks of a process share: the certificates, made while time is still real.
void prepare_walks();

/// The loop that all ends of a walk are on.
enum class LoopPlan {
  kSeed,   ///< the seed picks one
  kLibev,  ///< LibevLoop
  kEpoll,  ///< EpollLoop
  kHosted  ///< EpollLoop in a host that polls its descriptor and sometimes nests iterations
};
/// AECONN_WALK_LOOP: libev, epoll or hosted.
LoopPlan loop_plan_from_environment();

/// Decisions that are not left to the seed.
struct WalkPlan {
  std::string transport = {};     ///< empty: the seed picks one
  std::uint64_t connections = 0;  ///< 0: the seed picks a few; otherwise this many at the same time
  std::vector<const Profile*> profiles = {};  ///< of the two devices; empty: all that can serve
  LoopPlan loop = LoopPlan::kSeed;
  /// Connections of rdma resume: their paths fail all the time, devices come back, and an end of
  /// the stream or an error is always explained.
  bool resume = false;
};

/// One walk in this process. The same seed and build give the same walk, provided that the process
/// has done nothing else before and its addresses are not randomized (setarch -R).
WalkReport walk(std::uint64_t seed, const WalkPlan& plan = {});

/// A walk whose decisions are taken from these bytes until they are used up.
WalkReport walk(std::span<const std::uint8_t> choices, const WalkPlan& plan = {});

}  // namespace simulation
