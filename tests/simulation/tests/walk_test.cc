// SPDX-License-Identifier: BSD-3-Clause
// Random walks over the public API (walk.h), each in a process of its own.
//
//   AECONN_SEEDS=20000       how many (default 200)
//   AECONN_FIRST_SEED=17     the first (default 1); with AECONN_SEEDS=1 it runs in this process
//   AECONN_WALK=tls+rdma     only over this transport
//   AECONN_WALK_PROFILE=mlx5,bnxt_re   devices of these profiles only
//   AECONN_WALK_LOOP=hosted  only on this loop: libev, epoll, hosted
//   AECONN_CROWD=5000        how many connections the crowds have (default 2000)
//   AECONN_CROWDS=20         how many crowds (default 4), from the first seed on

#include <fmt/format.h>

#include <cstdlib>

#include "tests/simulation/seeds.h"
#include "tests/simulation/walk.h"
#include "tests/support/catch.h"

using namespace simulation;

namespace {

std::vector<const Profile*> profiles() { return profiles_from("AECONN_WALK_PROFILE"); }

struct Sums {
  std::uint64_t connections = 0, bytes = 0, faults = 0;
  Sums& operator+=(const Sums& other) noexcept {
    connections += other.connections;
    bytes += other.bytes;
    faults += other.faults;
    return *this;
  }
};

}  // namespace

TEST_CASE("simulation: random walks over the API keep every promise", "[simulation][walk]") {
  const std::uint64_t first = number_from("AECONN_FIRST_SEED", 1);
  const std::uint64_t count = number_from("AECONN_SEEDS", 200);
  const char* only = std::getenv("AECONN_WALK");
  const std::string transport = only != nullptr ? only : "";
  prepare_walks();
  const auto walk_of = [&](std::uint64_t seed) {
    return walk(
        seed,
        {.transport = transport, .profiles = profiles(), .loop = loop_plan_from_environment()});
  };
  if (count == 1) {
    const WalkReport report = walk_of(first);
    INFO(report.story);
    CHECK(report.complaint == "");
    return;
  }
  const auto run = run_seeds<Sums>(first, count, [&](std::uint64_t seed, Sums& sums) {
    const WalkReport report = walk_of(seed);
    sums = {report.connections, report.bytes, report.faults};
    return complaint_of(report);
  });
  fmt::print("{} walks, {} connections, {} bytes, {} faults, {} failed\n", run.walks,
             run.all.connections, run.all.bytes, run.all.faults, run.failed);
  CHECK(run.failed == 0);
}

TEST_CASE("simulation: a crowd of connections in one world keeps every promise",
          "[simulation][walk]") {
  const std::uint64_t first = number_from("AECONN_FIRST_SEED", 1);
  const std::uint64_t crowds = number_from("AECONN_CROWDS", 4);
  const WalkPlan plan = {.transport = "rdma",
                         .connections = number_from("AECONN_CROWD", 2000),
                         .profiles = profiles(),
                         .loop = loop_plan_from_environment()};
  prepare_walks();
  for (std::uint64_t seed = first; seed < first + crowds; ++seed) {
    struct Counts {
      std::uint64_t connections, most_ends, bytes, faults;
    };
    const ChildRun<Counts> run = run_in_child<Counts>([&](Counts& counts) -> std::string {
      const WalkReport report = walk(seed, plan);
      counts = {report.connections, report.most_ends, report.bytes, report.faults};
      return complaint_of(report);
    });
    fmt::print("crowd {}: {} connections, {} ends at once, {} bytes, {} faults\n", seed,
               run.sums.connections, run.sums.most_ends, run.sums.bytes, run.sums.faults);
    CAPTURE(seed);
    CHECK(run.complaint == "");
  }
}
