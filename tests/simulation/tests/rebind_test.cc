// SPDX-License-Identifier: BSD-3-Clause
// Moving a connection to another loop while memory runs out.

#include <cerrno>
#include <memory>
#include <string>

#include "ae/loops.h"
#include "conn/core/connection_set.h"
#include "conn/move.h"
#include "tests/simulation/memory.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::State;
using namespace simulation;

namespace {

void read_into(std::string& got, Connection& connection) {
  connection.set_read_handler([&got](Connection& here) {
    char buffer[64];
    const ssize_t n = here.read(buffer, sizeof buffer);
    if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
  });
}

}  // namespace

TEST_CASE("rebind: without memory for it the connection goes on on its old loop", "[torture]") {
  const std::string name = GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm");
  CAPTURE(name);
  testing::Pair pair({.name = name});
  std::string got;
  got.reserve(1000);
  read_into(got, *pair.server);
  int heard = 0;
  pair.server->set_close_handler([&](Connection&) { ++heard; });
  for (std::uint64_t number = 1;; ++number) {
    CAPTURE(number);
    REQUIRE(number < 50);
    testing::AnyLoop other;
    fail_allocation(Allocator::kNew, number);
    errno = 0;
    const bool moved = pair.server->rebind(other);
    const int err = errno;
    const bool failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    REQUIRE(moved != failed);
    got.clear();
    if (moved) {
      REQUIRE(number > 1);
      REQUIRE(pair.server->loop() == &other);
      REQUIRE(pair.client->write("moved", 5) == 5);
      RUN_UNTIL(other, got == "moved");
      REQUIRE(heard == 0);
      pair.client.reset();
      RUN_UNTIL(other, heard == 1);
      pair.server.reset();
      break;
    }
    REQUIRE(err == ENOMEM);
    REQUIRE(pair.server->loop() == &pair.loop);
    REQUIRE(pair.type.counters(pair.loop).open == 2);
    testing::turns(other, 3);  // a posted move must find no connection
    REQUIRE(pair.type.counters(other).open == 0);
    REQUIRE(pair.client->write("stayed", 6) == 6);
    RUN_UNTIL(pair.loop, got == "stayed");
    REQUIRE(pair.server->write("back", 4) == 4);
    REQUIRE(testing::receive(pair.loop, *pair.client, 4) == "back");
  }
}

TEST_CASE("rebind: without memory at the other loop the connection fails there, and nothing else",
          "[torture]") {
  const std::string name = GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm");
  CAPTURE(name);
  for (std::uint64_t number = 1;; ++number) {
    CAPTURE(number);
    REQUIRE(number < 100);
    testing::Pair pair({.name = name});
    std::string got;
    got.reserve(1000);
    read_into(got, *pair.server);
    pair.server->set_close_handler([](Connection&) {});
    testing::AnyLoop other;
    REQUIRE(pair.server->rebind(other));
    fail_allocation(Allocator::kNew, number);
    testing::turns(other, 3);
    const bool failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    // Whatever happened: reading must report it, and the connection may be dropped.
    (void)pair.client->write("hello", 5);
    int error = 0;
    pair.server->set_read_handler([&](Connection& here) {
      char buffer[64];
      const ssize_t n = here.read(buffer, sizeof buffer);
      if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
      if (n < 0 && errno != EAGAIN) error = errno;
    });
    if (pair.server->loop() == nullptr) {
      REQUIRE(pair.server->state() == State::kError);
      REQUIRE(pair.server->error_code() == std::errc::not_enough_memory);
    } else {
      RUN_UNTIL(other, got == "hello" || error != 0 || pair.server->state() == State::kError);
    }
    pair.server.reset();
    testing::turns(other, 3);
    REQUIRE(conn::ConnectionSet::of(other).served() <= 1);  // it counts until it has delivered
    if (!failed) {
      REQUIRE(got == "hello");
      break;
    }
  }
}

namespace {

enum class Way { kRebind, kJoin };

/// Moves a connection to another loop while `count` allocations from `number` on fail there.
/// Returns a complaint or "".
std::string go(const testing::Transport& transport, Way way, bool writes, std::uint64_t number,
               std::uint64_t count, bool& failed) {
  testing::Pair pair(transport);
  // A list's accepted connection belongs to one of the list's transports; the client is the list's.
  conn::ConnectionPtr& moves = transport.list ? pair.client : pair.server;
  conn::ConnectionPtr& stays = transport.list ? pair.server : pair.client;
  std::string got;
  got.reserve(1000);
  int told = 0, closed = 0;
  const conn::Connection::Handler read = [&](Connection& here) {
    char buffer[64];
    const ssize_t n = here.read(buffer, sizeof buffer);
    if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN) ++told;
  };
  moves->set_read_handler(read);
  if (writes) moves->set_write_handler([](Connection&) {});
  moves->set_close_handler([&](Connection&) { ++closed; });
  testing::AnyLoop other;
  bool joined = true;
  int err = 0;
  if (way == Way::kRebind) {
    REQUIRE(moves->rebind(other));
    fail_allocation(Allocator::kNew, number, count);
    testing::turns(other, 3);
  } else {
    REQUIRE(moves->leave());
    fail_allocation(Allocator::kNew, number, count);
    joined = moves->join(other);
    err = errno;
  }
  failed = allocation_failed();
  fail_allocation(Allocator::kNew, 0);
  moves->set_write_handler(nullptr);
  const bool stands = moves->state() == State::kConnected;
  if (way == Way::kJoin && joined != stands) return "join() says otherwise than the state";
  if (!joined && err != ENOMEM) return "join() fails for another reason";
  (void)stays->write("hello", 5);
  if (stands) {
    RUN_UNTIL(other, got == "hello");
    stays.reset();
    RUN_UNTIL(other, closed == 1);
  } else {
    if (moves->state() != State::kError) return "it neither stands nor has failed";
    if (moves->error_code() != std::errc::not_enough_memory) return "another failure";
    if (moves->loop() != nullptr) {
      // If there was memory again in time, the handlers have been called.
      testing::turns(other, 3);
      if (closed != 1) return "nobody told the close handler";
      if (told == 0 && count == 1) return "nobody told the read handler";
      if (told == 0) moves->set_read_handler(read);
      testing::turns(other, 3);
      if (told == 0) return "nobody told the read handler that came later";
    }
    if (told == 0) {
      char byte;
      if (moves->read(&byte, 1) != -1 || errno != ENOMEM) return "read() does not tell";
    }
    if (moves->loop() != nullptr && !(moves->leave() && moves->join(pair.loop)))
      return "what has failed cannot move on";
  }
  moves.reset();
  testing::turns(other, 3);
  testing::turns(pair.loop, 3);
  return {};
}

}  // namespace

