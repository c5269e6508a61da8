// SPDX-License-Identifier: BSD-3-Clause
// The RDMA byte stream: how long the windows are that it offers.
#if AECONN_RDMA

#include "conn/rdma/protocol/stream.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;
using namespace test;
using std::chrono::milliseconds;

// --- window lengths ------------------------------------------------------------------------------

StreamConfig growing(Role role) {
  StreamConfig config = config_of(role, 8);
  config.max_window = 50;
  return config;
}

// The lengths of windows offered in turn, if the peer fills each of them `pause` after its offer.
std::vector<std::uint32_t> lengths(Bench& bench, ae::Duration pause, int windows) {
  std::vector<std::uint32_t> all;
  for (int i = 0; i < windows; ++i) {
    all.push_back(bench.offer().length);
    bench.now += pause;
    bench.data(std::string(all.back(), 'x'));
    bench.settle();
    bench.read();
  }
  return all;
}

TEST_CASE("rdma stream: windows that fill fast double up to the maximum", "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  CHECK(lengths(bench, 1ms, 6) == std::vector<std::uint32_t>{8, 16, 32, 50, 50, 50});
  CHECK(bench.stream.inbound().pinned_bytes() <= 100);
}

TEST_CASE("rdma stream: windows that fill slowly keep their length", "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.now += 5ms;  // time before the announcement does not count
  CHECK(lengths(bench, 5ms, 4) == std::vector<std::uint32_t>{8, 8, 8, 8});
}

TEST_CASE("rdma stream: the speed of a window is measured from its announcement",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.provide();
  bench.now += 1s;  // the announcement waits for the send queue
  bench.offer();
  bench.data("12345678");
  CHECK(bench.stream.inbound().wanted_window() == 16);
}

TEST_CASE("rdma stream: lengths change only where the peer is known to bear it", "[rdma][stream]") {
  struct Row {
    Role role;
    std::optional<std::uint32_t> hello;
    bool grows;
  };
  const Row row = GENERATE(Row{Role::kServer, {}, true},   // Valkey's clients do
                           Row{Role::kClient, {}, false},  // Valkey's server does not
                           Row{Role::kClient, kAll, true}, Row{Role::kServer, kAll, true},
                           Row{Role::kClient, Hello::kAnswersProbes, false},
                           Row{Role::kServer, Hello::kAnswersProbes, false});
  Bench bench(growing(row.role));
  if (row.hello) bench.stream.on_hello({*row.hello, 0});
  CHECK(bench.stream.peer().is_aeconn() == row.hello.has_value());
  const auto all = lengths(bench, 0ms, 5);
  CHECK((all.back() > 8) == row.grows);
  if (row.grows) return;
  CHECK(all == std::vector<std::uint32_t>(5, 8));
  bench.now += 2s;
  bench.tick();
  bench.settle();
  CHECK(lengths(bench, 0ms, 3) == std::vector<std::uint32_t>(3, 8));
}

TEST_CASE("rdma stream: quiet streams let the spare window go and return to the first length",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  lengths(bench, 1ms, 6);
  bench.offer();
  REQUIRE(bench.stream.inbound().pinned_bytes() == 100);
  bench.tick();
  CHECK(bench.stream.inbound().take_discarded().data == nullptr);  // not quiet yet
  bench.now += 1100ms;
  bench.tick();
  CHECK(bench.stream.inbound().take_discarded().data != nullptr);
  CHECK(bench.stream.inbound().take_discarded().data == nullptr);
  CHECK(bench.stream.inbound().pinned_bytes() == 50);
  CHECK(bench.stream.inbound().window_length() == 8);
  bench.data(std::string(50, 'x'));
  CHECK(bench.stream.inbound().wanted_window() == 8);
  CHECK(bench.offer().length == 8);
  CHECK(bench.read().size() == 50);
  CHECK(bench.stream.inbound().take_discarded().length == 50);
  CHECK(bench.stream.inbound().pinned_bytes() == 8);
}

TEST_CASE("rdma stream: a spare window that is needed again before it was let go stays",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.offer();
  CHECK(bench.read() == "12345678");
  bench.now += 2s;
  bench.tick();  // quiet, but the spare window was not taken away yet
  bench.data("12345678");
  bench.offer();
  CHECK(bench.read() == "12345678");
  CHECK(bench.stream.inbound().take_discarded().data == nullptr);
}

