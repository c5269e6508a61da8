// SPDX-License-Identifier: BSD-3-Clause
// Lists of schemes such as rdma|tcp://host:port: which scheme is taken, when the next one begins,
// what is reported about the others, and that nothing is left of them. The order itself is tested
// in race_test.cc, everything else by the conformance tests over absent|tcp.

#include "conn/fallback.h"

#include <thread>

#include "conn/co.h"
#include "conn/fallback_type.h"
#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Fallback;
using conn::SkipReason;
using conn::State;
using testing::Contains;
using namespace std::chrono_literals;

namespace {

std::uint64_t counted(const conn::ConnectionType& type, ae::EventLoop& loop,
                      std::string_view name) {
  for (const auto& [key, value] : type.statistics(loop)) {
    if (key == name) return value;
  }
  FAIL("no counter " << name);
  return 0;
}

/// The value of an entry of info(); "" if there is none.
std::string fact(const ConnectionPtr& connection, std::string_view name) {
  for (const auto& [key, value] : connection->info()) {
    if (key == name) return value;
  }
  return {};
}

/// A tcp server, and lists that begin with what the test decides about.
struct Place {
  Place() {
    registry.add(std::make_unique<conn::tcp::TcpType>());
    stuck = &static_cast<testing::StuckType&>(
        registry.add(std::make_unique<testing::StuckType>("stuck")));
    other = &static_cast<testing::StuckType&>(
        registry.add(std::make_unique<testing::StuckType>("other")));
    registry.add_unavailable("absent", "nobody built it");
    registry.on_fallback([this](const Fallback& fallback) { told.push_back(fallback); });
    listener = registry.listen(loop, "tcp://127.0.0.1:0",
                               [this](ConnectionPtr next) { server = std::move(next); });
    port = listener->endpoints().front().port;
  }
  std::string url(const std::string& schemes, const std::string& options = "") const {
    return schemes + "://127.0.0.1:" + std::to_string(port) + options;
  }
  ConnectionPtr connect(const std::string& where) {
    return registry.connect(loop, where, [this](Connection&) { ++done; });
  }
  conn::Registry registry;  // outlives what the loop destroys last
  testing::AnyLoop loop;
  testing::StuckType *stuck, *other;
  conn::ListenerPtr listener;
  std::uint16_t port = 0;
  ConnectionPtr server;
  std::vector<Fallback> told;
  int done = 0;
};

}  // namespace

TEST_CASE("fallback: prepare() refuses what listen() refuses", "[fallback]") {
  Place place;
  const auto list = [&](const std::string& options) {
    return conn::Endpoint::parse(place.url("stuck|tcp", options));
  };
  const conn::ConnectionType& type = place.registry.require("stuck|tcp");
  CHECK_NOTHROW(type.prepare(list("?fallback-delay=1s")));
  for (const char* const options : {"?fallback-delay=never", "?connect-timeout=0"}) {
    CAPTURE(options);
    CHECK_THROWS_AS(type.check(list(options)), conn::Error);
    CHECK_THROWS_AS(type.prepare(list(options)), conn::Error);
    CHECK_THROWS_AS(type.prepare_client(list(options)), conn::Error);
  }
}

TEST_CASE("fallback: the first that is ready is taken, and nothing is told", "[fallback]") {
  Place place;
  const ConnectionPtr client = place.connect(place.url("tcp|stuck"));
  REQUIRE(client->state() == State::kConnecting);
  REQUIRE(place.done == 0);  // never before connect() returns
  RUN_UNTIL(place.loop, place.done == 1 && place.server);
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(client->type().name() == "tcp|stuck");
  REQUIRE(fact(client, "carrier") == "tcp");
  REQUIRE(fact(client, "not-stuck").empty());
  REQUIRE(place.told.empty());
  REQUIRE(place.stuck->tried == 0);
  REQUIRE(counted(client->type(), place.loop, "fallbacks") == 0);
}