TEST_CASE("rebind: who arrives without memory stands, or has failed and tells so", "[torture]") {
  const std::string name =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "absent|tcp");
  const Way way = GENERATE(Way::kRebind, Way::kJoin);
  const std::uint64_t count = GENERATE(1, 2, 5, 1000);
  const bool writes = GENERATE(false, true);
  CAPTURE(name, way == Way::kJoin, count, writes);
  const testing::Transport transport{.name = name, .list = name.starts_with("absent|")};
  bool failed = true;
  for (std::uint64_t number = 1; failed; ++number) {
    CAPTURE(number);
    REQUIRE(number < 100);
    REQUIRE(go(transport, way, writes, number, count, failed) == "");
  }
}

TEST_CASE("rebind: without memory a loop ends as with it, whoever is on it", "[torture]") {
  const std::string name =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "absent|tcp");
  CAPTURE(name);
  testing::Pair pair({.name = name, .list = name.starts_with("absent|")});
  conn::ConnectionPtr& moves = pair.transport.list ? pair.client : pair.server;
  auto other = std::make_unique<testing::AnyLoop>();
  REQUIRE(moves->rebind(*other));
  testing::turns(*other, 3);
  moves->set_read_handler([](Connection&) {});
  fail_allocation(Allocator::kNew, 1, 100'000);
  other.reset();
  fail_allocation(Allocator::kNew, 0);
  REQUIRE(moves->state() == State::kError);
  REQUIRE(moves->error_code() == std::errc::operation_canceled);
  REQUIRE(moves->last_error() == "no event loop");
}

namespace {

/// Its peer aborts, and it learns that.
void fail_client(testing::Pair& pair) {
  pair.server.release()->abort();
  for (int i = 0; i < 1000 && pair.client->state() == State::kConnected; ++i) {
    (void)pair.client->write("x", 1);
    testing::turns(pair.loop, 1);
  }
  REQUIRE(pair.client->state() == State::kError);
}

}  // namespace

TEST_CASE("rebind: what has failed and is not told yet is told on the other loop", "[simulation]") {
  const std::string name =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "absent|tcp");
  CAPTURE(name);
  testing::Pair pair({.name = name, .list = name.starts_with("absent|")});
  fail_client(pair);
  ae::EventLoop* told = nullptr;
  pair.client->set_read_handler([&](Connection& here) {
    char byte;
    if (here.read(&byte, 1) < 0 && errno != EAGAIN) told = here.loop();
  });
  testing::AnyLoop other;
  REQUIRE(pair.client->rebind(other));
  testing::turns(pair.loop, 3);
  REQUIRE(told == nullptr);
  RUN_UNTIL(other, told == &other);
}

TEST_CASE("rebind: what has failed joins another loop all the same", "[simulation]") {
  const std::string name =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "absent|tcp");
  CAPTURE(name);
  testing::Pair pair({.name = name, .list = name.starts_with("absent|")});
  fail_client(pair);
  testing::AnyLoop other;
  REQUIRE(pair.client->leave());
  REQUIRE(pair.client->join(other));
  REQUIRE(pair.client->loop() == &other);
}

TEST_CASE("move: without memory a connection stays, or has failed and tells so", "[torture]") {
  const std::string name = GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm");
  CAPTURE(name);
  bool failed = true;
  for (std::uint64_t number = 1; failed; ++number) {
    CAPTURE(number);
    REQUIRE(number < 100);
    testing::Pair pair({.name = name});
    std::string got;
    got.reserve(1000);
    read_into(got, *pair.server);
    testing::AnyLoop other;
    ae::LoopList loops({&pair.loop, &other});
    testing::turns(other, 1);
    int arrived = 0;
    conn::AcceptHandler arrive = [&](conn::ConnectionPtr here) {
      ++arrived;
      pair.server = std::move(here);
    };
    fail_allocation(Allocator::kNew, number);
    const bool moved = conn::move(pair.server, loops, 1, std::move(arrive));
    const int err = errno;
    const bool stays = pair.server != nullptr;
    testing::turns(other, 3);
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    REQUIRE(moved != stays);
    REQUIRE(arrived == (moved ? 1 : 0));
    if (!moved) REQUIRE(err == ENOMEM);
    REQUIRE(pair.server != nullptr);
    if (pair.server->state() == State::kError) {
      REQUIRE(moved);
      REQUIRE(pair.server->error_code() == std::errc::not_enough_memory);
      continue;
    }
    (void)pair.client->write("hello", 5);
    if (moved)
      RUN_UNTIL(other, got == "hello");
    else
      RUN_UNTIL(pair.loop, got == "hello");
  }
}
