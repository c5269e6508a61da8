// SPDX-License-Identifier: BSD-3-Clause
// A co::Acceptor that finds no memory.

#include <chrono>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "tests/support/allocations.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("acceptor: without memory to keep a connection it is closed, and the loop goes on",
          "[co]") {
  testing::Site site({.name = "tls"});
  // libstdc++ needs memory for the 64th element of a std::deque.
  constexpr std::size_t kKept = 63;
  co::Acceptor acceptor(site.registry, site.loop, site.fresh(), kKept);
  std::vector<conn::ConnectionPtr> clients;
  for (std::size_t i = 0; i < 2 * kKept; ++i)
    clients.push_back(site.connect(testing::address_of(acceptor.listener())));
  RUN_UNTIL(site.loop, acceptor.waiting() == kKept);
  testing::turns(site.loop, 50);
  std::vector<co::Stream> taken;
  taken.reserve(clients.size());
  const auto take = [](co::Acceptor& from, std::vector<co::Stream>& to,
                       std::size_t count) -> co::Task<> {
    while (count-- != 0) to.push_back(co_await from.next());
  };
  co::Scope scope;
  co::Task<> one = take(acceptor, taken, 1);
  bool thrown = false;
  {
    const testing::NoMemory none;
    try {
      scope.spawn(std::move(one));
      testing::turns(site.loop, 5);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
  }
  REQUIRE_FALSE(thrown);
  REQUIRE(taken.size() == 1);
  // It goes on with the connections that it has and with those that come now.
  const conn::ConnectionPtr late = site.connect(testing::address_of(acceptor.listener()));
  scope.spawn(take(acceptor, taken, kKept));
  RUN_UNTIL(site.loop, taken.size() == 1 + kKept);
}
#endif
