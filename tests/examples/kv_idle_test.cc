// SPDX-License-Identifier: BSD-3-Clause
// Option --timeout of kv-server: which clients are idle, and for how long.

#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "examples/kv_server/metrics_server.h"
#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"
#include "tests/support/testing.h"
#include "tests/support/wall_clock.h"

using kv::Server;
using kv::Session;
using kv_kit::call;
using kv_kit::request;
using testing::WallClock;
using namespace std::chrono_literals;

namespace {

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
