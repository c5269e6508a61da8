// SPDX-License-Identifier: BSD-3-Clause
// Redial: keeps one connection to a destination; probes, losses, drop(), and what handlers may do.

#include "conn/redial.h"

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/redial_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Redial;
using testing::Contains;
using testing::RedialBed;
using Phase = conn::Redial::Phase;
using namespace std::chrono_literals;

TEST_CASE("redial: connects from the loop, and says what it does", "[redial]") {
  RedialBed bed;
  bed.start();
  REQUIRE(bed.redial->phase() == Phase::kWaiting);
  REQUIRE(bed.redial->connection() == nullptr);
  RUN_UNTIL(bed.loop, bed.ups == 1);
  REQUIRE(bed.phases == std::vector{Phase::kDialling, Phase::kUp});
  REQUIRE(bed.redial->describe() == "up");
  REQUIRE(bed.redial->counters().attempts == 1);
  REQUIRE_FALSE(bed.redial->last_failure());
  REQUIRE(bed.limit.taken() == 0);
}

TEST_CASE("redial: a server that goes and comes back is found again", "[redial]") {
  RedialBed bed;
  bed.start();
  for (int round = 1; round <= 20; ++round) {
    CAPTURE(round);
    RUN_UNTIL(bed.loop, bed.ups == round && !bed.servers.empty());
    bed.listener.reset();
    bed.servers.clear();
    RUN_UNTIL(bed.loop, bed.downs == round &&
                            bed.redial->last_failure().code == std::errc::connection_refused);
    REQUIRE(bed.last.why);
    REQUIRE_FALSE(bed.last.moved);
    REQUIRE_THAT(bed.redial->describe(), Contains("after: "));
    REQUIRE(bed.redial->connection() == nullptr);
    bed.listen(bed.port);
  }
  RUN_UNTIL(bed.loop, bed.ups == 21);
  REQUIRE(bed.redial->counters().lost == 20);
  testing::turns(bed.loop, 3);
  REQUIRE(bed.registry.require("tcp").counters(bed.loop).open == 1 + bed.servers.size());
}

TEST_CASE("redial: what was not confirmed is told, and not sent again", "[redial]") {
  RedialBed bed;
  bed.on_up = [&](Connection& connection) {
    if (bed.ups == 1) REQUIRE(connection.write("0123456789", 10) == 10);
  };
  bed.start();
  RUN_UNTIL(bed.loop, bed.servers.size() == 1 && bed.ups == 1);
  REQUIRE(testing::receive(bed.loop, *bed.servers[0], 10) == "0123456789");
  REQUIRE(bed.redial->unconfirmed() == 10);
  bed.redial->confirm(4);
  REQUIRE(bed.redial->unconfirmed() == 6);
  bed.servers.clear();
  RUN_UNTIL(bed.loop, bed.ups == 2 && bed.servers.size() == 1);
  REQUIRE(bed.last.unconfirmed == 6);
  REQUIRE(bed.redial->unconfirmed() == 0);
  REQUIRE(bed.redial->connection()->bytes_written() == 0);
}

TEST_CASE("redial: what came before the loss can still be read", "[redial]") {
  RedialBed bed;
  std::string rest;
  bed.on_down = [&](Connection& connection) { rest = testing::read_some(connection, 100); };
  bed.start();
  RUN_UNTIL(bed.loop, bed.servers.size() == 1 && bed.ups == 1);
  REQUIRE(bed.servers[0]->write("goodbye", 7) == 7);
  bed.servers.clear();
  RUN_UNTIL(bed.loop, bed.downs == 1);
  REQUIRE(rest == "goodbye");
}

TEST_CASE("redial: a connection is handed out once its probe is answered", "[redial]") {
  RedialBed bed;
  Redial::Proved proved;
  bed.handlers.prove = [&](Connection& connection, Redial::Proved how) {
    REQUIRE(connection.write("?", 1) == 1);
    proved = std::move(how);
  };
  bed.start();
  RUN_UNTIL(bed.loop, proved && bed.servers.size() == 1);
  REQUIRE(bed.redial->phase() == Phase::kProving);
  REQUIRE(bed.limit.taken() == 1);  // it still holds its place
  REQUIRE(bed.ups == 0);

  SECTION("good") {
    proved(true);
    REQUIRE(bed.ups == 1);
    REQUIRE(bed.redial->unconfirmed() == 0);  // the probe's bytes do not count as a request
    REQUIRE(bed.limit.taken() == 0);
    proved(false);  // too late, no effect
    REQUIRE(bed.redial->phase() == Phase::kUp);
  }
  SECTION("bad") {
    proved(false);
    REQUIRE(bed.redial->phase() == Phase::kWaiting);
    REQUIRE_THAT(bed.redial->last_failure().text, Contains("the probe"));
  }
  SECTION("the server goes instead") {
    bed.servers.clear();
    RUN_UNTIL(bed.loop, bed.redial->counters().failures == 1);
    REQUIRE_THAT(bed.redial->last_failure().text, Contains("before it answered the probe"));
    proved(true);  // for a connection that is gone
    REQUIRE(bed.ups == 0);
  }
  SECTION("stopped meanwhile") {
    bed.redial->stop();
    proved(true);
    REQUIRE(bed.ups == 0);
    REQUIRE(bed.limit.taken() == 0);
  }
}

