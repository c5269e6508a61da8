// SPDX-License-Identifier: BSD-3-Clause
// The RDMA byte stream: features and sending.
#if AECONN_RDMA

#include "conn/rdma/protocol/stream.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;
using namespace test;
using std::chrono::milliseconds;

// --- features ------------------------------------------------------------------------------------

TEST_CASE("rdma stream: a server answers GetServerFeature with the same page and no features",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  const std::vector<std::uint16_t> pages = {0, 77, 0x8000, 0xffff};
  for (const std::uint16_t select : pages) bench.feature(Opcode::kGetServerFeature, select);
  for (const std::uint16_t select : pages) CHECK(bench.post() == feature_message(select));
  CHECK_FALSE(bench.post());
  bench.feature(Opcode::kSetClientFeature, 9);
  CHECK_FALSE(bench.post());  // no answer to this
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: a client answers no plain server, whatever it says",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kClient);
  for (const std::uint16_t select : std::vector<std::uint16_t>{0, 1, 0x7fff, 0x8000, 0xffff}) {
    bench.feature(Opcode::kGetServerFeature, select);
    bench.feature(Opcode::kSetClientFeature, select);
  }
  CHECK_FALSE(bench.post());
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: a server sends no feature message that a plain client did not ask for",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.peer_registers(1u << 20);
  for (int i = 0; i < 5000; ++i) {
    if (bench.write()) bench.stream.outbound().proof().on_completed(1);
    bench.now += 10ms;
    if (i % 100 == 0) bench.tick();
    const auto message = bench.post();
    if (!message) continue;
    REQUIRE(message->opcode == Opcode::kKeepalive);
    bench.stream.outbound().proof().on_completed(1);
  }
  CHECK(bench.stream.outbound().proof().sent() > 4900);
}

TEST_CASE("rdma stream: a question of a client of ours is told from the answer to the server's",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.on_hello({kAll, 0});
  bench.peer_registers(1u << 20);
  for (int i = 0; i < 300; ++i) REQUIRE(bench.write());
  const auto probe = bench.post();
  REQUIRE(probe);
  CHECK(probe->opcode == Opcode::kGetServerFeature);
  CHECK((probe->select & 0x8000) != 0);
  bench.feature(Opcode::kGetServerFeature, probe->select & 0x7fff);  // the peer's own probe
  CHECK(bench.stream.outbound().proof().unproven() == 301);
  CHECK(bench.post()->select == (probe->select & 0x7fff));
  bench.feature(Opcode::kGetServerFeature, probe->select);  // the peer's answer
  CHECK(bench.stream.outbound().proof().unproven() == 1);
  bench.feature(Opcode::kGetServerFeature, probe->select);  // repeated: not expected, no effect
  CHECK_FALSE(bench.post());
}

TEST_CASE("rdma stream: two aeconn peers never answer answers", "[rdma][stream]") {
  Bench server(Role::kServer), client(Role::kClient);
  server.stream.on_hello(client.stream.hello());
  client.stream.on_hello(server.stream.hello());
  const std::uint16_t select = GENERATE(as<std::uint16_t>{}, 0, 1, 0x8000, 0xffff);
  CAPTURE(select);
  server.feature(Opcode::kGetServerFeature, select);
  client.feature(Opcode::kGetServerFeature, select);
  int answers = 0;
  for (int i = 0; i < 20; ++i) {
    for (auto [from, to] : {std::pair{&server, &client}, std::pair{&client, &server}})
      if (const auto message = from->post()) {
        ++answers;
        to->control(*message);
      }
  }
  CHECK(answers <= 2);
}

TEST_CASE("rdma stream: the hello says what the configuration means", "[rdma][stream]") {
  StreamConfig config = config_of(Role::kServer);
  config.keepalive = 1500ms;
  constexpr std::uint32_t kSaid =
      kAll | Hello::kMarksWindows | Hello::kTakesAhead | Hello::kHearsAborts | Hello::kFinishes;
  unsigned major = 0, minor = 0, patch = 0;
  REQUIRE(std::sscanf(AECONN_VERSION, "%u.%u.%u", &major, &minor, &patch) == 3);
  const auto said = [&](std::uint32_t flags, std::uint32_t keepalive, std::uint32_t receives = 0) {
    return Hello{flags,
                 keepalive,
                 receives,
                 {static_cast<std::uint8_t>(major), static_cast<std::uint8_t>(minor),
                  static_cast<std::uint8_t>(patch)}};
  };
  CHECK(Stream(config, {}).hello() == said(kSaid | Hello::kSendsKeepalives, 1500));
  config.keepalive = 0s;
  CHECK(Stream(config, {}).hello() == said(kSaid, 0));
  config.receives = 300;
  CHECK(Stream(config, {}).hello() == said(kSaid | Hello::kTellsReceives, 0, 300));
  config.receives = 0;
  config.keepalive = 1us;  // sent at each tick, but the peer must not rely on that
  CHECK(Stream(config, {}).hello() == said(kSaid | Hello::kSendsKeepalives, 100));
}