TEST_CASE("rdma stream: a window that is refused its successor is offered again itself",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.offer();
  bench.data("12345678");
  REQUIRE(bench.stream.inbound().window_length() == 16);
  SECTION("read, then refused") {
    CHECK(bench.read() == "12345678");
    CHECK(bench.stream.inbound().take_discarded().data == nullptr);  // it is the last one
    CHECK(bench.stream.inbound().wanted_window() == 16);
    bench.stream.no_window(bench.now);
  }
  SECTION("refused, then read") {
    CHECK(bench.stream.inbound().wanted_window() == 16);
    bench.stream.no_window(bench.now);
    CHECK(bench.read() == "12345678");
  }
  CHECK_FALSE(bench.failed());
  CHECK(bench.offer().length == 8);
  bench.data("12345678");
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK(bench.read() == "12345678");
  CHECK(bench.offer().length == 8);
}

TEST_CASE("rdma stream: two spare windows of old lengths both make way", "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.offer();
  bench.now += 1s;  // slow, so the second is of the same length
  bench.data("12345678");
  bench.offer();
  bench.data("12345678");  // fast, so the next one is longer
  CHECK(bench.read().size() == 16);
  CHECK(bench.stream.inbound().wanted_window() == 0);  // no space for it yet
  CHECK(bench.stream.inbound().take_discarded().length == 8);
  CHECK(bench.stream.inbound().take_discarded().data == nullptr);
  CHECK(bench.provide() == 16);
  CHECK(bench.stream.inbound().take_discarded().length == 8);
  CHECK(bench.offer().length == 16);
}

TEST_CASE("rdma stream: a spare that waited for a longer one is offered if quiet comes first",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.offer();
  bench.now += 1s;
  bench.data("12345678");
  bench.offer();
  bench.data("12345678");
  CHECK(bench.read().size() == 16);  // two spare windows of 8, wanted: 16
  bench.now += 2s;
  bench.tick();  // wanted: 8
  const auto message = bench.post();
  REQUIRE(message);
  CHECK(message->length == 8);
}

// --- long windows of idle connections ------------------------------------------------------------

constexpr std::uint32_t kOurs = kAll | Hello::kMarksWindows;

// A stream whose window has grown to 50 and is empty.
Bench& grown(Bench& bench) {
  lengths(bench, 1ms, 5);
  CHECK(bench.offer().length == 50);
  bench.settle();
  return bench;
}
ControlMessage mark() { return {.opcode = Opcode::kSetClientFeature, .select = kWindowMark}; }

TEST_CASE("rdma stream: a long window that is idle is replaced by a short one, where it is marked",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.stream.on_hello({kOurs, 0});
  grown(bench);
  const std::uint32_t old_key = bench.offered.key;
  bench.now += 1s;
  bench.tick();
  bench.settle();
  CHECK(bench.stream.inbound().pinned_bytes() == 50);  // the second one was freed
  CHECK(bench.stream.next_tick() <= bench.now + 9s);
  bench.now += 9s;
  bench.tick();
  CHECK(bench.stream.inbound().wanted_window() == 8);
  CHECK(bench.offer().length == 8);
  const ControlMessage short_one = bench.offered;
  CHECK(short_one.select == kWindowMark);
  CHECK(bench.stream.inbound().pinned_bytes() == 58);
  const auto late = [&](const std::string& text) {  // sent before the peer knew
    std::memcpy(bench.windows.at(old_key).data, text.data(), text.size());
    bench.claim(static_cast<std::uint32_t>(text.size()));
  };
  SECTION("nothing was under way") {
    bench.control(mark());
    CHECK(bench.stream.inbound().take_discarded().key == old_key);
    bench.data("abcd");
    CHECK(bench.read() == "abcd");
  }
  SECTION("bytes were under way") {
    late("late");
    CHECK_FALSE(bench.stream.inbound().take_discarded());
    bench.control(mark());
    bench.data("next");
    CHECK(bench.read(6) == "latene");
    CHECK(bench.stream.inbound().take_discarded().key == old_key);
    CHECK(bench.read() == "xt");
  }
  SECTION("the peer filled it meanwhile") {
    late(std::string(50, 'l'));
    CHECK(bench.read() == std::string(50, 'l'));
    CHECK(bench.stream.inbound().take_discarded().key ==
          old_key);  // nothing more can be written to it
    bench.control(mark());
    CHECK_FALSE(bench.stream.inbound().take_discarded());
    bench.data("next");
    CHECK(bench.read() == "next");
  }
  SECTION("past the end of the old one, without a mark") {
    late(std::string(49, 'l'));
    bench.claim(2);
    CHECK(bench.failed());
  }
  SECTION("a mark that nobody waits for is one more message") {
    bench.control(mark());
    bench.control(mark());
    CHECK_FALSE(bench.failed());
    CHECK(bench.stream.inbound().take_discarded().key == old_key);
  }
  if (bench.failed()) return;
  CHECK(bench.stream.inbound().pinned_bytes() == short_one.length);
}

