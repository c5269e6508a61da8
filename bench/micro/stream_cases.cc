// SPDX-License-Identifier: BSD-3-Clause
// conn/rdma/protocol/stream: two streams that send to each other. Moving the bytes, which is the
// network's work, is free here; the work of the stream and its copy to the reader are counted.

#include "bench/micro/cases.h"

#if AECONN_RDMA
#include <array>
#include <cstddef>
#include <span>

#include "conn/rdma/protocol/stream.h"

namespace micro {
namespace {

using conn::rdma::ControlMessage;
using conn::rdma::Role;
using conn::rdma::Stream;
using conn::rdma::StreamConfig;
using conn::rdma::WindowBuffer;

constexpr ae::TimePoint kNow{std::chrono::hours(1)};

StreamConfig config_of(Role role, std::uint32_t window) {
  StreamConfig config;
  config.role = role;
  config.window = config.max_window = window;
  return config;
}

/// A stream with its windows and a read buffer.
class End {
 public:
  End(Role role, std::uint32_t window)
      : stream(config_of(role, window), kNow), reader_(window), memory_(3) {
    for (auto& one : memory_) one.resize(window);
    for (auto& one : memory_) free_.push_back(&one);
  }

  /// Frees and provides windows as the connection does.
  void settle() {
    while (const WindowBuffer old = stream.inbound().take_discarded()) {
      free_.push_back(static_cast<std::vector<std::byte>*>(old.owner));
    }
    if (const std::uint32_t length = stream.inbound().wanted_window(); length != 0) {
      std::vector<std::byte>* const memory = free_.back();
      free_.pop_back();
      const auto address = reinterpret_cast<std::uintptr_t>(memory->data());
      stream.inbound().provide_window({memory->data(), length, 1, address, memory});
    }
  }
  void tell(End& peer) {
    while (const auto message = stream.next_control(kNow)) {
      const auto bytes = conn::rdma::encode(*message);
      stream.on_control_posted(*message, kNow);
      peer.stream.on_control(bytes, kNow);
    }
  }
  void send(End& peer, std::uint32_t size) {
    while (size > 0) {
      const std::uint32_t n = stream.outbound().sendable(size, kNow);
      require(n != 0, "a stream had no room for a message");
      stream.outbound().on_write_posted(n, kNow);
      peer.take(*this, n);
      size -= n;
    }
  }

  Stream stream;

 private:
  void take(End& from, std::uint32_t size) {
    stream.on_data(size, kNow);
    require(stream.inbound().read(reader_.data(), reader_.size()) == size, "a stream lost bytes");
    settle();
    tell(from);
  }

  std::vector<std::byte> reader_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::vector<std::byte>*> free_;
};

struct Ends {
  Ends(std::uint32_t window, std::uint32_t message)
      : client(Role::kClient, window), server(Role::kServer, window), size(message) {
    client.stream.on_hello(server.stream.hello());
    server.stream.on_hello(client.stream.hello());
    for (int i = 0; i < 2; ++i) {
      client.settle();
      server.settle();
      client.tell(server);
      server.tell(client);
    }
  }
  void echo() {
    client.send(server, size);
    server.send(client, size);
  }
  End client, server;
  std::uint32_t size;
};

auto echo(std::uint32_t window, std::uint32_t size) {
  return [=] {
    return [ends = std::make_unique<Ends>(window, size)] {
      ends->echo();
      keep(*ends);
    };
  };
}

}  // namespace

void add_stream_cases(Cases& cases) {
  // Rounds are windows: 64 KiB hold 1024 messages of 64 bytes.
  cases.add("rdma stream/echo of 64 B", echo(64 << 10, 64), 1024);
  cases.add("rdma stream/echo of 64 KiB", echo(1 << 20, 64 << 10), 64);
  cases.add("rdma stream/echo of 64 B, a window each", echo(64, 64));
  cases.add("rdma wire/encode and decode", [] {
    return [message = ControlMessage{.opcode = conn::rdma::Opcode::kRegisterXferMemory,
                                     .address = 0x1234567890,
                                     .length = 65536,
                                     .key = 77}] {
      keep(message);
      const auto bytes = conn::rdma::encode(message);
      keep(bytes);
      keep(conn::rdma::decode(bytes));
    };
  });
}

}  // namespace micro
#else
namespace micro {
void add_stream_cases(Cases&) {}
}  // namespace micro
#endif