TEST_CASE("fallback: what fails is followed at once, and the reason is told everywhere",
          "[fallback]") {
  Place place;
  place.stuck->fail_at_once = ECONNREFUSED;
  const ConnectionPtr client = place.connect(place.url("stuck|tcp", "?fallback-delay=24h"));
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(place.told.size() == 1);
  const Fallback& told = place.told.front();
  REQUIRE(told.to == place.url("stuck|tcp"));
  REQUIRE(told.taken == "tcp");
  REQUIRE(told.not_taken.size() == 1);
  REQUIRE(told.not_taken[0].scheme == "stuck");
  REQUIRE(told.not_taken[0].kind == SkipReason::kRefused);
  REQUIRE_THAT(told.not_taken[0].why.text, Contains("connect by stuck"));
  REQUIRE_THAT(conn::describe(told.not_taken), Contains("not stuck: "));
  REQUIRE(counted(client->type(), place.loop, "fallbacks") == 1);
  REQUIRE(counted(client->type(), place.loop, "fallback_refused") == 1);
  REQUIRE(counted(client->type(), place.loop, "fallback_slower") == 0);
  const auto facts = client->info();
  REQUIRE(facts.at(0) == std::pair<std::string, std::string>("carrier", "tcp"));
  REQUIRE(facts.at(1).first == "not-stuck");
  const std::string path = client->path();
  REQUIRE(path.starts_with("tcp 127.0.0.1:"));
  REQUIRE(path.ends_with("; " + conn::describe(told.not_taken)));
}

TEST_CASE("fallback: an established connection does what the transport that carries it can do",
          "[fallback]") {
  Place place;
  place.stuck->fail_at_once = ECONNREFUSED;
  place.stuck->can = {};  // and the list can do no more
  ConnectionPtr client = place.connect(place.url("stuck|tcp"));
  const std::uint64_t id = client->id();
  RUN_UNTIL(place.loop, place.done == 1 && place.server);
  REQUIRE(client->state() == State::kConnected);
  REQUIRE_FALSE(client->type().capabilities().half_close);
  REQUIRE(client->id() == id);
  CHECK(client->fd() >= 0);
  const conn::ConnectionType& tcp = place.registry.require("tcp");
  CHECK(counted(tcp, place.loop, "open") == 2);  // both ends; nothing else is left of the dial
  CHECK(counted(client->type(), place.loop, "connected") == 1);
  CHECK(counted(client->type(), place.loop, "open") == 0);
  testing::send(place.loop, *client, "data");
  CHECK(testing::receive(place.loop, *place.server, 4) == "data");
  CHECK(counted(tcp, place.loop, "bytes_written") == 4);
  SECTION("half-close") {
    REQUIRE(client->shutdown() == 0);
    char c = 0;
    RUN_UNTIL(place.loop, place.server->read(&c, 1) == 0);
    testing::send(place.loop, *place.server, "rest");
    CHECK(testing::receive(place.loop, *client, 4) == "rest");
  }
  SECTION("moving to another loop") {
    testing::AnyLoop other;
    REQUIRE(client->rebind(other));
    RUN_UNTIL(other, client->loop() == &other);
    testing::send(place.loop, *place.server, "here");
    CHECK(testing::receive(other, *client, 4) == "here");
    client.reset();
    RUN_UNTIL(other, counted(tcp, other, "open") == 0);
  }
  SECTION("abort, in a handler") {
    client->set_write_handler([&](Connection&) { client.release()->abort(); });
    char c = 0;
    RUN_UNTIL(place.loop, place.server->read(&c, 1) < 0 && errno != EAGAIN);
    CHECK(errno == ECONNRESET);
  }
  client.reset();
  RUN_UNTIL(place.loop, counted(tcp, place.loop, "open") <= 1);
}

TEST_CASE("fallback: a way that hangs has its head start, then the next runs beside it",
          "[fallback]") {
  Place place;
  const ConnectionPtr client = place.connect(place.url("stuck|tcp", "?fallback-delay=20ms"));
  REQUIRE(place.stuck->waiting.size() == 1);
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(fact(client, "carrier") == "tcp");
  REQUIRE(place.told.at(0).not_taken.at(0).kind == SkipReason::kSlower);
  REQUIRE_THAT(place.told[0].not_taken[0].why.text, Contains("and tcp was"));
  REQUIRE(place.stuck->waiting.empty());  // nothing is left of it
  testing::turns(place.loop, 2);
  REQUIRE(place.stuck->counters(place.loop).open == 0);
  REQUIRE(counted(client->type(), place.loop, "fallback_slower") == 1);
}

