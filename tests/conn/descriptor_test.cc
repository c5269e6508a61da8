// SPDX-License-Identifier: BSD-3-Clause
// adapters/descriptor.h, as far as it does not depend on the transport; the rest is in
// tests/conformance/conformance_descriptor_test.cc.

#include "adapters/descriptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "tests/support/allocations.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using testing::Pair;
using namespace std::chrono_literals;

namespace {

testing::Transport transport(const std::string& name) {
  for (const testing::Transport& each : testing::transports())
    if (each.name == name) return each;
  return {};
}

/// Writes until nothing more is accepted for many iterations.
void fill(Pair& pair, int fd) {
  const std::string piece(64 << 10, 'p');
  for (int idle = 0; idle < 200; ++idle) {
    if (::send(fd, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) idle = 0;
    testing::turns(pair.loop, 1);
  }
}

}  // namespace

TEST_CASE("descriptor: a peer that never reads holds a closed one for some seconds",
          "[descriptor]") {
  if (transport("tcp").name.empty()) return;
  Pair pair(transport("tcp"));
  int ended = 0;
  const int fd = adapters::to_descriptor(std::move(pair.client), [&](const auto&) { ++ended; });
  fill(pair, fd);
  ::close(fd);
  testing::turns(pair.loop, 20);
  CHECK(ended == 0);
  RUN_UNTIL(pair.loop, ended == 1);
  // The peer sees a cut, not an end, after the bytes that had arrived.
  testing::Collector seen(*pair.server);
  RUN_UNTIL(pair.loop, seen.over());
  CHECK(seen.error == ECONNRESET);
}

TEST_CASE("descriptor: the bytes of a closed one leave while the peer takes them slowly",
          "[descriptor]") {
  if (transport("tcp").name.empty()) return;
  Pair pair(transport("tcp"));
  const int fd = adapters::to_descriptor(std::move(pair.client));
  fill(pair, fd);
  ::close(fd);
  // Longer than the limit in all, but not between two reads.
  std::uint64_t got = 0;
  std::string room(256 << 10, '-');
  bool over = false;
  pair.loop.add_time_event(100ms, [&]() -> ae::Duration {
    const ssize_t n = pair.server->read(room.data(), room.size());
    if (n > 0) got += static_cast<std::uint64_t>(n);
    over = n == 0 || (n < 0 && errno != EAGAIN);
    CHECK((n >= 0 || errno == EAGAIN));
    return over ? ae::kNoMore : 100ms;
  });
  RUN_UNTIL(pair.loop, over);
  CHECK(got > (1u << 19));
}

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("descriptor: moving bytes allocates nothing", "[descriptor]") {
  const std::string name = GENERATE("tcp", "unix", "tls", "rdma");
  if (transport(name).name.empty()) return;
  Pair pair(transport(name));
  const int fd = adapters::to_descriptor(std::move(pair.client));
  testing::let_libev_grow(pair.loop);
  const std::string request(1000, 'r');
  pair.server->set_read_handler([](Connection& its) {
    std::array<char, 2000> room;
    const ssize_t n = its.read(room.data(), room.size());
    if (n > 0) (void)its.write(room.data(), static_cast<std::size_t>(n));
  });
  bool intact = true;
  const auto ask = [&] {
    std::array<char, 2000> room;
    intact = intact && ::write(fd, request.data(), request.size()) == 1000;
    for (std::size_t got = 0; got < 1000;) {
      pair.loop.process_events(ae::kFullIteration | ae::kDontWait);
      const ssize_t n = ::recv(fd, room.data(), room.size(), MSG_DONTWAIT);
      if (n > 0) got += static_cast<std::size_t>(n);
    }
  };
  for (int i = 0; i < 100; ++i) ask();
  const auto before = testing::watch_allocations(true);
  for (int i = 0; i < 100; ++i) ask();
  const auto after = testing::watch_allocations(false);
  CHECK(intact);
  CHECK(after.by_others - before.by_others == 0);
  ::close(fd);
}
#endif
