// SPDX-License-Identifier: BSD-3-Clause
// In which iteration of the loop the hooks of a stop run.

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "conn/stop.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

TEST_CASE("stop: a hook that a running hook makes is called later, by the loop", "[stop]") {
  testing::AnyLoop loop;
  conn::Stop stop(loop, {.signals = {}});
  constexpr int kMost = 1000;
  int runs = 0;
  std::optional<conn::StopHook> hook;
  const std::function<void()> again = [&] {
    if (++runs < kMost) hook.emplace(loop, again);
  };
  hook.emplace(loop, again);
  stop.request();
  for (int i = 0; i < 20; ++i) {
    const int before = runs;
    testing::turns(loop, 1);
    REQUIRE(runs <= before + 2);  // the stop itself, and a timer
  }
  REQUIRE(runs > 1);
  hook.reset();
}

TEST_CASE("stop: it goes on although the function that it calls at its beginning throws",
          "[stop]") {
  testing::AnyLoop loop;
  bool ended = false;
  conn::Stop stop(loop, {.limit = ae::Duration::max(),
                         .signals = {},
                         .begins = [] { throw std::runtime_error("from begins"); },
                         .ends = [&] { ended = true; }});
  stop.request();
  REQUIRE_THROWS_WITH(testing::turns(loop, 5), "from begins");
  RUN_UNTIL(loop, ended);
  REQUIRE(stop.status() == 0);
}

TEST_CASE("stop: hooks that a hook destroys or that follow it", "[stop]") {
  testing::AnyLoop loop;
  conn::Stop stop(loop, {.signals = {}});
  std::string ran;
  std::optional<conn::StopHook> first, middle, last, made;
  const auto note = [&](char name) { return [&ran, name] { ran += name; }; };
  // The hook that was added last runs first.
  first.emplace(loop, note('f'));
  middle.emplace(loop, note('m'));
  last.emplace(loop, [&] {
    ran += 'l';
    middle.reset();
    made.emplace(loop, note('n'));
  });
  stop.request();
  RUN_UNTIL(loop, ran.size() == 3);
  REQUIRE(ran == "lfn");
}

TEST_CASE("stop: a hook of the next stop does not run for the one before", "[stop]") {
  const bool listening_has_ended = GENERATE(false, true);
  testing::AnyLoop loop;
  int first = 0, second = 0;
  {
    conn::Stop stop(loop, {.limit = ae::Duration::max(), .signals = {}, .ends = [] {}});
    const conn::StopHook hook(loop, [&] { ++first; });
    stop.request();
    if (listening_has_ended) RUN_UNTIL(loop, first == 1);
  }
  conn::Stop stop(loop, {.signals = {}, .ends = [] {}});
  const conn::StopHook hook(loop, [&] { ++second; });
  testing::turns(loop, 5);
  REQUIRE(second == 0);
  stop.request();
  RUN_UNTIL(loop, second == 1);
}

TEST_CASE("stop: a hook that destroys the stop at its limit keeps the connections", "[stop]") {
  testing::Site site({.name = "tcp"});
  conn::ConnectionPtr session;
  auto stop = std::make_unique<conn::Stop>(
      site.loop, conn::Stop::Settings{.limit = ae::Duration(0), .signals = {}, .ends = [] {}});
  const conn::ListenerPtr listener = site.registry.listen(
      site.loop, site.fresh(), [&](conn::ConnectionPtr next) { session = std::move(next); });
  const conn::ConnectionPtr client = site.connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, session != nullptr && client->state() == conn::State::kConnected);
  const conn::StopHook hook(site.loop, [&] { stop.reset(); });
  stop->request();
  RUN_UNTIL(site.loop, stop == nullptr);
  testing::turns(site.loop, 5);
  testing::send(site.loop, *session, "here");
  REQUIRE(testing::receive(site.loop, *client, 4) == "here");
}
