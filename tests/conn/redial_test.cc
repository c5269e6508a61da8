// SPDX-License-Identifier: BSD-3-Clause
// Redial: keeps one connection to a destination. Pauses are a few milliseconds, and what must not
// happen soon is set to hours, so the tests do not wait for time to pass.

#include "conn/redial.h"

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>

#include "ae/epoll_loop.h"
#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::DialLimit;
using conn::Redial;
using conn::SkipReason;
using Phase = conn::Redial::Phase;
using testing::Contains;
using namespace std::chrono_literals;

namespace {

/// A tcp server that can be removed and restored, and a client that stays.
struct Place {
  Place() {
    registry.add(std::make_unique<conn::tcp::TcpType>());
    stuck = &static_cast<testing::StuckType&>(
        registry.add(std::make_unique<testing::StuckType>("stuck")));
    listen(0);
    settings.first_pause = 1ms;
    settings.most_pause = 8ms;
    settings.prefer_again = 0ms;
    settings.limit = &limit;
    settings.attempt = settings.proof = testing::patience();
    settings.seed = 7;
  }
  void listen(std::uint16_t at) {
    listener = registry.listen(loop, "tcp://127.0.0.1:" + std::to_string(at),
                               [this](ConnectionPtr next) { servers.push_back(std::move(next)); });
    port = listener->endpoints().front().port;
  }
  void start(const std::string& schemes = "tcp") {
    handlers.up = [this](Connection& connection) {
      REQUIRE(redial->connection() == &connection);
      REQUIRE(redial->phase() == Phase::kUp);
      ++ups;
      if (on_up) on_up(connection);
    };
    handlers.down = [this](Connection& connection, const Redial::Loss& loss) {
      ++downs;
      last = loss;
      if (on_down) on_down(connection);
    };
    handlers.changed = [this] {
      phases.push_back(redial->phase());
      if (on_changed) on_changed();
    };
    redial.emplace(registry, loop,
                   conn::Endpoint::parse(schemes + "://127.0.0.1:" + std::to_string(port)),
                   handlers, settings);
  }

  DialLimit limit{4};
  conn::Registry registry;  // outlives what the loop destroys last
  testing::AnyLoop loop;
  testing::StuckType* stuck;
  conn::ListenerPtr listener;
  std::uint16_t port = 0;
  std::vector<ConnectionPtr> servers;
  Redial::Settings settings;
  Redial::Handlers handlers;
  std::function<void(Connection&)> on_up, on_down;
  std::function<void()> on_changed;
  std::optional<Redial> redial;
  std::vector<Phase> phases;
  int ups = 0, downs = 0;
  Redial::Loss last;
};

}  // namespace

TEST_CASE("redial: connects from the loop, and says what it does", "[redial]") {
  Place place;
  place.start();
  REQUIRE(place.redial->phase() == Phase::kWaiting);
  REQUIRE(place.redial->connection() == nullptr);
  RUN_UNTIL(place.loop, place.ups == 1);
  REQUIRE(place.phases == std::vector{Phase::kDialling, Phase::kUp});
  REQUIRE(place.redial->describe() == "up");
  REQUIRE(place.redial->counters().attempts == 1);
  REQUIRE_FALSE(place.redial->last_failure());
  REQUIRE(place.limit.taken() == 0);
}

TEST_CASE("redial: a server that goes and comes back is found again", "[redial]") {
  Place place;
  place.start();
  for (int round = 1; round <= 20; ++round) {
    CAPTURE(round);
    RUN_UNTIL(place.loop, place.ups == round && !place.servers.empty());
    place.listener.reset();
    place.servers.clear();
    RUN_UNTIL(place.loop, place.downs == round &&
                              place.redial->last_failure().code == std::errc::connection_refused);
    REQUIRE(place.last.why);
    REQUIRE_FALSE(place.last.moved);
    REQUIRE_THAT(place.redial->describe(), Contains("after: "));
    REQUIRE(place.redial->connection() == nullptr);
    place.listen(place.port);
  }
  RUN_UNTIL(place.loop, place.ups == 21);
  REQUIRE(place.redial->counters().lost == 20);
  testing::turns(place.loop, 3);
  REQUIRE(place.registry.require("tcp").counters(place.loop).open == 1 + place.servers.size());
}