TEST_CASE("fallback: the preferred way may still win after its head start", "[fallback]") {
  Place place;
  const ConnectionPtr client = place.connect(place.url("stuck|other", "?fallback-delay=1ms"));
  RUN_UNTIL(place.loop, place.other->waiting.size() == 1);
  REQUIRE(place.stuck->waiting.size() == 1);
  place.stuck->connect_all();
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(fact(client, "carrier") == "stuck");
  REQUIRE(place.other->waiting.empty());
  REQUIRE(place.told.empty());
}

TEST_CASE("fallback: what this build or machine does not have is a reason too", "[fallback]") {
  Place place;
  place.stuck->broken = true;
  const ConnectionPtr client = place.connect(place.url("absent|stuck|tcp"));
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(client->state() == State::kConnected);
  const auto& not_taken = place.told.at(0).not_taken;
  REQUIRE(not_taken.size() == 2);
  REQUIRE(not_taken[0].kind == SkipReason::kUnavailable);
  REQUIRE(not_taken[0].why.text == "absent is not available: nobody built it");
  REQUIRE(not_taken[1].kind == SkipReason::kNoDevice);
  REQUIRE(not_taken[1].why.text == "stuck has no device");
}

TEST_CASE("fallback: where no way is left, the failure names them all", "[fallback]") {
  Place place;
  place.stuck->fail_at_once = EHOSTUNREACH;
  place.other->fail_at_once = ECONNREFUSED;
  const ConnectionPtr client = place.connect(place.url("absent|stuck|other"));
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(client->state() == State::kError);
  REQUIRE(client->error_code() == std::errc::connection_refused);
  REQUIRE_THAT(client->last_error(),
               Contains("not absent: ") && Contains("not stuck: ") && Contains("not other: "));
  REQUIRE(place.told.empty());  // no scheme was taken
  testing::turns(place.loop, 3);
  REQUIRE(place.done == 1);
}

TEST_CASE("fallback: a scheme that cannot be set up is reported with the code of the cause",
          "[fallback]") {
  const auto [err, kind] = GENERATE(
      std::pair(EACCES, SkipReason::kOther), std::pair(EMFILE, SkipReason::kOther),
      std::pair(ENOMEM, SkipReason::kOther), std::pair(EINVAL, SkipReason::kOther),
      std::pair(ENODEV, SkipReason::kNoDevice), std::pair(ENETUNREACH, SkipReason::kUnreachable));
  const std::error_code cause(err, std::generic_category());
  CAPTURE(err);
  Place place;
  place.stuck->broken = true;
  place.stuck->create_error = err;
  place.other->fail_at_once = ECONNREFUSED;
  SECTION("it is the reason why another scheme was taken") {
    const ConnectionPtr client = place.connect(place.url("stuck|tcp"));
    RUN_UNTIL(place.loop, place.done == 1);
    REQUIRE(client->state() == State::kConnected);
  }
  SECTION("so it is in a blocking connect") {
    const conn::Endpoint to = conn::Endpoint::parse(place.url("stuck|tcp"));
    const ConnectionPtr client = place.registry.create(place.loop, to);
    REQUIRE(client->connect_blocking(to, testing::patience()));
  }
  if (!place.told.empty()) {
    const conn::Skipped& skipped = place.told.at(0).not_taken.at(0);
    CHECK(skipped.why.code == cause);
    CHECK(skipped.kind == kind);
    CHECK_THAT(skipped.why.text, Contains("stuck "));
  }
  SECTION("the failure of a list has the code of the last scheme that was tried") {
    for (const bool blocking : {false, true}) {
      for (const char* const schemes : {"other|stuck", "other|stuck|absent", "absent|stuck"}) {
        CAPTURE(schemes, blocking);
        const conn::Endpoint to = conn::Endpoint::parse(place.url(schemes));
        const ConnectionPtr client = place.registry.create(place.loop, to);
        if (blocking) {
          CHECK_FALSE(client->connect_blocking(to, testing::patience()));
          CHECK(errno == err);
        } else {
          client->connect(to, [&](Connection&) { ++place.done; });
          RUN_UNTIL(place.loop, place.done == 1);
          place.done = 0;
        }
        CHECK(client->error_code() == cause);
        CHECK_THAT(client->last_error(), Contains("not stuck: stuck "));
        if (to.scheme.starts_with("other"))
          CHECK_THAT(client->last_error(), Contains("not other: connect by other"));
        if (to.scheme.find("absent") != std::string::npos)
          CHECK_THAT(client->last_error(), Contains("not absent: absent is not available"));
      }
    }
  }
}

