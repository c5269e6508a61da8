// The RDMA byte stream, rule by rule; then whole streams at random, over a simulated link.

#include "conn/rdma/stream.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/stream_link.h"

namespace conn::rdma {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr std::uint32_t kAll = Hello::kWindowMayChange | Hello::kAnswersProbes;

StreamConfig config_of(Role role, std::uint32_t window = 8) {
  StreamConfig config;
  config.role = role;
  config.window = window;
  config.max_window = window;
  return config;
}

ControlMessage feature_message(std::uint16_t select) {
  return {.opcode = Opcode::kGetServerFeature, .select = select};
}

// One Stream, whose peer is the test.
struct Bench {
  explicit Bench(const StreamConfig& config) : stream(config, now) {}
  explicit Bench(Role role, std::uint32_t window = 8) : Bench(config_of(role, window)) {}
  ~Bench() { stream.check(); }

  // Gives the stream the window it wants, if it wants one.
  std::uint32_t provide() {
    const std::uint32_t length = stream.wanted_window();
    if (length == 0) return 0;
    memory.push_back(std::make_unique<std::byte[]>(length));
    WindowBuffer buffer;
    buffer.data = memory.back().get();
    buffer.length = length;
    buffer.address = 0x10000 * memory.size();
    buffer.key = static_cast<std::uint32_t>(memory.size());
    stream.provide_window(buffer);
    windows[buffer.key] = buffer;
    stream.check();
    return length;
  }
  // As the connection: frees and provides until all is settled. Returns how many were freed.
  int settle() {
    int freed = 0;
    while (stream.take_discarded().data != nullptr || provide() != 0) {
      stream.check();
      ++freed;
    }
    return freed;
  }
  // Posts the next control message, or none.
  std::optional<ControlMessage> post() {
    const auto message = stream.next_control(now);
    if (message) stream.on_control_posted(*message, now);
    stream.check();
    return message;
  }
  // Provides and announces a window; the announcement.
  ControlMessage offer() {
    settle();
    const auto message = post();
    REQUIRE(message);
    REQUIRE(message->opcode == Opcode::kRegisterXferMemory);
    offered = *message;
    filled = 0;
    return *message;
  }
  // The peer writes into the window announced last.
  void data(const std::string& text) {
    std::memcpy(windows.at(offered.key).data + filled, text.data(), text.size());
    filled += text.size();
    claim(static_cast<std::uint32_t>(text.size()));
  }
  void claim(std::uint32_t length) {
    stream.on_data(length, now);
    stream.check();
  }
  std::string read(std::size_t size = 1000) {
    std::string text(size, '?');
    text.resize(stream.read(reinterpret_cast<std::byte*>(text.data()), size, now));
    stream.check();
    return text;
  }
  void control(const ControlMessage& message) {
    stream.on_control(encode(message), now);
    stream.check();
  }
  void peer_registers(std::uint32_t length, std::uint64_t address = 0x1000, std::uint32_t key = 7) {
    control(
        {.opcode = Opcode::kRegisterXferMemory, .address = address, .length = length, .key = key});
  }
  void feature(Opcode opcode, std::uint16_t select) {
    control({.opcode = opcode, .select = select});
  }
  void keepalive() { control({.opcode = Opcode::kKeepalive}); }
  // Sends `size` bytes as one message if the stream lets it.
  bool write(std::uint32_t size = 1) {
    if (stream.sendable(size, now) < size) return false;
    stream.on_write_posted(size, now);
    stream.check();
    return true;
  }
  int write_until_held() {
    int count = 0;
    while (write()) ++count;
    return count;
  }
  bool failed() const { return stream.failure() != nullptr; }
  void tick(bool loop_was_stopped = false) {
    stream.tick(now, loop_was_stopped);
    stream.check();
  }

  ae::TimePoint now{std::chrono::hours(1)};
  Stream stream;
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::map<std::uint32_t, WindowBuffer> windows;
  ControlMessage offered;
  std::size_t filled = 0;
};

// --- receiving -----------------------------------------------------------------------------------

TEST_CASE("rdma stream: the first thing wanted and said is a window of the configured length",
          "[rdma][stream]") {
  Bench bench(Role::kServer, 64);
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.wanted_window() == 64);
  bench.provide();
  CHECK(bench.stream.wanted_window() == 0);
  CHECK(bench.stream.pinned_bytes() == 64);
  const auto message = bench.stream.next_control(bench.now);
  REQUIRE(message);
  CHECK(*message ==
        ControlMessage{
            .opcode = Opcode::kRegisterXferMemory, .address = 0x10000, .length = 64, .key = 1});
  CHECK(bench.stream.next_control(bench.now) == message);  // it stays until it is posted
  bench.stream.on_control_posted(*message, bench.now);
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.messages_sent() == 1);
}