TEST_CASE("redial: what was not confirmed is told, and not sent again", "[redial]") {
  Place place;
  place.on_up = [&](Connection& connection) {
    if (place.ups == 1) REQUIRE(connection.write("0123456789", 10) == 10);
  };
  place.start();
  RUN_UNTIL(place.loop, place.servers.size() == 1 && place.ups == 1);
  REQUIRE(testing::receive(place.loop, *place.servers[0], 10) == "0123456789");
  REQUIRE(place.redial->unconfirmed() == 10);
  place.redial->confirm(4);
  REQUIRE(place.redial->unconfirmed() == 6);
  place.servers.clear();
  RUN_UNTIL(place.loop, place.ups == 2 && place.servers.size() == 1);
  REQUIRE(place.last.unconfirmed == 6);
  REQUIRE(place.redial->unconfirmed() == 0);
  REQUIRE(place.redial->connection()->bytes_written() == 0);
}

TEST_CASE("redial: what came before the loss can still be read", "[redial]") {
  Place place;
  std::string rest;
  place.on_down = [&](Connection& connection) { rest = testing::read_some(connection, 100); };
  place.start();
  RUN_UNTIL(place.loop, place.servers.size() == 1 && place.ups == 1);
  REQUIRE(place.servers[0]->write("goodbye", 7) == 7);
  place.servers.clear();
  RUN_UNTIL(place.loop, place.downs == 1);
  REQUIRE(rest == "goodbye");
}

TEST_CASE("redial: a connection is handed out once its probe is answered", "[redial]") {
  Place place;
  Redial::Proved proved;
  place.handlers.prove = [&](Connection& connection, Redial::Proved how) {
    REQUIRE(connection.write("?", 1) == 1);
    proved = std::move(how);
  };
  place.start();
  RUN_UNTIL(place.loop, proved && place.servers.size() == 1);
  REQUIRE(place.redial->phase() == Phase::kProving);
  REQUIRE(place.limit.taken() == 1);  // it still holds its place
  REQUIRE(place.ups == 0);

  SECTION("good") {
    proved(true);
    REQUIRE(place.ups == 1);
    REQUIRE(place.redial->unconfirmed() == 0);  // the probe's bytes do not count as a request
    REQUIRE(place.limit.taken() == 0);
    proved(false);  // too late, no effect
    REQUIRE(place.redial->phase() == Phase::kUp);
  }
  SECTION("bad") {
    proved(false);
    REQUIRE(place.redial->phase() == Phase::kWaiting);
    REQUIRE_THAT(place.redial->last_failure().text, Contains("the probe"));
  }
  SECTION("the server goes instead") {
    place.servers.clear();
    RUN_UNTIL(place.loop, place.redial->counters().failures == 1);
    REQUIRE_THAT(place.redial->last_failure().text, Contains("before it answered the probe"));
    proved(true);  // for a connection that is gone
    REQUIRE(place.ups == 0);
  }
  SECTION("stopped meanwhile") {
    place.redial->stop();
    proved(true);
    REQUIRE(place.ups == 0);
    REQUIRE(place.limit.taken() == 0);
  }
}

TEST_CASE("redial: a probe that nobody answers costs its time and no more", "[redial]") {
  Place place;
  place.settings.proof = 1ms;
  place.handlers.prove = [](Connection&, const Redial::Proved&) {};
  place.start();
  RUN_UNTIL(place.loop, place.redial->counters().failures >= 3);
  REQUIRE(place.redial->last_failure().code == std::errc::timed_out);
  REQUIRE(place.ups == 0);
}

