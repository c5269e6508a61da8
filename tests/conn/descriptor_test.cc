// SPDX-License-Identifier: BSD-3-Clause
// adapters/descriptor.h, as far as it does not depend on the transport; the rest is in
// tests/conformance/conformance_descriptor_test.cc.

#include "adapters/descriptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <span>
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

TEST_CASE("descriptor: a plain socket needs its loop no more", "[descriptor]") {
  const std::string name = GENERATE("tcp", "unix");
  if (transport(name).name.empty()) return;
  Pair pair(transport(name));
  const int socket = pair.client->fd();
  int handlers = 0;
  pair.client->set_read_handler([&](Connection&) { ++handlers; });
  testing::turns(pair.loop, 1);
  const int fd = adapters::to_descriptor(std::move(pair.client));
  CHECK(fd == socket);
  testing::send(pair.loop, *pair.server, "for the descriptor");
  testing::turns(pair.loop, 10);
  CHECK(handlers == 0);
  std::array<char, 32> room;
  CHECK(::recv(fd, room.data(), room.size(), MSG_DONTWAIT) == 18);
  ::close(fd);
}

TEST_CASE("descriptor: what a socket alone would lose goes through the loop", "[descriptor]") {
  if (transport("tcp").name.empty()) return;
  const std::string what =
      GENERATE("read ahead", "committed", "reserved", "waits", "idle-timeout", "zero-copy");
  CAPTURE(what);
  testing::Site site(transport("tcp"));
  conn::ConnectionPtr server;
  const conn::ListenerPtr listener =
      site.listen([&](conn::ConnectionPtr its) { server = std::move(its); });
  conn::Endpoint to = testing::address_of(*listener);
  if (what == "idle-timeout") to.options.set("idle-timeout", "1h");
  if (what == "zero-copy") to.options.set("zero-copy", "1");
  conn::ConnectionPtr client = site.connect(to);
  RUN_UNTIL(site.loop, server && client->state() == conn::State::kConnected);
  const int socket = client->fd();
  const std::string piece(64 << 10, 'p');
  std::string expected, unread;
  std::atomic<int> released{0};
  const auto send = [&](std::string_view bytes) {
    const auto release = [](void* its, std::error_code) noexcept {
      ++*static_cast<std::atomic<int>*>(its);
    };
    expected += bytes;
    return client->send({std::as_bytes(std::span(bytes)), release, &released}) ==
           static_cast<ssize_t>(bytes.size());
  };
  if (what == "read ahead") {
    testing::send(site.loop, *server, "ahead");
    testing::await_readable(site.loop, *client);
    REQUIRE(client->peek(5).size == 5);
    client->consume(1);
    unread = "head";
  } else if (what == "committed") {
    const std::span<std::byte> room = client->reserve(9);
    REQUIRE(room.size() >= 9);
    std::memcpy(room.data(), "committed", 9);
    client->commit(9);
    expected = "committed";
  } else if (what == "reserved") {
    REQUIRE_FALSE(client->reserve(8).empty());
  } else if (what == "waits") {
    ssize_t n = 0;
    while ((n = client->write(piece.data(), piece.size())) > 0)
      expected.append(piece, 0, static_cast<std::size_t>(n));
    REQUIRE(send("its turn"));
  } else if (what == "zero-copy") {
    REQUIRE(send(piece));
  }
  const int fd = adapters::to_descriptor(std::move(client));
  CHECK(fd != socket);
  REQUIRE(::send(fd, "!", 1, MSG_NOSIGNAL) == 1);
  expected += '!';
  testing::Collector seen(*server);
  RUN_UNTIL(site.loop, seen.bytes.size() == expected.size());
  CHECK((seen.bytes == expected));
  RUN_UNTIL(site.loop, released == (what == "waits" || what == "zero-copy" ? 1 : 0));
  std::array<char, 32> room;
  RUN_UNTIL(site.loop, [&] {
    return unread.empty() || ::recv(fd, room.data(), room.size(), MSG_DONTWAIT | MSG_PEEK) ==
                                 static_cast<ssize_t>(unread.size());
  }());
  if (!unread.empty()) {
    CHECK(::read(fd, room.data(), room.size()) == static_cast<ssize_t>(unread.size()));
    CHECK(std::string_view(room.data(), unread.size()) == unread);
  }
  ::close(fd);
  RUN_UNTIL(site.loop, seen.over());
}

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
  const int fd = adapters::to_descriptor(std::move(pair.client), [](const auto&) {});
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
  const int fd = adapters::to_descriptor(std::move(pair.client), [](const auto&) {});
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
