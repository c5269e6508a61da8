// SPDX-License-Identifier: BSD-3-Clause
// The RDMA byte stream: keepalives, and detection of silent peers.
#if AECONN_RDMA

#include "conn/rdma/protocol/stream.h"

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

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

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
  bench.write();  // data replaces a keepalive
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
  for (int i = 0; i < 10000; ++i) {  // hours with a client that never polls
    bench.now += 3s;
    bench.tick();
    if (bench.stream.liveness().wants_probe()) {
      bench.stream.liveness().on_probe_posted();
      CHECK_FALSE(bench.stream.liveness().wants_probe());
      CHECK_FALSE(bench.post());
      continue;
    }
    const auto message = bench.post();
    REQUIRE(message);
    ++keepalives;
  }
  CHECK(keepalives == 512 - 32);
  CHECK(bench.stream.outbound().proof().sent() == 512 - 32);
  bench.claim(0);
  bench.now += 3s;
  bench.tick();
  CHECK(bench.post());
}

namespace {
/// iWARP: completions do not prove that the peer's device is alive.
StreamConfig without_proof(Role role) {
  StreamConfig config = config_of(role);
  config.completions_prove = false;
  return config;
}
}  // namespace

TEST_CASE("rdma stream: before a silent peer counts as gone its device is asked",
          "[rdma][stream]") {
  StreamConfig config = config_of(GENERATE(Role::kServer, Role::kClient));
  config.keepalive = GENERATE(0s, 1s, 60s);  // of this side
  CAPTURE(config.keepalive.count());
  Bench bench(config);
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 1000});
  bench.now += 1s;
  bench.keepalive();
  // Like the connection: ticks when next_tick() says so.
  std::size_t asked = 0;
  const auto run_for = [&](ae::Duration span, bool answers) {
    const ae::TimePoint until = bench.now + span;
    while (!bench.failed() && bench.stream.next_tick() <= until) {
      bench.now = std::max(bench.now + 1ms, bench.stream.next_tick());
      bench.tick();
      while (bench.post()) {
        bench.stream.outbound().proof().on_completed(1);
      }
      if (!bench.stream.liveness().wants_probe()) continue;
      bench.stream.liveness().on_probe_posted();
      ++asked;
      if (answers) bench.stream.liveness().on_confirmed(bench.now);
    }
    bench.now = std::max(bench.now, until);
  };
  run_for(1h, true);
  CHECK_FALSE(bench.failed());
  CHECK(asked >= 3600 / 3);
  CHECK(asked <= 3600 + 1);
  const ae::TimePoint lost = bench.now;
  SECTION("no answer in time") {
    run_for(3300ms, false);
    CHECK(bench.failed());
    CHECK(std::string(bench.stream.failure()).find("silent") != std::string::npos);
  }
  SECTION("behind a message that waits for a receive there is no time, only the device's word") {
    bench.peer_registers(1000);
    bench.write();
    run_for(1h, false);
    CHECK_FALSE(bench.failed());
    bench.stream.outbound().proof().on_completed(1);
    run_for(3300ms, false);
    CHECK(bench.failed());
  }
  SECTION("it is heard again") {
    run_for(900ms, false);  // the last answer was at most 2.25 s ago
    bench.keepalive();
    run_for(3s, false);
    CHECK_FALSE(bench.failed());
  }
  CHECK(bench.now >= lost);
}