TEST_CASE("rdma stream: bytes come out in order, in pieces of any size", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("abc");
  CHECK(bench.stream.has_unread());
  CHECK(bench.stream.unread_bytes() == 3);
  CHECK(bench.read(0).empty());
  CHECK(bench.read(1) == "a");
  bench.data("de");
  CHECK(bench.read(3) == "bcd");
  CHECK(bench.read() == "e");
  CHECK(bench.read().empty());
  CHECK_FALSE(bench.stream.has_unread());
  CHECK_FALSE(bench.stream.at_end());
  CHECK(bench.stream.messages_received() == 2);
}

TEST_CASE("rdma stream: the second window is offered when the first is full, before it is read",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  const ControlMessage first = bench.offer();
  bench.data("1234567");
  CHECK(bench.stream.wanted_window() == 0);  // not before the last byte
  bench.data("8");
  CHECK(bench.stream.wanted_window() == 8);
  const ControlMessage second = bench.offer();
  CHECK(second.key != first.key);
  CHECK(bench.stream.unread_bytes() == 8);
  bench.data("abc");
  CHECK(bench.read() == "12345678abc");  // one read crosses from window to window
  CHECK_FALSE(bench.post());             // the offer in force has room
  bench.data("defgh");
  CHECK(bench.offer().key == first.key);  // and then the first is there at once, without asking
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
  CHECK(bench.stream.wanted_window() == 0);
  CHECK_FALSE(bench.post());
  CHECK(bench.read(7) == "1234567");
  CHECK_FALSE(bench.post());
  CHECK(bench.read(1) == "8");
  CHECK(bench.offer().key == first.key);
  CHECK_FALSE(bench.post());  // once
  CHECK(bench.read() == "abcdefgh");
  CHECK_FALSE(bench.post());
}

TEST_CASE("rdma stream: without memory for a second window the first serves alone",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.stream.no_window();
  CHECK(bench.stream.wanted_window() == 0);  // not asked again and again
  CHECK_FALSE(bench.post());
  CHECK(bench.read() == "12345678");
  CHECK(bench.offer().key == 1);
  bench.data("abcdefgh");
  CHECK(bench.stream.wanted_window() == 0);
  bench.tick();
  CHECK(bench.stream.wanted_window() == 8);  // but after a while
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: without memory for any window the stream fails", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.no_window();
  CHECK(bench.failed());
  CHECK(bench.stream.wanted_window() == 0);
}

TEST_CASE("rdma stream: bytes that arrived before the close are read before the end",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.offer();
  bench.stream.on_peer_closed();
  CHECK_FALSE(bench.stream.at_end());
  bench.data("abc");  // handed in after the close was seen, as completions may be
  CHECK(bench.read(8) == "12345678");
  CHECK_FALSE(bench.stream.at_end());
  CHECK(bench.read() == "abc");
  CHECK(bench.stream.at_end());
  bench.data("defgh");
  CHECK(bench.read() == "defgh");
  CHECK(bench.stream.wanted_window() == 0);
}

TEST_CASE("rdma stream: nothing is sent to a peer that closed", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.provide();
  bench.peer_registers(100);
  REQUIRE(bench.stream.sendable(5, bench.now) == 5);
  bench.stream.on_peer_closed();
  CHECK(bench.stream.sendable(5, bench.now) == 0);
  CHECK_FALSE(bench.post());
  CHECK_FALSE(bench.stream.retry_at(5));
  bench.now += 100s;
  bench.tick();
  CHECK_FALSE(bench.stream.wants_silent_probe());
  CHECK_FALSE(bench.failed());
}

TEST_CASE("rdma stream: all windows come back in the end, and no offer is left", "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.provide();
  CHECK(bench.stream.take_any().data != nullptr);
  bench.stream.check();
  CHECK_FALSE(bench.post());  // the second window's announcement went with it
  CHECK(bench.stream.take_any().data != nullptr);
  CHECK(bench.stream.take_any().data == nullptr);
  CHECK(bench.stream.pinned_bytes() == 0);
  CHECK(bench.stream.wanted_window() == 0);
  bench.tick();
  CHECK(bench.stream.wanted_window() == 0);
}

