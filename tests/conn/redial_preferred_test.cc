// SPDX-License-Identifier: BSD-3-Clause
// Redial with a list of schemes: it goes back to the preferred one, once nothing is in doubt.

#include <cerrno>
#include <functional>
#include <string>
#include <utility>

#include "ae/epoll_loop.h"
#include "conn/redial.h"
#include "tests/support/redial_kit.h"

using conn::Connection;
using conn::Redial;
using conn::SkipReason;
using testing::Contains;
using testing::RedialBed;
using Phase = conn::Redial::Phase;
using namespace std::chrono_literals;

TEST_CASE("redial: back to the preferred scheme, once nothing is in doubt", "[redial]") {
  RedialBed bed;
  bed.stuck->fail_at_once = ECONNREFUSED;
  bed.settings.prefer_again = 1ms;
  bed.on_up = [&](Connection& connection) {
    if (bed.ups == 1) REQUIRE(connection.write("request", 7) == 7);
  };
  bed.start("stuck|tcp");
  RUN_UNTIL(bed.loop, bed.ups == 1);
  REQUIRE(bed.redial->connection()->type().name() == "tcp");
  REQUIRE(bed.redial->not_taken().at(0).kind == SkipReason::kRefused);
  REQUIRE_THAT(bed.redial->describe(), Contains("up by tcp; not stuck: "));

  bed.stuck->fail_at_once = 0;
  RUN_UNTIL(bed.loop, !bed.stuck->waiting.empty());
  bed.stuck->connect_all();
  RUN_UNTIL(bed.loop, bed.limit.taken() == 0);
  REQUIRE(bed.ups == 1);  // the request may still be answered
  REQUIRE(bed.redial->connection()->type().name() == "tcp");
  bed.redial->confirm(7);
  REQUIRE(bed.ups == 1);  // never within a call
  RUN_UNTIL(bed.loop, bed.ups == 2);
  REQUIRE(bed.redial->connection()->type().name() == "stuck");
  REQUIRE(bed.last.moved);
  REQUIRE(bed.last.unconfirmed == 0);
  REQUIRE(bed.redial->not_taken().empty());
  REQUIRE(bed.redial->counters().moved == 1);
  testing::turns(bed.loop, 3);
  REQUIRE(bed.stuck->counters(bed.loop).open == 1);
}

TEST_CASE("redial: when it moves, down() may call anything", "[redial]") {
  RedialBed bed;
  bed.stuck->fail_at_once = ECONNREFUSED;
  bed.settings.prefer_again = 1ms;
  const std::string what = GENERATE("describe", "take", "stop", "drop", "try_now", "confirm");
  DYNAMIC_SECTION(what) {
    bool called = false;
    std::string text;
    bed.on_down = [&](Connection&) {
      if (std::exchange(called, true)) return;
      Redial& redial = *bed.redial;
      REQUIRE(redial.connection() == nullptr);
      if (what == "describe") text = redial.describe();
      if (what == "take") REQUIRE(redial.take() == nullptr);
      if (what == "stop") redial.stop();
      if (what == "drop") redial.drop("no more");
      if (what == "try_now") redial.try_now();
      if (what == "confirm") redial.confirm(1);
      REQUIRE(redial.phase() == (what == "stop" ? Phase::kStopped : Phase::kWaiting));
    };
    bed.start("stuck|tcp");
    RUN_UNTIL(bed.loop, bed.ups == 1);
    bed.stuck->fail_at_once = 0;
    RUN_UNTIL(bed.loop, !bed.stuck->waiting.empty());
    bed.stuck->connect_all();
    RUN_UNTIL(bed.loop, called);
    REQUIRE(bed.last.moved);
    testing::turns(bed.loop, 3);
    if (what == "describe") REQUIRE(text == "waiting");
    if (what == "stop") {
      REQUIRE(bed.redial->phase() == Phase::kStopped);
      REQUIRE(bed.ups == 1);
    } else {
      REQUIRE(bed.ups == 2);
      REQUIRE(bed.redial->connection()->type().name() == "stuck");
      REQUIRE(bed.redial->not_taken().empty());
    }
    REQUIRE(bed.downs == 1);
  }
}

TEST_CASE("redial: a preferred connection that ends while it moves there is a loss", "[redial]") {
  RedialBed bed;
  ae::EpollLoop loop;  // run by this test, which may nest iterations
  const auto until = [&](const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + testing::patience();
    while (!condition() && std::chrono::steady_clock::now() < limit) loop.dispatch();
    REQUIRE(condition());
  };
  bed.stuck->fail_at_once = ECONNREFUSED;
  bed.settings.prefer_again = 1ms;
  bed.handlers.up = [&](Connection&) { ++bed.ups; };
  bed.handlers.down = [&](Connection&, const Redial::Loss&) {
    ++bed.downs;
    bed.stuck->fail_at_once = ECONNREFUSED;
    bed.stuck->lose_all();
    for (int i = 0; i < 50; ++i) loop.dispatch();
  };
  Redial redial(bed.registry, loop,
                conn::Endpoint::parse("stuck|tcp://127.0.0.1:" + std::to_string(bed.port)),
                bed.handlers, bed.settings);
  until([&] { return bed.ups == 1; });
  bed.stuck->fail_at_once = 0;
  until([&] { return !bed.stuck->waiting.empty(); });
  bed.stuck->connect_all();
  until([&] { return bed.downs == 1; });
  CHECK(redial.counters().moved == 0);
  CHECK(redial.counters().lost == 1);
  CHECK_THAT(redial.last_failure().text, Contains("ended while"));
  until([&] { return bed.ups == 2; });
  CHECK(redial.connection()->type().name() == "tcp");
}

TEST_CASE("redial: it is not in a hurry to lose a connection for a preferred one that is none",
          "[redial]") {
  RedialBed bed;
  bed.stuck->fail_at_once = EHOSTUNREACH;
  bed.settings.prefer_again = 1ms;
  bed.start("stuck|tcp");
  RUN_UNTIL(bed.loop, bed.stuck->tried >= 5);
  REQUIRE(bed.ups == 1);
  REQUIRE(bed.downs == 0);
  REQUIRE(bed.redial->not_taken().at(0).kind == SkipReason::kUnreachable);
}