TEST_CASE("fallback: a list that cannot listen has the code of the last scheme that was tried",
          "[fallback]") {
  Place place;
  place.stuck->listen_error = EACCES;
  const auto refused = [&](const std::string& schemes) {
    try {
      (void)place.registry.listen(place.loop, place.url(schemes), [](ConnectionPtr) {});
    } catch (const conn::Error& error) {
      CHECK_THAT(error.what(), Contains("not stuck: stuck does not listen"));
      return error.code();
    }
    return std::error_code();
  };
  CHECK(refused("tcp|stuck") == std::errc::permission_denied);
  CHECK(refused("stuck|absent") == std::errc::permission_denied);
  CHECK(refused("stuck|tcp") == std::errc::address_in_use);  // place.listener has the port
  const conn::ListenerPtr listener =
      place.registry.listen(place.loop, "stuck|tcp://127.0.0.1:0", [](ConnectionPtr) {});
  REQUIRE(listener->not_served().size() == 1);
  CHECK(listener->not_served()[0].why.code == std::errc::permission_denied);
}

TEST_CASE("fallback: one time-out for all ways together", "[fallback]") {
  Place place;
  const ConnectionPtr client =
      place.connect(place.url("stuck|other", "?fallback-delay=1ms&connect-timeout=30ms"));
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(client->state() == State::kError);
  REQUIRE(client->error_code() == std::errc::timed_out);
  REQUIRE(place.stuck->waiting.empty());
  REQUIRE(place.other->waiting.empty());
}

TEST_CASE("fallback: a scheme alone never falls back", "[fallback]") {
  Place place;
  place.stuck->fail_at_once = ECONNREFUSED;
  const ConnectionPtr client = place.connect(place.url("stuck"));
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(client->state() == State::kError);
  REQUIRE_THROWS_WITH(place.connect(place.url("absent")),
                      "absent is not available: nobody built it");
  REQUIRE_FALSE(place.server);
}

TEST_CASE("fallback: close() while it dials leaves nothing", "[fallback]") {
  Place place;
  ConnectionPtr client = place.connect(place.url("stuck|other", "?fallback-delay=0ms"));
  RUN_UNTIL(place.loop, place.other->waiting.size() == 1);
  client.reset();
  REQUIRE(place.stuck->waiting.empty());
  REQUIRE(place.other->waiting.empty());
  testing::turns(place.loop, 3);
  REQUIRE(place.done == 0);
}

TEST_CASE("fallback: the loop may end while it dials, and under a connection", "[fallback]") {
  Place place;
  ConnectionPtr dialling, standing;
  {
    testing::AnyLoop loop;
    bool stands = false;
    dialling = place.registry.connect(loop, place.url("stuck|other"), [](Connection&) {});
    conn::ListenerPtr listener = place.registry.listen(loop, "tcp://127.0.0.1:0", [](auto) {});
    conn::Endpoint to = listener->endpoints().front();
    to.scheme = "absent|tcp";
    standing = place.registry.connect(loop, to.to_string(), [&](Connection&) { stands = true; });
    RUN_UNTIL(loop, stands);
  }
  REQUIRE(dialling->state() == State::kError);
  REQUIRE(standing->state() == State::kError);
}

TEST_CASE("fallback: blocking, one after the other within the time", "[fallback]") {
  Place place;
  conn::Endpoint to = conn::Endpoint::parse(place.url("absent|stuck|tcp"));
  const ConnectionPtr client = place.registry.create(place.loop, to);
  REQUIRE(client->connect_blocking(to, testing::patience()));
  REQUIRE(place.stuck->tried == 1);
  REQUIRE(place.told.at(0).not_taken.at(1).kind == SkipReason::kTimedOut);
  const ConnectionPtr none = place.registry.create(place.loop, to);
  to.scheme = "absent|stuck";
  REQUIRE_FALSE(none->connect_blocking(to, 1s));
  REQUIRE_THAT(none->last_error(), Contains("not absent: ") && Contains("not stuck: "));
}