// --- what a peer may not claim -------------------------------------------------------------------

TEST_CASE("rdma stream: a length beyond the window fails the stream, not the process",
          "[rdma][stream][hostile]") {
  const auto length = GENERATE(9u, 0x7fffffffu, 0x80000000u, 0xffffffffu);
  Bench bench(Role::kServer);
  bench.offer();
  bench.claim(length);
  CHECK(bench.failed());
  CHECK(bench.stream.unread_bytes() == 0);
  CHECK(bench.read().empty());
}

TEST_CASE("rdma stream: a length that wraps the sum fails the stream", "[rdma][stream][hostile]") {
  const auto length = GENERATE(4u, 0xfffffffbu, 0xfffffffcu, 0xfffffffdu, 0xffffffffu);
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345");
  bench.claim(length);
  CHECK(bench.failed());
  CHECK(bench.read() == "12345");  // what came before is still there
  bench.claim(1);
  CHECK(bench.read().empty());  // and nothing after
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
  CHECK(bench.stream.has_peer_window() == row.good);
  CHECK(bench.stream.sendable(5000, bench.now) == (row.good ? row.length : 0));
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
  const std::uint64_t received = bench.stream.messages_received();
  bench.claim(1);
  bench.keepalive();
  bench.peer_registers(200);
  bench.now += 1h;
  bench.tick();
  CHECK(bench.stream.failure() == why);
  CHECK(bench.stream.messages_received() == received);
  CHECK(bench.stream.sendable(5, bench.now) == 0);
  CHECK_FALSE(bench.stream.retry_at(5));
  CHECK_FALSE(bench.post());
  CHECK(bench.stream.wanted_window() == 0);
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
  bench.peer_registers(1000);  // the first costs one, too: 49 are left
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
  CHECK(bench.stream.unread_bytes() == 2);
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
  bench.peer_registers(2);  // nobody wrote
  CHECK(bench.failed());
}

TEST_CASE("rdma stream: a fast sender of small messages may ask as often as its sends need proof",
          "[rdma][stream]") {
  Bench bench(Role::kServer, 1u << 20);
  bench.offer();
  for (int i = 0; i < 1'000'000; ++i) {  // in no time at all
    bench.claim(1);
    if (i % 256 != 0) continue;
    bench.feature(Opcode::kGetServerFeature, static_cast<std::uint16_t>(i & 0x7fff));
    bench.post();
    bench.read();
  }
  CHECK_FALSE(bench.failed());
}

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
    bench.write();
    bench.now += 10ms;
    if (i % 100 == 0) bench.tick();
    if (const auto message = bench.post()) REQUIRE(message->opcode == Opcode::kKeepalive);
  }
  CHECK(bench.stream.messages_sent() > 4900);
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
  bench.feature(Opcode::kGetServerFeature, probe->select & 0x7fff);  // its own question
  CHECK(bench.stream.unproven_messages() == 301);
  CHECK(bench.post()->select == (probe->select & 0x7fff));
  bench.feature(Opcode::kGetServerFeature, probe->select);  // its answer
  CHECK(bench.stream.unproven_messages() == 1);
  bench.feature(Opcode::kGetServerFeature, probe->select);  // once more: nobody waits for it
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
  CHECK(Stream(config, {}).hello() == Hello{kAll | Hello::kSendsKeepalives, 1500});
  config.keepalive = 0s;
  CHECK(Stream(config, {}).hello() == Hello{kAll, 0});
  config.keepalive = 1us;  // sent as often as there are ticks, but not to be counted on
  CHECK(Stream(config, {}).hello() == Hello{kAll | Hello::kSendsKeepalives, 100});
}

// --- sending -------------------------------------------------------------------------------------