TEST_CASE("redial: a probe that nobody answers costs its time and no more", "[redial]") {
  RedialBed bed;
  bed.settings.proof = 1ms;
  bed.handlers.prove = [](Connection&, const Redial::Proved&) {};
  bed.start();
  RUN_UNTIL(bed.loop, bed.redial->counters().failures >= 3);
  REQUIRE(bed.redial->last_failure().code == std::errc::timed_out);
  REQUIRE(bed.ups == 0);
}

TEST_CASE("redial: handlers may stop or destroy it", "[redial]") {
  RedialBed bed;
  const std::string when = GENERATE("up", "down", "changed", "prove", "stop in down");
  DYNAMIC_SECTION(when) {
    bool ended = false;
    const auto end = [&] {
      bed.redial.reset();
      ended = true;
    };
    if (when == "up") bed.on_up = [&](Connection&) { end(); };
    if (when == "down") bed.on_down = [&](Connection&) { end(); };
    if (when == "prove") bed.handlers.prove = [&](Connection&, const Redial::Proved&) { end(); };
    if (when == "stop in down") {
      bed.on_down = [&](Connection&) {
        bed.redial->stop();
        ended = true;
      };
    }
    bed.start();
    if (when == "changed") {
      bed.redial.reset();
      bed.handlers.changed = [&] { end(); };
      bed.redial.emplace(bed.registry, bed.loop,
                         conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(bed.port)),
                         bed.handlers, bed.settings);
    }
    if (when.ends_with("down")) {
      RUN_UNTIL(bed.loop, bed.ups == 1 && !bed.servers.empty());
      bed.servers.clear();
    }
    RUN_UNTIL(bed.loop, ended);
    testing::turns(bed.loop, 3);
    REQUIRE(bed.limit.taken() == 0);
    REQUIRE(bed.limit.waiting() == 0);
    if (when == "stop in down") REQUIRE(bed.redial->phase() == Phase::kStopped);
  }
}

TEST_CASE("redial: drop() gives a connection up and begins again", "[redial]") {
  RedialBed bed;
  bed.start();
  RUN_UNTIL(bed.loop, bed.ups == 1);
  bed.redial->drop("it speaks another language");
  REQUIRE(bed.downs == 0);  // never within a call
  RUN_UNTIL(bed.loop, bed.ups == 2);
  REQUIRE(bed.last.why.text == "it speaks another language");
}

TEST_CASE("redial: drop() of a connection that ends first does not concern the next one",
          "[redial]") {
  RedialBed bed;
  bed.start();
  RUN_UNTIL(bed.loop, bed.ups == 1 && !bed.servers.empty());
  // The loss is known in the iteration in which the read handler drops the connection.
  Connection& client = *bed.redial->connection();
  client.set_read_handler([&](Connection& connection) {
    char buffer[10];
    if (connection.read(buffer, sizeof buffer) != 0) return;
    connection.set_read_handler(nullptr);
    bed.redial->drop("protocol error");
  });
  bed.servers.clear();
  RUN_UNTIL(bed.loop, bed.ups == 2);
  REQUIRE(bed.downs == 1);
  REQUIRE(bed.last.why.text == "protocol error");
  testing::turns(bed.loop, 5);
  REQUIRE(bed.ups == 2);
  ConnectionPtr taken = bed.redial->take();
  REQUIRE(taken);
  bed.redial->give_back(std::move(taken));
  testing::turns(bed.loop, 5);
  REQUIRE(bed.downs == 1);
}

