// SPDX-License-Identifier: BSD-3-Clause
// The straight path of a message (conn/rdma/straight_path.h) in the protocol: what it takes has the
// effect that the full path has, and it takes nothing if anything else is due.
#if AECONN_RDMA

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "conn/rdma/protocol/stream.h"
#include "tests/support/catch.h"
#include "tests/support/stream_bench.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using test::Bench;
using test::config_of;
using namespace std::chrono_literals;

class Choices {
 public:
  explicit Choices(unsigned seed) : random_(seed) {}
  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_()) % below; }

 private:
  std::minstd_rand random_;
};

// Whatever can be asked of a line of windows.
std::array<std::uint64_t, 10> facts_of(const ReceiveWindowQueue& line) {
  const ReceiveWindowQueue::Window* const current = line.current();
  return {line.held(),
          line.windows().count(),
          line.full(),
          line.outstanding(),
          line.unannounced(),
          line.leaving(),
          line.windows().unread_bytes(),
          line.windows().unread().size(),
          current != nullptr ? current->filled + 1 : 0,
          current != nullptr ? current->first : 0};
}

TEST_CASE("rdma windows: what fill() and consume() do, take_some() and read_some() do in part",
          "[rdma][stream][straight]") {
  int taken = 0, refused = 0, read = 0, left = 0;
  for (unsigned seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Choices choices(seed);
    ReceiveWindowQueue line;
    std::vector<std::unique_ptr<std::byte[]>> memory;
    std::uint64_t messages = 0;
    ae::TimePoint now{1h};
    for (int i = 0; i < 300; ++i) {
      now += 1us;
      switch (choices.pick(8)) {
        case 0:
          if (line.has_spare()) {
            (void)line.add_spare(0);
          } else if (line.held() < ReceiveWindowQueue::kSlots) {
            const bool others_are_left = !line.leaving() && line.unannounced() == 0 &&
                                         line.windows().count() != line.full() &&
                                         !line.windows().has_unread() && choices.pick(3) == 0;
            const std::uint32_t length = 1 + choices.pick(60);
            memory.push_back(std::make_unique<std::byte[]>(length));
            for (std::uint32_t each = 0; each < length; ++each)
              memory.back()[each] = std::byte(choices.pick(256));
            line.add({memory.back().get(), length, 1, 0x1000, nullptr});
            if (others_are_left) line.leave_others();
          }
          break;
        case 1:
          if (line.unannounced() != 0) line.announced(++messages, now);
          break;
        case 2:
          if (line.leaving() && line.unannounced() == 0) {
            line.left();
            ++left;
          }
          break;
        case 3:
        case 4: {  // the user reads
          const std::span<std::byte> unread = line.windows().unread();
          const std::size_t size = choices.pick(20);
          std::array<std::byte, 20> into{};
          ReceiveWindowQueue other = line;
          const std::size_t n = line.read_some(into.data(), size);
          REQUIRE(n == (line.full() == 0 ? std::min(size, unread.size()) : 0));
          REQUIRE(std::equal(into.begin(), into.begin() + static_cast<long>(n), unread.begin()));
          if (n != 0) REQUIRE_FALSE(other.consume(n));  // no window is read to its end
          REQUIRE(facts_of(line) == facts_of(other));
          read += n != 0 ? 1 : 0;
          if (n == 0) (void)line.consume(std::min(size, unread.size()));
          break;
        }
        default: {  // the peer writes
          const ReceiveWindowQueue::Window* const current = line.current();
          const std::uint32_t room = current != nullptr ? current->end - current->filled : 0;
          const std::uint32_t lengths[] = {0,
                                           1,
                                           room - 1,
                                           room,
                                           room + 1,
                                           1u << 31,
                                           (1u << 31) | 1u,
                                           UINT32_MAX,
                                           choices.pick(room + 2),
                                           choices.pick(5)};
          const std::uint32_t length = lengths[choices.pick(10)];
          const bool fits =
              current != nullptr && current->filled != 0 && length != 0 && length < room;
          ReceiveWindowQueue other = line;
          const ReceiveWindowQueue::Window* const into = line.take_some(length);
          REQUIRE((into != nullptr) == fits);
          ++(fits ? taken : refused);
          if (fits) {
            REQUIRE(into == current);
            REQUIRE_FALSE(other.fill(length, now));
          }
          REQUIRE(facts_of(line) == facts_of(other));
          if (!fits && current != nullptr && length != 0 && length <= room)
            (void)line.fill(length, now);
        }
      }
      line.check();
    }
  }
  CHECK(taken > 1000);
  CHECK(refused > 1000);
  CHECK(read > 1000);
  CHECK(left > 20);
}