TEST_CASE("rdma stream: the peer's window is filled to its last byte, then the next one is awaited",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  CHECK(bench.stream.sendable(100, bench.now) == 0);
  CHECK_FALSE(bench.stream.has_peer_window());
  bench.peer_registers(10, 0x5000, 42);
  CHECK(bench.stream.has_peer_window());
  CHECK(bench.stream.sendable(0, bench.now) == 0);
  CHECK(bench.stream.sendable(3, bench.now) == 3);
  CHECK(bench.stream.remote_address() == 0x5000);
  CHECK(bench.stream.remote_key() == 42);
  bench.stream.on_write_posted(3, bench.now);
  CHECK(bench.stream.remote_address() == 0x5003);
  CHECK(bench.stream.peer_window_left() == 7);
  CHECK(bench.stream.sendable(std::size_t{1} << 40, bench.now) == 7);
  bench.stream.on_write_posted(7, bench.now);
  CHECK(bench.stream.sendable(1, bench.now) == 0);
  bench.peer_registers(4, 0x9000, 43);
  CHECK(bench.stream.remote_address() == 0x9000);
  CHECK(bench.stream.remote_key() == 43);
  CHECK(bench.stream.peer_window_length() == 4);
  CHECK(bench.stream.sendable(100, bench.now) == 4);
}

TEST_CASE("rdma stream: a window that comes before the old one is full replaces it",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(10, 0x5000, 42);
  bench.write(3);
  bench.peer_registers(20, 0x7000, 44);
  CHECK(bench.stream.remote_address() == 0x7000);
  CHECK(bench.stream.sendable(100, bench.now) == 20);
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
  CHECK(bench.stream.unproven_messages() == 1024 - 32);
  bench.now += 1h;  // time proves nothing to one that answers
  CHECK_FALSE(bench.write());
  CHECK_FALSE(bench.stream.retry_at(1));

  bench.feature(Opcode::kGetServerFeature, static_cast<std::uint16_t>(probe->select + 1));
  CHECK_FALSE(bench.write());  // not the answer
  bench.feature(Opcode::kSetClientFeature, 0);
  bench.keepalive();  // nor this: the server speaks, but may have handled nothing
  CHECK_FALSE(bench.write());

  bench.feature(Opcode::kGetServerFeature, probe->select);
  CHECK(bench.stream.unproven_messages() == 1024 - 32 - 257);
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
  CHECK(bench.stream.unproven_messages() < 1024);
}

TEST_CASE("rdma stream: the next window proves that all which filled the last was handled",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(100);
  for (int i = 0; i < 100; ++i) REQUIRE(bench.write());
  bench.offer();
  CHECK(bench.stream.unproven_messages() == 101);
  bench.peer_registers(100);
  CHECK(bench.stream.unproven_messages() == 1);  // our own announcement came after
  for (int i = 0; i < 10; ++i) bench.write();
  bench.peer_registers(100);  // early: it may have crossed with these
  CHECK(bench.stream.unproven_messages() == 11);
}

TEST_CASE("rdma stream: bytes in our window prove that its announcement was handled",
          "[rdma][stream]") {
  Bench bench(Role::kClient);
  bench.peer_registers(100);
  for (int i = 0; i < 10; ++i) REQUIRE(bench.write());
  bench.offer();
  for (int i = 0; i < 5; ++i) REQUIRE(bench.write());
  bench.claim(0);  // says nothing about the window
  CHECK(bench.stream.unproven_messages() == 16);
  bench.data("a");
  CHECK(bench.stream.unproven_messages() == 5);
  bench.data("b");
  CHECK(bench.stream.unproven_messages() == 5);
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
    CHECK(bench.stream.unproven_messages() < receives);
    bench.feature(Opcode::kGetServerFeature, probe->select);
  }
  bench.now += 3s;
  bench.tick();
  CHECK(bench.post()->opcode == Opcode::kKeepalive);  // and is still kept informed
}

TEST_CASE("rdma stream: a peer that cannot be asked is sent one message in ten milliseconds",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.peer_registers(1u << 20);
  CHECK(bench.write_until_held() == 1024 - 32);
  REQUIRE(bench.stream.retry_at(1));
  CHECK_FALSE(bench.stream.retry_at(0));  // nothing to send, nothing to try
  for (int i = 0; i < 10; ++i) {
    const ae::TimePoint when = *bench.stream.retry_at(1);
    CHECK(when == bench.now + 10ms);
    bench.now = when - 1ns;
    CHECK_FALSE(bench.write());
    bench.now = when;
    CHECK(bench.write_until_held() == 1);
  }
  bench.keepalive();  // it lives, so it has handled what it got
  CHECK(bench.write_until_held() == 1024 - 32);
}

TEST_CASE("rdma stream: the peer's silence does not time out a held write that has no window",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.peer_registers(992);
  CHECK(bench.write_until_held() == 992);
  CHECK_FALSE(bench.stream.retry_at(1));  // only a new window helps
}