TEST_CASE("redial: back to the preferred scheme, once nothing is in doubt", "[redial]") {
  Place place;
  place.stuck->fail_at_once = ECONNREFUSED;
  place.settings.prefer_again = 1ms;
  place.on_up = [&](Connection& connection) {
    if (place.ups == 1) REQUIRE(connection.write("request", 7) == 7);
  };
  place.start("stuck|tcp");
  RUN_UNTIL(place.loop, place.ups == 1);
  REQUIRE(place.redial->connection()->type().name() == "tcp");
  REQUIRE(place.redial->not_taken().at(0).kind == SkipReason::kRefused);
  REQUIRE_THAT(place.redial->describe(), Contains("up by tcp; not stuck: "));

  place.stuck->fail_at_once = 0;
  RUN_UNTIL(place.loop, !place.stuck->waiting.empty());
  place.stuck->connect_all();
  RUN_UNTIL(place.loop, place.limit.taken() == 0);
  REQUIRE(place.ups == 1);  // the request may still be answered
  REQUIRE(place.redial->connection()->type().name() == "tcp");
  place.redial->confirm(7);
  REQUIRE(place.ups == 1);  // never within a call
  RUN_UNTIL(place.loop, place.ups == 2);
  REQUIRE(place.redial->connection()->type().name() == "stuck");
  REQUIRE(place.last.moved);
  REQUIRE(place.last.unconfirmed == 0);
  REQUIRE(place.redial->not_taken().empty());
  REQUIRE(place.redial->counters().moved == 1);
  testing::turns(place.loop, 3);
  REQUIRE(place.stuck->counters(place.loop).open == 1);
}

TEST_CASE("redial: when it moves, down() may call anything", "[redial]") {
  Place place;
  place.stuck->fail_at_once = ECONNREFUSED;
  place.settings.prefer_again = 1ms;
  const std::string what = GENERATE("describe", "take", "stop", "drop", "try_now", "confirm");
  DYNAMIC_SECTION(what) {
    bool called = false;
    std::string text;
    place.on_down = [&](Connection&) {
      if (std::exchange(called, true)) return;
      Redial& redial = *place.redial;
      REQUIRE(redial.connection() == nullptr);
      if (what == "describe") text = redial.describe();
      if (what == "take") REQUIRE(redial.take() == nullptr);
      if (what == "stop") redial.stop();
      if (what == "drop") redial.drop("no more");
      if (what == "try_now") redial.try_now();
      if (what == "confirm") redial.confirm(1);
      REQUIRE(redial.phase() == (what == "stop" ? Phase::kStopped : Phase::kWaiting));
    };
    place.start("stuck|tcp");
    RUN_UNTIL(place.loop, place.ups == 1);
    place.stuck->fail_at_once = 0;
    RUN_UNTIL(place.loop, !place.stuck->waiting.empty());
    place.stuck->connect_all();
    RUN_UNTIL(place.loop, called);
    REQUIRE(place.last.moved);
    testing::turns(place.loop, 3);
    if (what == "describe") REQUIRE(text == "waiting");
    if (what == "stop") {
      REQUIRE(place.redial->phase() == Phase::kStopped);
      REQUIRE(place.ups == 1);
    } else {
      REQUIRE(place.ups == 2);
      REQUIRE(place.redial->connection()->type().name() == "stuck");
      REQUIRE(place.redial->not_taken().empty());
    }
    REQUIRE(place.downs == 1);
  }
}

TEST_CASE("redial: a preferred connection that ends while it moves there is a loss", "[redial]") {
  Place place;
  ae::EpollLoop loop;  // run by this test, which may nest iterations
  const auto until = [&](const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + testing::patience();
    while (!condition() && std::chrono::steady_clock::now() < limit) loop.dispatch();
    REQUIRE(condition());
  };
  place.stuck->fail_at_once = ECONNREFUSED;
  place.settings.prefer_again = 1ms;
  place.handlers.up = [&](Connection&) { ++place.ups; };
  place.handlers.down = [&](Connection&, const Redial::Loss&) {
    ++place.downs;
    place.stuck->fail_at_once = ECONNREFUSED;
    place.stuck->lose_all();
    for (int i = 0; i < 50; ++i) loop.dispatch();
  };
  Redial redial(place.registry, loop,
                conn::Endpoint::parse("stuck|tcp://127.0.0.1:" + std::to_string(place.port)),
                place.handlers, place.settings);
  until([&] { return place.ups == 1; });
  place.stuck->fail_at_once = 0;
  until([&] { return !place.stuck->waiting.empty(); });
  place.stuck->connect_all();
  until([&] { return place.downs == 1; });
  CHECK(redial.counters().moved == 0);
  CHECK(redial.counters().lost == 1);
  CHECK_THAT(redial.last_failure().text, Contains("ended while"));
  until([&] { return place.ups == 2; });
  CHECK(redial.connection()->type().name() == "tcp");
}