TEST_CASE("rdma proof: while it has plenty, receives are not few and no probe is due",
          "[rdma][stream][straight]") {
  for (const std::uint32_t receives : {8u, 9u, 24u, 40u, 1024u, 100'000u})
    for (const bool answers : {false, true}) {
      CAPTURE(receives, answers);
      Proof proof(Role::kServer, receives, true, {});
      proof.on_hello(receives, answers);
      bool had = true;
      for (std::uint32_t i = 0; i < receives; ++i) {
        if (proof.has_plenty()) {
          CHECK(had);
          CHECK_FALSE(proof.few_receives(0));
          CHECK_FALSE(proof.probe_is_due(0));
          CHECK_FALSE(proof.is_exceeded());
          CHECK_FALSE(proof.lacks_receives({}, 0));
        } else if (answers) {
          CHECK(proof.probe_is_due(0));
        }
        had = proof.has_plenty();
        proof.on_posted({});
      }
      CHECK_FALSE(had);
    }
}

// What is due, and when something will be.
struct State {
  explicit State(const Bench& bench) {
    const Stream& stream = bench.stream;
    if (stream.failure() != nullptr) failure = stream.failure();
    for (std::uint32_t i = 0; i < 100; ++i) {
      const auto message = stream.next_control(bench.now, i);
      if (!message) break;
      controls.push_back(*message);
    }
    numbers = {stream.outbound().sendable(1, bench.now),
               stream.outbound().sendable(100'000, bench.now),
               stream.outbound().immediate(1),
               stream.outbound().proof().sent(),
               stream.outbound().proof().unproven(),
               stream.outbound().proof().received(),
               static_cast<std::uint64_t>(
                   stream.outbound().proof().last_post_at().time_since_epoch().count()),
               stream.outbound().peer_windows().left(),
               stream.outbound().peer_windows().position(),
               stream.inbound().unread_bytes(),
               stream.inbound().window_changes(),
               stream.inbound().wanted_window(),
               stream.at_end(),
               stream.liveness().heard(),
               stream.liveness().wants_probe(),
               static_cast<std::uint64_t>(stream.next_tick().time_since_epoch().count())};
    line = facts_of(stream.inbound().line());
  }
  bool operator==(const State&) const = default;
  std::string failure;
  std::vector<ControlMessage> controls;
  std::array<std::uint64_t, 16> numbers{};
  std::array<std::uint64_t, 10> line{};
};

TEST_CASE("rdma stream: the straight path changes a stream as the full one does, or not at all",
          "[rdma][stream][straight]") {
  int taken = 0, full = 0, posted = 0, held = 0, read = 0, failed = 0, silent = 0;
  for (unsigned seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    Choices choices(seed);
    const Role role = choices.pick(2) == 0 ? Role::kServer : Role::kClient;
    StreamConfig config = config_of(role, choices.pick(2) == 0 ? 40 : 500);
    config.peer_receives = choices.pick(2) == 0 ? 40 : 1024;
    config.completions_prove = choices.pick(4) != 0;
    Bench bench(config), other(config);
    const auto both = [&](auto&& what) {
      what(bench);
      what(other);
    };
    if (choices.pick(3) != 0) {
      Hello hello;
      hello.flags = Hello::kWindowMayChange | Hello::kAnswersProbes | Hello::kMarksWindows |
                    Hello::kTakesAhead | Hello::kHearsAborts | Hello::kSendsKeepalives;
      hello.keepalive_ms = 3000;
      both([&](Bench& each) { each.stream.on_hello(hello); });
    }
    for (int i = 0; i < 300 && !bench.failed(); ++i) {
      both([](Bench& each) { each.now += 1us; });
      switch (choices.pick(20)) {
        case 0:
          both([](Bench& each) { each.settle(); });
          break;
        case 1:
        case 2:
          both([](Bench& each) { (void)each.post(); });
          break;
        case 3:
          if (bench.stream.outbound().peer_windows().left() < 20) {
            const std::uint32_t length = 1 + choices.pick(3000);
            both([&](Bench& each) { each.peer_registers(length); });
          }
          break;
        case 4: {
          if (choices.pick(6) != 0) break;
          const auto select = static_cast<std::uint16_t>(
              choices.pick(2) == 0 ? choices.pick(4)
                                   : bench.stream.outbound().proof().next_probe() - 1);
          both([&](Bench& each) { each.feature(Opcode::kGetServerFeature, select); });
          break;
        }
        case 5: {
          const ae::Duration late = choices.pick(8) == 0 ? 1ms * choices.pick(4000) : 1us;
          both([&](Bench& each) {
            each.now += late;
            each.tick();
          });
          break;
        }
        case 6: {
          if (choices.pick(80) == 0)
            both([](Bench& each) { (void)each.stream.outbound().abort(); });
          if (choices.pick(80) == 0) both([](Bench& each) { each.stream.on_peer_closed(); });
          if (choices.pick(8) == 0) both([](Bench& each) { each.stream.ask_path(); });
          if (choices.pick(2) == 0)
            both([](Bench& each) { each.stream.outbound().on_staged_left(); });
          if (bench.stream.outbound().peer_windows().left() != 0 &&
              choices.pick(8) == 0)  // to leave it
            both([](Bench& each) {
              each.control({.opcode = Opcode::kRegisterXferMemory,
                            .select = kWindowMark,
                            .address = 0x9000,
                            .length = 400,
                            .key = 9});
            });
          break;
        }
        case 7:
        case 8:
        case 9: {  // the user reads
          const std::size_t size = 1 + choices.pick(100);
          std::array<std::byte, 100> one{}, two{};
          const std::size_t n = other.stream.inbound().read_straight(one.data(), size);
          if (n == 0) (void)other.stream.inbound().read(one.data(), size);
          REQUIRE((n == 0 || n == bench.stream.inbound().read(two.data(), n)));
          if (n == 0) (void)bench.stream.inbound().read(two.data(), size);
          read += n != 0 ? 1 : 0;
          break;
        }
        case 10:
        case 11:
        case 12:
        case 13: {  // we write
          const std::uint32_t window = bench.stream.outbound().peer_windows().left();
          const std::uint32_t size = window != 0 && choices.pick(20) == 0
                                         ? window
                                         : 1 + choices.pick(choices.pick(2) == 0 ? 30 : 3000);
          if (bench.stream.takes_straight(size)) {
            REQUIRE(size < bench.stream.outbound().peer_windows().left());
            REQUIRE(bench.stream.outbound().sendable(size, bench.now) == size);
            REQUIRE_FALSE(bench.stream.next_control(bench.now));
            REQUIRE_FALSE(bench.stream.liveness().wants_probe());
            REQUIRE_FALSE(bench.stream.outbound().proof().is_exceeded());
            bench.stream.outbound().on_write_posted(size, bench.now);
            other.stream.outbound().on_straight_posted(size, other.now);
            ++posted;
          } else {
            if (bench.stream.outbound().sendable(size, bench.now) == size)
              both([&](Bench& each) { each.stream.outbound().on_write_posted(size, each.now); });
            ++held;
          }
          break;
        }
        default: {  // the peer writes
          const ReceiveWindowQueue::Window* const current = bench.stream.inbound().line().current();
          const std::uint32_t room = current != nullptr ? current->end - current->filled : 0;
          std::uint32_t length = choices.pick(30) == 0 ? room : 1 + choices.pick(20);
          if (choices.pick(100) == 0) length = choices.pick(room + 3);
          if (choices.pick(20) == 0) length |= kWaited;
          if (room < length % kWaited && choices.pick(60) != 0) break;
          bench.stream.on_data(length, bench.now);
          const bool straight = other.stream.take_straight(length, other.now);
          if (!straight) other.stream.on_data(length, other.now);
          ++(straight ? taken : full);
        }
      }
      bench.stream.check();
      other.stream.check();
      REQUIRE(State(bench) == State(other));
    }
    if (!bench.failed()) continue;
    // A failed stream takes nothing, and sends nothing.
    const ReceiveWindowQueue::Window* const current = other.stream.inbound().line().current();
    if (current != nullptr && current->filled != 0 && current->filled + 1 < current->end) {
      REQUIRE_FALSE(other.stream.take_straight(1, other.now));
      ++failed;
    }
    if (other.stream.outbound().peer_windows().left() < 2) continue;
    REQUIRE_FALSE(other.stream.takes_straight(1));
    ++silent;
  }
  CHECK(failed > 10);
  CHECK(silent > 10);
  CHECK(taken > 3000);
  CHECK(full > 1000);
  CHECK(posted > 2000);
  CHECK(held > 1000);
  CHECK(read > 1000);
}

}  // namespace
}}}  // namespace conn::rdma

#endif