// --- window lengths ------------------------------------------------------------------------------

StreamConfig growing(Role role) {
  StreamConfig config = config_of(role, 8);
  config.max_window = 50;
  return config;
}

// The lengths of the windows offered while the peer fills each `pause` after its offer.
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
  CHECK(bench.stream.pinned_bytes() <= 100);
}

TEST_CASE("rdma stream: windows that fill slowly keep their length", "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.now += 5ms;  // the time before the announcement does not count for it
  CHECK(lengths(bench, 5ms, 4) == std::vector<std::uint32_t>{8, 8, 8, 8});
}

TEST_CASE("rdma stream: the speed of a window is measured from its announcement",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.provide();
  bench.now += 1s;  // accepted, but the announcement waits for the send queue
  bench.offer();
  bench.data("12345678");
  CHECK(bench.stream.wanted_window() == 16);
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
  CHECK(bench.stream.peer_is_aeconn() == row.hello.has_value());
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
  REQUIRE(bench.stream.pinned_bytes() == 100);
  bench.tick();
  CHECK(bench.stream.take_discarded().data == nullptr);  // not quiet yet
  bench.now += 1100ms;
  bench.tick();
  CHECK(bench.stream.take_discarded().data != nullptr);
  CHECK(bench.stream.take_discarded().data == nullptr);
  CHECK(bench.stream.pinned_bytes() == 50);
  CHECK(bench.stream.window_length() == 8);
  bench.data(std::string(50, 'x'));
  CHECK(bench.stream.wanted_window() == 8);
  CHECK(bench.offer().length == 8);
  CHECK(bench.read().size() == 50);
  CHECK(bench.stream.take_discarded().length == 50);
  CHECK(bench.stream.pinned_bytes() == 8);
}

TEST_CASE("rdma stream: a spare window that is needed again before it was let go stays",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.offer();
  bench.data("12345678");
  bench.offer();
  CHECK(bench.read() == "12345678");
  bench.now += 2s;
  bench.tick();  // quiet, but nobody takes the spare one
  bench.data("12345678");
  bench.offer();
  CHECK(bench.read() == "12345678");
  CHECK(bench.stream.take_discarded().data == nullptr);
}

TEST_CASE("rdma stream: a window that is refused its successor is offered again itself",
          "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.offer();
  bench.data("12345678");
  REQUIRE(bench.stream.window_length() == 16);
  SECTION("read, then refused") {
    CHECK(bench.read() == "12345678");
    CHECK(bench.stream.take_discarded().data == nullptr);  // it is the last one
    CHECK(bench.stream.wanted_window() == 16);
    bench.stream.no_window();
  }
  SECTION("refused, then read") {
    CHECK(bench.stream.wanted_window() == 16);
    bench.stream.no_window();
    CHECK(bench.read() == "12345678");
  }
  CHECK_FALSE(bench.failed());
  CHECK(bench.offer().length == 8);
  bench.data("12345678");
  CHECK(bench.stream.wanted_window() == 0);
  CHECK(bench.read() == "12345678");
  CHECK(bench.offer().length == 8);
}

TEST_CASE("rdma stream: two spare windows of old lengths both make way", "[rdma][stream]") {
  Bench bench(growing(Role::kServer));
  bench.offer();
  bench.now += 1s;  // slow, so the second is of the same length
  bench.data("12345678");
  bench.offer();
  bench.data("12345678");  // fast, so the next is not
  CHECK(bench.read().size() == 16);
  CHECK(bench.stream.wanted_window() == 0);  // no room yet
  CHECK(bench.stream.take_discarded().length == 8);
  CHECK(bench.stream.take_discarded().data == nullptr);
  CHECK(bench.provide() == 16);
  CHECK(bench.stream.take_discarded().length == 8);
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
  CHECK(bench.read().size() == 16);  // two spare ones of 8, and 16 desired
  bench.now += 2s;
  bench.tick();  // 8 desired
  const auto message = bench.post();
  REQUIRE(message);
  CHECK(message->length == 8);
}

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

