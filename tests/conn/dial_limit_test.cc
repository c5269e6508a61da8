// SPDX-License-Identifier: BSD-3-Clause
// DialLimit: how many connect at once, and who is next; also with Redial, which uses it.

#include "conn/dial_limit.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "conn/redial.h"
#include "tests/support/redial_kit.h"

using conn::DialLimit;
using conn::Redial;
using testing::RedialBed;
using Phase = conn::Redial::Phase;

TEST_CASE("dial limit: a child of fork() begins with all its places", "[redial][fork]") {
  DialLimit limit(1);
  testing::AnyLoop loop;
  DialLimit::PlacePtr held = limit.enter(loop, [] {}), waits = limit.enter(loop, [] {});
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    int status = limit.taken() + limit.waiting() == 0 ? 0 : 1;
    testing::AnyLoop own;
    DialLimit::PlacePtr first = limit.enter(own, [] {}), second = limit.enter(own, [] {});
    if (!first->holds() || second->holds()) status |= 2;
    held.reset();  // the parent's: gives no place back here
    waits.reset();
    if (limit.taken() != 1 || limit.waiting() != 1) status |= 4;
    first.reset();
    if (!second->holds()) status |= 8;
    ::_exit(status);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  REQUIRE(limit.taken() == 1);
}

TEST_CASE("redial: no more dial at once than the limit allows, in turn", "[redial]") {
  RedialBed bed;
  std::vector<std::unique_ptr<Redial>> many;
  for (int i = 0; i < 10; ++i) {
    many.push_back(std::make_unique<Redial>(bed.registry, bed.loop,
                                            conn::Endpoint::parse("stuck://h:1"),
                                            Redial::Handlers{}, bed.settings));
  }
  RUN_UNTIL(bed.loop, bed.limit.waiting() == 6);
  REQUIRE(bed.stuck->waiting.size() == 4);
  REQUIRE(std::count_if(many.begin(), many.end(),
                        [](const auto& each) { return each->phase() == Phase::kInLine; }) == 6);
  many.erase(many.begin() + 4);  // one that connects, or one that waits
  many.pop_back();
  while (std::any_of(many.begin(), many.end(),
                     [](const auto& each) { return each->phase() != Phase::kUp; })) {
    REQUIRE(bed.stuck->waiting.size() <= 4);
    REQUIRE(bed.limit.taken() <= 4);
    bed.stuck->connect_all();
    bed.loop.process_events(ae::kFullIteration);
  }
  REQUIRE(bed.limit.taken() == 0);
}

TEST_CASE("dial limit: a place goes to who has waited longest, and not to the dead", "[redial]") {
  DialLimit limit(1);
  testing::AnyLoop loop;
  std::vector<int> order;
  DialLimit::PlacePtr first = limit.enter(loop, [] {});
  REQUIRE(first->holds());
  DialLimit::PlacePtr second, third;
  {
    testing::AnyLoop other;
    (void)limit.enter(other, [] {});  // leaves the queue at once
    second = limit.enter(loop, [&] { order.push_back(2); });
    third = limit.enter(loop, [&] { order.push_back(3); });
  }
  REQUIRE(limit.waiting() == 2);
  first.reset();
  REQUIRE(second->holds());
  REQUIRE(order.empty());  // called from the loop
  RUN_UNTIL(loop, order.size() == 1);
  limit.set_most(2);
  RUN_UNTIL(loop, order.size() == 2);
  REQUIRE(order == std::vector{2, 3});
  second.reset();
  third.reset();
  REQUIRE(limit.taken() == 0);
}

TEST_CASE("redial: a place that another thread frees at once begins one attempt",
          "[redial][threads]") {
  DialLimit limit(1);
  RedialBed bed;
  const DialLimit::PlacePtr first = limit.enter(bed.loop, [] {});
  std::atomic<bool> ended{false};
  std::thread other([&] {
    while (!ended) {
      limit.set_most(1);
      limit.set_most(2);
    }
  });
  bed.settings.limit = &limit;
  int most_tried = 0;
  for (int round = 0; round < 20000 && most_tried < 2; ++round) {
    const int before = bed.stuck->tried;
    Redial redial(bed.registry, bed.loop, conn::Endpoint::parse("stuck://h:1"), {}, bed.settings);
    RUN_UNTIL(bed.loop, redial.phase() == Phase::kDialling);
    testing::turns(bed.loop, 2);
    most_tried = std::max(most_tried, bed.stuck->tried - before);
  }
  ended = true;
  other.join();
  REQUIRE(most_tried == 1);
}