// --- sending -------------------------------------------------------------------------------------

TEST_CASE("rdma stream: the peer's window is filled to its last byte, then the next one is awaited",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 0);
  CHECK_FALSE(bench.stream.outbound().peer_windows().any());
  bench.peer_registers(10, 0x5000, 42);
  CHECK(bench.stream.outbound().peer_windows().any());
  CHECK(bench.stream.outbound().sendable(0, bench.now) == 0);
  CHECK(bench.stream.outbound().sendable(3, bench.now) == 3);
  CHECK(bench.stream.outbound().peer_windows().position() == 0x5000);
  CHECK(bench.stream.outbound().peer_windows().current().key == 42);
  bench.stream.outbound().on_write_posted(3, bench.now);
  CHECK(bench.stream.outbound().peer_windows().position() == 0x5003);
  CHECK(bench.stream.outbound().peer_windows().left() == 7);
  CHECK(bench.stream.outbound().sendable(std::size_t{1} << 40, bench.now) == 7);
  bench.stream.outbound().on_write_posted(7, bench.now);
  CHECK(bench.stream.outbound().sendable(1, bench.now) == 0);
  bench.peer_registers(4, 0x9000, 43);
  CHECK(bench.stream.outbound().peer_windows().position() == 0x9000);
  CHECK(bench.stream.outbound().peer_windows().current().key == 43);
  CHECK(bench.stream.outbound().peer_windows().current().length == 4);
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 4);
}

TEST_CASE("rdma stream: a window that comes before the old one is full replaces it",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(10, 0x5000, 42);
  bench.write(3);
  bench.peer_registers(20, 0x7000, 44);
  CHECK(bench.stream.outbound().peer_windows().position() == 0x7000);
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 20);
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: a client asks for proof early and holds data back without it",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(1u << 20);
  for (int i = 0; i < 255; ++i) REQUIRE(bench.write());
  CHECK_FALSE(bench.post());
  REQUIRE(bench.write());
  const auto probe = bench.post();
  REQUIRE(probe);
  CHECK(probe->opcode == Opcode::kGetServerFeature);
  CHECK_FALSE(bench.post());  // one question at a time
  bench.write_until_held();
  CHECK(bench.stream.outbound().proof().unproven() == 1024 - 32);
  bench.now += 1h;  // for a peer that answers, time is no proof
  CHECK_FALSE(bench.write());
  CHECK_FALSE(bench.stream.outbound().retry_at(1));

  bench.feature(Opcode::kGetServerFeature, static_cast<std::uint16_t>(probe->select + 1));
  CHECK_FALSE(bench.write());  // not the answer
  bench.feature(Opcode::kSetClientFeature, 0);
  bench.keepalive();  // no proof either: the server sends, but may have handled nothing
  CHECK_FALSE(bench.write());

  bench.feature(Opcode::kGetServerFeature, probe->select);
  CHECK(bench.stream.outbound().proof().unproven() == 1024 - 32 - 257);
  CHECK(bench.write());
  const auto next = bench.post();
  REQUIRE(next);
  CHECK(next->select != probe->select);
}

TEST_CASE("rdma stream: control messages pass when data is held back", "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(1u << 20);
  bench.write_until_held();
  bench.offer();
  CHECK(bench.post()->opcode == Opcode::kGetServerFeature);
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.outbound().proof().unproven() < 1024);
}

TEST_CASE("rdma stream: an abort is one message, before all others, and no byte follows it",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.on_hello({kAll | Hello::kHearsAborts, 0});
  bench.peer_registers(1u << 20);
  bench.settle();  // a window is to be announced
  CHECK(bench.write());
  CHECK(bench.stream.outbound().abort());
  CHECK(bench.stream.outbound().abort());
  CHECK_FALSE(bench.write());
  const auto message = bench.post();
  REQUIRE(message);
  CHECK(message->opcode == Opcode::kSetClientFeature);
  CHECK(message->select == kAborted);
  CHECK_FALSE(bench.post());
}

TEST_CASE("rdma stream: a peer that would not understand it is told nothing of an abort",
          "[rdma][stream]") {
  Bench bench(GENERATE(Role::kServer, Role::kClient));
  if (GENERATE(true, false)) bench.stream.on_hello({kAll, 0});
  bench.peer_registers(8);
  CHECK_FALSE(bench.stream.outbound().abort());
  CHECK_FALSE(bench.write());
  CHECK_FALSE(bench.post());
}

TEST_CASE("rdma stream: what came before the peer's abort can be read", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("last");
  CHECK_FALSE(bench.stream.peer_end().aborted());
  bench.feature(Opcode::kSetClientFeature, kAborted);
  CHECK(bench.stream.peer_end().aborted());
  CHECK_FALSE(bench.failed());
  CHECK(bench.read() == "last");
}

