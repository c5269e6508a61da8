// SPDX-License-Identifier: BSD-3-Clause
// The RDMA byte stream: windows that are announced ahead, before the last one is full.
#if AECONN_RDMA

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/protocol/stream.h"
#include "tests/support/catch.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;
using namespace test;

constexpr std::uint32_t kOurs = kAll | Hello::kMarksWindows | Hello::kTakesAhead;

StreamConfig config_with(std::uint32_t windows, std::uint32_t length = 8) {
  StreamConfig config = config_of(Role::kServer, length);
  config.max_windows = windows;
  return config;
}

// A receiver whose peer accepts windows ahead. Tracks the announced windows that are not full.
struct Receiver : Bench {
  explicit Receiver(const StreamConfig& config, std::uint32_t flags = kOurs) : Bench(config) {
    stream.on_hello({flags, 0});
    announce();
  }
  // Posts pending control messages and records the announcements. Returns the number of
  // announcements.
  std::size_t announce() {
    settle();
    std::size_t count = 0;
    while (const auto message = post()) {
      if (message->opcode != Opcode::kRegisterXferMemory) continue;
      known.push_back(*message);
      ++count;
    }
    return count;
  }
  // Writes the text into the oldest window that is not full, as one message.
  void arrive(const std::string& text, bool waited = false) {
    std::memcpy(windows.at(known.front().key).data + used, text.data(), text.size());
    used += static_cast<std::uint32_t>(text.size());
    if (used == known.front().length) {
      known.pop_front();
      used = 0;
    }
    claim(static_cast<std::uint32_t>(text.size()) | (waited ? kWaited : 0));
  }
  // Fills a window with two messages 1 ms apart, after the peer waited a round trip for the window.
  void window_that_waited() {
    const auto half = known.front().length / 2;
    now += 20ms;
    arrive(std::string(half, 'w'), true);
    now += 1ms;
    arrive(std::string(half, 'w'));
  }
  std::deque<ControlMessage> known;
  std::uint32_t used = 0;
};

TEST_CASE("rdma stream: who waited for windows is given more, and again, up to max-windows",
          "[rdma][stream][ahead]") {
  Receiver bench(config_with(4));
  CHECK(bench.known.size() == 1);
  std::vector<std::size_t> with_peer;
  for (int i = 0; i < 8; ++i) {
    bench.window_that_waited();
    bench.read();
    bench.announce();
    with_peer.push_back(bench.known.size());
  }
  // The first window has no predecessor by which waiting could be detected.
  CHECK(with_peer.back() == 3);
  CHECK(std::is_sorted(with_peer.begin(), with_peer.end()));
  CHECK(bench.stream.inbound().windows_wanted() == 3);
  CHECK(bench.stream.inbound().pinned_bytes() <= 4 * 8);
  // They are filled in order, and are marked as windows ahead.
  CHECK(bench.known[1].select == kWindowAhead);
  bench.arrive("12345678");
  bench.arrive("abcdefgh");
  bench.arrive("ABC");
  CHECK(bench.read() == "12345678abcdefghABC");
  bench.claim(6);  // only 5 bytes are left in that window
  CHECK(bench.failed());
}

// A receiver whose peer has 16 receives, and confirms with an answer what it has handled.
struct FewReceives : Receiver {
  static StreamConfig with(StreamConfig config) {
    config.peer_receives = 16;
    return config;
  }
  explicit FewReceives(const StreamConfig& config) : Receiver(with(config)) {}
  std::size_t offers() {
    settle();
    std::size_t count = 0;
    while (const auto message = post()) {
      if (message->opcode == Opcode::kGetServerFeature) question = message->select;
      if (message->opcode != Opcode::kRegisterXferMemory) continue;
      known.push_back(*message);
      ++count;
    }
    CHECK(stream.outbound().proof().unproven() <= 16);
    return count;
  }
  void answer() {
    if (question != 0) feature(Opcode::kGetServerFeature, std::exchange(question, 0));
  }
  // Grows to the largest number and length of windows; then the peer sleeps, and this side has
  // written as much as the peer's receives allow.
  void fill_up() {
    for (int i = 0; i < 20; ++i) {
      window_that_waited();
      read();
      offers();
      answer();
    }
    peer_registers(100);
    CHECK(write_until_held() > 0);
    REQUIRE(offers() == 0);
    REQUIRE(question != 0);
  }
  std::uint16_t question = 0;
};

