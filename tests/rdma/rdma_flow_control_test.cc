// SPDX-License-Identifier: BSD-3-Clause
// Flow control between two ends of this library: neither end may exceed the other's budget of
// control messages or use up its receives, whatever numbers they were told, at any rate, with the
// smallest budget that is enough for both.
#if AECONN_RDMA

#include "conn/rdma/protocol/flow_control.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/stream_bench.h"
#include "tests/support/stream_link.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

using namespace std::chrono_literals;
using test::Bench;
using test::config_of;
using test::Node;
using test::StreamNode;

constexpr std::uint64_t kProbeBelow020 = 256;  // the rule of release 0.2.0: min(256, told / 4)

StreamConfig least_budget(Role role, std::uint32_t receives, std::uint32_t window = 64) {
  StreamConfig config = config_of(role, window);
  config.control_rate = flow::kLeastControlRate;
  config.control_burst = flow::kLeastControlBurst;
  config.receives = receives;
  return config;
}

// Two streams that have seen each other's hello. A missing receive is a fault.
struct Ends {
  Ends(const StreamConfig& left, const StreamConfig& right) {
    for (const StreamConfig& config : {left, right}) {
      nodes.push_back(std::make_unique<StreamNode>(config, config.receives, now));
      // The smallest number of receives that is told where the device does not retry.
      nodes.back()->must_not_run_dry =
          config.receives >= flow::announced_of_own(flow::kFewReceives);
      nodes.back()->counts_exactly = true;
      nodes.back()->send_depth = 100000;
    }
    Node::join(*nodes[0], *nodes[1]);
    nodes[0]->stream.on_hello(nodes[1]->stream.hello());
    nodes[1]->stream.on_hello(nodes[0]->stream.hello());
    for (auto& node : nodes) node->stream.liveness().on_open(now);
    settle();
  }
  bool settle_once() {
    bool moved = false;
    for (auto& node : nodes) moved = node->work(now) || moved;
    for (auto& node : nodes)
      while (node->deliver()) moved = true;
    for (auto& node : nodes) {
      while (node->handle(now)) moved = true;
      moved = node->take(100000, now) != 0 || moved;
    }
    return moved;
  }
  void settle() {
    while (settle_once()) check();
    check();
  }
  void check() const {
    for (const auto& node : nodes) {
      if (node->stream.failure() != nullptr) FAIL(node->stream.failure());
      if (!node->fault().empty()) FAIL(node->fault());
    }
  }
  void tick() {
    for (auto& node : nodes)
      if (now >= node->stream.next_tick()) node->stream.tick(now, false);
  }
  StreamNode& client() { return *nodes[0]; }
  StreamNode& server() { return *nodes[1]; }
  ae::TimePoint now{1h};
  std::vector<std::unique_ptr<StreamNode>> nodes;
};

}  // namespace

