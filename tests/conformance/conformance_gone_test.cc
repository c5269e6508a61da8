// SPDX-License-Identifier: BSD-3-Clause
// The guarantees of set_close_handler() in conn/connection.h, over each transport.

#include <cerrno>

#include "tests/support/catch.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Collector;
using testing::Pair;
using testing::Site;
using namespace std::chrono_literals;

namespace {

/// Counts the calls of a close handler.
struct Heard {
  explicit Heard(Connection& connection) {
    connection.set_close_handler([this](Connection&) { ++calls; });
  }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  int calls = 0;
};

}  // namespace

TEST_CASE("close handler: who does not read hears that the peer has closed, once",
          "[conformance]") {
  const bool by_client = GENERATE(true, false);
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    ConnectionPtr& leaves = by_client ? pair.client : pair.server;
    Heard stays(by_client ? *pair.server : *pair.client);
    testing::turns(pair.loop, 5);
    REQUIRE(stays.calls == 0);
    leaves.reset();
    RUN_UNTIL(pair.loop, stays.calls > 0);
    testing::turns(pair.loop, 20);
    REQUIRE(stays.calls == 1);
  }
}

TEST_CASE("close handler: beside a read handler it runs once as well", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Collector server(*pair.server);
    Heard heard(*pair.server);
    testing::send(pair.loop, *pair.client, "last words");
    pair.client.reset();
    RUN_UNTIL(pair.loop, server.over() && heard.calls > 0);
    testing::turns(pair.loop, 20);
    REQUIRE(server.bytes == "last words");
    REQUIRE(heard.calls == 1);
  }
}

TEST_CASE("close handler: what came before is still there to be read", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Heard heard(*pair.server);
    testing::send(pair.loop, *pair.client, "unread");
    pair.client.reset();
    RUN_UNTIL(pair.loop, heard.calls > 0);
    Collector server(*pair.server);
    RUN_UNTIL(pair.loop, server.over());
    REQUIRE(server.bytes == "unread");
    testing::turns(pair.loop, 10);
    REQUIRE(heard.calls == 1);
  }
}

TEST_CASE("close handler: set after the end was read, it runs in the next iteration",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    pair.client.reset();
    Collector server(*pair.server);
    RUN_UNTIL(pair.loop, server.over());
    Heard heard(*pair.server);
    REQUIRE(heard.calls == 0);  // never within the call
    testing::turns(pair.loop, 2);
    REQUIRE(heard.calls == 1);
  }
}

TEST_CASE("close handler: set after the peer has gone, while nobody reads", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.client, "unread");
    pair.client.reset();
    testing::turns(pair.loop, 20);
    Heard heard(*pair.server);
    RUN_UNTIL(pair.loop, heard.calls == 1);
  }
}

TEST_CASE("close handler: the connection may be closed inside it", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int calls = 0;
    pair.server->set_read_handler([&](Connection&) { REQUIRE(pair.server); });
    pair.server->set_close_handler([&](Connection&) {
      ++calls;
      pair.server.reset();
    });
    pair.client.reset();
    RUN_UNTIL(pair.loop, testing::counters(pair).open == 0);
    REQUIRE(calls == 1);
  }
}

TEST_CASE("close handler: it may set another, which runs as well", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int first = 0, second = 0;
    pair.server->set_close_handler([&](Connection& here) {
      ++first;
      here.set_close_handler([&](Connection&) { ++second; });
    });
    pair.client.reset();
    RUN_UNTIL(pair.loop, second > 0);
    testing::turns(pair.loop, 10);
    REQUIRE(first == 1);
    REQUIRE(second == 1);
  }
}

TEST_CASE("close handler: removed or after close() it does not run", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Heard server(*pair.server), client(*pair.client);
    pair.server->set_close_handler(nullptr);
    pair.client.reset();
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over());
    pair.server.reset();
    RUN_UNTIL(pair.loop, testing::counters(pair).open == 0);
    REQUIRE(server.calls == 0);
    REQUIRE(client.calls == 0);
  }
}

