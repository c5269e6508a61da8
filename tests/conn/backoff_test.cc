// SPDX-License-Identifier: BSD-3-Clause
// Pauses of a client between attempts.

#include "conn/backoff.h"

#include <algorithm>
#include <set>

#include "tests/support/catch.h"

using conn::Backoff;
using namespace std::chrono_literals;

TEST_CASE("backoff: pauses double, with jitter, up to the most", "[redial][backoff]") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    CAPTURE(seed);
    Backoff backoff(50ms, 1s, seed);
    ae::Duration limit = 50ms;
    for (int i = 0; i < 12; ++i) {
      const ae::Duration pause = backoff.next();
      REQUIRE(pause >= limit / 2);
      REQUIRE(pause <= limit);
      limit = std::min<ae::Duration>(2 * limit, 1s);
    }
    backoff.reset();
    REQUIRE(backoff.next() <= 50ms);
  }
}

TEST_CASE("backoff: who failed together does not come back together", "[redial][backoff]") {
  std::set<ae::Duration> pauses, asked;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    pauses.insert(Backoff(1s, 1s, seed).next());
    asked.insert(Backoff(1ms, 1ms, seed).next(2s));
  }
  REQUIRE(pauses.size() > 95);
  REQUIRE(asked.size() > 95);
}

TEST_CASE("backoff: a peer may ask for patience, within reason", "[redial][backoff]") {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Backoff backoff(50ms, 1s, seed);
    const ae::Duration pause = backoff.next(3s);
    REQUIRE(pause >= 3s);
    REQUIRE(pause <= 4500ms);
    REQUIRE(backoff.next(1ms) <= 100ms);  // a shorter pause has no effect
    REQUIRE(backoff.next(24h) <= 90s);    // no peer can send a client away for a day
    REQUIRE(backoff.next(-1s) >= 0ms);
  }
}

TEST_CASE("backoff: settings that make little sense still give pauses", "[redial][backoff]") {
  Backoff nothing(0ms, 0ms, 1);
  for (int i = 0; i < 100; ++i) REQUIRE(nothing.next() >= 0ms);
  Backoff upside_down(1s, 1ms, 1);
  for (int i = 0; i < 100; ++i) REQUIRE(upside_down.next() <= 1s);
  Backoff endless(1h, ae::Duration::max(), 1);
  for (int i = 0; i < 100; ++i) REQUIRE(endless.next() > 0ms);
}