TEST_CASE("rdma stream: a peer that promised keepalives and is silent is dead after 3.5 intervals",
          "[rdma][stream]") {
  Bench bench(Role::kServer);
  bench.stream.on_hello({kAll | Hello::kSendsKeepalives, 1000});
  bench.now += 1s;
  bench.keepalive();
  CHECK(bench.stream.heard_from_peer());
  bench.now += 3500ms;
  bench.tick();
  CHECK_FALSE(bench.failed());
  SECTION("any message will do") {
    bench.claim(0);
    bench.now += 3500ms;
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
    bench.now += 3500ms;
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
  bench.tick();
  CHECK_FALSE(bench.failed());
  bench.now += 3500ms;
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

// --- whole streams -------------------------------------------------------------------------------

using test::Node;
using test::PlainNode;
using test::StreamNode;

// Two ends, at least one of them a Stream.
struct Pair {
  void join() {
    Node::join(*client, *server);
    for (Node* node : {client.get(), server.get()}) {
      ends.push_back(node);
      if (auto* stream = dynamic_cast<StreamNode*>(node)) streams.push_back(stream);
    }
  }
  // Fails the test with whatever is wrong.
  void check() const {
    for (const Node* node : ends)
      if (!node->fault().empty()) FAIL(node->fault());
    for (const StreamNode* node : streams) {
      if (node->stream.failure() != nullptr) FAIL(node->stream.failure());
      if (node->counts_exactly && node->truly_unproven() > node->stream.unproven_messages())
        FAIL("a proof that proves nothing: " << node->truly_unproven() << " unhandled, "
                                             << node->stream.unproven_messages() << " counted");
    }
  }
  // Delivers, handles, sends and reads everything until nothing is left, with the clock going on.
  // Fails if nothing moves although something is left.
  void finish(ae::TimePoint& now) {
    int idle = 0;
    for (;;) {
      std::uint64_t left = 0, taken = 0;
      for (Node* node : ends) {
        while (node->deliver() || node->handle(now)) check();
        taken += node->take(100000, now);
        node->work(now);
      }
      check();
      for (Node* node : ends) left += node->staged() + node->on_the_wire() + node->unhandled();
      left += client->bytes_sent() - server->bytes_taken();
      left += server->bytes_sent() - client->bytes_taken();
      if (left == 0) return;
      idle = taken != 0 ? 0 : idle + 1;
      if (idle > 10) FAIL("no progress, " << left << " bytes and messages left");
      now += 11ms;  // beyond the pace at which a peer is sent to on trust
      for (StreamNode* node : streams) node->stream.tick(now, true);
    }
  }

  std::unique_ptr<Node> client, server;
  std::vector<Node*> ends;
  std::vector<StreamNode*> streams;
};

TEST_CASE("rdma stream: a client never runs a sleeping server's receives dry", "[rdma][stream]") {
  const std::uint32_t receives = GENERATE(16u, 100u, 1024u);
  const bool plain = GENERATE(true, false);
  CAPTURE(receives, plain);
  ae::TimePoint now{1h};
  StreamConfig config = config_of(Role::kClient, 1000);
  config.peer_receives = receives;
  Pair pair;
  auto client = std::make_unique<StreamNode>(config, receives, now);
  if (plain)
    pair.server = std::make_unique<PlainNode>(Role::kServer, 1u << 20, receives);
  else
    pair.server = std::make_unique<StreamNode>(config_of(Role::kServer, 1u << 20), receives, now);
  StreamNode& sender = *client;
  sender.counts_exactly = true;
  pair.client = std::move(client);
  pair.join();
  pair.server->must_not_run_dry = true;
  sender.send_depth = 100000;
  for (Node* node : pair.ends) node->work(now);
  pair.server->stage(5000);  // this keeps flowing while the server's software runs
  for (int turn = 0; turn < 6000; ++turn) {
    pair.client->stage(1);
    now += 10ms;
    sender.stream.tick(now, true);
    sender.work(now);
    while (pair.server->deliver() || pair.client->deliver() || pair.client->handle(now)) {
    }
    pair.client->take(100, now);
    if (turn % 2000 > 1900)  // awake a twentieth of the time
      while (pair.server->handle(now)) pair.server->work(now);
    pair.check();
  }
  CHECK(pair.server->fewest_receives() > 0);
  if (receives == 1024) CHECK(pair.server->fewest_receives() < 50);  // and uses nearly all
  pair.finish(now);
  CHECK(pair.server->bytes_taken() == 6000);
}

TEST_CASE("rdma stream: a transfer goes on while the reader has one window to read",
          "[rdma][stream]") {
  ae::TimePoint now{1h};
  Pair pair;
  pair.client = std::make_unique<StreamNode>(config_of(Role::kClient, 100), 1024, now);
  pair.server = std::make_unique<StreamNode>(config_of(Role::kServer, 100), 1024, now);
  pair.join();
  const auto settle = [&] {
    for (int i = 0; i < 10; ++i)
      for (Node* node : pair.ends) {
        while (node->deliver() || node->handle(now)) {
        }
        node->work(now);
      }
    pair.check();
  };
  pair.client->stage(1000);
  settle();
  CHECK(pair.client->bytes_sent() == 200);  // both windows, before a byte was read
  pair.server->take(99, now);
  settle();
  CHECK(pair.client->bytes_sent() == 200);
  pair.server->take(1, now);
  settle();
  CHECK(pair.client->bytes_sent() == 300);
  pair.finish(now);
}

// What happened in all seeds together: a random test must be shown to reach the corners.
struct Reached {
  std::size_t grown = 0, refused = 0, discarded = 0, silent = 0, probes = 0, keepalives = 0;
  std::size_t answered_as_client = 0, early = 0, held = 0, paced = 0, dry = 0;
};

void run_model(std::uint32_t seed, Reached& reached) {
  std::mt19937 random(seed);
  const auto upto = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % (n + 1)); };
  const auto percent = [&](std::uint32_t n) { return random() % 100 < n; };
  const auto length = [&]() -> std::uint32_t {
    return percent(70) ? 1 + upto(299) : 1000 + upto(70000);
  };

  ae::TimePoint now{1h};
  Pair pair;
  const int kind = static_cast<int>(upto(3));  // 0: hello, 1: two plain Streams, 2, 3: Valkey's
  CAPTURE(kind);
  const auto receives = [&]() -> std::uint32_t { return percent(50) ? 16 + upto(60) : 1024; };
  const std::uint32_t client_receives = receives(), server_receives = receives();
  const auto stream_node = [&](Role role) {
    StreamConfig config;
    config.role = role;
    config.window = length();
    config.max_window = config.window * (1 + upto(4));
    config.peer_receives = role == Role::kClient ? server_receives : client_receives;
    config.keepalive = milliseconds(percent(50) ? 3000 : 20);
    auto node = std::make_unique<StreamNode>(
        config, role == Role::kClient ? client_receives : server_receives, now);
    if (percent(30)) node->refuse_windows = 10 + upto(80);
    node->random = &random;
    return node;
  };
  PlainNode* plain = nullptr;
  if (kind == 2) {
    auto node = std::make_unique<PlainNode>(Role::kServer, length(), server_receives);
    plain = node.get();
    pair.client = stream_node(Role::kClient);
    pair.server = std::move(node);
  } else if (kind == 3) {
    auto node = std::make_unique<PlainNode>(Role::kClient, length(), client_receives);
    plain = node.get();
    pair.client = std::move(node);
    pair.server = stream_node(Role::kServer);
  } else {
    auto client = stream_node(Role::kClient), server = stream_node(Role::kServer);
    if (kind == 0) {
      client->stream.on_hello(server->stream.hello());
      server->stream.on_hello(client->stream.hello());
    }
    pair.client = std::move(client);
    pair.server = std::move(server);
  }
  pair.join();
  // A server guesses about a client that it cannot ask, and its queue pair waits for receives.
  for (StreamNode* node : pair.streams)
    node->counts_exactly = kind == 0 || node == pair.client.get();
  pair.server->must_not_run_dry = kind != 3;
  pair.client->must_not_run_dry = kind == 0;
  for (Node* node : pair.ends) node->send_depth = percent(50) ? 1 + upto(10) : 2000;

  // How likely each end is to do each thing in a turn; drawn anew now and then, so that there are
  // times when one sleeps, or the network does, or nobody reads.
  struct Habits {
    std::uint32_t stage, take, work, deliver, handle, size;
  };
  std::vector<Habits> habits(2);
  const int turns = 4000;
  for (int turn = 0; turn < turns; ++turn) {
    if (turn % 250 == 0)
      for (Habits& h : habits) {
        const auto often = [&] { return percent(25) ? 0 : upto(100); };
        h = {often(), often(), often(), often(), often(), 1 + upto(percent(60) ? 3 : 500)};
      }
    for (std::size_t i = 0; i < 2; ++i) {
      Node& node = *pair.ends[i];
      const Habits& h = habits[i];
      if (percent(h.stage) && node.staged() < 20000) node.stage(1 + upto(h.size));
      if (percent(h.work)) node.work(now);
      if (percent(h.deliver)) {
        const bool waiting = node.on_the_wire() != 0;
        if (!node.deliver() && waiting) ++reached.dry;
      }
      if (percent(h.handle))
        for (std::uint32_t n = upto(4); n > 0 && node.handle(now); --n) {
        }
      if (percent(h.take)) node.take(1 + upto(percent(80) ? 50 : 5000), now);
      pair.check();
    }
    for (StreamNode* node : pair.streams) {
      if (percent(3)) node->stream.tick(now, true);
      node->stream.check();
      if (node->staged() != 0 && node->stream.peer_window_left() != 0 &&
          node->stream.sendable(1, now) == 0)
        ++reached.held;
      if (const auto retry = node->stream.retry_at(node->staged())) {
        ++reached.paced;
        if (*retry <= now && node->stream.sendable(1, now) == 0) FAIL("retry_at() came to nothing");
      }
      if (node->counts_exactly &&
          node->stream.unproven_messages() >
              (node == pair.client.get() ? server_receives : client_receives))
        FAIL("more messages are unproven than the peer has receives");
    }
    if (plain != nullptr && percent(2) && plain->can_register_early()) {
      plain->register_early(length());
      // Only right if the other end writes nothing before it knows.
      Node& other = plain == pair.client.get() ? *pair.server : *pair.client;
      while (other.deliver() || other.handle(now)) {
      }
      ++reached.early;
    }
    now += std::chrono::microseconds(percent(1) ? upto(1'500'000) : upto(1500));
  }
  pair.finish(now);
  CHECK(pair.server->bytes_taken() == pair.client->bytes_sent());
  CHECK(pair.client->bytes_taken() == pair.server->bytes_sent());

  for (const StreamNode* node : pair.streams) {
    const auto sent = [&](Opcode opcode) {
      const auto at = node->controls_sent.find(opcode);
      return at == node->controls_sent.end() ? 0 : at->second;
    };
    reached.grown += node->windows_provided > 2;
    reached.refused += node->windows_refused;
    reached.discarded += node->windows_discarded;
    reached.silent += node->silent_probes;
    reached.keepalives += sent(Opcode::kKeepalive);
    reached.probes += sent(Opcode::kGetServerFeature);
    if (kind == 0 && node == pair.client.get())
      reached.answered_as_client += sent(Opcode::kGetServerFeature);
  }
}