TEST_CASE("rdma stream: a peer that is heard but confirms nothing has no path", "[rdma][stream]") {
  StreamConfig config = config_of(GENERATE(Role::kServer, Role::kClient));
  const milliseconds retries = GENERATE(as<milliseconds>{}, 500ms, Liveness::kForEver);
  config.completions_prove = GENERATE(true, false);
  CAPTURE(retries.count(), config.completions_prove);
  // Three intervals of the peer and a quarter; and four times what the device's retries take.
  const ae::Duration allowed = 3250ms + (retries == Liveness::kForEver ? 0ms : 4 * retries);
  Bench bench(config);
  bench.stream.on_queue_pair(1024, config.completions_prove, retries);
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 1000});
  bench.peer_registers(1000);
  int asked = 0;
  const auto run_for = [&](ae::Duration span, bool confirms) {
    for (const ae::TimePoint until = bench.now + span; bench.now < until && !bench.failed();) {
      bench.now += 50ms;
      if (bench.now.time_since_epoch() % 500ms == ae::Duration(0)) bench.keepalive();
      bench.tick();
      while (bench.post())
        if (confirms) bench.stream.outbound().proof().on_completed(1);
      if (!bench.stream.liveness().wants_probe()) continue;
      bench.stream.liveness().on_probe_posted();
      ++asked;
      if (confirms) bench.stream.liveness().on_confirmed(bench.now);
    }
  };
  run_for(1min, true);
  CHECK_FALSE(bench.failed());
  SECTION("what is sent is never confirmed") {
    bench.write();
    run_for(allowed, false);
    CHECK_FALSE(bench.failed());
    CHECK((asked != 0) == config.completions_prove);
    run_for(1s, false);
    CHECK(bench.failed() == config.completions_prove);
    if (bench.failed()) CHECK(std::string(bench.stream.failure()) == Liveness::kUnconfirmed);
  }
  SECTION("a confirmation in time") {
    for (int i = 0; i < 10; ++i) {
      bench.write();
      run_for(allowed - 100ms, false);
      bench.stream.outbound().proof().on_completed(1);
      bench.stream.liveness().on_confirmed(bench.now);
    }
    CHECK_FALSE(bench.failed());
  }
  SECTION("our own loop stands still") {
    bench.write();
    run_for(allowed - 100ms, false);
    bench.stream.tick(bench.now, true);
    run_for(allowed - 100ms, false);
    CHECK_FALSE(bench.failed());
  }
}

TEST_CASE("rdma stream: a silent peer's receives are left for what it is to read later",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 3000});
  bench.keepalive();
  int keepalives = 0;
  for (int i = 0; i < 1000; ++i) {
    bench.now += 3s;
    bench.tick();
    while (bench.post()) ++keepalives;
    bench.stream.liveness().on_probe_posted();
    bench.stream.liveness().on_confirmed(bench.now);
  }
  CHECK_FALSE(bench.failed());
  // A peer whose device carries nothing out has to hear us for two intervals after its own last
  // one.
  CHECK(keepalives >= 3);
  CHECK(keepalives <= 6);
  bench.keepalive();
  bench.now += 3s;
  bench.tick();
  CHECK(bench.post() == ControlMessage{.opcode = Opcode::kKeepalive});
}

TEST_CASE("rdma stream: without proof a peer that is silent is dead after 3.25 intervals",
          "[rdma][stream]") {
  Bench bench(without_proof(Role::kServer));
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 1000});
  bench.now += 1s;
  bench.keepalive();
  CHECK(bench.stream.liveness().heard());
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
  Bench bench(without_proof(Role::kClient));
  bench.now += 1h;  // created early, connected late
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 1000});
  bench.stream.liveness().on_open(bench.now);
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
  const bool busy = GENERATE(false, true);  // one side sends from time to time
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
      const auto sent = from->stream.outbound().proof().sent();
      while (const auto message = from->post()) to->control(*message);
      if (busy && from == &server && i % 4 == 0 && from->write()) to->claim(0);
      if (from->stream.outbound().proof().sent() != sent) {
        from->stream.outbound().proof().on_completed(
            static_cast<std::uint32_t>(from->stream.outbound().proof().sent() - sent));
        from->stream.liveness().on_confirmed(from->now);
      }
      REQUIRE_FALSE(from->failed());
    }
  }
  CHECK(server.stream.outbound().proof().unproven() < 300);
  CHECK(client.stream.outbound().proof().unproven() < 300);
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
  Bench bench(without_proof(Role::kServer));
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
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
