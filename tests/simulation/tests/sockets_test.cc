// SPDX-License-Identifier: BSD-3-Clause
// Sockets that transfer less than they could, at calls where the kernel seldom does so, and sockets
// that fail while memory is short.

#include <limits.h>

#include <cerrno>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "conn/transports/transports.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/testing.h"

using namespace simulation;

TEST_CASE("simulation: a gather write of many calls stops at the one that took less",
          "[simulation][sockets]") {
  const std::uint64_t seed = GENERATE(range(1u, 9u));
  CAPTURE(seed);
  Config config;
  config.seed = seed;
  config.short_transfers = 0.7;
  World world(config);
  const conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  conn::ConnectionPtr server;
  const conn::ListenerPtr listener =
      registry.listen(loop, "tcp://127.0.0.1:0",
                      [&](conn::ConnectionPtr accepted) { server = std::move(accepted); });
  const conn::ConnectionPtr client =
      registry.connect(loop, listener->endpoints().front().to_string(), [](conn::Connection&) {});
  RUN_UNTIL(loop, server && client->state() == conn::State::kConnected);
  // The first piece is longer than all other pieces of its call together.
  std::string bytes;
  for (int i = 0; bytes.size() < 20'000; ++i) bytes += std::to_string(i) + ' ';
  std::vector<iovec> pieces{{bytes.data(), 10'000}};
  for (std::size_t at = 10'000; at < bytes.size(); ++at) pieces.push_back({bytes.data() + at, 1});
  REQUIRE(pieces.size() > 5 * IOV_MAX);
  std::span<iovec> left(pieces);
  client->set_write_handler([&](conn::Connection& here) {
    ssize_t n = here.writev(left.data(), static_cast<int>(left.size()));
    for (; n > 0 && static_cast<std::size_t>(n) >= left.front().iov_len; left = left.subspan(1)) {
      n -= static_cast<ssize_t>(left.front().iov_len);
      if (left.size() == 1) return here.set_write_handler(nullptr);
    }
    if (n <= 0) return;
    left.front().iov_base = static_cast<char*>(left.front().iov_base) + n;
    left.front().iov_len -= static_cast<std::size_t>(n);
  });
  REQUIRE(testing::receive(loop, *server, bytes.size()) == bytes);
}

TEST_CASE("simulation: a failure is told as one, whichever allocation fails meanwhile",
          "[simulation][sockets][memory]") {
  const std::string scheme = GENERATE(as<std::string>{}, "tcp", "unix", "shm", "tls", "tls+unix");
  const std::string way = GENERATE(as<std::string>{}, "read", "readv", "write", "loop", "shutdown");
  if (way == "loop" && scheme.starts_with("tls")) return;  // TLS learns of it by a read only
  CAPTURE(scheme, way);
  const bool is_path = scheme.ends_with("unix") || scheme.ends_with("shm");
  World world;
  const conn::Registry registry = conn::all_transports();
  if (registry.find(scheme) == nullptr) return;  // not in this build
  if (scheme.starts_with("tls"))
    registry.require(scheme).configure(testing::test_tls_options("localhost"));
  testing::TempFolder folder;
  testing::AnyLoop loop;
  for (std::uint64_t number = 1, last = 0; last == 0; ++number) {
    CAPTURE(number);
    REQUIRE(number < 100);
    conn::ConnectionPtr server;
    const std::string path = folder.path() + "/" + std::to_string(number);
    const conn::ListenerPtr listener =
        registry.listen(loop, scheme + (is_path ? "://" + path : "://127.0.0.1:0"),
                        [&](conn::ConnectionPtr accepted) { server = std::move(accepted); });
    const conn::ConnectionPtr client =
        registry.connect(loop, listener->endpoints().front().to_string(), [](conn::Connection&) {});
    RUN_UNTIL(loop, server && client->state() == conn::State::kConnected);
    int told = 0;
    client->set_close_handler([&](conn::Connection&) { ++told; }, conn::CloseOn::kFailure);
    testing::send(loop, *client, "?");  // unread data makes the close a reset over unix, too
    testing::await_readable(loop, *server);
    testing::turns(loop, 5);
    std::string got(1, '\0');
    iovec piece{got.data(), 1};
    const auto once = [&] {
      if (way == "read") return client->read(got.data(), 1);
      if (way == "readv") return client->readv(&piece, 1);
      if (way == "write") return client->write("x", 1);
      if (way == "shutdown") return static_cast<ssize_t>(client->shutdown());
      return static_cast<ssize_t>(loop.process_events(ae::kAllEvents | ae::kDontWait));
    };
    server.release()->abort();
    bool threw = false;
    fail_allocation(Allocator::kNew, number);
    try {
      for (int i = 0; i < 3; ++i) (void)once();
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    const bool failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    last = failed ? 0 : number;
    CHECK_FALSE(threw);
    RUN_UNTIL(loop, told == 1);
    ssize_t n = -1;
    for (errno = EAGAIN; n == -1 && errno == EAGAIN; testing::turns(loop, 1))
      n = client->read(got.data(), 1);
    CHECK(n == -1);  // not the end of stream
    CHECK(client->state() == conn::State::kError);
    CHECK_FALSE(client->last_error().empty());
    CHECK(client->error_code() != std::errc::not_enough_memory);
  }
}
