// SPDX-License-Identifier: BSD-3-Clause
// The RDMA byte stream: receiving, and what a peer must not announce.
#if AECONN_RDMA

#include "conn/rdma/protocol/stream.h"

#include <algorithm>
#include <array>
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

// --- receiving -----------------------------------------------------------------------------------

TEST_CASE("rdma stream: the first thing wanted and said is a window of the configured length",
          "[rdma][stream]") {
  Bench bench(Role::kServer, 64);
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.inbound().wanted_window() == 64);
  bench.provide();
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK(bench.stream.inbound().pinned_bytes() == 64);
  const auto message = bench.stream.next_control(bench.now);
  REQUIRE(message);
  CHECK(*message ==
        ControlMessage{
            .opcode = Opcode::kRegisterXferMemory, .address = 0x10000, .length = 64, .key = 1});
  CHECK(bench.stream.next_control(bench.now) == message);  // remains pending until it is posted
  bench.stream.on_control_posted(*message, bench.now);
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.outbound().proof().sent() == 1);
}

TEST_CASE("rdma stream: bytes come out in order, in pieces of any size", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("abc");
  CHECK(bench.stream.inbound().has_unread());
  CHECK(bench.stream.inbound().unread_bytes() == 3);
  CHECK(bench.read(0).empty());
  CHECK(bench.read(1) == "a");
  bench.data("de");
  CHECK(bench.read(3) == "bcd");
  CHECK(bench.read() == "e");
  CHECK(bench.read().empty());
  CHECK_FALSE(bench.stream.inbound().has_unread());
  CHECK_FALSE(bench.stream.at_end());
  CHECK(bench.stream.outbound().proof().received() == 2);
}

TEST_CASE("rdma stream: bytes can be looked at where they lie, and consumed", "[rdma][stream]") {
  Bench bench(Role::kServer);
  CHECK(bench.look().empty());
  CHECK(bench.stream.inbound().is_full());
  const ControlMessage first = bench.offer();
  CHECK(bench.look().empty());
  bench.data("abcd");
  CHECK_FALSE(bench.stream.inbound().is_full());
  CHECK(bench.look() == "abcd");
  CHECK(bench.look() == "abcd");
  CHECK(bench.consume(3) == 3);
  CHECK(bench.look() == "d");
  bench.data("efgh");
  CHECK(bench.look() == "defgh");
  bench.offer();
  bench.data("ABC");
  CHECK(bench.look() == "defgh|ABC");
  CHECK(bench.stream.inbound().unread_bytes() == 8);
  bench.data("DEFGH");
  CHECK(bench.stream.inbound().is_full());
  CHECK_FALSE(bench.post());
  // The windows switch as they would after a read.
  const std::uint32_t turns = bench.stream.inbound().window_changes();
  CHECK(bench.consume(6) == 6);
  CHECK(bench.stream.inbound().window_changes() == turns + 1);
  CHECK(bench.look() == "BCDEFGH");
  CHECK_FALSE(bench.stream.inbound().is_full());
  CHECK(bench.offer().key == first.key);
  CHECK(bench.consume(100) == 7);
  CHECK(bench.consume(1) == 0);
  CHECK(bench.look().empty());
  CHECK(bench.read().empty());
}

TEST_CASE("rdma stream: one piece is shown where there is room for one", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.offer();
  bench.data("9");
  std::array<std::span<const std::byte>, 1> one;
  REQUIRE(bench.stream.inbound().peek(one) == 1);
  CHECK(one[0].size() == 8);
  CHECK(bench.stream.inbound().peek({}) == 0);
  // Unread bytes of the windows that were left are shown in one piece.
  std::array<std::byte, 9> left{};
  bench.stream.on_peer_closed();
  CHECK(bench.stream.peer_end().closed());
  bench.stream.inbound().leave_windows(left.data());
  CHECK(bench.look() == "123456789");
  CHECK(bench.consume(9) == 9);
  CHECK(bench.stream.at_end());
}

