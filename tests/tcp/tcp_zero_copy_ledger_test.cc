// SPDX-License-Identifier: BSD-3-Clause
// MSG_ZEROCOPY: the ledger of memory that the kernel may still read.

#include <algorithm>
#include <deque>
#include <random>

#include "conn/tcp/zero_copy_ledger.h"
#include "tests/support/catch.h"

using conn::tcp::ZeroCopyLedger;

namespace {

/// One reference, sent by `calls` calls.
void lend(ZeroCopyLedger& ledger, int calls) {
  ledger.begin();
  for (int i = 0; i < calls; ++i) ledger.sent();
  ledger.finish();
}

}  // namespace

TEST_CASE("zero-copy ledger: references are done with the last of their calls", "[tcp]") {
  ZeroCopyLedger ledger;
  REQUIRE_FALSE(ledger.waits());
  lend(ledger, 1);  // 0
  lend(ledger, 3);  // 1 to 3
  REQUIRE(ledger.waits());
  REQUIRE(ledger.take_done() == 0);
  ledger.completed(0, 0);
  REQUIRE(ledger.take_done() == 1);
  REQUIRE(ledger.take_done() == 0);
  ledger.completed(1, 2);
  REQUIRE(ledger.take_done() == 0);
  REQUIRE(ledger.under_way());
  ledger.completed(3, 3);
  REQUIRE_FALSE(ledger.under_way());
  REQUIRE(ledger.waits());
  REQUIRE(ledger.take_done() == 1);
  REQUIRE_FALSE(ledger.waits());
}

TEST_CASE("zero-copy ledger: what comes out of order waits for what was sent before", "[tcp]") {
  ZeroCopyLedger ledger;
  for (int i = 0; i < 4; ++i) lend(ledger, 2);
  ledger.completed(6, 7);
  ledger.completed(2, 3);
  REQUIRE(ledger.take_done() == 0);
  ledger.completed(0, 1);
  REQUIRE(ledger.take_done() == 2);
  ledger.completed(4, 5);
  REQUIRE(ledger.take_done() == 2);
}

TEST_CASE("zero-copy ledger: one range may end several references", "[tcp]") {
  ZeroCopyLedger ledger;
  for (int i = 0; i < 5; ++i) lend(ledger, 1);
  ledger.completed(0, 3);
  REQUIRE(ledger.take_done() == 4);
  REQUIRE(ledger.waits());
}

TEST_CASE("zero-copy ledger: the kernel's counter wraps", "[tcp]") {
  ZeroCopyLedger ledger(0xfffffffeu);
  for (int i = 0; i < 4; ++i) lend(ledger, 1);  // ...fe, ...ff, 0, 1
  ledger.completed(1, 1);
  REQUIRE(ledger.take_done() == 0);
  ledger.completed(0xfffffffeu, 0);
  REQUIRE(ledger.take_done() == 4);
  lend(ledger, 2);
  ledger.completed(2, 3);
  REQUIRE(ledger.take_done() == 1);
}

TEST_CASE("zero-copy ledger: a reference that is still being sent is not done", "[tcp]") {
  ZeroCopyLedger ledger;
  ledger.begin();
  ledger.sent();
  REQUIRE(ledger.open());
  ledger.completed(0, 0);
  REQUIRE(ledger.take_done() == 0);
  SECTION("until all of it is sent") { ledger.sent(); }
  SECTION("until the rest was sent by other means, or never will be") {}
  ledger.finish();
  REQUIRE_FALSE(ledger.open());
  ledger.completed(1, 1);  // valid in one of the sections only
  REQUIRE(ledger.take_done() == 1);
}

TEST_CASE("zero-copy ledger: a reference without a call of its own is done in its turn", "[tcp]") {
  ZeroCopyLedger ledger;
  lend(ledger, 1);
  lend(ledger, 0);
  REQUIRE(ledger.take_done() == 0);
  ledger.completed(0, 0);
  REQUIRE(ledger.take_done() == 2);
  lend(ledger, 0);
  REQUIRE(ledger.take_done() == 1);
}

TEST_CASE("zero-copy ledger: ranges that cannot be are ignored", "[tcp]") {
  ZeroCopyLedger ledger;
  lend(ledger, 2);
  ledger.completed(2, 2);            // not sent yet
  ledger.completed(1, 5);            // beyond the last
  ledger.completed(1, 0);            // backwards
  ledger.completed(0xffffffffu, 0);  // before the first
  ledger.completed(0, 0xffffffffu);
  REQUIRE(ledger.take_done() == 0);
  ledger.completed(0, 1);
  ledger.completed(0, 1);  // twice
  REQUIRE(ledger.take_done() == 1);
  REQUIRE_FALSE(ledger.waits());
}

TEST_CASE("zero-copy ledger: it has room for a bounded number of calls", "[tcp]") {
  ZeroCopyLedger ledger;
  ledger.begin();
  for (std::uint32_t i = 0; i < ZeroCopyLedger::kMostCalls; ++i) {
    REQUIRE(ledger.has_room());
    ledger.sent();
  }
  REQUIRE_FALSE(ledger.has_room());
  ledger.finish();
  ledger.completed(1, ZeroCopyLedger::kMostCalls - 1);
  REQUIRE_FALSE(ledger.has_room());
  ledger.completed(0, 0);
  REQUIRE(ledger.has_room());
  REQUIRE(ledger.take_done() == 1);
}

TEST_CASE("zero-copy ledger: the socket's end ends all", "[tcp]") {
  ZeroCopyLedger ledger;
  for (int i = 0; i < 3; ++i) lend(ledger, 2);
  ledger.completed(4, 4);
  ledger.complete_all();
  REQUIRE_FALSE(ledger.under_way());
  REQUIRE(ledger.take_done() == 3);
  lend(ledger, 1);
  REQUIRE(ledger.take_done() == 0);
  ledger.completed(6, 6);
  REQUIRE(ledger.take_done() == 1);
}

TEST_CASE("zero-copy ledger: in any order, it says what a plain list says", "[tcp]") {
  const std::uint32_t seed = GENERATE(range(1u, 30u));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto first = static_cast<std::uint32_t>(0u - random() % 500);
  ZeroCopyLedger ledger(first);
  std::deque<std::vector<std::uint32_t>> references;  // by reference: calls without completion
  std::uint32_t next = first;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 3 == 0 && references.size() < ZeroCopyLedger::kMostReferences) {
      const auto calls = static_cast<std::uint32_t>(random() % 12);
      lend(ledger, static_cast<int>(calls));
      references.emplace_back();
      for (std::uint32_t i = 0; i < calls; ++i) references.back().push_back(next++);
    } else {
      // A range of consecutive calls without completion, of one or several references.
      std::vector<std::uint32_t> all;
      for (const auto& each : references) all.insert(all.end(), each.begin(), each.end());
      if (all.empty()) continue;
      const std::size_t from = random() % all.size();
      std::size_t to = from;
      while (to + 1 < all.size() && all[to + 1] == all[to] + 1 && random() % 4 != 0) ++to;
      ledger.completed(all[from], all[to]);
      for (auto& each : references)
        std::erase_if(each, [&](std::uint32_t id) { return id - all[from] <= to - from; });
    }
    std::size_t done = 0;
    for (; !references.empty() && references.front().empty(); ++done) references.pop_front();
    REQUIRE(ledger.take_done() == done);
    REQUIRE(ledger.waits() == !references.empty());
  }
}
