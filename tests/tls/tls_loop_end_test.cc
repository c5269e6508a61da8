// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: the end of a loop with many connections.
#if AECONN_TLS

#include <memory>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using testing::TlsSite;

// bench/instructions measures the cost, and that it is proportional to the connections.
TEST_CASE("tls: a loop's end reaches each of many connections of two layers", "[tls]") {
  TlsSite site;
  auto loop = std::make_unique<testing::AnyLoop>();
  std::vector<ConnectionPtr> held;
  for (int i = 0; i < 2000; ++i) {
    held.push_back(site.tcp.create(*loop));
    held.push_back(site.client.create(*loop));
  }
  loop.reset();
  std::size_t ended = 0;
  for (const ConnectionPtr& each : held)
    ended += each->loop() == nullptr && each->state() == conn::State::kError ? 1 : 0;
  REQUIRE(ended == held.size());
}

#endif
