// SPDX-License-Identifier: BSD-3-Clause
// The RDMA byte stream: keepalives and silence.
#if AECONN_RDMA

#include "conn/rdma/stream.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/stream_bench.h"

namespace conn::inline AECONN_ABI::rdma {
namespace {

using namespace std::chrono_literals;
using namespace test;
using std::chrono::milliseconds;

// --- time ----------------------------------------------------------------------------------------

TEST_CASE("rdma stream: keepalives are sent when nothing else was for half an interval",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.peer_registers(1000);
  bench.now += 2999ms;
  bench.tick();
  CHECK_FALSE(bench.post());
  bench.now += 1ms;
  bench.tick();
  CHECK(bench.post() == ControlMessage{.opcode = Opcode::kKeepalive});
  CHECK_FALSE(bench.post());
  bench.now += 2s;
  bench.write();  // data says as much
  bench.now += 1s;
  bench.tick();
  CHECK_FALSE(bench.post());
  bench.now += 3s;
  bench.tick();
  CHECK(bench.post());
}

TEST_CASE("rdma stream: with an interval of 0 there are no keepalives", "[rdma][stream]") {
  StreamConfig config = config_of(Role::kServer);
  config.keepalive = 0s;
  Bench bench(config);
  for (int i = 0; i < 10; ++i) {
    bench.now += 10s;
    bench.tick();
    CHECK_FALSE(bench.post());
  }
}

TEST_CASE("rdma stream: keepalives become writes of no bytes before the peer's receives run short",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  int keepalives = 0;
  for (int i = 0; i < 10000; ++i) {  // a client that never polls, for hours
    bench.now += 3s;
    bench.tick();
    if (bench.stream.wants_silent_probe()) {
      bench.stream.on_silent_probe_posted();
      CHECK_FALSE(bench.stream.wants_silent_probe());
      CHECK_FALSE(bench.post());
      continue;
    }
    const auto message = bench.post();
    REQUIRE(message);
    ++keepalives;
  }
  CHECK(keepalives == 512 - 32);
  CHECK(bench.stream.messages_sent() == 512 - 32);
  bench.claim(0);
  bench.now += 3s;
  bench.tick();
  CHECK(bench.post());
}

TEST_CASE("rdma stream: a peer that promised keepalives and is silent is dead after 3.25 intervals",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 1000});
  bench.now += 1s;
  bench.keepalive();
  CHECK(bench.stream.heard_from_peer());
  bench.now += 3250ms;
  bench.tick();
  CHECK_FALSE(bench.failed());
  SECTION("any message will do") {
    bench.claim(0);
    bench.now += 3250ms;
    bench.tick();
    CHECK_FALSE(bench.failed());
  }
  SECTION("silence") {
    bench.now += 1ms;
    bench.tick();
    CHECK(bench.failed());
  }
  SECTION("a loop that was stopped has proved nothing, but goes on to watch") {
    bench.now += 1h;
    bench.tick(true);
    CHECK_FALSE(bench.failed());
    bench.now += 3250ms;
    bench.tick();
    CHECK_FALSE(bench.failed());
    bench.now += 1ms;
    bench.tick();
    CHECK(bench.failed());
  }
}

TEST_CASE("rdma stream: the time before the connection stood is no silence", "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.now += 1h;  // created early, connected late
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 1000});
  bench.stream.on_open(bench.now);
  bench.tick();
  CHECK_FALSE(bench.failed());
  bench.now += 3250ms;
  bench.tick();
  CHECK_FALSE(bench.failed());
  bench.now += 1ms;
  bench.tick();
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: two idle peers keep each other alive", "[rdma][stream]") {
  const milliseconds interval = GENERATE(as<milliseconds>{}, 100, 3000);
  const bool busy = GENERATE(false, true);  // one side sends now and then
  CAPTURE(interval.count(), busy);
  StreamConfig config = config_of(Role::kServer);
  config.keepalive = interval;
  Bench server(config);
  config.role = Role::kClient;
  Bench client(config);
  server.stream.on_hello(client.stream.hello());
  client.stream.on_hello(server.stream.hello());
  server.peer_registers(1000000);
  client.peer_registers(1000000);
  for (int i = 0; i < 10000; ++i) {
    for (auto [from, to] : {std::pair{&server, &client}, std::pair{&client, &server}}) {
      from->now += interval / 3 + 1ms;
      from->tick();
      while (const auto message = from->post()) to->control(*message);
      if (busy && from == &server && i % 4 == 0 && from->write()) to->claim(0);
      REQUIRE_FALSE(from->failed());
    }
  }
  CHECK(server.stream.unproven_messages() < 300);
  CHECK(client.stream.unproven_messages() < 300);
}

TEST_CASE("rdma stream: a peer that promised nothing may be silent for ever", "[rdma][stream]") {
  const auto hello = GENERATE(std::optional<Hello>{}, std::optional(Hello{kAll, 0}),
                              std::optional(Hello{kAll | Hello::kSendsKeepalives, 0}),
                              std::optional(Hello{kAll, 1000}));
  Bench bench(Role::kClient);
  if (hello) bench.stream.on_hello(*hello);
  for (int i = 0; i < 10; ++i) {
    bench.now += 1h;
    bench.tick();
    CHECK_FALSE(bench.failed());
  }
}

TEST_CASE("rdma stream: the longest interval a hello can name does not overflow",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.stream.on_hello({~0u, ~0u});
  bench.tick();
  bench.now += std::chrono::hours(24 * 100);
  bench.tick();
  CHECK_FALSE(bench.failed());
  bench.now += std::chrono::hours(24 * 100);
  bench.tick();
  CHECK(bench.failed());
}

}  // namespace
}  // namespace conn::inline AECONN_ABI::rdma

#endif  // AECONN_RDMA