TEST_CASE("close handler: taken away between the peer's end and its turn, it does not run",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    pair.client.reset();
    Collector server(*pair.server);
    RUN_UNTIL(pair.loop, server.over());
    Heard heard(*pair.server);  // due
    pair.server->set_close_handler(nullptr);
    testing::turns(pair.loop, 5);
    REQUIRE(heard.calls == 0);
    Heard again(*pair.server);  // due
    pair.server.reset();
    testing::turns(pair.loop, 5);
    REQUIRE(again.calls == 0);
  }
}

TEST_CASE("close handler: a peer that has closed its direction counts as gone", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().half_close) return;
    Heard heard(*pair.server);
    // With TLS this is a message that the peer has to read.
    Collector server(*pair.server);
    REQUIRE(pair.client->shutdown() == 0);
    RUN_UNTIL(pair.loop, heard.calls > 0);
    Collector client(*pair.client);
    testing::send(pair.loop, *pair.server, "still there");
    RUN_UNTIL(pair.loop, client.bytes == "still there");
    testing::turns(pair.loop, 5);
    REQUIRE(heard.calls == 1);
  }
}

TEST_CASE("close handler: our own shutdown() is not the peer's end", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().half_close) return;
    Heard heard(*pair.server);
    REQUIRE(pair.server->shutdown() == 0);
    testing::turns(pair.loop, 20);
    REQUIRE(heard.calls == 0);
    pair.client.reset();
    RUN_UNTIL(pair.loop, heard.calls == 1);
  }
}

TEST_CASE("close handler: a connect that failed is for its own handler to tell", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    bool told = false;
    const ConnectionPtr client = site.type.create(site.loop);
    Heard heard(*client);
    client->connect(site.deserted(), [&](Connection&) { told = true; });
    RUN_UNTIL(site.loop, told);
    testing::turns(site.loop, 10);
    REQUIRE(heard.calls == 0);
  }
}

TEST_CASE("close handler: set before connect() it is there when the connection stands",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    const conn::ListenerPtr listener = site.listen([](ConnectionPtr) {});  // closed at once
    const ConnectionPtr client = site.type.create(site.loop);
    bool told = false, in_order = true;
    int calls = 0;
    client->set_close_handler([&](Connection&) {
      ++calls;
      in_order = in_order && told;
    });
    client->connect(testing::address_of(*listener), [&](Connection& here) {
      told = true;
      if (here.state() == State::kError) ++calls;  // refused before it was established
    });
    RUN_UNTIL(site.loop, calls > 0);
    testing::turns(site.loop, 10);
    REQUIRE(calls == 1);
    REQUIRE(in_order);
  }
}

TEST_CASE("close handler: it waits without costing iterations, before and after", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Heard heard(*pair.server);
    testing::send(pair.loop, *pair.client, "unread");
    testing::turns(pair.loop, 5);
    testing::IterationCounter iterations(pair.loop);
    const int most = transport.name.ends_with("rdma") ? 60 : 10;
    REQUIRE(iterations.during(50ms) <= most);
    pair.client.reset();
    RUN_UNTIL(pair.loop, heard.calls > 0);
    RUN_UNTIL(pair.loop, testing::counters(pair).open == 1);  // its peer has closed completely
    REQUIRE(iterations.during(50ms) <= most);
    REQUIRE(heard.calls == 1);
  }
}

TEST_CASE("close handler: it moves to another loop with its connection", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().rebind) return;
    testing::AnyLoop other;
    Heard heard(*pair.server);
    REQUIRE(pair.server->rebind(other));
    testing::turns(other, 5);
    pair.client.reset();
    testing::turns(pair.loop, 20);
    REQUIRE(heard.calls == 0);
    RUN_UNTIL(other, heard.calls == 1);
    pair.server.reset();
    testing::turns(other, 5);
  }
}

