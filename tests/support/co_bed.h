// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of coroutines whose tasks and handlers run nested iterations of the loop.

#include <string>

#include "ae/epoll_loop.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace testing {

/// Two ends of a connection, on a loop that a handler may iterate.
struct Bed {
  explicit Bed(const std::string& name) {
    conn::Endpoint at =
        conn::Endpoint::parse(conn::carries_path(name) ? name + "://" + folder.path() + "/s"
                              : name == "tcp"          ? "tcp://127.0.0.1:0"
                                                       : "memory://rules");
    listener = registry.listen(
        loop, at, [this](conn::ConnectionPtr arrival) { server = std::move(arrival); });
    at = listener->endpoints().front();
    client = registry.create(loop, at);
    client->connect(at, [](conn::Connection&) {});
    RUN_UNTIL(loop, server != nullptr && client->state() == conn::State::kConnected);
  }
  /// Within a handler: iterates the loop until the server has read what the client writes now.
  void turn_until_read() {
    conn::Connection& peer = *reader;
    REQUIRE(client->write("x", 1) == 1);
    client->flush();
    while (peer.has_read_handler()) loop.dispatch();
  }

  testing::TempFolder folder;
  conn::Registry registry = testing::test_registry();
  ae::EpollLoop loop;
  conn::ListenerPtr listener;
  conn::ConnectionPtr client, server;
  conn::Connection* reader = nullptr;
};

}  // namespace testing