TEST_CASE("rdma stream: the next window proves that all which filled the last was handled",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(100);
  for (int i = 0; i < 100; ++i) REQUIRE(bench.write());
  bench.offer();
  CHECK(bench.stream.outbound().proof().unproven() == 101);
  bench.peer_registers(100);
  CHECK(bench.stream.outbound().proof().unproven() == 1);  // this side's announcement came later
  for (int i = 0; i < 10; ++i) bench.write();
  bench.peer_registers(100);  // early: may have crossed with these messages
  CHECK(bench.stream.outbound().proof().unproven() == 11);
}

TEST_CASE("rdma stream: bytes in our window prove that its announcement was handled",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(100);
  for (int i = 0; i < 10; ++i) REQUIRE(bench.write());
  bench.offer();
  for (int i = 0; i < 5; ++i) REQUIRE(bench.write());
  bench.claim(0);  // proves nothing about the window
  CHECK(bench.stream.outbound().proof().unproven() == 16);
  bench.data("a");
  CHECK(bench.stream.outbound().proof().unproven() == 5);
  bench.data("b");
  CHECK(bench.stream.outbound().proof().unproven() == 5);
}

TEST_CASE("rdma stream: a peer of few receives is asked earlier", "[rdma][stream]") {
  const std::uint32_t receives = GENERATE(16u, 64u, 128u, 300u);
  CAPTURE(receives);
  StreamConfig config = config_of(Role::kClient);
  config.peer_receives = receives;
  Bench bench(config);
  bench.peer_registers(1u << 20);
  for (int i = 0; i < 10; ++i) {
    bench.write_until_held();
    const auto probe = bench.post();
    REQUIRE(probe);
    CHECK(bench.stream.outbound().proof().unproven() < receives);
    bench.feature(Opcode::kGetServerFeature, probe->select);
  }
  bench.now += 3s;
  bench.tick();
  CHECK(bench.post()->opcode == Opcode::kKeepalive);  // keepalives are still sent
}

TEST_CASE("rdma stream: a peer that cannot be asked gets each message when the last has arrived",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.peer_registers(1u << 20);
  CHECK_FALSE(bench.stream.outbound().proof().is_exceeded());
  CHECK(bench.write_until_held() == 1024 - 32);
  CHECK(bench.stream.outbound().proof().is_exceeded());
  CHECK_FALSE(bench.stream.outbound().retry_at(1));  // no clock is needed
  bench.stream.outbound().proof().on_completed(1024 - 32 - 1);
  bench.now += 1h;
  CHECK_FALSE(bench.write());  // the last one has not been confirmed
  bench.stream.outbound().proof().on_completed(1);
  for (int i = 0; i < 5000; ++i) {
    REQUIRE(bench.write_until_held() == 1);
    CHECK(bench.stream.outbound().proof().is_exceeded());
    bench.stream.outbound().proof().on_completed(1);
  }
  bench.keepalive();  // the peer is alive, so it has handled what it received
  CHECK_FALSE(bench.stream.outbound().proof().is_exceeded());
  CHECK(bench.write_until_held() == 1024 - 32);
}

TEST_CASE("rdma stream: where completions prove nothing such a peer is sent one message in 10 ms",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.on_queue_pair(1024, false, 1s);
  bench.peer_registers(1u << 20);
  CHECK(bench.write_until_held() == 1024 - 32);
  REQUIRE(bench.stream.outbound().retry_at(1));
  CHECK_FALSE(bench.stream.outbound().retry_at(0));  // nothing to send
  for (int i = 0; i < 10; ++i) {
    bench.stream.outbound().proof().on_completed(1);
    const ae::TimePoint when = *bench.stream.outbound().retry_at(1);
    CHECK(when == bench.now + 10ms);
    bench.now = when - 1ns;
    CHECK_FALSE(bench.write());
    bench.now = when;
    CHECK(bench.write_until_held() == 1);
  }
  bench.keepalive();
  CHECK(bench.write_until_held() == 1024 - 32);
}

TEST_CASE("rdma stream: a peer's hello says how many receives it has", "[rdma][stream]") {
  Bench bench(Role::kServer);
  const std::uint32_t receives = GENERATE(0u, 14u, 100u, 256u, 5000u);
  CAPTURE(receives);
  bench.stream.on_hello({Hello::kTellsReceives, 0, receives});  // a peer that answers no probes
  bench.peer_registers(1u << 20);
  const std::uint32_t counted = std::max(receives, 8u);
  CHECK(bench.write_until_held() == static_cast<int>(counted - std::min(32u, counted / 4)));
  bench.stream.on_queue_pair(77, true, 1s);
  const Hello ours = bench.stream.hello();
  CHECK((ours.flags & Hello::kTellsReceives) != 0);
  CHECK(ours.receives == 77);
}

TEST_CASE("rdma stream: the peer's silence does not time out a held write that has no window",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.peer_registers(992);
  CHECK(bench.write_until_held() == 992);
  CHECK_FALSE(bench.stream.outbound().retry_at(1));  // only a new window helps
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