TEST_CASE("fallback: an Error of on_fallback() in a blocking connect ends it and nothing is tried",
          "[fallback]") {
  Place place;
  int accepted = 0;
  const conn::ListenerPtr listener =
      place.registry.listen(place.loop, "tcp://127.0.0.1:0", [&](ConnectionPtr) { ++accepted; });
  place.registry.on_fallback([](const Fallback&) { throw conn::Error("the program's own"); });
  conn::Endpoint to = conn::Endpoint::parse(place.url("absent|tcp|other"));
  to.port = listener->endpoints().front().port;
  const ConnectionPtr client = place.registry.create(place.loop, to);
  REQUIRE_FALSE(client->connect_blocking(to, testing::patience()));
  REQUIRE(client->last_error() == "the program's own");
  RUN_UNTIL(place.loop, accepted == 1);
  testing::turns(place.loop, 5);
  REQUIRE(accepted == 1);
  REQUIRE(place.other->tried == 0);
}

TEST_CASE("fallback: a listener serves what can be had and says why of the others", "[fallback]") {
  Place place;
  const conn::ListenerPtr listener =
      place.registry.listen(place.loop, "absent|stuck|tcp://127.0.0.1:0", [](ConnectionPtr) {});
  const auto endpoints = listener->endpoints();
  REQUIRE(endpoints.size() == 1);
  REQUIRE(endpoints[0].scheme == "tcp");
  REQUIRE(endpoints[0].port != 0);
  const auto missing = listener->not_served();
  REQUIRE(missing.size() == 2);
  REQUIRE(missing[0].why.text == "absent is not available: nobody built it");
  REQUIRE(missing[1].why.text == "stuck does not listen");
  REQUIRE_THROWS_WITH(place.registry.listen(place.loop, "absent|stuck://127.0.0.1:0", [](auto) {}),
                      Contains("not absent: ") && Contains("not stuck: "));
  REQUIRE(place.listener->not_served().empty());
}

TEST_CASE("fallback: each option goes to the transports that know it", "[fallback]") {
  Place place;
  const auto check = [&](const std::string& options) {
    const conn::Endpoint endpoint = conn::Endpoint::parse(place.url("stuck|tcp", options));
    place.registry.require(endpoint.scheme).check(endpoint);
  };
  REQUIRE_NOTHROW(check("?glue=much&nodelay=no&connect-timeout=1s&fallback-delay=1ms"));
  REQUIRE_THROWS_WITH(check("?paint=red"), Contains("none of stuck|tcp has an option paint"));
  REQUIRE_THROWS_WITH(check("?nodelay=maybe"), Contains("nodelay=maybe"));
  REQUIRE_THROWS_WITH(check("?fallback-delay=never"), Contains("fallback-delay=never"));
  const conn::Endpoint no_port = conn::Endpoint::parse("stuck|tcp://127.0.0.1?nodelay=no");
  REQUIRE_THROWS_WITH(place.registry.require("stuck|tcp").check(no_port), Contains("needs a port"));
  const conn::FallbackType& type = *place.registry.list("stuck|tcp");
  const auto ways =
      type.candidates_for(conn::Endpoint::parse(place.url("stuck|tcp", "?glue=x&linger=1s")));
  REQUIRE(ways.at(0).to.options.to_string() == "glue=x");
  REQUIRE(ways.at(1).to.options.to_string() == "linger=1s");
}

TEST_CASE("fallback: the limits of a list are those of each that can be had", "[fallback]") {
  Place place;
  const auto limits = [&](const std::string& schemes) {
    const conn::Endpoint at = conn::Endpoint::parse(place.url(schemes));
    std::vector<std::string> names;
    for (const conn::Capacity& each : place.registry.require(schemes).capacity(at, 5))
      names.push_back(each.name + (each.enough() ? "" : ": too low"));
    return names;
  };
  REQUIRE(limits("stuck|absent|other|tcp") ==
          std::vector<std::string>{"stuck: too low", "other: too low", "descriptors (nofile)"});
  place.stuck->broken = true;
  REQUIRE(limits("stuck|tcp") == std::vector<std::string>{"descriptors (nofile)"});
  REQUIRE_THROWS_WITH(limits("absent|stuck"), Contains("not stuck: stuck has no device"));
}