TEST_CASE("rdma stream: after quiet one burst brings the last useful length back at once",
          "[rdma][stream]") {
  StreamConfig config = config_of(Role::kServer, 8);
  config.max_window = 1024;
  Bench bench(config);
  bench.stream.on_hello({kOurs, 0});
  CHECK(lengths(bench, 1ms, 6) == std::vector<std::uint32_t>{8, 16, 32, 64, 128, 256});
  bench.offer();
  bench.settle();
  for (int i = 0; i < 2; ++i) {
    bench.now += 10s;
    bench.tick();
    bench.settle();
  }
  REQUIRE(bench.offer().length == 8);
  bench.control(mark());
  CHECK(bench.stream.inbound().pinned_bytes() <= 8 + 512);
  bench.settle();
  bench.data("12345678");
  CHECK(bench.offer().length == 256);
}

TEST_CASE("rdma stream: bursts that need no long window begin with shorter and shorter ones",
          "[rdma][stream]") {
  StreamConfig config = config_of(Role::kServer, 8);
  config.max_window = 256;
  Bench bench(config);
  bench.stream.on_hello({kOurs, 0});
  std::uint32_t length = bench.offer().length;
  // Fills `windows` windows at once, and then stays quiet until the last one is replaced by a short
  // one. Returns the length of the second window.
  const auto burst = [&](int windows) {
    std::uint32_t second = 0;
    for (int i = 0; i < windows; ++i) {
      bench.now += 1ms;
      bench.data(std::string(length, 'x'));
      length = bench.offer().length;
      if (i == 0) second = length;
      bench.settle();
      bench.read();
    }
    for (int i = 0; i < 3; ++i) {  // each of several checks must not count as a burst of its own
      bench.now += 10s;
      bench.tick();
      bench.settle();
    }
    length = bench.offer().length;
    REQUIRE(length == 8);
    bench.control(mark());
    bench.settle();
    return second;
  };
  CHECK(burst(7) == 16);
  for (int i = 0; i < 3; ++i) CHECK(burst(2) == 256);  // as long as the burst before needed
  std::vector<std::uint32_t> all;
  for (int i = 0; i < 6; ++i) all.push_back(burst(1));
  CHECK(all == std::vector<std::uint32_t>{256, 128, 64, 32, 16, 16});
}

TEST_CASE("rdma stream: a peer that marks nothing keeps its long window until it is full",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  if (GENERATE(true, false)) bench.stream.on_hello({kAll, 0});
  grown(bench);
  for (int i = 0; i < 10; ++i) {
    bench.now += 20s;
    bench.tick();
    CHECK(bench.settle() <= 1);
    CHECK(bench.stream.inbound().wanted_window() == 0);
    bench.post();  // keepalives
  }
  bench.data(std::string(50, 'x'));
  CHECK(bench.offer().length == 8);
}

TEST_CASE("rdma stream: who left a window that was not full marks it before the next byte",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  const bool ours = GENERATE(true, false);
  if (ours) bench.stream.on_hello({kOurs, 0});
  bench.peer_registers(10);  // the first
  CHECK_FALSE(bench.post());
  const int written = GENERATE(3, 10);  // 10: filled before the announcement came
  bench.write(static_cast<std::uint32_t>(written));
  bench.control({.opcode = Opcode::kRegisterXferMemory,
                 .select = kWindowMark,
                 .address = 0x7000,
                 .length = 20,
                 .key = 8});
  // A peer of this library may not have handled the messages yet; others announce windows only
  // then.
  CHECK(bench.stream.outbound().proof().unproven() == (ours || written == 3 ? 1 : 0));
  const auto message = bench.post();
  CHECK(message.has_value() == ours);
  if (message) CHECK(*message == mark());
  CHECK_FALSE(bench.post());
  CHECK(bench.write(20));
  bench.peer_registers(10);  // the previous one was full
  CHECK_FALSE(bench.post());
}

TEST_CASE("rdma stream: without memory for a short window the long one stays", "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.stream.on_hello({kOurs, 0});
  grown(bench);
  bench.now += 10s;
  bench.tick();
  while (bench.stream.inbound().take_discarded()) {
  }
  REQUIRE(bench.stream.inbound().wanted_window() == 8);
  bench.stream.no_window(bench.now);
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK(bench.stream.next_tick() > bench.now);
  bench.data("still");
  CHECK(bench.read() == "still");
  bench.now += 10s;
  bench.tick();
  CHECK(bench.stream.inbound().wanted_window() == 8);
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