TEST_CASE("rdma stream: more windows wait for receives of the peer, the one it needs does not",
          "[rdma][stream][ahead]") {
  FewReceives bench(config_with(8));
  bench.fill_up();
  REQUIRE(bench.known.size() == 7);
  // The peer's earlier messages fill all windows but one, and then that one.
  for (int i = 0; i < 6; ++i) {
    bench.arrive("12345678");
    bench.read();
    CHECK(bench.offers() == 0);
  }
  bench.arrive("12345678");
  bench.read();
  CHECK(bench.offers() == 1);
  CHECK(bench.known.front().select == 0);
  bench.answer();
  CHECK(bench.offers() == 6);
  CHECK(bench.known.back().select == kWindowAhead);
}

TEST_CASE("rdma stream: a shorter window waits for receives of the peer, unless it has no other",
          "[rdma][stream][ahead]") {
  const bool filled = GENERATE(true, false);
  StreamConfig config = config_with(2);
  config.max_window = 32;
  FewReceives bench(config);
  bench.fill_up();
  REQUIRE(bench.known.size() == 1);
  REQUIRE(bench.known.front().length == 32);
  bench.now += 11s;
  bench.tick();
  CHECK(bench.offers() == 0);
  CHECK(bench.windows.rbegin()->second.length == 8);
  if (filled)
    bench.arrive(std::string(32, 'w'));
  else
    bench.answer();
  CHECK(bench.offers() == 1);
  CHECK(bench.known.back().select == kWindowMark);
  CHECK(bench.known.back().length == 8);
}

TEST_CASE("rdma stream: who does not wait has one window at a time", "[rdma][stream][ahead]") {
  Receiver bench(config_with(4));
  for (int i = 0; i < 20; ++i) {
    bench.now += 1ms;
    bench.arrive("1234");
    bench.now += 1ms;
    // The peer's bit alone is not enough if the bytes arrived as steadily as before.
    bench.arrive("5678");
    bench.read();
    CHECK(bench.announce() == 1);
    bench.now += 1ms;
    bench.arrive("1234", true);
    bench.now += 1ms;
    bench.arrive("5678");
    bench.read();
    CHECK(bench.announce() == 1);
  }
  CHECK(bench.stream.inbound().windows_wanted() == 1);
}

TEST_CASE("rdma stream: windows grow as long as they may before there are more of them",
          "[rdma][stream][ahead]") {
  StreamConfig config = config_with(4);
  config.max_window = 32;
  Receiver bench(config);
  std::vector<std::uint32_t> lengths;
  for (int i = 0; i < 6; ++i) {
    lengths.push_back(bench.known.front().length);
    if (lengths.back() < 32) CHECK(bench.stream.inbound().windows_wanted() == 1);
    bench.window_that_waited();
    bench.read();
    bench.announce();
  }
  CHECK(lengths[0] == 8);
  CHECK(lengths.back() == 32);
  CHECK(bench.stream.inbound().windows_wanted() > 1);
}

TEST_CASE("rdma stream: a peer that waits for our reader is given no more windows",
          "[rdma][stream][ahead]") {
  Receiver bench(config_with(4));
  for (int i = 0; i < 2; ++i) {  // both are full before the first byte is read
    bench.arrive("12345678");
    bench.announce();
  }
  for (int i = 0; i < 20; ++i) {
    REQUIRE(bench.known.empty());
    CHECK(bench.read(8).size() == 8);
    CHECK(bench.announce() == 1);
    bench.window_that_waited();
    bench.announce();
  }
  CHECK(bench.stream.inbound().windows_wanted() == 1);
  CHECK(bench.stream.inbound().pinned_bytes() == 16);
}

TEST_CASE("rdma stream: a peer that does not take them ahead has one window at a time",
          "[rdma][stream][ahead]") {
  const bool waits = GENERATE(false, true);
  Receiver bench(config_with(4), kAll | Hello::kMarksWindows);
  for (int i = 0; i < 10; ++i) {
    bench.now += 20ms;
    bench.arrive("1234");
    bench.now += 1ms;
    bench.arrive("5678");
    bench.read();
    CHECK(bench.announce() == 1);
    CHECK(bench.known.back().select == 0);
  }
  if (waits) {  // a peer without windows ahead reads the bit as part of the length
    bench.arrive("1234", true);
    CHECK(bench.failed());
  }
}

