// SPDX-License-Identifier: BSD-3-Clause
// Random walks of connections that resume, while their paths fail (walk_resume.cc), some of them in
// one process: a new process costs as much as a walk.
//
//   AECONN_SEEDS=20000       how many (default 100)
//   AECONN_FIRST_SEED=17     the first (default 1); with AECONN_SEEDS=1 it runs in this process
//   AECONN_WALK=tls+rdma     only over this transport
//   AECONN_WALK_PROFILE=mlx5,bnxt_re   devices of these profiles only
//   AECONN_WALK_LOOP=hosted  only on this loop: libev, epoll, hosted

#include <fmt/format.h>

#include <cstdlib>

#include "tests/simulation/seeds.h"
#include "tests/simulation/walk.h"
#include "tests/support/catch.h"

using namespace simulation;

namespace {

constexpr std::uint64_t kWalksInOneProcess = 25;

struct Sums {
  std::uint64_t connections = 0, bytes = 0, faults = 0, resumes = 0, forgotten = 0, errors = 0;
  Sums& operator+=(const Sums& other) noexcept {
    connections += other.connections;
    bytes += other.bytes;
    faults += other.faults;
    resumes += other.resumes;
    forgotten += other.forgotten;
    errors += other.errors;
    return *this;
  }
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
  const auto run = run_seeds<Sums>(
      first, count,
      [](std::uint64_t seed, Sums& sums) {
        const WalkReport report = walk_of(seed);
        sums = {report.connections, report.bytes,     report.faults,
                report.resumes,     report.forgotten, report.errors};
        return complaint_of(report);
      },
      kWalksInOneProcess);
  const Sums& all = run.all;
  fmt::print(
      "{} walks, {} connections, {} bytes, {} faults, {} resumes, {} forgotten, {} errors, "
      "{} failed\n",
      run.walks, all.connections, all.bytes, all.faults, all.resumes, all.forgotten, all.errors,
      run.failed);
  CHECK(run.failed == 0);
  if (count >= 100) CHECK(all.resumes > count / 8);
  if (count >= 2000) CHECK(all.forgotten > count / 1000);
}