TEST_CASE("redial: it is not in a hurry to lose a connection for a preferred one that is none",
          "[redial]") {
  Place place;
  place.stuck->fail_at_once = EHOSTUNREACH;
  place.settings.prefer_again = 1ms;
  place.start("stuck|tcp");
  RUN_UNTIL(place.loop, place.stuck->tried >= 5);
  REQUIRE(place.ups == 1);
  REQUIRE(place.downs == 0);
  REQUIRE(place.redial->not_taken().at(0).kind == SkipReason::kUnreachable);
}

TEST_CASE("redial: handlers may stop or destroy it", "[redial]") {
  Place place;
  const std::string when = GENERATE("up", "down", "changed", "prove", "stop in down");
  DYNAMIC_SECTION(when) {
    bool ended = false;
    const auto end = [&] {
      place.redial.reset();
      ended = true;
    };
    if (when == "up") place.on_up = [&](Connection&) { end(); };
    if (when == "down") place.on_down = [&](Connection&) { end(); };
    if (when == "prove") place.handlers.prove = [&](Connection&, const Redial::Proved&) { end(); };
    if (when == "stop in down") {
      place.on_down = [&](Connection&) {
        place.redial->stop();
        ended = true;
      };
    }
    place.start();
    if (when == "changed") {
      place.redial.reset();
      place.handlers.changed = [&] { end(); };
      place.redial.emplace(place.registry, place.loop,
                           conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(place.port)),
                           place.handlers, place.settings);
    }
    if (when.ends_with("down")) {
      RUN_UNTIL(place.loop, place.ups == 1 && !place.servers.empty());
      place.servers.clear();
    }
    RUN_UNTIL(place.loop, ended);
    testing::turns(place.loop, 3);
    REQUIRE(place.limit.taken() == 0);
    REQUIRE(place.limit.waiting() == 0);
    if (when == "stop in down") REQUIRE(place.redial->phase() == Phase::kStopped);
  }
}

TEST_CASE("redial: drop() gives a connection up and begins again", "[redial]") {
  Place place;
  place.start();
  RUN_UNTIL(place.loop, place.ups == 1);
  place.redial->drop("it speaks another language");
  REQUIRE(place.downs == 0);  // never within a call
  RUN_UNTIL(place.loop, place.ups == 2);
  REQUIRE(place.last.why.text == "it speaks another language");
}

TEST_CASE("redial: drop() of a connection that ends first does not concern the next one",
          "[redial]") {
  Place place;
  place.start();
  RUN_UNTIL(place.loop, place.ups == 1 && !place.servers.empty());
  // The loss is known in the iteration in which the read handler drops the connection.
  Connection& client = *place.redial->connection();
  client.set_read_handler([&](Connection& connection) {
    char buffer[10];
    if (connection.read(buffer, sizeof buffer) != 0) return;
    connection.set_read_handler(nullptr);
    place.redial->drop("protocol error");
  });
  place.servers.clear();
  RUN_UNTIL(place.loop, place.ups == 2);
  REQUIRE(place.downs == 1);
  REQUIRE(place.last.why.text == "protocol error");
  testing::turns(place.loop, 5);
  REQUIRE(place.ups == 2);
  ConnectionPtr taken = place.redial->take();
  REQUIRE(taken);
  place.redial->give_back(std::move(taken));
  testing::turns(place.loop, 5);
  REQUIRE(place.downs == 1);
}

