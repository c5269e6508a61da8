// SPDX-License-Identifier: BSD-3-Clause
// The posted receives against a plain model: completions in any order, and lost ones.

#include <algorithm>
#include <map>

#include "conn/rdma/memory/receive_queue.h"
#include "tests/simulation/choices.h"
#include "tests/simulation/registered_memory.h"
#include "tests/support/catch.h"

using namespace simulation;
using namespace conn::rdma;

namespace {

/// A shared receive queue whose driver is a function of the test.
struct Receives : ibv_srq {
  Receives() : ibv_srq{} {
    context = &table_;
    table_.ops.post_srq_recv = [](ibv_srq* base, ibv_recv_wr* work, ibv_recv_wr** bad) {
      auto& self = *static_cast<Receives*>(base);
      for (; work != nullptr; work = work->next) {
        if (self.takes == 0) {
          *bad = work;
          return ENOMEM;
        }
        --self.takes;
        const auto slot = static_cast<std::uint32_t>(work->wr_id);
        if ((work->wr_id & (kReceiveId | kOwnReceiveId)) != kReceiveId || work->num_sge != 1 ||
            self.posted.count(slot) != 0)
          FAIL("a wrong receive");
        self.posted[slot] = ++self.posts;
      }
      return 0;
    };
  }
  std::map<std::uint32_t, std::uint64_t> posted;  // position in the order of posting, by slot
  std::uint64_t posts = 0;
  std::size_t takes = SIZE_MAX;

 private:
  ibv_context table_{};
};

}  // namespace

TEST_CASE("rdma receives: in any order of completions, the lost ones are found",
          "[simulation][rdma][straight]") {
  RegisteredMemory memory;
  std::size_t lost = 0, overtaken_seen = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Choices choices(seed);
    const auto pick = [&choices](std::uint64_t below) { return choices() % below; };
    const auto depth = static_cast<std::uint32_t>(1 + pick(200));
    Receives device;
    ReceiveQueue queue(*memory.pool, depth, {});
    queue.attach(&device);
    std::uint64_t newest = 0, overtaken = 0;
    const bool loses = seed % 2 == 0;
    for (int i = 0; i < 600; ++i) {
      switch (pick(8)) {
        case 0: {
          device.takes = pick(3) == 0 ? pick(100) : SIZE_MAX;
          const std::size_t missing = queue.missing(), may = device.takes;
          const std::uint64_t before = device.posts;
          REQUIRE(queue.replenish() == (may < missing ? ENOMEM : 0));
          REQUIRE(device.posts - before == std::min(may, missing));
          break;
        }
        case 1: {
          std::size_t expected = 0;
          for (auto each = device.posted.begin(); each != device.posted.end();) {
            const bool is_lost = each->second < overtaken;
            expected += is_lost ? 1 : 0;
            each = is_lost ? device.posted.erase(each) : std::next(each);
          }
          overtaken = newest;
          REQUIRE(queue.take_lost() == expected);
          lost += expected;
          break;
        }
        case 2: {  // a completion that comes twice, or of no receive
          const auto slot = static_cast<std::uint32_t>(pick(2 * depth));
          if (device.posted.count(slot) == 0) REQUIRE_FALSE(queue.consumed(slot));
          break;
        }
        default: {
          if (device.posted.empty()) break;
          auto next = std::min_element(
              device.posted.begin(), device.posted.end(),
              [](const auto& one, const auto& other) { return one.second < other.second; });
          if (loses && pick(6) == 0)  // a later one comes first
            next = std::next(device.posted.begin(),
                             static_cast<std::ptrdiff_t>(pick(device.posted.size())));
          newest = std::max(newest, next->second);
          REQUIRE(queue.consumed(next->first));
          device.posted.erase(next);
        }
      }
      REQUIRE(queue.missing() == depth - device.posted.size());
      const bool any = std::any_of(device.posted.begin(), device.posted.end(),
                                   [&](const auto& each) { return each.second < newest; });
      REQUIRE(queue.has_overtaken() == any);
      overtaken_seen += any ? 1 : 0;
    }
  }
  CHECK(lost > 20);
  CHECK(overtaken_seen > 500);
}
