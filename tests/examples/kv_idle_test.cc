// SPDX-License-Identifier: BSD-3-Clause
// Option --timeout of kv-server: which clients are idle, and for how long.

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "examples/kv_server/metrics_server.h"
#include "examples/kv_server/server.h"
#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"
#include "tests/support/testing.h"
#include "tests/support/wall_clock.h"

using conn::Connection;
using conn::ConnectionPtr;
using kv::Server;
using kv::Session;
using kv_kit::bulk;
using kv_kit::call;
using kv_kit::request;
using testing::Site;
using testing::WallClock;
using namespace std::chrono_literals;

namespace {

std::int64_t clock_us = 1'700'000'000'000'000;
std::int64_t test_clock() { return clock_us; }

kv::SessionInfo info() { return {"tcp", "10.0.0.1:1", "10.0.0.9:6379", 7}; }

/// Ticks until the condition holds.
template <class Condition>
void tick_until(Server& server, Condition condition) {
  const auto until = std::chrono::steady_clock::now() + testing::patience();
  while (!condition()) {
    REQUIRE(std::chrono::steady_clock::now() < until);
    std::this_thread::sleep_for(10ms);
    server.tick();
  }
}

/// kv-server with one loop, whose time passes as the test says.
struct KvSite : Site {
  explicit KvSite(const testing::Transport& its_transport, const char* send_buffer = "64k",
                  const char* ring = "64k")
      : Site(its_transport) {
    conn::Endpoint where = fresh();
    if (type.find_option("send-buffer") != nullptr) where.options.set("send-buffer", send_buffer);
    network.listen(where.to_string());
    address = conn::Endpoint::parse(network.urls().front());
    if (type.find_option("receive-buffer") != nullptr) address.options.set("receive-buffer", "64k");
    if (type.find_option("ring") != nullptr) address.options.set("ring", ring);
  }
  ConnectionPtr client() {
    ConnectionPtr made = connect(address);
    RUN_UNTIL(loop, made->state() != conn::State::kConnecting);
    INFO(made->last_error());
    REQUIRE(made->state() == conn::State::kConnected);
    return made;
  }
  Server server{test_clock};
  kv::NetworkServer network{loop, registry, server};
  conn::Endpoint address;
};

/// Takes so many pieces of a reply, one in four seconds, without being idle; then nothing, until it
/// is.
void takes_slowly(KvSite& site, Connection& client, int pieces, std::size_t size) {
  for (int piece = 0; piece < pieces; ++piece) {
    REQUIRE(testing::receive(site.loop, client, size).size() == size);
    testing::turns(site.loop, 5);
    clock_us += 4'000'000;
    site.server.tick();
    CAPTURE(piece);
    REQUIRE(site.server.statistics.timed_out == 0);
  }
  for (int second = 0; second < 40; ++second) {
    clock_us += 1'000'000;
    site.server.tick();
    testing::turns(site.loop, 1);
  }
  CHECK(site.server.statistics.timed_out == 1);
}

}  // namespace

TEST_CASE("kv idle: a wall clock that is set neither closes clients nor keeps them", "[kv]") {
  WallClock wall;
  Server server;
  Session session(server, info());
  SECTION("forward") {
    server.config.timeout_seconds = 600;
    WallClock::jump(1h);
    server.tick();
    CHECK_FALSE(session.killed());
    CHECK(server.statistics.timed_out == 0);
  }
  SECTION("back") {
    server.config.timeout_seconds = 1;
    WallClock::jump(-1h);
    tick_until(server, [&] { return session.killed(); });
    CHECK(server.statistics.timed_out == 1);
  }
  SECTION("back, while a client waits after wrong passwords") {
    server.config.requirepass = "secret";
    Session guest(server, info());
    for (int i = 0; i < 4; ++i) call(guest, {"AUTH", "wrong"});
    guest.feed(request({"PING"}));
    REQUIRE(guest.execute() == Session::Progress::kHeld);
    WallClock::jump(-1h);
    tick_until(server, [&] { return guest.execute() != Session::Progress::kHeld; });
  }
  SECTION("the times that are shown") {
    WallClock::jump(-1h);
    const std::string info = call(session, {"INFO", "server"});
    CHECK(info.find("uptime_in_seconds:0\r\n") != std::string::npos);
    CHECK(call(session, {"CLIENT", "LIST"}).find(" age=0 idle=0 ") != std::string::npos);
  }
}

