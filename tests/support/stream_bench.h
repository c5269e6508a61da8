// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A test bench for one Stream: the test acts as its peer, its memory and its clock.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/protocol/stream.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma::test {

inline constexpr std::uint32_t kAll = Hello::kWindowMayChange | Hello::kAnswersProbes;

inline StreamConfig config_of(Role role, std::uint32_t window = 8) {
  StreamConfig config;
  config.role = role;
  config.window = window;
  config.max_window = window;
  return config;
}

inline ControlMessage feature_message(std::uint16_t select) {
  return {.opcode = Opcode::kGetServerFeature, .select = select};
}

// One Stream; the test is its peer.
struct Bench {
  explicit Bench(const StreamConfig& config) : stream(config, now) {}
  explicit Bench(Role role, std::uint32_t window = 8) : Bench(config_of(role, window)) {}
  ~Bench() { stream.check(); }

  // Provides the window that the stream wants, if it wants one. Returns its length, or 0.
  std::uint32_t provide() {
    const std::uint32_t length = stream.inbound().wanted_window();
    if (length == 0) return 0;
    memory.push_back(std::make_unique<std::byte[]>(length));
    WindowBuffer buffer;
    buffer.data = memory.back().get();
    buffer.length = length;
    buffer.address = 0x10000 * memory.size();
    buffer.key = static_cast<std::uint32_t>(memory.size());
    stream.inbound().provide_window(buffer);
    windows[buffer.key] = buffer;
    stream.check();
    return length;
  }
  // Frees and provides windows like the connection until nothing is left to do. Returns how often.
  int settle() {
    int freed = 0;
    while (stream.inbound().take_discarded().data != nullptr || provide() != 0) {
      stream.check();
      ++freed;
    }
    return freed;
  }
  // Posts the next control message, if there is one.
  std::optional<ControlMessage> post() {
    const auto message = stream.next_control(now);
    if (message) stream.on_control_posted(*message, now);
    stream.check();
    return message;
  }
  // Provides and announces a window. Returns the announcement.
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
    text.resize(stream.inbound().read(reinterpret_cast<std::byte*>(text.data()), size));
    stream.check();
    return text;
  }
  /// What peek() shows, in pieces: "abc|de".
  std::string look() const {
    std::array<std::span<const std::byte>, 2> pieces;
    const std::size_t count = stream.inbound().peek(pieces);
    std::string text;
    for (std::size_t i = 0; i < count; ++i)
      text.append(i == 0 ? "" : "|")
          .append(reinterpret_cast<const char*>(pieces[i].data()), pieces[i].size());
    return text;
  }
  std::size_t consume(std::size_t size) {
    const std::size_t n = stream.inbound().read(nullptr, size);
    stream.check();
    return n;
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
  // Sends `size` bytes as one message if the stream allows it.
  bool write(std::uint32_t size = 1) {
    if (stream.outbound().sendable(size, now) < size) return false;
    stream.outbound().on_write_posted(size, now);
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

}}}  // namespace conn::rdma::test
