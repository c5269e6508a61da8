// SPDX-License-Identifier: BSD-3-Clause
// The retry_after hint in a server's refusal.

#include "conn/kit/retry_after.h"

#include "tests/support/catch.h"

using conn::retry_after_in;
using namespace std::chrono_literals;

TEST_CASE("patience: what is asked for is understood", "[redial][patience]") {
  const std::string text = conn::format_retry_after("max-connections reached", 1000ms);
  REQUIRE(text == "max-connections reached; try again in 1000 ms");
  REQUIRE(retry_after_in(text) == 1000ms);
  REQUIRE(retry_after_in("Connection refused by the server: " + text) == 1000ms);
  REQUIRE(conn::retry_after_when_full() == text);
  REQUIRE(conn::retry_after_under_overload() == "too many arrive at once; try again in 100 ms");
}

TEST_CASE("patience: any other text asks for none", "[redial][patience]") {
  for (const char* text :
       {"", "max-connections reached", "try again", "try again in ", "try again in ms",
        "try again in -5 ms", "try again in 5", "try again in 5 s", "try again in 99999999999 ms",
        "try again in 3600001 ms", "try again in 0x5 ms"}) {
    CAPTURE(text);
    REQUIRE(retry_after_in(text) == 0ms);
  }
}