TEST_CASE("redial: a handler that drop() leads to may destroy it", "[redial]") {
  const std::string where =
      GENERATE(as<std::string>{}, "down", "changed", "changed, no connection");
  CAPTURE(where);
  Place place;
  const bool connects = where != "changed, no connection";
  if (where == "down") place.on_down = [&](Connection&) { place.redial.reset(); };
  place.start(connects ? "tcp" : "stuck");
  if (connects) {
    RUN_UNTIL(place.loop, place.ups == 1);
  } else {
    RUN_UNTIL(place.loop, place.stuck->tried == 1);
  }
  bool dropped = false;
  if (where != "down")
    place.on_changed = [&] {
      if (dropped) place.redial.reset();
    };
  place.redial->drop("enough");
  dropped = true;
  RUN_UNTIL(place.loop, !place.redial);
  testing::turns(place.loop, 5);
}

TEST_CASE("redial: no time is too long to be added to the clock's", "[redial]") {
  Place place;
  place.settings.attempt = place.settings.proof = ae::Duration::max();
  place.settings.prefer_again = ae::Duration::max();
  Redial::Proved proved;
  place.handlers.prove = [&](Connection&, Redial::Proved how) { proved = std::move(how); };
  place.start("stuck|tcp");
  RUN_UNTIL(place.loop, place.stuck->tried == 1);
  place.stuck->fail_all(ECONNREFUSED);
  RUN_UNTIL(place.loop, proved != nullptr);
  testing::turns(place.loop, 5);
  REQUIRE(place.redial->counters().failures == 0);
  proved(true);
  RUN_UNTIL(place.loop, place.ups == 1);
  testing::turns(place.loop, 5);
  REQUIRE(place.redial->counters().attempts == 1);
}

TEST_CASE("dial limit: a child of fork() begins with all its places", "[redial][fork]") {
  DialLimit limit(1);
  testing::AnyLoop loop;
  DialLimit::PlacePtr held = limit.enter(loop, [] {}), waits = limit.enter(loop, [] {});
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(20);
    int status = limit.taken() + limit.waiting() == 0 ? 0 : 1;
    testing::AnyLoop own;
    DialLimit::PlacePtr first = limit.enter(own, [] {}), second = limit.enter(own, [] {});
    if (!first->holds() || second->holds()) status |= 2;
    held.reset();  // the parent's: gives no place back here
    waits.reset();
    if (limit.taken() != 1 || limit.waiting() != 1) status |= 4;
    first.reset();
    if (!second->holds()) status |= 8;
    ::_exit(status);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  REQUIRE(limit.taken() == 1);
}

TEST_CASE("redial: drop() gives an attempt up, also one that succeeds at that moment", "[redial]") {
  Place place;
  const bool succeeds = GENERATE(false, true);
  place.start("stuck");
  RUN_UNTIL(place.loop, place.redial->phase() == Phase::kDialling && place.stuck->tried == 1);
  if (succeeds) place.stuck->connect_all();
  place.redial->drop("not there");
  RUN_UNTIL(place.loop, place.stuck->tried == 2);
  REQUIRE(place.redial->last_failure().text == "not there");
  REQUIRE(place.downs == place.ups);
  place.stuck->connect_all();
  RUN_UNTIL(place.loop, place.redial->phase() == Phase::kUp);
}

TEST_CASE("redial: try_now() ends a pause", "[redial]") {
  Place place;
  place.stuck->fail_at_once = ECONNREFUSED;
  place.settings.first_pause = place.settings.most_pause = 24h;
  place.start("stuck");
  RUN_UNTIL(place.loop, place.stuck->tried == 1 && place.redial->phase() == Phase::kWaiting);
  place.redial->try_now();
  RUN_UNTIL(place.loop, place.stuck->tried == 2);
}

