// SPDX-License-Identifier: BSD-3-Clause
// Random walks of a port that several loops serve, each in a process of its own.
//
//   AECONN_SEEDS=20000     how many (default 200), from AECONN_FIRST_SEED=1 on; 1: in this process
//   AECONN_WALK=tls+rdma   only over this transport

#include "tests/simulation/group_walk.h"

#include <fmt/format.h>

#include <cstdlib>

#include "tests/simulation/child.h"
#include "tests/simulation/walk.h"
#include "tests/support/catch.h"

using namespace simulation;

namespace {

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

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
  struct Sums {
    std::uint64_t connections, served, loops_ended, listeners;
  } all{};
  std::uint64_t failed = 0, seed = first;
  for (; seed < first + count && failed < 20; ++seed) {
    const ChildRun<Sums> run = run_in_child<Sums>([&](Sums& sums) -> std::string {
      const GroupWalkReport report = group_walk(seed, transport);
      sums = {report.connections, report.served, report.loops_ended, report.listeners};
      return report.complaint.empty() ? "" : report.complaint + " (" + report.story + ")";
    });
    all.connections += run.sums.connections;
    all.served += run.sums.served;
    all.loops_ended += run.sums.loops_ended;
    all.listeners += run.sums.listeners;
    if (run.complaint.empty()) continue;
    ++failed;
    fmt::print(stderr, "seed {}: {}\n", seed, run.complaint);
  }
  fmt::print("{} walks, {} connections, {} served, {} loops ended, {} listeners, {} failed\n",
             seed - first, all.connections, all.served, all.loops_ended, all.listeners, failed);
  CHECK(failed == 0);
}