TEST_CASE("rdma stream: without memory for more windows those that are there serve",
          "[rdma][stream][ahead]") {
  Receiver bench(config_with(4));
  bench.window_that_waited();
  bench.read();
  bench.announce();
  bench.now += 20ms;
  bench.arrive("1234", true);
  REQUIRE(bench.stream.inbound().wanted_window() == 8);
  bench.stream.no_window(bench.now);
  CHECK(bench.stream.inbound().wanted_window() == 0);
  CHECK_FALSE(bench.failed());
  bench.arrive("5678");
  bench.read();
  bench.announce();
  CHECK(bench.known.size() == 1 + (bench.stream.inbound().pinned_bytes() > 8 ? 1 : 0));
  bench.now += 1s;
  bench.tick();
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: after a quiet second one window takes the place of all",
          "[rdma][stream][ahead]") {
  Receiver bench(config_with(4));
  for (int i = 0; i < 8; ++i) {
    bench.window_that_waited();
    bench.read();
    bench.announce();
  }
  REQUIRE(bench.known.size() == 3);
  bench.arrive("12");
  bench.read();
  CHECK(bench.stream.next_tick() <= bench.now + 1s);
  bench.now += 1s;
  bench.tick();
  CHECK(bench.announce() == 1);
  CHECK(bench.known.back().select == kWindowMark);
  const ControlMessage mark{.opcode = Opcode::kSetClientFeature, .select = kWindowMark};
  SECTION("nothing was under way") {
    bench.control(mark);
    bench.known.erase(bench.known.begin(), bench.known.begin() + 3);
    bench.used = 0;
  }
  SECTION("bytes were under way, for two of them") {
    bench.arrive("345678");
    bench.arrive("abc");
    bench.control(mark);
    bench.known.erase(bench.known.begin(), bench.known.begin() + 2);
    bench.used = 0;
    CHECK(bench.read() == "345678abc");
  }
  SECTION("all of them were filled meanwhile") {
    bench.arrive("345678");
    bench.arrive("abcdefgh");
    bench.arrive("ABCDEFGH");
    CHECK(bench.read(20) == "345678abcdefghABCDEF");
    bench.control(mark);
    CHECK(bench.read() == "GH");
  }
  SECTION("into the new one without a mark") {
    bench.arrive("345678");
    bench.arrive("abcdefgh");
    bench.arrive("ABCDEFGH");
    bench.claim(1);
    CHECK(bench.failed());
    return;
  }
  REQUIRE(bench.known.size() == 1);
  bench.arrive("next");
  CHECK(bench.read() == "next");
  bench.settle();
  CHECK(bench.stream.inbound().pinned_bytes() <= 16);
  bench.now += 1s;
  bench.tick();
  bench.settle();
  CHECK(bench.stream.inbound().pinned_bytes() == 8);
  // The next burst has to prove that it can use as many; it begins with one less.
  bench.arrive("5678");
  for (int i = 0; i < 2; ++i) {
    bench.read();
    bench.announce();
    bench.window_that_waited();
  }
  CHECK(bench.stream.inbound().windows_wanted() == 2);
}

// --- sending -------------------------------------------------------------------------------------

ControlMessage ahead(std::uint32_t length, std::uint64_t address, std::uint32_t key) {
  return {.opcode = Opcode::kRegisterXferMemory,
          .select = kWindowAhead,
          .address = address,
          .length = length,
          .key = key};
}

TEST_CASE("rdma stream: windows announced ahead are filled in their order, each to its end",
          "[rdma][stream][ahead]") {
  Bench bench(Role::kClient);
  bench.stream.on_hello({kOurs, 0});
  bench.peer_registers(10, 0x1000, 1);
  bench.control(ahead(20, 0x2000, 2));
  bench.control(ahead(30, 0x3000, 3));
  CHECK(bench.stream.outbound().peer_windows().ahead() == 2);
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 10);
  CHECK(bench.write(4));
  CHECK(bench.stream.outbound().peer_windows().position() == 0x1004);
  CHECK(bench.stream.outbound().peer_windows().current().key == 1);
  CHECK(bench.write(6));
  CHECK(bench.stream.outbound().peer_windows().position() == 0x2000);
  CHECK(bench.stream.outbound().peer_windows().current().key == 2);
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 20);
  CHECK(bench.write(20));
  CHECK(bench.write(30));
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 0);
  CHECK_FALSE(bench.post());  // no window was left before its end
  // The last window is full: the next takes its place, whether marked as ahead or not.
  bench.control(ahead(5, 0x4000, 4));
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 5);
}

