// SPDX-License-Identifier: BSD-3-Clause
// Hostile vectors that need no device: messages of a peer to a Stream, and their effect. Vectors
// about the queue pair itself are in rdma_hostile_vectors_test.cc.
#if AECONN_RDMA

#include <chrono>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "conn/error.h"
#include "conn/options.h"
#include "conn/rdma/config/settings.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

using namespace std::chrono_literals;
using test::Bench;
using test::config_of;

constexpr std::uint64_t kHighest = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kHuge = std::numeric_limits<std::uint32_t>::max();

void raw(Bench& bench, const std::string& bytes) {
  bench.stream.on_control(std::as_bytes(std::span(bytes)), bench.now);
  bench.stream.check();
}

// A control message with garbage in the bytes that its opcode does not use.
std::string noisy(char opcode, std::initializer_list<std::pair<std::size_t, std::size_t>> unnamed) {
  std::string bytes(kControlSize, '\0');
  bytes[1] = opcode;
  for (const auto& [from, to] : unnamed)
    for (std::size_t at = from; at < to; ++at) bytes[at] = '\xee';
  return bytes;
}

struct Vector {
  std::string name;
  std::function<void(Bench&)> strike;
  std::string failure;  ///< part of the error; empty: the stream continues
};

// For a stream that has offered a window of 8 bytes and has been offered one of 100.
std::vector<Vector> vectors() {
  std::vector<Vector> all;
  for (const std::size_t size : {0u, 1u, 2u, 16u, 31u, 33u, 64u, 4096u})
    all.push_back({"control message of " + std::to_string(size) + " bytes",
                   [size](Bench& b) { raw(b, std::string(size, '\0')); }, "wrong size"});
  for (const int opcode : {4, 5, 100, 127})
    all.push_back({"opcode " + std::to_string(opcode),
                   [opcode](Bench& b) { raw(b, noisy(static_cast<char>(opcode), {})); },
                   "unknown opcode"});
  const auto registers = [](std::uint64_t address, std::uint32_t length) {
    return [=](Bench& b) { b.peer_registers(length, address); };
  };
  all.insert(
      all.end(),
      {{"text as long as a control message",
        [](Bench& b) { raw(b, "GET / HTTP/1.1\r\nHost: aeconn\r\n\r\n"); }, "unknown opcode"},
       {"noise in a question",
        [](Bench& b) {
          raw(b, noisy(0, {{4, 24}}));
        },
        ""},
       {"noise in a setting",
        [](Bench& b) {
          raw(b, noisy(1, {{2, 32}}));
        },
        ""},
       {"noise in a keepalive",
        [](Bench& b) {
          raw(b, noisy(2, {{2, 32}}));
        },
        ""},
       {"window of no bytes", registers(4096, 0), "no bytes"},
       {"window of 1 GiB", registers(4096, 1u << 30), "max-peer-window"},
       {"window of 2^32-1 bytes", registers(4096, kHuge), "max-peer-window"},
       {"window that wraps around", registers(kHighest - 10, 100), "wraps around"},
       {"window that ends at 2^64", registers(kHighest - 99, 100), "wraps around"},
       {"window of one byte at address 0", registers(0, 1), ""},
       {"windows that shrink",
        [](Bench& b) {
          for (std::uint32_t length = 50; length != 0; --length) b.peer_registers(length);
        },
        ""},
       {"immediate of one byte too many", [](Bench& b) { b.claim(9); }, "past the end"},
       {"immediate of 2^31", [](Bench& b) { b.claim(1u << 31); }, "past the end"},
       {"immediate of 2^32-1", [](Bench& b) { b.claim(kHuge); }, "past the end"},
       {"immediate whose sum wraps around",
        [](Bench& b) {
          b.claim(4);
          b.claim(kHuge - 3);
        },
        "past the end"},
       {"one byte after a full window",
        [](Bench& b) {
          b.claim(8);
          b.claim(1);
        },
        "not offered"},
       {"claims of bytes that were never written", [](Bench& b) { b.claim(5); }, ""},
       {"a claim in a window whose offer has not left",
        [](Bench& b) {
          b.claim(8);
          b.settle();
          b.claim(1);
        },
        "not offered"}});
  return all;
}

}  // namespace