TEST_CASE("redial: a handler that drop() leads to may destroy it", "[redial]") {
  const std::string where =
      GENERATE(as<std::string>{}, "down", "changed", "changed, no connection");
  CAPTURE(where);
  RedialBed bed;
  const bool connects = where != "changed, no connection";
  if (where == "down") bed.on_down = [&](Connection&) { bed.redial.reset(); };
  bed.start(connects ? "tcp" : "stuck");
  if (connects) {
    RUN_UNTIL(bed.loop, bed.ups == 1);
  } else {
    RUN_UNTIL(bed.loop, bed.stuck->tried == 1);
  }
  bool dropped = false;
  if (where != "down")
    bed.on_changed = [&] {
      if (dropped) bed.redial.reset();
    };
  bed.redial->drop("enough");
  dropped = true;
  RUN_UNTIL(bed.loop, !bed.redial);
  testing::turns(bed.loop, 5);
}

TEST_CASE("redial: no time is too long to be added to the clock's", "[redial]") {
  RedialBed bed;
  bed.settings.attempt = bed.settings.proof = ae::Duration::max();
  bed.settings.prefer_again = ae::Duration::max();
  Redial::Proved proved;
  bed.handlers.prove = [&](Connection&, Redial::Proved how) { proved = std::move(how); };
  bed.start("stuck|tcp");
  RUN_UNTIL(bed.loop, bed.stuck->tried == 1);
  bed.stuck->fail_all(ECONNREFUSED);
  RUN_UNTIL(bed.loop, proved != nullptr);
  testing::turns(bed.loop, 5);
  REQUIRE(bed.redial->counters().failures == 0);
  proved(true);
  RUN_UNTIL(bed.loop, bed.ups == 1);
  testing::turns(bed.loop, 5);
  REQUIRE(bed.redial->counters().attempts == 1);
}

TEST_CASE("redial: drop() gives an attempt up, also one that succeeds at that moment", "[redial]") {
  RedialBed bed;
  const bool succeeds = GENERATE(false, true);
  bed.start("stuck");
  RUN_UNTIL(bed.loop, bed.redial->phase() == Phase::kDialling && bed.stuck->tried == 1);
  if (succeeds) bed.stuck->connect_all();
  bed.redial->drop("not there");
  RUN_UNTIL(bed.loop, bed.stuck->tried == 2);
  REQUIRE(bed.redial->last_failure().text == "not there");
  REQUIRE(bed.downs == bed.ups);
  bed.stuck->connect_all();
  RUN_UNTIL(bed.loop, bed.redial->phase() == Phase::kUp);
}

TEST_CASE("redial: try_now() ends a pause", "[redial]") {
  RedialBed bed;
  bed.stuck->fail_at_once = ECONNREFUSED;
  bed.settings.first_pause = bed.settings.most_pause = 24h;
  bed.start("stuck");
  RUN_UNTIL(bed.loop, bed.stuck->tried == 1 && bed.redial->phase() == Phase::kWaiting);
  bed.redial->try_now();
  RUN_UNTIL(bed.loop, bed.stuck->tried == 2);
}

TEST_CASE("redial: what a handler throws leaves the loop, and it goes on", "[redial]") {
  RedialBed bed;
  struct Thrown {};
  const std::string where = GENERATE("up", "down", "changed", "prove");
  CAPTURE(where);
  int thrown = 0;
  const auto may_throw = [&](const char* here) {
    if (where == here && ++thrown <= 3) throw Thrown();
  };
  bed.on_up = [&](Connection&) { may_throw("up"); };
  bed.on_down = [&](Connection&) { may_throw("down"); };
  if (where == "prove") {
    bed.settings.proof = 5ms;
    bed.handlers.prove = [&](Connection&, const Redial::Proved& proved) {
      may_throw("prove");
      proved(true);
    };
  }
  bed.start();
  if (where == "changed")
    bed.redial.emplace(bed.registry, bed.loop,
                       conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(bed.port)),
                       Redial::Handlers{.up = bed.handlers.up,
                                        .down = bed.handlers.down,
                                        .prove = {},
                                        .changed = [&] { may_throw("changed"); }},
                       bed.settings);
  int caught = 0;
  bool late = false;
  const ae::TimerId limit = bed.loop.add_time_event(testing::patience(), [&] {
    late = true;
    return ae::kNoMore;
  });
  while (bed.ups < 6 && !late) {
    try {
      (void)bed.loop.process_events(ae::kFullIteration);
    } catch (const Thrown&) {
      ++caught;
    }
    if (bed.redial->phase() == Phase::kUp) bed.servers.clear();
  }
  bed.loop.remove_time_event(limit);
  REQUIRE_FALSE(late);
  REQUIRE(caught == 3);
}
