// SPDX-License-Identifier: BSD-3-Clause
// The timer with which a connection limits a wait (conn/rdma/deadline.h), on the loop of simulated
// machines.

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "conn/rdma/deadline.h"
#include "tests/simulation/room.h"

using namespace simulation;
using conn::rdma::Deadline;
using conn::rdma::LoopState;

namespace {

struct User final : conn::rdma::DeadlineUser {
  User(Room& its_room, LoopState& state) : room(its_room), deadline(state, *this) {}
  void on_deadline(Deadline::Of what) override {
    came.push_back({what, room.world.now()});
    if (on_due) on_due();
  }
  void on_no_memory() noexcept override { ++no_memory; }

  struct Came {
    Deadline::Of what;
    Nanoseconds at;
  };
  Room& room;
  Deadline deadline;
  std::vector<Came> came;
  int no_memory = 0;
  std::function<void()> on_due;
};

}  // namespace

TEST_CASE("rdma deadline: it passes once, after its time, and the last one set counts",
          "[simulation][rdma]") {
  Room room;
  LoopState& state = LoopState::of(room.loop, room.type);
  User user(room, state);
  const Nanoseconds began = room.world.now();
  SECTION("one") {
    REQUIRE(user.deadline.set(50ms, Deadline::Of::kLinger));
    room.run_for(1s);
    REQUIRE(user.came.size() == 1);
    CHECK(user.came[0].what == Deadline::Of::kLinger);
    CHECK(user.came[0].at - began >= 50ms);
    CHECK(user.came[0].at - began < 60ms);
    user.deadline.clear(&room.loop);
  }
  SECTION("a time that has passed is now") {
    REQUIRE(user.deadline.set(-5s, Deadline::Of::kQuiet));
    room.run_for(5ms);
    REQUIRE(user.came.size() == 1);
  }
  SECTION("another one takes its place") {
    REQUIRE(user.deadline.set(50ms, Deadline::Of::kAddress));
    REQUIRE(user.deadline.set(200ms, Deadline::Of::kAccept));
    room.run_for(1s);
    REQUIRE(user.came.size() == 1);
    CHECK(user.came[0].what == Deadline::Of::kAccept);
    CHECK(user.came[0].at - began >= 200ms);
  }
  SECTION("it is cleared") {
    REQUIRE(user.deadline.set(50ms, Deadline::Of::kAddress));
    user.deadline.clear(&room.loop);
    room.run_for(1s);
    CHECK(user.came.empty());
  }
  SECTION("another one is set when it has passed") {
    user.on_due = [&] {
      if (user.came.size() < 3) REQUIRE(user.deadline.set(10ms, Deadline::Of::kDisconnect));
    };
    REQUIRE(user.deadline.set(10ms, Deadline::Of::kDisconnect));
    room.run_for(1s);
    CHECK(user.came.size() == 3);
  }
  SECTION("memory runs out in what it calls") {
    user.on_due = [] { throw std::bad_alloc(); };
    REQUIRE(user.deadline.set(10ms, Deadline::Of::kQuiet));
    room.run_for(1s);
    CHECK(user.came.size() == 1);
    CHECK(user.no_memory == 1);
  }
}

TEST_CASE("rdma deadline: of many that are due only one passes in an iteration without time",
          "[simulation][rdma]") {
  Room room;
  LoopState& state = LoopState::of(room.loop, room.type);
  constexpr std::size_t kUsers = 5;
  std::vector<std::unique_ptr<User>> users;
  std::vector<std::uint64_t> iterations;
  for (std::size_t i = 0; i < kUsers; ++i) {
    users.push_back(std::make_unique<User>(room, state));
    users.back()->on_due = [&] {
      iterations.push_back(state.iteration_number());
      const Nanoseconds over = room.world.now() + 2ms;  // more than the share of an iteration
      while (room.world.now() < over) room.world.advance(over);
    };
    REQUIRE(users.back()->deadline.set(10ms, Deadline::Of::kLinger));
  }
  room.run_for(1s);
  REQUIRE(iterations.size() == kUsers);
  CHECK(std::adjacent_find(iterations.begin(), iterations.end()) == iterations.end());
}