TEST_CASE("kv idle: metrics give the date on which the server started", "[kv]") {
  kv::Together together({}, 1);
  Server server(together, 0);
  const std::string text = kv::metrics_of(std::vector{kv::figures_of(server)}, together);
  const std::string name = "\nkv_start_time_seconds ";
  const std::size_t at = text.find(name);
  REQUIRE(at != std::string::npos);
  const std::time_t now = std::time(nullptr);
  CHECK(std::atoll(text.c_str() + at + name.size()) <= now);
  CHECK(std::atoll(text.c_str() + at + name.size()) > now - 60);
}

TEST_CASE("kv idle: who takes a large value slowly is not idle, who takes none of it is",
          "[kv][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const ConnectionPtr slow = site.client();
    const std::string value(3 << 20, 'x');
    testing::send(site.loop, *slow, request({"SET", "key", value}));
    REQUIRE(testing::receive(site.loop, *slow, 5) == "+OK\r\n");
    site.server.config.timeout_seconds = 10;
    testing::send(site.loop, *slow, request({"GET", "key"}));
    const std::size_t all = bulk(value).size();
    for (std::size_t got = 0; got < all;) {
      const std::size_t piece = std::min<std::size_t>(all - got, 256 << 10);
      REQUIRE(testing::receive(site.loop, *slow, piece).size() == piece);
      got += piece;
      testing::turns(site.loop, 5);
      clock_us += 3'000'000;
      site.server.tick();
      CAPTURE(got);
      REQUIRE(site.server.statistics.timed_out == 0);
    }
    testing::send(site.loop, *slow, request({"GET", "key"}));
    testing::await_readable(site.loop, *slow);
    testing::turns(site.loop, 5);
    for (int second = 0; second < 30; ++second) {
      clock_us += 1'000'000;
      site.server.tick();
      testing::turns(site.loop, 1);
    }
    CHECK(site.server.statistics.timed_out == 1);
  }
}

TEST_CASE("kv idle: who takes a long reply of text slowly is not idle, who takes none of it is",
          "[kv][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport, "256k");
    const ConnectionPtr slow = site.client();
    testing::send(site.loop, *slow, request({"SET", "key", std::string(10'000, 'x')}));
    REQUIRE(testing::receive(site.loop, *slow, 5) == "+OK\r\n");
    site.server.config.timeout_seconds = 10;
    std::vector<std::string> many(301, "key");
    many[0] = "MGET";
    testing::send(site.loop, *slow, request(many));
    // In 12 seconds it takes more than the pieces in which a kernel frees a send buffer, and less
    // than what has to be free before a Unix socket is writable again.
    const std::size_t size = 48 << 10;
    CAPTURE(transport.name);
    takes_slowly(site, *slow, 40, size);
  }
}

TEST_CASE("kv idle: who takes slowly what already left the server is not idle", "[kv][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    // These know how much of what they hold the client has not read.
    if (!transport.name.ends_with("shm") && !transport.name.ends_with("unix")) return;
    KvSite site(transport, "1m", "1m");
    const ConnectionPtr slow = site.client();
    const std::string value(10'000, 'x');
    testing::send(site.loop, *slow, request({"SET", "key", value}));
    REQUIRE(testing::receive(site.loop, *slow, 5) == "+OK\r\n");
    site.server.config.timeout_seconds = 10;
    std::vector<std::string> many(33, "key");
    many[0] = "MGET";
    testing::send(site.loop, *slow, request(many));
    testing::turns(site.loop, 20);
    const std::size_t size = 16 << 10;
    CAPTURE(transport.name);
    takes_slowly(site, *slow, 15, size);
  }
}

TEST_CASE("kv idle: a session whose facts cannot be given is asked again", "[kv]") {
  Server server(test_clock);
  kv::SessionInfo asked = info();
  bool out_of_memory = false;
  int calls = 0;
  asked.facts = [&]() -> kv::SessionInfo::Facts {
    if (++calls > 3) return {};
    if (out_of_memory) throw std::bad_alloc();
    throw std::runtime_error("not now");
  };
  SECTION("without memory") { out_of_memory = true; }
  SECTION("for another reason") {}
  Session session(server, asked);
  server.config.timeout_seconds = 10;
  for (int second = 0; second < 14; ++second) {
    CHECK_FALSE(session.killed());
    clock_us += 1'000'000;
    server.tick();
  }
  CHECK(calls == 4);
  CHECK(session.killed());
}
