// SPDX-License-Identifier: BSD-3-Clause
// docs/limits.md says how many descriptors each thing has: as many as /proc/self/fd shows.

#include <thread>

#include "adapters/descriptor.h"
#include "ae/epoll_loop.h"
#include "ae/libev_loop.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_table.h"
#include "tests/support/testing.h"

using testing::Opened;
using testing::told_of;

TEST_CASE("descriptors: those of a loop are as limits.md has them", "[limits][loop]") {
  {
    // Once for the process, and kept: what a first loop may open.
    const ae::EpollLoop first;
    const ae::LibevLoop other;
  }
  Opened opened;
  ae::EpollLoop epoll;
  CHECK(opened.more() == told_of("an `EpollLoop`"));
  {
    ae::EpollLoop other;
    (void)opened.more();
    testing::outlast_sleeps(other);
    CHECK(opened.more() == told_of("the same, once a timer has outlasted 16 sleeps"));
  }
  (void)opened.more();
  (void)epoll.descriptor();
  epoll.add_time_event(std::chrono::hours(1), [] { return ae::kNoMore; });
  (void)epoll.dispatch();
  CHECK(opened.more() == told_of("the same, below a host's loop"));
  ae::LibevLoop libev;
  CHECK(opened.more() == told_of("a `LibevLoop`"));
  const ae::LibevLoop guest(libev.native());
  CHECK(opened.more() == told_of("the same, on the program's `ev_loop`"));
}

TEST_CASE("descriptors: those of listeners and connections are as limits.md has them", "[limits]") {
  if (testing::simulated() || testing::listening_loops() != 1) return;
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.in_library || transport.list || transport.name.ends_with("rdma")) return;
    testing::Site site(transport);
    {
      // What a loop opens at its first connection, and keeps.
      testing::EchoServer echo;
      const conn::ListenerPtr listener = site.listen(echo.handler());
      const conn::ConnectionPtr client = site.connect(testing::address_of(*listener));
      RUN_UNTIL(site.loop, echo.open() == 1 && client->state() == conn::State::kConnected);
    }
    testing::turns(site.loop, 200);  // both ends of it have gone
    Opened opened;
    std::vector<conn::ConnectionPtr> servers, clients;
    const conn::ListenerPtr listener =
        site.listen([&](conn::ConnectionPtr next) { servers.push_back(std::move(next)); });
    CHECK(opened.more() == told_of("a listening address of tcp, unix, vsock, shm"));
    constexpr int kCount = 5;
    for (int i = 0; i < kCount; ++i)
      clients.push_back(site.connect(testing::address_of(*listener)));
    RUN_UNTIL(site.loop, servers.size() == kCount &&
                             std::all_of(clients.begin(), clients.end(), [](const auto& each) {
                               return each->state() == conn::State::kConnected;
                             }));
    CHECK(opened.more() == 2 * kCount * told_of("each end of a connection of these"));
  }
}

TEST_CASE("descriptors: those of a connection as a descriptor are as limits.md has them",
          "[limits][descriptor]") {
  testing::Pair pair(testing::transports().front());
  if (testing::simulated() || pair.transport.name != "tcp" || !pair.transport.threads) return;
  Opened opened;
  pair.client->set_close_handler([](conn::Connection&) {});
  const int handler = told_of("the first close handler or `zero-copy` of a socket on a loop");
  CHECK(opened.more() == handler);
  const auto ended = [](const conn::Failure&) {};  // so that it is not the socket itself
  const int first = adapters::to_descriptor(std::move(pair.client), ended);
  const int beside = told_of("a connection as a descriptor, besides its own");
  CHECK(opened.more() == beside + told_of("the first of these on a loop that costs 2"));
  const int second = adapters::to_descriptor(std::move(pair.server), ended);
  CHECK(opened.more() == beside);
  ::close(first);
  ::close(second);
}
