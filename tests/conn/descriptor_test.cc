// SPDX-License-Identifier: BSD-3-Clause
// adapters/descriptor.h, as far as it does not depend on the transport; the rest is in
// tests/conformance/conformance_descriptor_test.cc.

#include "adapters/descriptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>

#include "conn/core/make_connection.h"
#include "conn/core/transport.h"
#include "conn/spi/carrier.h"
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

/// Connections that take all output and keep it, and whose input never ends.
class KeepingType final : public conn::Transport {
 public:
  class Keeping final : public conn::Carrier {
   public:
    Keeping(const conn::ConnectionType& type, std::size_t lets_go)
        : Carrier(type), lets_go_(lets_go) {}
    std::size_t kept = 0;    ///< bytes of output
    bool has_input = false;  ///< whether read() returns data

    void establish() { move_to(conn::State::kConnected); }
    bool wants_read() const noexcept { return host().wants_read(); }
    /// Fails like a socket whose peer no longer answers, with input that is still unread.
    void time_out() {
      fail(conn::errno_failure(ETIMEDOUT, "the peer"));
      host().keep_unread();
      host().peer_gone();
    }
    /// Each call lets some bytes of the output go.
    bool flush(ae::TimePoint) noexcept override {
      kept -= std::min(kept, lets_go_);
      return kept == 0;
    }
    std::vector<std::pair<std::string, std::string>> info() const override {
      return {{"unsent", std::to_string(kept)}};
    }

    void connect(const conn::Endpoint&) override {}
    void connect_blocking(const conn::Endpoint&, ae::TimePoint) override {}
    ssize_t read(void* buffer, std::size_t size) override {
      if (!has_input) return errno = EAGAIN, -1;
      std::memset(buffer, 'i', size);
      return static_cast<ssize_t>(size);
    }
    ssize_t writev(const iovec* vectors, int count) override {
      std::size_t size = 0;
      for (const iovec& each : std::span(vectors, static_cast<std::size_t>(count)))
        size += each.iov_len;
      kept += size;
      return static_cast<ssize_t>(size);
    }
    void interest_changed() override {
      if (!has_input || !host().wants_read() || timer_ != 0) return;
      timer_ = loop()->add_time_event(ae::Duration::zero(), [this] {
        timer_ = 0;
        if (host().run_read_handler() == Alive::kYes) interest_changed();
        return ae::kNoMore;
      });
    }
    int shutdown() override { return 0; }
    void close() noexcept override {
      abandon();
      host().release();
    }
    void abandon() noexcept override {
      if (timer_ != 0) loop()->remove_time_event(std::exchange(timer_, 0));
    }
    bool wait_for(ae::Mask, ae::TimePoint) override { return false; }

   private:
    const std::size_t lets_go_;
    ae::TimerId timer_ = 0;
  };

  std::string_view name() const noexcept override { return "keeping"; }
  conn::Capabilities capabilities() const noexcept override { return {.half_close = true}; }
  void configure(const conn::Options&) override {}
  void check(const conn::Endpoint&) const override {}
  conn::ListenerPtr listen(ae::EventLoop&, const conn::Endpoint&,
                           conn::AcceptHandler) const override {
    throw conn::Error("it does not listen");
  }
  conn::ConnectionPtr create(ae::EventLoop& loop) const override {
    return established(loop, 0).first;
  }
  std::pair<conn::ConnectionPtr, Keeping&> established(ae::EventLoop& loop,
                                                       std::size_t lets_go) const {
    auto made = conn::make_connection<Keeping>(loop, *this, lets_go);
    made.second.establish();
    return made;
  }
};

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

TEST_CASE("descriptor: the bytes that a closed connection still keeps have time while some leave",
          "[descriptor]") {
  const KeepingType type;
  testing::AnyLoop loop;
  // Each check, one in 10 ms, flushes twice: that is 4 s, more than the limit.
  auto [connection, its] = type.established(loop, 1);
  int ended = 0;
  std::size_t kept = 0;
  const int fd = adapters::to_descriptor(std::move(connection), [&, &its = its](const auto&) {
    kept = its.kept;
    ++ended;
  });
  const std::string text(800, 't');
  REQUIRE(::write(fd, text.data(), text.size()) == 800);
  ::close(fd);
  RUN_UNTIL(loop, ended == 1);
  CHECK(kept == 0);
}

TEST_CASE("descriptor: the bytes of one closed with unread bytes leave as slowly, before the abort",
          "[descriptor]") {
  if (transport("tcp").name.empty()) return;
  Pair pair(transport("tcp"));
  const int socket = pair.client->fd(), send_buffer = 512 << 10, receive_buffer = 64 << 10;
  // So that nearly all of what the peer has not read is in the client's socket.
  REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof(int)) == 0);
  REQUIRE(::setsockopt(pair.server->fd(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(int)) ==
          0);
  const int fd = adapters::to_descriptor(std::move(pair.client), [](const auto&) {});
  testing::send(pair.loop, *pair.server, "not read");
  std::uint64_t sent = 0, got = 0;
  const std::string piece(64 << 10, 'p');
  for (int idle = 0; idle < 200; ++idle) {
    const ssize_t n = ::send(fd, piece.data(), piece.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<std::uint64_t>(n), idle = 0;
    testing::turns(pair.loop, 1);
  }
  ::close(fd);
  // At this rate the bytes of the client's socket leave in four seconds, more than the limit.
  int unsent = 0;
  REQUIRE(::ioctl(socket, SIOCOUTQ, &unsent) == 0);
  REQUIRE(unsent > 40'000);
  std::string room(static_cast<std::size_t>(unsent) / 40, '-');
  int error = 0;
  pair.loop.add_time_event(100ms, [&]() -> ae::Duration {
    const ssize_t n = pair.server->read(room.data(), room.size());
    if (n > 0) got += static_cast<std::uint64_t>(n);
    error = n < 0 && errno != EAGAIN ? errno : 0;
    return n == 0 || error != 0 ? ae::kNoMore : 100ms;
  });
  RUN_UNTIL(pair.loop, error != 0);
  CHECK(error == ECONNRESET);
  CHECK(got == sent);
}

TEST_CASE("descriptor: closed after a time-out of its connection, it holds nothing that leaves",
          "[descriptor]") {
  const KeepingType type;
  testing::AnyLoop loop;
  auto [connection, its] = type.established(loop, 0);
  its.has_input = true;
  int ended = 0;
  const int fd = adapters::to_descriptor(std::move(connection), [&](const auto&) { ++ended; });
  // The user does not read, so that the end of the input is never seen.
  RUN_UNTIL(loop, !its.wants_read());
  REQUIRE(::write(fd, "!", 1) == 1);
  testing::turns(loop, 20);
  REQUIRE(its.kept == 1);
  its.time_out();
  testing::turns(loop, 20);
  CHECK(ended == 0);
  ::close(fd);
  testing::turns(loop, 20);
  CHECK(ended == 1);
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
