// SPDX-License-Identifier: BSD-3-Clause
// Closing both directions, blocking until readable or writable, addresses given as host and port,
// and moving to another loop in two steps, over each transport.

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/in_place_kit.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Collector;
using testing::Pair;
using namespace std::chrono_literals;

// --- both directions -----------------------------------------------------------------------------

TEST_CASE("shutdown_both: the peer gets everything, then the end; both calls say so here",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.server, "unread");
    testing::await_readable(pair.loop, *pair.client);
    const std::string sent = in_place_kit::pattern_of(9, 100'000);
    const ssize_t taken = pair.client->write(sent.data(), sent.size());
    REQUIRE(taken > 0);
    int calls = 0;
    pair.client->set_read_handler([&](Connection& connection) {
      ++calls;
      char byte;
      REQUIRE(connection.read(&byte, 1) == 0);
      connection.set_read_handler(nullptr);
    });
    REQUIRE(pair.client->shutdown_both() == 0);
    REQUIRE(pair.client->shutdown_both() == 0);
    errno = 0;
    REQUIRE(pair.client->write("x", 1) == -1);
    REQUIRE(errno == EPIPE);
    errno = EAGAIN;
    REQUIRE(pair.client->peek().size == 0);
    REQUIRE(errno == 0);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over() && calls == 1);
    REQUIRE(collector.ended);
    REQUIRE(collector.bytes == sent.substr(0, static_cast<std::size_t>(taken)));
    REQUIRE(pair.client->state() == State::kClosed);
    REQUIRE(pair.client->last_error().empty());
    pair.client.reset();
    pair.server.reset();
    RUN_UNTIL(pair.loop, testing::counters(pair).open == 0);
  }
}

TEST_CASE("shutdown_both: what was committed and sent in place leaves before the end",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string all = in_place_kit::fill(*pair.client);
    in_place_kit::Parcel parcel(in_place_kit::pattern_of(3, 50'000));
    REQUIRE(pair.client->send(parcel.outgoing()) == 50'000);
    all += parcel.text;
    int calls = 0;
    pair.client->set_read_handler([&](Connection& connection) {
      ++calls;
      char byte;
      REQUIRE(connection.read(&byte, 1) == 0);
      connection.set_read_handler(nullptr);
    });
    REQUIRE(pair.client->shutdown_both() == 0);
    char byte;
    REQUIRE(pair.client->read(&byte, 1) == 0);
    REQUIRE(pair.client->write("x", 1) == -1);
    RUN_UNTIL(pair.loop, calls == 1);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over() && parcel.releases == 1);
    REQUIRE(collector.ended);
    REQUIRE((collector.bytes == all));
  }
}

TEST_CASE("shutdown, shutdown_both: the write handler hears of it while output waits",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    for (const bool both : {true, false}) {
      for (const bool set_before : {true, false}) {
        Pair pair(transport);
        if (!both && !pair.type.capabilities().half_close) continue;
        std::string all = in_place_kit::fill(*pair.client);  // the peer does not read
        in_place_kit::Parcel parcel(in_place_kit::pattern_of(3, 50'000));
        REQUIRE(pair.client->send(parcel.outgoing()) == 50'000);
        all += parcel.text;
        int calls = 0;
        const auto refused = [&](Connection& connection) {
          ++calls;
          errno = 0;
          REQUIRE(connection.write("x", 1) == -1);
          REQUIRE(errno == EPIPE);
          if (calls == 3) connection.set_write_handler(nullptr);  // called while a handler is set
        };
        if (set_before) pair.client->set_write_handler(refused);
        REQUIRE((both ? pair.client->shutdown_both() : pair.client->shutdown()) == 0);
        if (!set_before) pair.client->set_write_handler(refused);
        RUN_UNTIL(pair.loop, calls == 3);
        Collector collector(*pair.server);
        RUN_UNTIL(pair.loop, collector.over() && parcel.releases == 1);
        REQUIRE(calls == 3);
        REQUIRE((collector.bytes == all));
      }
    }
  }
}

TEST_CASE("shutdown_both: closed at once afterwards, everything still arrives", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.server, "unread");
    testing::await_readable(pair.loop, *pair.client);
    const std::string sent = in_place_kit::fill(*pair.client);
    REQUIRE(pair.client->shutdown_both() == 0);
    pair.client.reset();
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over());
    REQUIRE(collector.ended);
    REQUIRE((collector.bytes == sent));
    pair.server.reset();
    RUN_UNTIL(pair.loop, testing::counters(pair).open == 0);
  }
}

TEST_CASE("shutdown_both: not before the connection stands", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const conn::ConnectionPtr fresh = pair.type.create(pair.loop);
    errno = 0;
    REQUIRE(fresh->shutdown_both() == -1);
    REQUIRE(errno == ENOTCONN);
  }
}

// --- waiting -------------------------------------------------------------------------------------

TEST_CASE("sync_wait: until there is something to read, or no more time", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    errno = 0;
    REQUIRE_FALSE(pair.server->sync_wait(ae::kReadable, 0ms));
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(pair.client->sync_wait(ae::kWritable, 10s));
    REQUIRE(pair.client->sync_write("hello", 5, 10s) == 5);
    REQUIRE(pair.server->sync_wait(ae::kReadable, 10s));
    char bytes[8];
    REQUIRE(pair.server->read(bytes, 2) == 2);
    REQUIRE(pair.server->peek(1).size == 3);  // with and without read-ahead
    REQUIRE(pair.server->sync_wait(ae::kReadable, 0ms));
    REQUIRE(pair.server->read(bytes, sizeof bytes) == 3);
    pair.client.reset();
    RUN_UNTIL(pair.loop, pair.server->sync_wait(ae::kReadable, 0ms));
    REQUIRE(pair.server->read(bytes, sizeof bytes) == 0);
    REQUIRE(pair.server->sync_wait(ae::kReadable, 0ms));
  }
}