TEST_CASE("rdma stream: the second window is offered when the first is full, before it is read",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  const ControlMessage first = bench.offer();
  bench.data("1234567");
  CHECK(bench.stream.inbound().wanted_window() == 0);  // not before the last byte
  bench.data("8");
  CHECK(bench.stream.inbound().wanted_window() == 8);
  const ControlMessage second = bench.offer();
  CHECK(second.key != first.key);
  CHECK(bench.stream.inbound().unread_bytes() == 8);
  bench.data("abc");
  CHECK(bench.read() == "12345678abc");  // one read crosses from window to window
  CHECK_FALSE(bench.post());             // the announced window has room
  bench.data("defgh");
  CHECK(bench.offer().key == first.key);  // then the first is reused at once
  CHECK(bench.memory.size() == 2);
  CHECK(bench.read() == "defgh");
}

TEST_CASE("rdma stream: with both windows full there is no offer until one is read to its end",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  const ControlMessage first = bench.offer();
  bench.data("12345678");
  bench.offer();
  bench.data("abcdefgh");
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK_FALSE(bench.post());
  CHECK(bench.read(7) == "1234567");
  CHECK_FALSE(bench.post());
  CHECK(bench.read(1) == "8");
  CHECK(bench.offer().key == first.key);
  CHECK_FALSE(bench.post());  // announced once
  CHECK(bench.read() == "abcdefgh");
  CHECK_FALSE(bench.post());
}

TEST_CASE("rdma stream: without memory for a second window the first serves alone",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.stream.no_window(bench.now);
  CHECK(bench.stream.inbound().wanted_window() == 0);  // not requested again at once
  CHECK_FALSE(bench.post());
  CHECK(bench.read() == "12345678");
  CHECK(bench.offer().key == 1);
  bench.data("abcdefgh");
  CHECK(bench.stream.inbound().wanted_window() == 0);
  bench.now += 999ms;
  bench.tick();
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK(bench.stream.next_tick() == bench.now + 1ms);
  bench.now += 1ms;
  bench.tick();
  CHECK(bench.stream.inbound().wanted_window() == 8);  // requested again after a while
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: without memory for any window the stream fails", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.no_window(bench.now);
  CHECK(bench.failed());
  CHECK(bench.stream.inbound().wanted_window() == 0);
}

TEST_CASE("rdma stream: bytes that arrived before the close are read before the end",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.offer();
  bench.stream.on_peer_closed();
  CHECK_FALSE(bench.stream.at_end());
  bench.data("abc");  // processed after the close was seen, as completions may be
  CHECK(bench.read(8) == "12345678");
  CHECK_FALSE(bench.stream.at_end());
  CHECK(bench.read() == "abc");
  CHECK(bench.stream.at_end());
  bench.data("defgh");
  CHECK(bench.read() == "defgh");
  CHECK(bench.stream.inbound().wanted_window() == 0);
}

TEST_CASE("rdma stream: nothing is sent to a peer that closed", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.provide();
  bench.peer_registers(100);
  REQUIRE(bench.stream.outbound().sendable(5, bench.now) == 5);
  bench.stream.on_peer_closed();
  CHECK(bench.stream.outbound().sendable(5, bench.now) == 0);
  CHECK_FALSE(bench.post());
  CHECK_FALSE(bench.stream.outbound().retry_at(5));
  bench.now += 100s;
  bench.tick();
  CHECK_FALSE(bench.stream.liveness().wants_probe());
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: what was not read outlives the windows, and no offer is left",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.offer();
  bench.data("abc");
  CHECK(bench.read(2) == "12");
  bench.provide();
  std::string left(bench.stream.inbound().unread_bytes(), '?');
  CHECK(left.size() == 9);
  bench.stream.inbound().leave_windows(reinterpret_cast<std::byte*>(left.data()));
  bench.stream.check();
  bench.memory.clear();
  CHECK(left == "345678abc");
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK_FALSE(bench.stream.inbound().take_discarded());
  CHECK(bench.read(4) == "3456");
  CHECK_FALSE(bench.stream.at_end());
  bench.stream.on_peer_closed();
  CHECK(bench.read() == "78abc");
  CHECK(bench.stream.at_end());
  CHECK_FALSE(bench.post());
  bench.tick();
  CHECK(bench.stream.inbound().wanted_window() == 0);
}

