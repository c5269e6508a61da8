// SPDX-License-Identifier: BSD-3-Clause
// A move to another loop for which there is no memory.

#include <cerrno>
#include <string>

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
  const std::string name = GENERATE("tcp", "unix", "tls", "tls+unix");
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
    testing::turns(other, 3);  // what was posted there finds nobody
    REQUIRE(pair.type.counters(other).open == 0);
    REQUIRE(pair.client->write("stayed", 6) == 6);
    RUN_UNTIL(pair.loop, got == "stayed");
    REQUIRE(pair.server->write("back", 4) == 4);
    REQUIRE(testing::receive(pair.loop, *pair.client, 4) == "back");
  }
}

TEST_CASE("rebind: without memory at the other loop the connection fails there, and nothing else",
          "[torture]") {
  const std::string name = GENERATE("tcp", "unix", "tls", "tls+unix");
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
    // Whatever became of it: reading tells, and it may be dropped.
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
    if (!failed) {
      REQUIRE(got == "hello");
      break;
    }
  }
}