TEST_CASE("sync_wait: until there is room for more", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    (void)in_place_kit::fill(*pair.client);
    in_place_kit::Parcel parcel(in_place_kit::pattern_of(3, 1'000'000));
    REQUIRE(pair.client->send(parcel.outgoing()) == 1'000'000);
    errno = 0;
    REQUIRE_FALSE(pair.client->sync_wait(ae::kWritable, 0ms));
    REQUIRE(errno == ETIMEDOUT);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, pair.client->sync_wait(ae::kWritable, 0ms));
    REQUIRE(pair.client->write("x", 1) == 1);
  }
}

TEST_CASE("sync_wait: not before the connection stands", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const conn::ConnectionPtr fresh = pair.type.create(pair.loop);
    errno = 0;
    REQUIRE_FALSE(fresh->sync_wait(ae::kReadable, 10s));
    REQUIRE(errno == ENOTCONN);
  }
}

// --- addresses -----------------------------------------------------------------------------------

TEST_CASE("addresses: in two parts they say the same", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    for (const Connection* end : {pair.client.get(), pair.server.get()}) {
      for (const bool peer : {false, true}) {
        const std::string text = peer ? end->peer_address() : end->local_address();
        const conn::Address parts = peer ? end->peer_host_port() : end->local_host_port();
        CAPTURE(text);
        REQUIRE((parts.port == 0 ? parts.host : conn::host_port(parts.host, parts.port)) == text);
      }
    }
  }
}

// --- loops ---------------------------------------------------------------------------------------

TEST_CASE("leave: a connection joins another loop later, with what was read ahead",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::AnyLoop other;
    if (!pair.type.capabilities().rebind) {
      errno = 0;
      REQUIRE_FALSE(pair.server->leave());
      REQUIRE(errno == EOPNOTSUPP);
      return;
    }
    errno = 0;
    REQUIRE_FALSE(pair.server->join(other));
    REQUIRE(errno == EINVAL);
    testing::send(pair.loop, *pair.client, "ahead ");
    (void)in_place_kit::peek_until(pair, *pair.server, 6);
    std::string got;
    pair.server->set_read_handler([&](Connection& connection) {
      REQUIRE(other.in_handler());
      got += testing::read_some(connection, 100);
    });
    REQUIRE(pair.server->leave());
    REQUIRE(pair.server->loop() == nullptr);
    REQUIRE(pair.carrier.counters(pair.loop).open == 1);
    testing::send(pair.loop, *pair.client, "and then");
    testing::turns(pair.loop, 5);
    REQUIRE(got.empty());
    REQUIRE(pair.server->join(other));
    REQUIRE(pair.server->loop() == &other);
    REQUIRE(pair.carrier.counters(other).open == 1);
    RUN_UNTIL(other, got == "ahead and then");
    errno = 0;
    REQUIRE_FALSE(pair.server->join(other));
    REQUIRE(errno == EINVAL);
    REQUIRE(pair.server->write("back", 4) == 4);
    pair.server->flush();
    REQUIRE(testing::receive(pair.loop, *pair.client, 4) == "back");
    pair.server.reset();
  }
}

TEST_CASE("leave: a connection that is being set up stays, and is established as before",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    testing::AnyLoop other;
    std::vector<ConnectionPtr> accepted;
    const conn::ListenerPtr listener =
        site.listen([&](ConnectionPtr next) { accepted.push_back(std::move(next)); });
    const int expected = site.type.capabilities().rebind ? EBUSY : EOPNOTSUPP;
    const auto stays = [&](Connection& here) {
      errno = 0;
      CHECK_FALSE(here.leave());
      CHECK(errno == expected);
      errno = 0;
      CHECK_FALSE(here.rebind(other));
      CHECK(errno == expected);
      CHECK(here.loop() == &site.loop);
    };
    int calls = 0;
    const ConnectionPtr client =
        site.connect(testing::address_of(*listener), [&](Connection& here) {
          ++calls;
          stays(here);  // inside its handler
        });
    stays(*client);  // under way, or with a connect handler that is due
    RUN_UNTIL(site.loop, calls == 1 && !accepted.empty());
    REQUIRE(client->state() == State::kConnected);
    testing::send(site.loop, *client, "works");
    CHECK(testing::receive(site.loop, *accepted.front(), 5) == "works");
    testing::turns(other, 3);
    CHECK(calls == 1);
  }
}

TEST_CASE("leave: a connection that joins no loop can be closed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().rebind) return;
    REQUIRE(pair.server->leave());
    pair.server.reset();
    Collector collector(*pair.client);
    RUN_UNTIL(pair.loop, collector.over());
  }
}

TEST_CASE("shutdown_both: who has ended its own direction hears of it, too", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (pair.type.capabilities().half_close) {
      Collector half(*pair.server);
      REQUIRE(pair.client->shutdown() == 0);
      RUN_UNTIL(pair.loop, half.ended);
    }
    int calls = 0;
    pair.client->set_close_handler([&](Connection&) { ++calls; });
    REQUIRE(pair.server->shutdown_both() == 0);
    RUN_UNTIL(pair.loop, calls == 1);
  }
}
