// SPDX-License-Identifier: BSD-3-Clause
// Random walks of a port that several loops serve, each in a process of its own.
//
//   AECONN_SEEDS=20000     how many (default 200), from AECONN_FIRST_SEED=1 on; 1: in this process
//   AECONN_WALK=tls+rdma   only over this transport

#include "tests/simulation/group_walk.h"

#include <fmt/format.h>

#include <cstdlib>

#include "tests/simulation/seeds.h"
#include "tests/simulation/walk.h"
#include "tests/support/catch.h"

using namespace simulation;

namespace {

struct Sums {
  std::uint64_t connections = 0, served = 0, loops_ended = 0, listeners = 0;
  Sums& operator+=(const Sums& other) noexcept {
    connections += other.connections;
    served += other.served;
    loops_ended += other.loops_ended;
    listeners += other.listeners;
    return *this;
  }
};

}  // namespace

TEST_CASE("simulation: several loops of one port keep every promise", "[simulation][group-walk]") {
  const std::uint64_t first = number_from("AECONN_FIRST_SEED", 1);
  const std::uint64_t count = number_from("AECONN_SEEDS", 200);
  const char* only = std::getenv("AECONN_WALK");
  const std::string transport = only != nullptr ? only : "";
  prepare_walks();
  if (count == 1) {
    const GroupWalkReport report = group_walk(first, transport);
    INFO(report.story);
    CHECK(report.complaint == "");
    return;
  }
  const auto run = run_seeds<Sums>(first, count, [&](std::uint64_t seed, Sums& sums) {
    const GroupWalkReport report = group_walk(seed, transport);
    sums = {report.connections, report.served, report.loops_ended, report.listeners};
    return complaint_of(report);
  });
  const Sums& all = run.all;
  fmt::print("{} walks, {} connections, {} served, {} loops ended, {} listeners, {} failed\n",
             run.walks, all.connections, all.served, all.loops_ended, all.listeners, run.failed);
  CHECK(run.failed == 0);
}