TEST_CASE("rdma stream: windows that nothing is in are left without a word", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.provide();
  CHECK(bench.read() == "12345678");
  bench.stream.inbound().leave_windows(nullptr);
  bench.stream.check();
  CHECK(bench.stream.inbound().pinned_bytes() == 0);
  CHECK_FALSE(bench.post());  // the second window's announcement was dropped with it
  CHECK(bench.read().empty());
}

// --- invalid announcements of a peer -------------------------------------------------------------

TEST_CASE("rdma stream: a length beyond the window fails the stream, not the process",
          "[rdma][stream][hostile]") {
  const auto length = GENERATE(9u, 0x7fffffffu, 0x80000000u, 0xffffffffu);
  Bench bench(Role::kServer);
  bench.offer();
  bench.claim(length);
  CHECK(bench.failed());
  CHECK(bench.stream.inbound().unread_bytes() == 0);
  CHECK(bench.read().empty());
}

TEST_CASE("rdma stream: a length that wraps the sum fails the stream", "[rdma][stream][hostile]") {
  const auto length = GENERATE(4u, 0xfffffffbu, 0xfffffffcu, 0xfffffffdu, 0xffffffffu);
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345");
  bench.claim(length);
  CHECK(bench.failed());
  CHECK(bench.read() == "12345");  // earlier bytes are still readable
  bench.claim(1);
  CHECK(bench.read().empty());  // but nothing after them
}

TEST_CASE("rdma stream: a write before any offer fails the stream", "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.claim(1);
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: a write into a window whose offer has not left fails the stream",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.provide();
  bench.claim(1);
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: a write into a window read empty but not offered again fails the stream",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  CHECK(bench.read() == "12345678");
  bench.claim(1);
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: a write with both windows full fails the stream",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.offer();
  bench.data("abcdefgh");
  bench.claim(1);
  CHECK(bench.failed());
  CHECK(bench.read() == "12345678abcdefgh");
  CHECK_FALSE(bench.post());
}

TEST_CASE("rdma stream: a window of no bytes, beyond the maximum or around the end of memory fails",
          "[rdma][stream][hostile]") {
  StreamConfig config = config_of(Role::kServer);
  config.max_peer_window = 1000;
  struct Row {
    std::uint32_t length;
    std::uint64_t address;
    bool good;
  };
  const Row row = GENERATE(Row{0, 1, false}, Row{1, 1, true}, Row{1000, 1, true},
                           Row{1001, 1, false}, Row{~0u, 1, false}, Row{10, ~0ull - 9, false},
                           Row{10, ~0ull - 10, true}, Row{10, ~0ull, false}, Row{10, 0, true});
  CAPTURE(row.length, row.address);
  Bench bench(config);
  bench.peer_registers(row.length, row.address);
  CHECK(bench.failed() != row.good);
  CHECK(bench.stream.outbound().peer_windows().any() == row.good);
  CHECK(bench.stream.outbound().sendable(5000, bench.now) == (row.good ? row.length : 0));
}