TEST_CASE("redial: no more dial at once than the limit allows, in turn", "[redial]") {
  Place place;
  std::vector<std::unique_ptr<Redial>> many;
  for (int i = 0; i < 10; ++i) {
    many.push_back(std::make_unique<Redial>(place.registry, place.loop,
                                            conn::Endpoint::parse("stuck://h:1"),
                                            Redial::Handlers{}, place.settings));
  }
  RUN_UNTIL(place.loop, place.limit.waiting() == 6);
  REQUIRE(place.stuck->waiting.size() == 4);
  REQUIRE(std::count_if(many.begin(), many.end(),
                        [](const auto& each) { return each->phase() == Phase::kInLine; }) == 6);
  many.erase(many.begin() + 4);  // one that connects, or one that waits
  many.pop_back();
  while (std::any_of(many.begin(), many.end(),
                     [](const auto& each) { return each->phase() != Phase::kUp; })) {
    REQUIRE(place.stuck->waiting.size() <= 4);
    REQUIRE(place.limit.taken() <= 4);
    place.stuck->connect_all();
    place.loop.process_events(ae::kFullIteration);
  }
  REQUIRE(place.limit.taken() == 0);
}

TEST_CASE("dial limit: a place goes to who has waited longest, and not to the dead", "[redial]") {
  DialLimit limit(1);
  testing::AnyLoop loop;
  std::vector<int> order;
  DialLimit::PlacePtr first = limit.enter(loop, [] {});
  REQUIRE(first->holds());
  DialLimit::PlacePtr second, third;
  {
    testing::AnyLoop other;
    (void)limit.enter(other, [] {});  // leaves the queue at once
    second = limit.enter(loop, [&] { order.push_back(2); });
    third = limit.enter(loop, [&] { order.push_back(3); });
  }
  REQUIRE(limit.waiting() == 2);
  first.reset();
  REQUIRE(second->holds());
  REQUIRE(order.empty());  // called from the loop
  RUN_UNTIL(loop, order.size() == 1);
  limit.set_most(2);
  RUN_UNTIL(loop, order.size() == 2);
  REQUIRE(order == std::vector{2, 3});
  second.reset();
  third.reset();
  REQUIRE(limit.taken() == 0);
}

TEST_CASE("redial: a place that another thread frees at once begins one attempt",
          "[redial][threads]") {
  DialLimit limit(1);
  Place place;
  const DialLimit::PlacePtr first = limit.enter(place.loop, [] {});
  std::atomic<bool> ended{false};
  std::thread other([&] {
    while (!ended) {
      limit.set_most(1);
      limit.set_most(2);
    }
  });
  place.settings.limit = &limit;
  int most_tried = 0;
  for (int round = 0; round < 20000 && most_tried < 2; ++round) {
    const int before = place.stuck->tried;
    Redial redial(place.registry, place.loop, conn::Endpoint::parse("stuck://h:1"), {},
                  place.settings);
    RUN_UNTIL(place.loop, redial.phase() == Phase::kDialling);
    testing::turns(place.loop, 2);
    most_tried = std::max(most_tried, place.stuck->tried - before);
  }
  ended = true;
  other.join();
  REQUIRE(most_tried == 1);
}

TEST_CASE("redial: an endpoint that nothing can use is refused at once", "[redial]") {
  Place place;
  const auto make = [&](const char* url) {
    Redial(place.registry, place.loop, conn::Endpoint::parse(url), {}, place.settings);
  };
  REQUIRE_THROWS_AS(make("tcp://127.0.0.1:1?no-such-option=1"), conn::Error);
  REQUIRE_THROWS_AS(make("nothing://127.0.0.1:1"), conn::Error);
}

namespace {

int tcp_option(const Connection& connection, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  REQUIRE(getsockopt(connection.fd(), IPPROTO_TCP, name, &value, &size) == 0);
  return value;
}

/// Drops everything that arrives at the socket, and at sockets accepted from now on.
void lose_all(int fd, bool lose) {
  sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &nothing};
  const int unused = 0;
  REQUIRE((lose ? setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)
                : setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused)) == 0);
}

}  // namespace

