// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: the end of a loop that has many connections.
#if AECONN_TLS

#include <ctime>
#include <memory>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using testing::TlsSite;

namespace {

/// Processor time of this thread, which the load of the machine does not change.
double processor_time() {
  timespec now{};
  REQUIRE(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Of a loop's end under so many connections of two layers.
double end_of_loop(TlsSite& site, std::size_t connections) {
  auto loop = std::make_unique<testing::AnyLoop>();
  std::vector<ConnectionPtr> held;
  for (std::size_t i = 0; i < connections; ++i) {
    held.push_back(site.tcp.create(*loop));
    held.push_back(site.client.create(*loop));
  }
  const double begin = processor_time();
  loop.reset();
  return processor_time() - begin;
}

}  // namespace

TEST_CASE("tls: a loop's end takes time in proportion to its connections", "[tls]") {
  TlsSite site;
  const double few = end_of_loop(site, 5000);
  const double many = end_of_loop(site, 40'000);
  CAPTURE(few, many);
  // Eight times as many: 64 times as long where each is looked for among all.
  REQUIRE(many < 32 * few);
}

#endif
