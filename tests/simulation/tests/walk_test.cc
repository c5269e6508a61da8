// Random walks, each in a process of its own: it begins with the same memory every time, so its seed
// repeats it, and one that crashes or hangs is only one.
//
//   AECONN_SEEDS=20000       how many (default 200)
//   AECONN_FIRST_SEED=17     the first (default 1); with AECONN_SEEDS=1 it runs without a fork
//   AECONN_WALK=tls+rdma     only over this transport

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/simulation/walk.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"

using simulation::walk;
using simulation::WalkReport;

namespace {

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Sums {
  std::uint64_t connections = 0, bytes = 0, faults = 0;
};

// In the child: walks, sends its sums up the pipe, and says what was wrong.
[[noreturn]] void walk_and_exit(std::uint64_t seed, const std::string& transport, int pipe) {
  alarm(60);
  const WalkReport report = walk(seed, transport);
  const Sums sums{report.connections, report.bytes, report.faults};
  if (write(pipe, &sums, sizeof sums) != sizeof sums) _exit(2);
  if (!report.complaint.empty())
    fmt::print(stderr, "seed {}: {} ({})\n", seed, report.complaint, report.story);
  std::fflush(nullptr);
  _exit(report.complaint.empty() ? 0 : 1);
}

}  // namespace

TEST_CASE("simulation: random walks over the API keep every promise", "[simulation][walk]") {
  const std::uint64_t first = number_from("AECONN_FIRST_SEED", 1);
  const std::uint64_t count = number_from("AECONN_SEEDS", 200);
  const char* only = std::getenv("AECONN_WALK");
  const std::string transport = only != nullptr ? only : "";
  testing::test_identity();
  if (count == 1) {
    const WalkReport report = walk(first, transport);
    INFO(report.story);
    CHECK(report.complaint == "");
    return;
  }
  Sums all;
  std::uint64_t failed = 0;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    std::fflush(nullptr);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) walk_and_exit(seed, transport, ends[1]);
    close(ends[1]);
    Sums sums;
    if (read(ends[0], &sums, sizeof sums) == sizeof sums) {
      all.connections += sums.connections;
      all.bytes += sums.bytes;
      all.faults += sums.faults;
    }
    close(ends[0]);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    if (status == 0) continue;
    ++failed;
    if (WIFSIGNALED(status)) fmt::print(stderr, "seed {}: signal {}\n", seed, WTERMSIG(status));
    if (failed == 20) break;
  }
  fmt::print("{} walks, {} connections, {} bytes, {} faults\n", count, all.connections, all.bytes,
             all.faults);
  CHECK(failed == 0);
}