TEST_CASE("redial: over tcp it has options that notice a silent path, where the URL has none",
          "[redial]") {
  Place place;
  const std::string schemes = GENERATE("tcp", "stuck|tcp");
  place.stuck->fail_at_once = ECONNREFUSED;
  place.start(schemes);
  RUN_UNTIL(place.loop, place.ups == 1);
  REQUIRE(tcp_option(*place.redial->connection(), TCP_USER_TIMEOUT) == 3000);
  REQUIRE(tcp_option(*place.redial->connection(), TCP_KEEPIDLE) == 1);
  place.redial.emplace(
      place.registry, place.loop,
      conn::Endpoint::parse(schemes + "://127.0.0.1:" + std::to_string(place.port) +
                            "?user-timeout=7s&keepalive=9s"),
      place.handlers, place.settings);
  RUN_UNTIL(place.loop, place.ups == 2);
  REQUIRE(tcp_option(*place.redial->connection(), TCP_USER_TIMEOUT) == 7000);
  REQUIRE(tcp_option(*place.redial->connection(), TCP_KEEPIDLE) == 9);
}

TEST_CASE("redial: a path that loses everything is noticed, and used again when it does not",
          "[redial]") {
  Place place;
  place.settings.attempt = 300ms;
  testing::RawSocket port = testing::RawSocket::listening();
  const int listening = dup(port.fd());
  place.listener = place.registry.require("tcp").adopt_listener(
      place.loop, listening, [&](ConnectionPtr next) { place.servers.push_back(std::move(next)); });
  place.port = place.listener->endpoints().front().port;
  // A second client, which receives nothing although its server is reached.
  Redial::Handlers handlers;
  int deaf_ups = 0, deaf_downs = 0;
  handlers.up = [&](Connection&) { ++deaf_ups; };
  handlers.down = [&](Connection&, const Redial::Loss&) { ++deaf_downs; };
  place.start();
  Redial deaf(place.registry, place.loop,
              conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(place.port)), handlers,
              place.settings);
  RUN_UNTIL(place.loop, place.ups == 1 && deaf_ups == 1 && place.servers.size() == 2);
  lose_all(port.fd(), true);
  for (const ConnectionPtr& each : place.servers)
    if (each->peer_address() == place.redial->connection()->local_address())
      lose_all(each->fd(), true);
  lose_all(deaf.connection()->fd(), true);
  REQUIRE(place.redial->connection()->write("lost", 4) == 4);
  for (const ConnectionPtr& each : place.servers) REQUIRE(each->write("lost", 4) == 4);
  RUN_UNTIL(place.loop, place.downs == 1 && deaf_downs == 1);
  REQUIRE(place.last.unconfirmed == 4);
  REQUIRE(place.last.why);
  RUN_UNTIL(place.loop, place.redial->counters().failures > 0);
  lose_all(port.fd(), false);
  RUN_UNTIL(place.loop, place.ups == 2 && deaf_ups == 2);
}

TEST_CASE("redial: what a handler throws leaves the loop, and it goes on", "[redial]") {
  Place place;
  struct Thrown {};
  const std::string where = GENERATE("up", "down", "changed", "prove");
  CAPTURE(where);
  int thrown = 0;
  const auto may_throw = [&](const char* here) {
    if (where == here && ++thrown <= 3) throw Thrown();
  };
  place.on_up = [&](Connection&) { may_throw("up"); };
  place.on_down = [&](Connection&) { may_throw("down"); };
  if (where == "prove") {
    place.settings.proof = 5ms;
    place.handlers.prove = [&](Connection&, const Redial::Proved& proved) {
      may_throw("prove");
      proved(true);
    };
  }
  place.start();
  if (where == "changed")
    place.redial.emplace(place.registry, place.loop,
                         conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(place.port)),
                         Redial::Handlers{.up = place.handlers.up,
                                          .down = place.handlers.down,
                                          .prove = {},
                                          .changed = [&] { may_throw("changed"); }},
                         place.settings);
  int caught = 0;
  bool late = false;
  const ae::TimerId limit = place.loop.add_time_event(testing::patience(), [&] {
    late = true;
    return ae::kNoMore;
  });
  while (place.ups < 6 && !late) {
    try {
      (void)place.loop.process_events(ae::kFullIteration);
    } catch (const Thrown&) {
      ++caught;
    }
    if (place.redial->phase() == Phase::kUp) place.servers.clear();
  }
  place.loop.remove_time_event(limit);
  REQUIRE_FALSE(late);
  REQUIRE(caught == 3);
}
