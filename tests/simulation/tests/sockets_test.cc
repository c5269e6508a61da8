// SPDX-License-Identifier: BSD-3-Clause
// Sockets that take less than they could, at calls where the kernel seldom does.

#include <limits.h>

#include <span>
#include <string>
#include <vector>

#include "conn/transports/transports.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"
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
  // The first piece is longer than all others of its call together.
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