TEST_CASE("close handler: due on one loop, it runs on the other after a move", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().rebind) return;
    testing::AnyLoop other;
    pair.client.reset();
    {
      Collector server(*pair.server);
      RUN_UNTIL(pair.loop, server.over());
    }
    Heard heard(*pair.server);
    if (!pair.server->rebind(other)) return;  // failed already: not every transport moves it then
    testing::turns(pair.loop, 5);
    REQUIRE(heard.calls == 0);
    RUN_UNTIL(other, heard.calls == 1);
    pair.server.reset();
    testing::turns(other, 5);
  }
}

TEST_CASE("close handler: the end of the loop runs none", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    int calls = 0;
    ConnectionPtr left;
    {
      Pair pair(transport);
      if (pair.loops) return;
      pair.server->set_close_handler([&](Connection&) { ++calls; });
      left = std::move(pair.server);
      pair.client.reset();
      // Types outlive connections: the pair's members are destroyed one by one.
      pair.listener.reset();
      std::destroy_at(&pair.loop);
      REQUIRE(left->state() == State::kError);
      left->set_close_handler([&](Connection&) { ++calls; });  // no loop is left to run it
      left.reset();
      std::construct_at(&pair.loop);
    }
    REQUIRE(calls == 0);
  }
}

TEST_CASE("close handler: with kFailure a reset is heard of after the peer's end of stream",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.carrier.capabilities().half_close) return;
    if (transport.name == "vsock") return;  // the kernel has no resets there
    // TLS reads these bytes: no reset
    if (transport.name == "tls+unix" || transport.name == "tls+vsock") return;
    testing::send(pair.loop, *pair.server, "never read");  // makes a Unix socket's close a reset
    testing::await_readable(pair.loop, *pair.client);
    pair.client->set_read_handler(nullptr);
    testing::send(pair.loop, *pair.client, "before");
    const bool reads = GENERATE(false, true);
    CAPTURE(reads);
    int failures = 0;
    pair.server->set_close_handler([&](Connection&) { ++failures; }, conn::CloseOn::kFailure);
    REQUIRE(pair.client->shutdown() == 0);
    if (reads) {
      REQUIRE(testing::receive(pair.loop, *pair.server, 6) == "before");
      Collector end(*pair.server);
      RUN_UNTIL(pair.loop, end.ended);
    }
    testing::turns(pair.loop, 20);
    REQUIRE(failures == 0);
    REQUIRE_FALSE(pair.server->why_ended());
    pair.client.release()->abort();
    RUN_UNTIL(pair.loop, failures == 1);
    REQUIRE(pair.server->why_ended());
    if (!reads) {  // received bytes are still readable
      Collector rest(*pair.server);
      RUN_UNTIL(pair.loop, rest.over());
      REQUIRE((rest.bytes == "before" || pair.carrier.name().ends_with("memory")));
    }
    testing::turns(pair.loop, 20);
    REQUIRE(failures == 1);
  }
}

TEST_CASE("close handler: with kFailure a reset is heard of while bytes are unread",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.carrier.capabilities().reset) return;
    if (transport.name == "tls+vsock") return;  // told by read() alone: the kernel has no resets
    testing::send(pair.loop, *pair.client, "before");
    testing::await_readable(pair.loop, *pair.server);
    int failures = 0;
    pair.server->set_close_handler([&](Connection&) { ++failures; }, conn::CloseOn::kFailure);
    pair.client.release()->abort();
    RUN_UNTIL(pair.loop, failures == 1);
    REQUIRE(pair.server->why_ended());
    testing::turns(pair.loop, 20);
    REQUIRE(failures == 1);
  }
}

TEST_CASE("close handler: with kFailure an ordinary end does not run it", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int failures = 0;
    pair.server->set_close_handler([&](Connection&) { ++failures; }, conn::CloseOn::kFailure);
    Collector server(*pair.server);
    pair.client.reset();
    RUN_UNTIL(pair.loop, server.ended);
    testing::turns(pair.loop, 20);
    REQUIRE(failures == 0);
  }
}