TEST_CASE("fallback: what is pending for a scheme is pending for the list", "[fallback]") {
  Place place;
  const conn::ConnectionType& list = place.registry.require("stuck|absent|other");
  CHECK_FALSE(list.has_pending_data(place.loop));
  CHECK(list.process_pending_data(place.loop) == 0);
  place.other->pending = 2;
  CHECK(list.has_pending_data(place.loop));
  place.stuck->pending = 3;
  CHECK(list.process_pending_data(place.loop) == 5);
  CHECK_FALSE(list.has_pending_data(place.loop));
  list.cleanup(place.loop);
  CHECK(place.stuck->cleanups == 1);
  CHECK(place.other->cleanups == 1);
}

TEST_CASE("fallback: what a full server asked for is passed on, however it was asked",
          "[fallback]") {
  Place place;
  place.stuck->fail_at_once = place.other->fail_at_once = ECONNREFUSED;
  place.stuck->retry_after = 1500ms;
  const conn::Endpoint to = conn::Endpoint::parse(place.url("stuck|other"));
  const ConnectionPtr waited = place.registry.create(place.loop, to);
  REQUIRE_FALSE(waited->connect_blocking(to, 10s));
  REQUIRE(waited->retry_after() == 1500ms);
  const ConnectionPtr client = place.connect(to.to_string());
  RUN_UNTIL(place.loop, place.done == 1);
  REQUIRE(client->retry_after() == 1500ms);
  conn::co::Scope scope;
  conn::Failure told;
  const auto ask = [](Place& here, conn::Endpoint where, conn::Failure& why) -> conn::co::Task<> {
    why = (co_await conn::co::connect(here.registry, here.loop, where)).failure;
  };
  scope.spawn(ask(place, to, told));
  RUN_UNTIL(place.loop, scope.empty());
  REQUIRE(told.retry_after == 1500ms);
}

TEST_CASE("fallback: a blocking connect may take as long as the list says, not its transport",
          "[fallback]") {
  Place place;
  place.stuck->fail_at_once = ECONNREFUSED;
  place.registry.require("tcp").configure({{"connect-timeout", "50ms"}});
  // While one connection waits there, the kernel drops requests, which are sent again after 1 s.
  const testing::RawSocket full = testing::RawSocket::listening(0);
  const testing::RawSocket first = testing::RawSocket::connect(full.endpoint());
  conn::Endpoint to = full.endpoint();
  to.scheme = "stuck|tcp";
  to.options = {{"connect-timeout", "20s"}};
  const ConnectionPtr client = place.registry.create(place.loop, to);
  std::thread server([&] {
    std::this_thread::sleep_for(200ms);
    (void)full.accept();
  });
  const bool connected = client->connect_blocking(to, testing::patience());
  server.join();
  INFO(client->last_error());
  REQUIRE(connected);
}

TEST_CASE("fallback: a list needs schemes that are known, and one that can be had", "[fallback]") {
  Place place;
  REQUIRE(place.registry.find("stuck|tcp") == &place.registry.require("stuck|tcp"));
  REQUIRE(place.registry.find("tcp|nonsense") == nullptr);
  REQUIRE_THROWS_WITH(place.registry.require("tcp|nonsense"),
                      Contains("there is no transport nonsense"));
  place.registry.add_unavailable("lost", "gone");
  REQUIRE_THROWS_WITH(place.registry.require("absent|lost"),
                      "absent is not available: nobody built it; lost is not available: gone");
}

#if AECONN_RDMA
TEST_CASE("fallback: rdma|tcp to a server on tcp alone", "[fallback][rdma]") {
  conn::Registry registry = testing::test_registry();
  std::vector<Fallback> told;
  registry.on_fallback([&](const Fallback& one) { told.push_back(one); });
  testing::AnyLoop loop;
  ConnectionPtr server;
  const conn::ListenerPtr listener = registry.listen(
      loop, "tcp://127.0.0.1:0", [&](ConnectionPtr next) { server = std::move(next); });
  conn::Endpoint to = listener->endpoints().front();
  to.scheme = "rdma|tcp";
  bool done = false;
  const ConnectionPtr client =
      registry.connect(loop, to.to_string(), [&](Connection&) { done = true; });
  RUN_UNTIL(loop, done && server);
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(told.at(0).taken == "tcp");
  REQUIRE(told.at(0).not_taken.at(0).scheme == "rdma");
  INFO(told[0].not_taken[0].why.text);
  REQUIRE(told[0].not_taken[0].kind != SkipReason::kOther);
}
#endif
