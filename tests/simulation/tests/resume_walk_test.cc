// SPDX-License-Identifier: BSD-3-Clause
// Random walks of connections that resume, while their paths fail (walk_resume.cc), each in a
// process of its own.
//
//   AECONN_SEEDS=20000       how many (default 100)
//   AECONN_FIRST_SEED=17     the first (default 1); with AECONN_SEEDS=1 it runs in this process
//   AECONN_WALK=tls+rdma     only over this transport
//   AECONN_WALK_PROFILE=mlx5,bnxt_re   devices of these profiles only
//   AECONN_WALK_LOOP=hosted  only on this loop: libev, epoll, hosted

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

struct Sums {
  std::uint64_t connections = 0, bytes = 0, faults = 0, resumes = 0, errors = 0;
};

WalkReport walk_of(std::uint64_t seed) {
  const char* only = std::getenv("AECONN_WALK");
  return walk(seed, {.transport = only != nullptr ? only : "",
                     .profiles = profiles_from("AECONN_WALK_PROFILE"),
                     .loop = loop_plan_from_environment(),
                     .resume = true});
}

}  // namespace

TEST_CASE("resume: random walks over failures of paths lose no byte",
          "[simulation][resume][resume-walk]") {
  const std::uint64_t first = number_from("AECONN_FIRST_SEED", 1);
  const std::uint64_t count = number_from("AECONN_SEEDS", 100);
  prepare_walks();
  if (count == 1) {
    const WalkReport report = walk_of(first);
    INFO(report.story);
    CHECK(report.complaint == "");
    return;
  }
  Sums all;
  std::uint64_t failed = 0, seed = first;
  for (; seed < first + count && failed < 20; ++seed) {
    const ChildRun<Sums> run = run_in_child<Sums>([&](Sums& sums) -> std::string {
      const WalkReport report = walk_of(seed);
      sums = {report.connections, report.bytes, report.faults, report.resumes, report.errors};
      return report.complaint.empty() ? "" : report.complaint + " (" + report.story + ")";
    });
    all.connections += run.sums.connections;
    all.bytes += run.sums.bytes;
    all.faults += run.sums.faults;
    all.resumes += run.sums.resumes;
    all.errors += run.sums.errors;
    if (run.complaint.empty()) continue;
    ++failed;
    fmt::print(stderr, "seed {}: {}\n", seed, run.complaint);
  }
  fmt::print("{} walks, {} connections, {} bytes, {} faults, {} resumes, {} errors, {} failed\n",
             seed - first, all.connections, all.bytes, all.faults, all.resumes, all.errors, failed);
  CHECK(failed == 0);
  if (count >= 100) CHECK(all.resumes > count / 4);
}