TEST_CASE("rdma stream: the next immediate says that bytes waited for a window",
          "[rdma][stream][ahead]") {
  const bool ours = GENERATE(true, false);
  Bench bench(Role::kClient);
  bench.stream.on_hello({ours ? kOurs : kAll, 0});
  bench.stream.outbound().on_staged_left();  // before the first window nothing counts as waiting
  bench.peer_registers(10);
  CHECK(bench.stream.outbound().immediate(4) == 4);
  bench.write(4);
  bench.stream.outbound().on_staged_left();  // waited for receives or a free slot, not for a window
  CHECK(bench.stream.outbound().immediate(6) == 6);
  bench.write(6);
  bench.stream.outbound().on_staged_left();
  bench.peer_registers(10);
  CHECK(bench.stream.outbound().immediate(3) == (ours ? 3 | kWaited : 3));
  bench.write(3);
  CHECK(bench.stream.outbound().immediate(3) == 3);
}

TEST_CASE("rdma stream: windows of which all were announced before prove nothing",
          "[rdma][stream][ahead]") {
  Bench bench(Role::kClient);
  bench.stream.on_hello({kOurs, 0});
  bench.peer_registers(2);
  bench.write(1);
  bench.write(1);
  bench.control(ahead(2, 0x2000, 2));  // it may have been sent before the bytes arrived
  CHECK(bench.stream.outbound().proof().unproven() == 2);
  bench.write(2);
  bench.peer_registers(2);  // this one was sent when all were full
  CHECK(bench.stream.outbound().proof().unproven() == 0);
}

TEST_CASE("rdma stream: more windows than there may be end the connection",
          "[rdma][stream][ahead][hostile]") {
  Bench bench(Role::kServer);
  bench.stream.on_hello({kOurs, 0});
  bench.peer_registers(10);
  for (std::uint32_t i = 1; i < kMostAnnounced; ++i) bench.control(ahead(10, 0x2000, i));
  CHECK_FALSE(bench.failed());
  SECTION("one more") {
    bench.control(ahead(10, 0x2000, 99));
    CHECK(bench.failed());
  }
  SECTION("one more when one is full") {
    bench.write(10);
    bench.control(ahead(10, 0x2000, 99));
    CHECK_FALSE(bench.failed());
  }
  SECTION("one of no bytes") {
    bench.control(ahead(0, 0x2000, 99));
    CHECK(bench.failed());
  }
  SECTION("one that takes the place of all") {
    bench.peer_registers(7, 0x9000, 70);
    CHECK(bench.stream.outbound().peer_windows().ahead() == 0);
    CHECK(bench.stream.outbound().sendable(100, bench.now) == 7);
  }
}

TEST_CASE("rdma stream: a peer that said nothing of it announces nothing ahead",
          "[rdma][stream][ahead][hostile]") {
  Bench bench(Role::kServer);
  if (GENERATE(true, false)) bench.stream.on_hello({kAll | Hello::kMarksWindows, 0});
  bench.peer_registers(10);
  bench.write(3);
  bench.control(ahead(20, 0x2000, 2));  // to such a peer these bytes are reserved
  CHECK(bench.stream.outbound().peer_windows().ahead() == 0);
  CHECK(bench.stream.outbound().sendable(100, bench.now) == 20);
  CHECK(bench.stream.outbound().peer_windows().position() == 0x2000);
}

TEST_CASE("rdma stream: each window that we filled earns the peer one, ahead or not",
          "[rdma][stream][ahead]") {
  StreamConfig config = config_of(Role::kServer);
  config.control_rate = 0;
  config.control_burst = 3;
  Bench bench(config);
  bench.stream.on_hello({kOurs, 0});
  bench.peer_registers(2);
  bench.control(ahead(2, 0x2000, 2));
  bench.control(ahead(2, 0x3000, 3));
  for (int i = 0; i < 10000; ++i) {
    REQUIRE(bench.write(2));
    bench.control(ahead(2, 0x4000, 4));
    if (const auto question = bench.post()) bench.control(*question);
  }
  CHECK_FALSE(bench.failed());
  bench.control(ahead(2, 0x4000, 4));  // nothing was written
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: a loop whose time is older than the stream is no flood of the peer's",
          "[rdma][stream][hostile]") {
  Bench bench(Role::kServer);
  bench.now -= std::chrono::hours(1);  // a handler runs long and accepts connections meanwhile
  for (int i = 0; i < 3; ++i) bench.peer_registers(8);
  CHECK_FALSE(bench.failed());
  bench.now += std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) bench.peer_registers(8);
  CHECK_FALSE(bench.failed());
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