// Goal: whatever the sizes, windows and delays, each reader sees exactly the writer's bytes in
// order, no honest peer is ever failed, no receive queue that must not runs dry, and everything
// that was written arrives once the link delivers. Method: random turns of two ends from one seed;
// the oracle is a pattern without a period. AECONN_SEED=n replays one seed.
TEST_CASE("rdma stream: any interleaving delivers the same bytes in order, both ways",
          "[rdma][stream][random]") {
  Reached reached;
  if (const char* const replay = std::getenv("AECONN_SEED")) {
    const auto seed = static_cast<std::uint32_t>(std::strtoul(replay, nullptr, 10));
    CAPTURE(seed);
    run_model(seed, reached);
    return;
  }
  std::uint32_t runs = 400;
  if (const char* const more = std::getenv("AECONN_RUNS"))
    runs = static_cast<std::uint32_t>(std::strtoul(more, nullptr, 10));
  std::random_device device;
  for (std::uint32_t run = 0; run < runs; ++run) {
    const std::uint32_t seed = run < 100 ? run : device();  // some the same each time, some new
    CAPTURE(seed);
    run_model(seed, reached);
  }
  std::ostringstream text;
  text << "grown " << reached.grown << " refused " << reached.refused << " discarded "
       << reached.discarded << " silent " << reached.silent << " probes " << reached.probes
       << " keepalives " << reached.keepalives << " answered " << reached.answered_as_client
       << " early " << reached.early << " held " << reached.held << " paced " << reached.paced
       << " dry " << reached.dry;
  INFO(text.str());
  if (std::getenv("AECONN_RUNS") != nullptr) WARN("reached: " << text.str());
  CHECK(reached.grown > 0);
  CHECK(reached.refused > 0);
  CHECK(reached.discarded > 0);
  CHECK(reached.probes > 0);
  CHECK(reached.keepalives > 0);
  CHECK(reached.answered_as_client > 0);
  CHECK(reached.early > 0);
  CHECK(reached.held > 0);
  CHECK(reached.paced > 0);
}

}  // namespace
}  // namespace conn::rdma
