// SPDX-License-Identifier: BSD-3-Clause
// The event loop that the tests run on.

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/support/any_loop.h"
#include "tests/support/catch.h"

TEST_CASE("the loop of the tests: an empty AECONN_LOOP is one that is not set", "[ae]") {
  const char* const now = std::getenv("AECONN_LOOP");
  const auto before = now != nullptr ? std::optional<std::string>(now) : std::nullopt;
  REQUIRE(::setenv("AECONN_LOOP", "", 1) == 0);
  std::optional<testing::LoopKind> chosen;
  try {
    chosen = testing::chosen_loop();
  } catch (const std::exception&) {
  }
  if (before)
    ::setenv("AECONN_LOOP", before->c_str(), 1);
  else
    ::unsetenv("AECONN_LOOP");
  CHECK((chosen == testing::LoopKind::kLibev));
}
