// SPDX-License-Identifier: BSD-3-Clause
// kv-server replies like redis-server 7.0.15 in a recorded run, byte for byte, with one loop and
// with several.

#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"
#include "tests/support/kv_recorded.h"

namespace {

std::int64_t fixed_clock() { return 1'700'000'000'000'000; }

template <class Loops>
void require_recorded_replies() {
  Loops loops(fixed_clock);
  kv::Session session(loops.server, {"tcp", "127.0.0.1:1000", "127.0.0.1:6379", 5});
  for (const kv_kit::Exchange& exchange : kv_kit::recorded()) {
    INFO(exchange.command);
    session.feed(exchange.request);
    session.execute();
    if (!exchange.reply.empty()) REQUIRE(session.pending_output() == exchange.reply);
    session.consume_output(session.pending_output().size());
  }
}

}  // namespace

TEST_CASE("kv-server answers as redis-server 7.0 does", "[kv]") {
  SECTION("one loop") { require_recorded_replies<kv_kit::OneLoop>(); }
  SECTION("three loops") { require_recorded_replies<kv_kit::ThreeLoops>(); }
}