TEST_CASE("rdma flow control: no rate of requests and answers ends anybody", "[rdma][stream]") {
  const std::uint32_t told = GENERATE(8u, 9u, 14u, 16u, 21u, 28u, 56u, 224u, 1024u, 14336u);
  CAPTURE(told);
  Ends ends(least_budget(Role::kClient, told), least_budget(Role::kServer, told));
  for (int i = 0; i < 1'000; ++i) {  // no time passes
    ends.client().stage(1);
    ends.settle();
    ends.server().stage(1);
    ends.settle();
  }
  CHECK(ends.server().bytes_taken() == 1'000);
  CHECK(ends.client().bytes_taken() == 1'000);
}

TEST_CASE("rdma flow control: no stream ends anybody, one way or both, with bursts or without",
          "[rdma][stream]") {
  const std::uint32_t told = GENERATE(8u, 14u, 16u, 21u, 56u, 1024u);
  const bool both = GENERATE(false, true);
  const std::size_t piece = GENERATE(std::size_t{1}, std::size_t{40}, std::size_t{5000});
  CAPTURE(told, both, piece);
  StreamConfig client = least_budget(Role::kClient, told),
               server = least_budget(Role::kServer, told);
  client.max_window = server.max_window = 1024;
  Ends ends(client, server);
  std::uint64_t sent = 0;
  for (int i = 0; i < (piece < 1000 ? 200 : 20); ++i) {
    for (int each = 0; each < 8; ++each) {
      ends.client().stage(piece);
      if (both) ends.server().stage(piece);
      for (auto& node : ends.nodes) node->work(ends.now);
      sent += piece;
    }
    if (i % 3 != 0) ends.settle_once();
    if (i % 10 == 0) ends.settle();
  }
  ends.settle();
  CHECK(ends.server().bytes_taken() == sent);
  CHECK(ends.client().bytes_taken() == (both ? sent : 0));
}

// Windows grow, become several, and are replaced by a short one a second later.
TEST_CASE("rdma flow control: windows that come and go for an hour cost no budget",
          "[rdma][stream][ahead]") {
  const std::uint32_t told = GENERATE(14u, 21u, 1024u);
  CAPTURE(told);
  StreamConfig client = least_budget(Role::kClient, told),
               server = least_budget(Role::kServer, told);
  client.max_window = server.max_window = 256;
  client.max_windows = server.max_windows = 8;
  client.keepalive = server.keepalive = 0ms;
  Ends ends(client, server);
  for (int burst = 0; burst < 60; ++burst) {
    for (int i = 0; i < 40; ++i) {
      ends.client().stage(700);
      ends.settle_once();
      ends.now += 10us;
    }
    ends.settle();
    for (int i = 0; i < 4; ++i) {
      ends.now += 300ms;
      ends.tick();
      ends.settle();
    }
  }
  CHECK(ends.server().most_windows > 1);
  CHECK(ends.client().controls_sent[Opcode::kSetClientFeature] > 20);  // windows were replaced
}

TEST_CASE("rdma flow control: keepalives of any interval are heard, and end nobody",
          "[rdma][stream]") {
  const std::uint32_t told = GENERATE(8u, 9u, 10u, 14u, 16u, 21u, 1024u);
  const ae::Duration interval =
      GENERATE(ae::Duration(1us), ae::Duration(1ms), ae::Duration(100ms), ae::Duration(3s));
  CAPTURE(told, interval.count());
  StreamConfig client = least_budget(Role::kClient, told),
               server = least_budget(Role::kServer, told);
  client.keepalive = server.keepalive = interval;
  Ends ends(client, server);
  const ae::Duration step = std::max<ae::Duration>(interval, 1ms);
  for (int i = 0; i < 400; ++i) {
    ends.now += step;
    ends.tick();
    ends.settle();
    if (i % 100 == 50) ends.client().stage(1 + static_cast<std::size_t>(i) % 7);
  }
  CHECK(ends.client().controls_sent[Opcode::kKeepalive] > 80);
  CHECK(ends.server().controls_sent[Opcode::kKeepalive] > 80);
}

TEST_CASE("rdma flow control: what came while a loop was stopped ends nobody", "[rdma][stream]") {
  const std::uint32_t told = GENERATE(21u, 1024u, 4096u);
  CAPTURE(told);
  StreamConfig client = least_budget(Role::kClient, told),
               server = least_budget(Role::kServer, told);
  client.keepalive = server.keepalive = 1ms;
  Ends ends(client, server);
  for (int stop = 0; stop < 3; ++stop) {
    for (int i = 0; i < 600; ++i) {
      ends.now += 1ms;
      ends.client().stream.tick(ends.now, true);
      ends.client().work(ends.now);
      ends.server().deliver();
    }
    ends.server().stream.tick(ends.now, true);
    ends.settle();
  }
}

// A peer of release 0.2.0 as the server sees it: it sends a probe after min(256, told / 4)
// messages.
TEST_CASE("rdma flow control: peers of earlier releases are not ended", "[rdma][stream]") {
  const std::uint32_t told = GENERATE(8u, 14u, 16u, 21u, 28u, 224u, 1024u, 14336u);
  const bool streams = GENERATE(false, true);
  CAPTURE(told, streams);
  Bench bench(least_budget(Role::kServer, told, 1u << 20));
  bench.stream.on_hello({Hello::kWindowMayChange | Hello::kAnswersProbes | Hello::kTellsReceives |
                             Hello::kSendsKeepalives,
                         100, 256});
  bench.offer();
  bench.peer_registers(1u << 20);
  const std::uint64_t every = std::min<std::uint64_t>(kProbeBelow020, std::max(told, 8u) / 4);
  std::uint16_t select = 0;
  std::uint64_t since = 1;
  for (int i = 0; i < 5'000 && !bench.failed(); ++i) {
    if (since >= every) {
      bench.feature(Opcode::kGetServerFeature, static_cast<std::uint16_t>(++select & 0x7fff));
      const auto answer = bench.post();
      REQUIRE(answer);
      since = 0;
    }
    bench.claim(1);
    ++since;
    (void)bench.read();
    if (!streams) (void)bench.write(1);
    while (const auto message = bench.post())  // answers the server's probes
      if (message->opcode == Opcode::kGetServerFeature && (message->select & 0x8000) != 0) {
        bench.feature(Opcode::kGetServerFeature, message->select);
        ++since;
      }
    if (bench.stream.outbound().peer_windows().left() == 0) {
      bench.peer_registers(1u << 20);
      ++since;
    }
  }
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma flow control: questions that are not due, and keepalives too many, cost the budget",
          "[rdma][stream][hostile]") {
  const std::uint32_t told = GENERATE(21u, 1024u);
  const std::uint64_t every = flow::probe_at(told);
  Bench bench(least_budget(Role::kServer, told, 1u << 20));
  bench.stream.on_hello({Hello::kAnswersProbes | Hello::kSendsKeepalives, 100, 0});
  bench.offer();
  int cost = 0;
  SECTION("a message too soon") {
    while (!bench.failed() && cost < 1000) {
      for (std::uint64_t i = 0; i + 1 < every; ++i) bench.claim(1);
      bench.feature(Opcode::kGetServerFeature, static_cast<std::uint16_t>(cost++ & 0x7fff));
      (void)bench.post();
      (void)bench.read();
      (void)bench.settle();
    }
    CHECK(cost == 65);
  }
  SECTION("keepalives") {
    for (; !bench.failed() && cost < 100'000; ++cost) bench.keepalive();
    CHECK(cost == 1024 + 64 + 1);
  }
}

}}}  // namespace conn::rdma
#endif
