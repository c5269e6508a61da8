// SPDX-License-Identifier: BSD-3-Clause
// conn::move(): a connection goes to another loop of a group, with what belongs to it.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ae/loop_group.h"
#include "conn/connection_type.h"
#include "conn/listener_group.h"
#include "conn/move.h"
#include "tests/support/catch.h"
#include "tests/support/group_kit.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Site;
using namespace std::chrono_literals;

namespace {

/// Echoes on several loops, and moves its connections. Every handler checks its thread.
class Mover {
 public:
  Mover(const conn::Registry& registry, const conn::Endpoint& at, std::size_t loops)
      : group({.loops = loops}), served_(loops), threads_(loops) {
    listener = conn::listen(registry, group, at, [this](ae::EventLoop&, std::size_t index) {
      threads_[index] = std::this_thread::get_id();
      return [this, index](ConnectionPtr next) {
        set_echo(*next);
        served_[index] = std::move(next);
        ++accepted;
      };
    });
  }
  ~Mover() {
    listener.reset();
    try {
      group.on_each([this](ae::EventLoop&, std::size_t i) { served_[i].reset(); });
    } catch (const ae::LoopError&) {  // a loop has ended
    }
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  conn::Endpoint address() const { return listener->endpoints().front(); }
  std::vector<std::uint64_t> open() const {
    return testing::open_of(*listener);
  }
  /// Runs `fn` on the loop's thread with its connection, and waits for it.
  void on(std::size_t index, const std::function<void(ConnectionPtr&)>& fn) {
    group.on_each([&](ae::EventLoop&, std::size_t i) {
      if (i == index) fn(served_[i]);
    });
  }
  /// Moves the connection of a loop. Returns 0, or the errno.
  int move(std::size_t from, std::size_t to) {
    int result = -1;
    on(from, [&](ConnectionPtr& here) {
      errno = 0;
      const bool moved = conn::move(here, group, to, [this, to](ConnectionPtr next) {
        if (std::this_thread::get_id() != threads_[to]) wrong_thread = true;
        if (next->loop() != group.loop(to)) wrong_thread = true;
        served_[to] = std::move(next);
        ++arrived;
      });
      result = moved ? 0 : errno;
      if (moved == (here != nullptr)) wrong_thread = true;
    });
    return result;
  }
  void set_echo(Connection& connection) {
    connection.set_read_handler([this](Connection& c) {
      check(c);
      char bytes[256];
      const ssize_t n = c.read(bytes, sizeof bytes);
      if (n > 0 && c.write(bytes, static_cast<std::size_t>(n)) != n) dropped = true;
      if (n == 0 || (n < 0 && errno != EAGAIN)) c.set_read_handler(nullptr);
    });
  }
  void check(const Connection& connection) {
    for (std::size_t i = 0; i < threads_.size(); ++i)
      if (threads_[i] == std::this_thread::get_id() && connection.loop() == group.loop(i)) return;
    wrong_thread = true;
  }

  ae::LoopGroup group;
  conn::ListenerGroupPtr listener;
  std::atomic<int> accepted{0}, arrived{0};
  std::atomic<bool> wrong_thread{false}, dropped{false};

 private:
  std::vector<ConnectionPtr> served_;  // one for each loop, on its thread
  std::vector<std::thread::id> threads_;
};

ConnectionPtr client_of(Site& site, const conn::Endpoint& at) {
  ConnectionPtr made = site.connect(at);
  RUN_UNTIL(site.loop, made->state() != State::kConnecting);
  INFO(made->last_error());
  REQUIRE(made->state() == State::kConnected);
  return made;
}

/// The loops of a test that runs them itself, each until nothing happens.
struct TwoLoops {
  explicit TwoLoops(ae::EventLoop& first)
      : second(std::make_unique<testing::AnyLoop>()), list({&first, second.get()}) {
    testing::turns(first, 1);
    testing::turns(*second, 1);
  }
  std::unique_ptr<testing::AnyLoop> second;
  ae::LoopList list;
};

}  // namespace

TEST_CASE("move: a connection is served by the loop it was moved to, and counts there",
          "[group][move][rdma-device]") {
  const auto transport = GENERATE(from_range(testing::across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    Mover server(site.registry, site.fresh(), 3);
    const ConnectionPtr first = client_of(site, server.address());
    testing::echo(site.loop, *first);
    REQUIRE(server.open() == std::vector<std::uint64_t>{1, 0, 0});
    if (!site.carrier.capabilities().rebind) {
      CHECK(server.move(0, 2) == EOPNOTSUPP);
      testing::echo(site.loop, *first);
      CHECK(server.open() == std::vector<std::uint64_t>{1, 0, 0});
      CHECK_FALSE(server.wrong_thread);
      return;
    }
    REQUIRE(server.move(0, 2) == 0);
    WATCH_UNTIL(site.loop, server.arrived == 1);
    CHECK(server.open() == std::vector<std::uint64_t>{0, 0, 1});
    testing::echo(site.loop, *first);
    // New connections go to the loops with the fewest.
    const ConnectionPtr second = client_of(site, server.address());
    testing::echo(site.loop, *second);
    const ConnectionPtr third = client_of(site, server.address());
    testing::echo(site.loop, *third);
    CHECK(server.open() == std::vector<std::uint64_t>{1, 1, 1});
    REQUIRE(server.move(2, 2) == EALREADY);
    REQUIRE(server.move(2, 3) == EINVAL);
    testing::echo(site.loop, *first);
    CHECK(server.arrived == 1);
    // What ends after it has moved is not counted any more.
    server.on(2, [](ConnectionPtr& here) { here.reset(); });
    WATCH_UNTIL(site.loop, server.open() == std::vector<std::uint64_t>{1, 1, 0});
    CHECK_FALSE(server.wrong_thread);
  }
}

TEST_CASE("move: rebind() counts, too, and a loop outside the group counts for none",
          "[group][move]") {
  Site site({.name = "tcp"});
  Mover server(site.registry, site.fresh(), 2);
  const ConnectionPtr client = client_of(site, server.address());
  testing::echo(site.loop, *client);
  server.on(0, [&](ConnectionPtr& here) { REQUIRE(here->rebind(*server.group.loop(1))); });
  WATCH_UNTIL(site.loop, server.open() == std::vector<std::uint64_t>{0, 1});
  testing::echo(site.loop, *client);
  ConnectionPtr out;
  server.on(1, [](ConnectionPtr&) {});  // the connection has arrived
  server.on(0, [&](ConnectionPtr& here) { out = std::move(here); });
  server.on(1, [&](ConnectionPtr& here) {
    here = std::move(out);
    REQUIRE(here->leave());
    out = std::move(here);
  });
  REQUIRE(out->join(site.loop));
  CHECK(server.open() == std::vector<std::uint64_t>{0, 0});
  out.reset();
  const ConnectionPtr next = client_of(site, server.address());
  testing::echo(site.loop, *next);
}

TEST_CASE("move: handlers and unread bytes come along, and the report comes before any handler",
          "[group][move]") {
  const auto transport = GENERATE(from_range(testing::transports()));
  DYNAMIC_SECTION(transport.name) {
    testing::Pair pair(transport);
    // A list's accepted connection belongs to one of the list's transports.
    if (!pair.carrier.capabilities().rebind || transport.one_loop) return;
    TwoLoops loops(pair.loop);
    std::string story;
    pair.server->set_read_handler([&](Connection& c) {
      char byte;
      if (c.read(&byte, 1) == 1) story += byte;
      if (byte == 'a') c.set_read_handler(nullptr);
    });
    testing::send(pair.loop, *pair.client, "abc");
    RUN_UNTIL(pair.loop, story == "a");  // the rest is unread, over TLS in the engine
    pair.server->set_read_handler([&](Connection& c) {
      char byte;
      if (c.read(&byte, 1) == 1) story += byte;
      REQUIRE(c.loop() == loops.second.get());
    });
    REQUIRE(conn::move(pair.server, loops.list, 1, [&](ConnectionPtr here) {
      story += '>';
      REQUIRE(here->loop() == loops.second.get());
      pair.server = std::move(here);
    }));
    REQUIRE(pair.server == nullptr);
    testing::turns(pair.loop, 3);
    REQUIRE(story == "a");
    RUN_UNTIL(*loops.second, story == "a>bc");
    // And back, from a loop that is in the list to another one.
    REQUIRE(conn::move(pair.server, loops.list, 0,
                       [&](ConnectionPtr here) { pair.server = std::move(here); }));
    RUN_UNTIL(pair.loop, pair.server != nullptr);
    CHECK(pair.server->loop() == &pair.loop);
  }
}

TEST_CASE("move: what cannot move stays, and goes on", "[group][move]") {
  testing::Pair pair({.name = "tcp"});
  TwoLoops loops(pair.loop);
  int arrived = 0;
  const auto count = [&](ConnectionPtr) { ++arrived; };
  int inside = 0;
  pair.server->set_read_handler([&](Connection& c) {
    char bytes[16];
    const ssize_t n = c.read(bytes, sizeof bytes);
    if (n > 0) (void)c.write(bytes, static_cast<std::size_t>(n));
    inside = conn::move(pair.server, loops.list, 1, count) ? -1 : errno;
  });
  testing::echo(pair.loop, *pair.client);
  CHECK(inside == EBUSY);
  pair.server->set_read_handler([](Connection& c) {
    char bytes[16];
    const ssize_t n = c.read(bytes, sizeof bytes);
    if (n > 0) (void)c.write(bytes, static_cast<std::size_t>(n));
  });
  loops.second.reset();
  errno = 0;
  CHECK_FALSE(conn::move(pair.server, loops.list, 1, count));
  CHECK(errno == ECANCELED);
  REQUIRE(pair.server != nullptr);
  testing::echo(pair.loop, *pair.client);
  CHECK(arrived == 0);
}

TEST_CASE("move: a connection ends with the loop that ends before it arrives", "[group][move]") {
  const auto transport = GENERATE(from_range(testing::transports()));
  DYNAMIC_SECTION(transport.name) {
    testing::Pair pair(transport);
    if (!pair.carrier.capabilities().rebind || transport.one_loop) return;
    TwoLoops loops(pair.loop);
    auto mark = std::make_shared<int>(0);
    REQUIRE(conn::move(pair.server, loops.list, 1, [mark](ConnectionPtr) { ++*mark; }));
    loops.second.reset();
    char byte;
    RUN_UNTIL(pair.loop, pair.client->read(&byte, 1) == 0 || errno != EAGAIN);
    CHECK(*mark == 0);
    CHECK(mark.use_count() == 1);  // the function is destroyed
  }
}

TEST_CASE("move: under load, back and forth, every byte arrives once and in order",
          "[group][move]") {
  const std::string name = GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm");
  CAPTURE(name);
  Site site({.name = name});
  Mover server(site.registry, site.fresh(), 3);
  const ConnectionPtr client = client_of(site, server.address());
  testing::echo(site.loop, *client);
  constexpr std::size_t kBytes = 4'000'000, kAhead = 20'000;
  std::size_t sent = 0, got = 0;
  bool wrong = false;
  const auto at = [](std::size_t i) { return static_cast<char>((i * 7919) >> 8); };
  std::atomic<std::size_t> moves{0};
  std::atomic<bool> over{false};
  int unmoved = 0;
  std::thread mover([&] {
    for (std::size_t from = 0; !over; ++moves) {
      const std::size_t to = (from + 1 + moves % 2) % 3;
      const int before = server.arrived;
      if (server.move(from, to) != 0) ++unmoved;
      while (server.arrived == before && !over) std::this_thread::yield();
      from = to;
    }
  });
  client->set_read_handler([&](Connection& c) {
    char bytes[8192];
    const ssize_t n = c.read(bytes, sizeof bytes);
    for (ssize_t i = 0; i < n; ++i) wrong = wrong || bytes[i] != at(got++);
  });
  const auto more = [&] {
    char bytes[1000];
    while (sent < kBytes && sent - got < kAhead) {
      const std::size_t size = std::min(sizeof bytes, kBytes - sent);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = at(sent + i);
      const ssize_t n = client->write(bytes, size);
      if (n < 0) break;
      sent += static_cast<std::size_t>(n);
    }
    return got == kBytes || wrong;
  };
  WATCH_UNTIL(site.loop, more());
  over = true;
  mover.join();
  CHECK_FALSE(wrong);
  CHECK(got == kBytes);
  REQUIRE_FALSE(server.dropped);  // the client is never that far ahead
  CHECK(unmoved == 0);
  CHECK(moves > 10);
  CHECK_FALSE(server.wrong_thread);
}
