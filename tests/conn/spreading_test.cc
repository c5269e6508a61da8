// SPDX-License-Identifier: BSD-3-Clause
// Which loop of a group gets a connection, without a loop or a connection.
#include "conn/groups/spreading.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace {

using conn::LoopLoad;
using conn::Spread;
using conn::Spreading;

constexpr std::uint32_t kFull = Spreading::kMostWaiting;

struct Loops {
  std::vector<LoopLoad> loads;
  int addresses = 0;  // how often the peer's address was asked for

  std::size_t choose(Spreading& spreading, std::size_t at = 0) {
    const std::size_t chosen = spreading.choose(
        at, [&] { return ++addresses, std::string("10.0.0.1:7"); }, loads.size(),
        [&](std::size_t i) { return loads.at(i); });
    if (chosen != Spreading::kNone) ++loads.at(chosen).open;
    return chosen;
  }
  std::vector<std::size_t> choose_all(Spreading& spreading, int count) {
    std::vector<std::size_t> chosen;
    for (int i = 0; i < count; ++i) chosen.push_back(choose(spreading));
    return chosen;
  }
  bool is_full(const Spreading& spreading) const {
    return spreading.is_full(loads.size(), [&](std::size_t i) { return loads.at(i); });
  }
};
using Indexes = std::vector<std::size_t>;

}  // namespace

TEST_CASE("spreading: the loop with the fewest connections, equal ones in turn", "[group]") {
  Spreading spreading(Spread::fewest());
  Loops loops{{{.open = 2}, {}, {.open = 1}}};
  CHECK(loops.choose_all(spreading, 6) == Indexes{1, 2, 1, 2, 0, 1});
  CHECK(loops.addresses == 0);
  SECTION("one that is not full comes first") {
    loops.loads = {{.waiting = kFull}, {.waiting = kFull - 1, .open = 500}, {.waiting = kFull}};
    CHECK(loops.choose(spreading) == 1);
    loops.loads[1].waiting = kFull;
    CHECK_FALSE(loops.choose(spreading) == 1);
  }
  SECTION("one that has ended gets nothing") {
    loops.loads = {{.open = 9}, {.ended = true}, {.ended = true}};
    CHECK(loops.choose_all(spreading, 2) == Indexes{0, 0});
    loops.loads[0].ended = true;
    CHECK(loops.choose(spreading) == Spreading::kNone);
  }
  SECTION("asking for it is no choice") {
    const auto load = [&](std::size_t i) { return loops.loads.at(i); };
    loops.loads = {{}, {}, {}};
    const std::size_t first = spreading.fewest(3, load);
    CHECK(spreading.fewest(3, load) == first);
    CHECK(spreading.choose_fewest(3, load) == first);
    CHECK(spreading.fewest(3, load) == (first + 1) % 3);
  }
}

TEST_CASE("spreading: in turn, whatever the loops have", "[group]") {
  Spreading spreading(Spread::round_robin());
  Loops loops{{{.open = 7}, {}, {}}};
  CHECK(loops.choose_all(spreading, 4) == Indexes{0, 1, 2, 0});
  loops.loads[1].ended = true;
  CHECK(loops.choose_all(spreading, 3) == Indexes{2, 0, 2});
  loops.loads[0].waiting = kFull;
  CHECK(loops.choose_all(spreading, 2) == Indexes{2, 2});
  loops.loads[2].waiting = kFull;
  CHECK(loops.choose(spreading) == 0);
  for (LoopLoad& each : loops.loads) each.ended = true;
  CHECK(loops.choose(spreading) == Spreading::kNone);
}

TEST_CASE("spreading: the kernel's choice is kept while that loop lives", "[group]") {
  Spreading spreading(Spread::kernel());
  Loops loops{{{.open = 1}, {.waiting = kFull, .open = 9}}};
  CHECK(loops.choose(spreading, 1) == 1);
  loops.loads[1].ended = true;
  CHECK(loops.choose(spreading, 1) == 0);
}

TEST_CASE("spreading: the program's own rule", "[group]") {
  std::size_t answer = 1;
  std::vector<std::uint64_t> seen;
  std::string peer;
  Spreading spreading(Spread::by([&](const conn::Arriving& one) {
    peer = one.peer;
    seen.assign(one.connections.begin(), one.connections.end());
    if (answer == 99) throw std::runtime_error("no idea");
    return answer;
  }));
  Loops loops{{{.open = 3}, {.open = 4}, {.ended = true, .open = 1}}};
  CHECK(loops.choose(spreading) == 1);
  CHECK(peer == "10.0.0.1:7");
  CHECK(seen == std::vector<std::uint64_t>{3, 4, UINT64_MAX});
  SECTION("an index that is none, a loop that has ended, and an exception") {
    answer = GENERATE(std::size_t{3}, std::size_t{2}, std::size_t{99});
    CHECK(loops.choose(spreading) == 0);
  }
  SECTION("is forgotten at the end") {
    spreading.forget_function();
    seen.clear();
    CHECK(loops.choose(spreading) == 0);
    CHECK(seen.empty());
  }
}

TEST_CASE("spreading: a group is full", "[group]") {
  Loops loops{{{.waiting = kFull}, {.waiting = kFull - 1}, {.ended = true}}};
  Spreading fewest(Spread::fewest()), own(Spread::by([](const conn::Arriving&) { return 0U; }));
  CHECK_FALSE(loops.is_full(fewest));
  CHECK(loops.is_full(own));  // which may choose just that loop
  loops.loads[1].waiting = kFull;
  CHECK(loops.is_full(fewest));
  loops.loads = {{.ended = true, .waiting = kFull}};
  CHECK(loops.is_full(fewest));
  CHECK_FALSE(loops.is_full(own));
}
