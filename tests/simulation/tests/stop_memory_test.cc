// SPDX-License-Identifier: BSD-3-Clause
// The stop of a server, and the end of a loop, while memory is short.

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "conn/stop.h"
#include "conn/transports/transports.h"
#include "tests/simulation/memory.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using namespace simulation;
using conn::ConnectionPtr;
using testing::RawSocket;

namespace {

/// Two loops of this thread, with a session on each that ends when the server stops.
struct Server {
  Server() {
    for (std::size_t i = 0; i < 2; ++i) {
      listeners[i] = registry.listen(loops[i], "tcp://127.0.0.1:0", [this, i](ConnectionPtr next) {
        sessions[i] = std::move(next);
      });
      clients[i] = RawSocket::connect(listeners[i]->endpoints().front());
      RUN_UNTIL(loops[i], sessions[i] != nullptr);
      hooks.push_back(
          std::make_unique<conn::StopHook>(loops[i], [this, i] { sessions[i].reset(); }));
    }
  }
  /// Returns what has left a loop, if anything, until `over`.
  std::string run(const bool& over) {
    for (int turn = 0; turn < 200 && !over; ++turn) {
      for (ae::EventLoop* loop : std::array<ae::EventLoop*, 3>{&control, &loops[0], &loops[1]}) {
        try {
          (void)loop->process_events(ae::kFullIteration | ae::kDontWait);
        } catch (const std::exception& error) {
          return error.what();
        }
      }
    }
    return {};
  }

  const conn::Registry registry = conn::all_transports();
  testing::AnyLoop control;
  std::array<testing::AnyLoop, 2> loops;
  std::array<conn::ListenerPtr, 2> listeners;
  std::array<RawSocket, 2> clients;
  std::array<ConnectionPtr, 2> sessions;
  std::vector<std::unique_ptr<conn::StopHook>> hooks;
};

}  // namespace

TEST_CASE("simulation: a stop comes to its end, whichever allocation fails meanwhile",
          "[simulation][memory][stop]") {
  const std::uint64_t in_a_row = GENERATE(1u, 5u);
  bool reached = true;
  std::uint64_t number = 0;
  while (reached) {
    ++number;
    CAPTURE(in_a_row, number);
    Server server;
    ae::LoopList serving({&server.loops[0], &server.loops[1]});
    bool ended = false;
    conn::Stop stop(
        server.control, serving,
        {.limit = ae::Duration::max(), .signals = {}, .ends = [&ended] { ended = true; }});
    stop.request();
    fail_allocation(Allocator::kNew, number, in_a_row);
    const std::string left = server.run(ended);
    reached = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    CHECK(left == "");
    REQUIRE(ended);
    REQUIRE(stop.left().connections == 0);
    server.hooks.clear();
  }
  CHECK(number > 5);
}

TEST_CASE("simulation: an allocation that fails at a loop's end costs one connection its output",
          "[simulation][memory]") {
  constexpr std::size_t kCount = 3;
  const std::uint64_t number = GENERATE(range(1u, 6u));
  CAPTURE(number);
  const conn::Registry registry = conn::all_transports();
  auto loop = std::make_unique<testing::AnyLoop>();
  std::vector<ConnectionPtr> servers;
  conn::ListenerPtr listener =
      registry.listen(*loop, "tcp://127.0.0.1:0?send-buffer=64k&end-linger=30s&linger=30s",
                      [&](ConnectionPtr next) { servers.push_back(std::move(next)); });
  std::array<RawSocket, kCount> clients;
  for (RawSocket& each : clients) each = RawSocket::connect(listener->endpoints().front());
  RUN_UNTIL(*loop, servers.size() == kCount);
  const std::string much(64 << 10, 'm');
  std::size_t written = 0;
  for (const ConnectionPtr& each : servers) {
    for (ssize_t n; (n = each->write(much.data(), much.size())) > 0;)
      written += static_cast<std::size_t>(n);
    const std::span<std::byte> room = each->reserve(10'000);  // waits above the transport
    REQUIRE(room.size() >= 10'000);
    std::memset(room.data(), 'c', 10'000);
    each->commit(10'000);
    written += 10'000;
  }
  listener.reset();
  testing::turns(*loop, 3);
  std::atomic<bool> go{false};
  std::atomic<std::size_t> got{0};
  std::vector<std::thread> readers;
  for (const RawSocket& each : clients)
    readers.emplace_back([&got, &go, fd = each.fd()] {
      go.wait(false);
      std::array<char, 4096> bytes;
      for (ssize_t n; (n = ::read(fd, bytes.data(), bytes.size())) > 0;)
        got += static_cast<std::size_t>(n);
    });
  fail_allocation(Allocator::kNew, number);
  go = true;
  go.notify_all();
  loop.reset();
  fail_allocation(Allocator::kNew, 0);
  for (const ConnectionPtr& each : servers) CHECK(each->state() == conn::State::kError);
  servers.clear();
  for (std::thread& each : readers) each.join();
  REQUIRE(got <= written);
  REQUIRE(written - got <= 10'000);
}