TEST_CASE("rdma stream: a control message of wrong size or unknown opcode fails the stream",
          "[rdma][stream][hostile]") {
  const std::size_t size = GENERATE(0u, 2u, 31u, 32u, 33u, 64u);
  CAPTURE(size);
  Bench bench(Role::kClient);
  std::vector<std::byte> bytes(size);
  if (size == 32) bytes[1] = std::byte{4};
  bench.stream.on_control(bytes, bench.now);
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: after a failure nothing is taken in, sent or wanted",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.settle();
  bench.peer_registers(100);
  bench.peer_registers(0);
  REQUIRE(bench.failed());
  const char* const why = bench.stream.failure();
  const std::uint64_t received = bench.stream.outbound().proof().received();
  bench.claim(1);
  bench.keepalive();
  bench.peer_registers(200);
  bench.now += 1h;
  bench.tick();
  CHECK(bench.stream.failure() == why);
  CHECK(bench.stream.outbound().proof().received() == received);
  CHECK(bench.stream.outbound().sendable(5, bench.now) == 0);
  CHECK_FALSE(bench.stream.outbound().retry_at(5));
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK(bench.read() == "12345678");
  CHECK_FALSE(bench.post());
}

// --- budget of control messages ------------------------------------------------------------------

TEST_CASE("rdma stream: unearned messages are limited by rate and burst",
          "[rdma][stream][hostile]") {
  StreamConfig config = config_of(Role::kServer);
  config.control_rate = 100;
  config.control_burst = 50;
  Bench bench(config);
  bench.offer();
  bench.peer_registers(1000);  // the first one counted, too: 49 are left
  const int kind = GENERATE(0, 1, 2, 3);
  CAPTURE(kind);
  const auto flood = [&] {
    switch (kind) {
      case 0:
        return bench.claim(0);
      case 1:
        return bench.keepalive();
      case 2:
        return bench.feature(Opcode::kSetClientFeature, 3);
      default:
        return bench.peer_registers(1000);
    }
  };
  for (int i = 0; i < 49; ++i) flood();
  CHECK_FALSE(bench.failed());
  bench.now += 100ms;
  for (int i = 0; i < 10; ++i) flood();
  CHECK_FALSE(bench.failed());
  SECTION("one more fails the stream") {
    flood();
    CHECK(bench.failed());
  }
  SECTION("a long pause brings back one burst and no more") {
    bench.now += 1h;
    for (int i = 0; i < 50; ++i) flood();
    CHECK_FALSE(bench.failed());
    flood();
    CHECK(bench.failed());
  }
}

TEST_CASE("rdma stream: immediates of zero add nothing and are not the end", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.claim(0);  // even before any window
  bench.offer();
  bench.data("ab");
  bench.claim(0);
  CHECK(bench.stream.inbound().unread_bytes() == 2);
  CHECK(bench.read() == "ab");
  CHECK_FALSE(bench.failed());
  CHECK_FALSE(bench.stream.at_end());
}

TEST_CASE("rdma stream: a flood of feature questions fails by budget, or by unsent answers",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  int asked = 0;
  SECTION("answers leave") {
    for (; !bench.failed(); ++asked) {
      bench.feature(Opcode::kGetServerFeature, 5);
      bench.post();
    }
    CHECK(asked == 2049);
  }
  SECTION("the peer takes no answers") {
    for (; !bench.failed(); ++asked) bench.feature(Opcode::kGetServerFeature, 5);
    CHECK(asked == 65);
  }
}

TEST_CASE("rdma stream: a window that we filled earns the peer the next, however often",
          "[rdma][stream]") {
  StreamConfig config = config_of(Role::kServer);
  config.control_rate = 0;
  config.control_burst = 1;
  Bench bench(config);
  for (int i = 0; i < 10000; ++i) {
    bench.peer_registers(2);
    REQUIRE(bench.write(2));
  }
  CHECK_FALSE(bench.failed());
  bench.peer_registers(2);
  CHECK_FALSE(bench.failed());
  bench.peer_registers(2);  // nothing was written
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: a fast sender of small messages may ask as often as its sends need proof",
          "[rdma][stream]") {
  Bench bench(Role::kServer, 1u << 20);
  bench.offer();
  for (int i = 0; i < 1'000'000; ++i) {  // no time passes
    bench.claim(1);
    if (i % 256 != 0) continue;
    bench.feature(Opcode::kGetServerFeature, static_cast<std::uint16_t>(i & 0x7fff));
    bench.post();
    bench.read();
  }
  CHECK_FALSE(bench.failed());
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
