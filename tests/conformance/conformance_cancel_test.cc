// SPDX-License-Identifier: BSD-3-Clause
// Coroutines that are cancelled at each of their waits in turn, over each transport. Sanitizers
// detect leaks and accesses to freed memory.

#include <memory>
#include <utility>

#include "conn/co.h"
#include "tests/support/catch.h"
#include "tests/support/co_session.h"
#include "tests/support/testing.h"

using testing::CoSession;
using testing::Waits;

TEST_CASE("coroutine: cancelled at any of its waits, it leaves nothing behind",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    const Waits::Cancel how = GENERATE(Waits::Cancel::kInside, Waits::Cancel::kBeforeSleep);
    testing::Site site(transport);
    bool all = false;
    std::size_t last = 0;
    while (!all) {
      ++last;
      conn::co::Scope scope;
      CoSession session(site.registry, site.loop, scope);
      session.waits.last = last;
      session.waits.how = how;
      const ae::HookId hook = site.loop.add_before_sleep([&] {
        if (std::exchange(session.waits.due, false)) scope.cancel();
      });
      session.start(site.fresh());
      RUN_UNTIL(site.loop, scope.empty() || session.finished);
      site.loop.remove_hook(hook);
      all = session.waits.count < last;
      if (all) {
        CAPTURE(session.error);
        REQUIRE(session.finished);
      }
      scope.cancel();
      REQUIRE(scope.empty());
      testing::turns(site.loop, 3);
    }
    REQUIRE(last > 15);
  }
}

TEST_CASE("coroutine: the loop may end before those that wait on it", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    const std::size_t last = GENERATE(range<std::size_t>(2, 14));
    testing::Site site(transport);
    conn::co::Scope scope;
    auto loop = std::make_unique<testing::AnyLoop>();
    CoSession session(site.registry, *loop, scope);
    session.waits.how = Waits::Cancel::kBeforeSleep;
    session.waits.last = last;
    session.start(site.fresh());
    RUN_UNTIL(*loop, session.waits.due || session.finished);
    loop.reset();
    scope.cancel();
    REQUIRE(scope.empty());
  }
}
