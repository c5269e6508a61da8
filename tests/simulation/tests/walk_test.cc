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
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/simulation/seeds.h"
#include "tests/simulation/walk.h"
#include "tests/simulation/world.h"
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

TEST_CASE("simulation: calls that share a process end on their own", "[simulation][walk]") {
  struct Number {
    std::uint64_t value = 0;
  };
  const auto calls = [](std::uint64_t dies, std::uint64_t complains) {
    const auto runs = run_several_in_child<Number>(5, [&](std::uint64_t number, Number& sums) {
      sums.value = 10 + number;
      if (number == dies) (void)raise(SIGKILL);
      return std::string(number == complains ? "a complaint" : "");
    });
    std::string all;
    for (const auto& each : runs)
      all += fmt::format("{}{} ", each.sums.value, each.complaint.empty() ? "" : each.complaint);
    return all;
  };
  CHECK(calls(9, 9) == "10 11 12 13 14 ");
  CHECK(calls(2, 9) == "10 11 0signal 9 ");
  CHECK(calls(9, 3) == "10 11 12 13a complaint ");
  CHECK(calls(0, 9) == "0signal 9 ");
}

TEST_CASE("simulation: dates and timers pass with the world's time", "[simulation][walk]") {
  World world;
  timeval began{}, later{};
  REQUIRE(gettimeofday(&began, nullptr) == 0);
  world.advance(world.now() + 100s);
  REQUIRE(gettimeofday(&later, nullptr) == 0);
  CHECK(later.tv_sec - began.tv_sec >= 100);
  CHECK(later.tv_sec - began.tv_sec <= 101);

  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  REQUIRE(timer >= 0);
  const auto set = [&](Nanoseconds when) {
    itimerspec time{};
    time.it_value.tv_sec = when / 1s;
    time.it_value.tv_nsec = (when % 1s).count();
    REQUIRE(timerfd_settime(timer, TFD_TIMER_ABSTIME, &time, nullptr) == 0);
  };
  std::uint64_t expiries = 0;
  const auto expired = [&] { return read(timer, &expiries, sizeof expiries) == sizeof expiries; };
  set(world.now() + 1s);
  set(world.now() + 2s);  // replaces the first setting
  const Nanoseconds between = world.now() + 1500ms;
  while (world.advance(between)) {
  }
  CHECK_FALSE(expired());
  world.advance(world.now() + 1s);
  CHECK(expired());
  CHECK(expiries == 1);
  CHECK_FALSE(expired());
  set(world.now() + 1s);
  world.advance(world.now() + 2s);
  set(Nanoseconds(0));  // nobody has read the expiry; now there is none
  CHECK_FALSE(expired());
  close(timer);
}