TEST_CASE("rdma stream: every hostile vector fails the stream with its reason, or changes nothing",
          "[rdma][stream][hostile]") {
  const Role role = GENERATE(Role::kServer, Role::kClient);
  for (const Vector& vector : vectors()) {
    INFO(vector.name << (role == Role::kServer ? ", to a server" : ", to a client"));
    Bench bench(role);
    bench.offer();
    bench.peer_registers(100);
    vector.strike(bench);
    const char* const failure = bench.stream.failure();
    REQUIRE((failure != nullptr) == !vector.failure.empty());
    if (failure != nullptr) {
      CHECK(std::string(failure).find(vector.failure) != std::string::npos);
      CHECK(bench.stream.outbound().sendable(10, bench.now) == 0);
      CHECK_FALSE(bench.post());
      CHECK(bench.stream.inbound().wanted_window() == 0);
    } else {
      CHECK(bench.stream.outbound().sendable(1, bench.now) == 1);
      CHECK(bench.stream.outbound().peer_windows().left() <= 100);
    }
  }
}

TEST_CASE("rdma stream: a window offered while another is written to is never written beyond",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.offer();
  for (std::uint32_t length = 200; length > 1; --length) {
    bench.peer_registers(length, 0x1000 * length, length);
    REQUIRE(bench.stream.outbound().sendable(1000, bench.now) == length);
    CHECK(bench.stream.outbound().peer_windows().position() == 0x1000 * length);
    CHECK(bench.stream.outbound().peer_windows().current().key == length);
    REQUIRE(bench.write(length / 2));
    CHECK(bench.stream.outbound().sendable(1000, bench.now) == length - length / 2);
  }
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: any hello may be forged, and binds only the forger",
          "[rdma][stream][hostile]") {
  const Role role = GENERATE(Role::kServer, Role::kClient);
  const std::uint32_t flags = GENERATE(0u, 1u, 2u, 3u, 4u, 7u, 8u, 0x80000000u, kHuge);
  const std::uint32_t interval = GENERATE(0u, 1u, 1000u, kHuge);
  CAPTURE(flags, interval);
  Bench bench(role);
  bench.stream.on_hello({flags, interval});
  bench.offer();
  bench.peer_registers(100);
  bench.data("abc");
  CHECK(bench.read() == "abc");
  CHECK(bench.write(10));
  bench.tick();
  // Everything has been confirmed, so no message waits for a receive of the peer.
  bench.stream.outbound().proof().on_completed(
      static_cast<std::uint32_t>(bench.stream.outbound().proof().sent()));
  bench.now += 1h;
  bench.tick();
  // Only a peer that promised keepalives and sent none for an hour counts as gone.
  const bool promised = (flags & Hello::kSendsKeepalives) != 0 && interval != 0;
  CHECK(bench.failed() == (promised && interval < 1'000'000));
}

TEST_CASE("rdma stream: what a peer made too much of is told apart from what it did wrong",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.offer();
  CHECK(bench.stream.excess() == Excess::kNone);
  SECTION("keepalives") {
    while (!bench.failed()) bench.keepalive();
    CHECK(bench.stream.excess() == Excess::kMessages);
  }
  SECTION("questions") {
    while (!bench.failed()) bench.feature(Opcode::kGetServerFeature, 1);
    CHECK(bench.stream.excess() == Excess::kMessages);
  }
  SECTION("bytes in its window") {
    bench.peer_registers(kHuge);
    CHECK(bench.stream.excess() == Excess::kWindow);
  }
  SECTION("an opcode that is none") {
    raw(bench, noisy(9, {}));
    CHECK(bench.failed());
    CHECK(bench.stream.excess() == Excess::kNone);
  }
}

TEST_CASE("rdma stream: a peer may send 2048 unearned messages at once, and 1000 in a second",
          "[rdma][options]") {
  Bench bench(Settings::from(Options{}).stream(Role::kServer));
  const auto send = [&bench](int count) {
    for (int i = 0; i < count; ++i) bench.keepalive();
  };
  send(2048);
  CHECK_FALSE(bench.failed());
  bench.now += 1s;
  send(1000);
  CHECK_FALSE(bench.failed());
  send(1);
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: memory-limit has a default that leaves half of the memory to others",
          "[rdma][options]") {
  const Settings normal = Settings::from(Options{});
  CHECK(normal.memory_limit > 64u << 20);
  CHECK(normal.limit().allows(normal.window));
  CHECK_FALSE(normal.limit().allows(normal.memory_limit + 1));
  CHECK(Settings::from(Options{{"memory-limit", "0"}}).limit().allows(kHighest));
  const MemoryLimit mebibyte = Settings::from(Options{{"memory-limit", "1m"}}).limit();
  CHECK_FALSE(mebibyte.allows((1u << 20) + 1));
  CHECK(mebibyte.allows(1u << 20));
  const Pinned some(300 * 1024);
  CHECK_FALSE(mebibyte.allows(1u << 20));
  CHECK_FALSE(mebibyte.but_a_quarter().allows(500 * 1024));  // of 768 KiB
  CHECK(mebibyte.but_a_quarter().allows(468 * 1024));
}

}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
