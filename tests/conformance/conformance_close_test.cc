// SPDX-License-Identifier: BSD-3-Clause
// How connections end, for each end that closes and each place it is closed from, over each
// transport.

#include <algorithm>
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

/// The number of open connections of the type, including lingering ones.
std::uint64_t open(Site& site) { return testing::counters(site).open; }

}  // namespace

// --- inside handlers ----------------------------------------------------------------------------

TEST_CASE("close: inside the read handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int calls = 0;
    pair.server->set_read_handler([&](Connection&) {
      ++calls;
      pair.server.reset();
    });
    pair.server->set_write_handler(nullptr);
    testing::send(pair.loop, *pair.client, "unread");
    RUN_UNTIL(pair.loop, calls > 0);
    Collector client(*pair.client);
    RUN_UNTIL(pair.loop, client.over());
    REQUIRE(calls == 1);
    pair.client.reset();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("close: inside the write handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int calls = 0;
    Collector client(*pair.client);
    pair.server->set_write_handler([&](Connection& c) {
      ++calls;
      REQUIRE(c.write("bye", 3) == 3);
      pair.server.reset();
    });
    RUN_UNTIL(pair.loop, client.over());
    REQUIRE(calls == 1);
    REQUIRE(client.ended);
    REQUIRE(client.bytes == "bye");
    pair.client.reset();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("close: inside one handler, when the other is due in the same iteration",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const auto barrier = GENERATE(conn::Barrier::kNo, conn::Barrier::kYes);
    Pair pair(transport);
    REQUIRE(pair.client->write("x", 1) == 1);
    int calls = 0;
    const auto handler = [&](Connection&) {
      ++calls;
      pair.server.reset();
    };
    pair.server->set_read_handler([&](Connection& c) {  // both events are due
      c.set_read_handler(handler);
      c.set_write_handler(handler, barrier);
    });
    RUN_UNTIL(pair.loop, !pair.server);
    testing::turns(pair.loop, 10);
    REQUIRE(calls == 1);
  }
}

TEST_CASE("close: inside the connect handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    testing::EchoServer echo;
    int accepted = 0;
    const conn::ListenerPtr listener =
        site.listen([&, serve = echo.handler()](ConnectionPtr connection) {
          ++accepted;
          serve(std::move(connection));
        });
    int calls = 0;
    ConnectionPtr client = site.type.create(site.loop);
    client->set_write_handler([&](Connection&) { ++calls; });
    client->connect(testing::address_of(*listener), [&](Connection&) {
      ++calls;
      client.reset();
    });
    RUN_UNTIL(site.loop, calls > 0 && open(site) == 0);
    REQUIRE(calls == 1);
    REQUIRE(accepted <= 1);  // the request may have been seen or withdrawn
  }
}

TEST_CASE("close: inside the connect handler of a connect that failed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    int calls = 0;
    ConnectionPtr client = site.type.create(site.loop);
    client->connect(site.deserted(), [&](Connection& c) {
      ++calls;
      REQUIRE(c.state() == State::kError);
      client.reset();
    });
    RUN_UNTIL(site.loop, calls > 0 && open(site) == 0);
    REQUIRE(calls == 1);
  }
}

TEST_CASE("close: inside the accept handler refuses the connection", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    int arrivals = 0;
    const conn::ListenerPtr listener = site.listen([&](ConnectionPtr) { ++arrivals; });
    bool connected = false;
    ConnectionPtr client =
        site.connect(testing::address_of(*listener), [&](Connection&) { connected = true; });
    RUN_UNTIL(site.loop, connected && arrivals == 1);
    if (client->state() == State::kConnected) {
      Collector collector(*client);
      RUN_UNTIL(site.loop, collector.over());
      REQUIRE(collector.bytes.empty());
    } else {
      REQUIRE(client->state() == State::kError);
    }
    client.reset();
    RUN_UNTIL(site.loop, open(site) == 0);
  }
}

TEST_CASE("close: of another connection inside a handler, while both have work pending",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    std::vector<ConnectionPtr> servers, clients;
    const conn::ListenerPtr listener =
        site.listen([&](ConnectionPtr accepted) { servers.push_back(std::move(accepted)); });
    for (int i = 0; i < 8; ++i) clients.push_back(site.connect(testing::address_of(*listener)));
    RUN_UNTIL(site.loop, servers.size() == clients.size() &&
                             std::all_of(clients.begin(), clients.end(), [](const auto& c) {
                               return c->state() == State::kConnected;
                             }));
    // All become readable and stay so; all are writable.
    for (const ConnectionPtr& client : clients) REQUIRE(client->write("x", 1) == 1);
    std::size_t readable = 0;
    for (const ConnectionPtr& server : servers) {
      server->set_read_handler([&](Connection& c) {
        ++readable;
        c.set_read_handler(nullptr);
      });
    }
    RUN_UNTIL(site.loop, readable == servers.size());
    // The first handler that runs closes all others.
    const Connection* survivor = nullptr;
    const auto handler = [&](Connection& c) {
      REQUIRE((survivor == nullptr || survivor == &c));
      survivor = &c;
      std::erase_if(servers, [&](const ConnectionPtr& other) { return other.get() != &c; });
      std::erase_if(clients, [&](const ConnectionPtr& other) { return other.get() != &c; });
    };
    for (const auto* all : {&servers, &clients}) {
      for (const ConnectionPtr& one : *all) {
        one->set_read_handler(handler);
        one->set_write_handler(handler);
      }
    }
    RUN_UNTIL(site.loop, survivor != nullptr && servers.size() + clients.size() == 1);
    testing::turns(site.loop, 10);
    servers.clear();
    clients.clear();
    RUN_UNTIL(site.loop, open(site) == 0);
  }
}

TEST_CASE("close: of the peer inside a handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    bool closed = false;
    pair.server->set_read_handler([&](Connection&) {
      if (pair.client) pair.client.reset();
      closed = true;
    });
    testing::send(pair.loop, *pair.client, "x");
    RUN_UNTIL(pair.loop, closed);
    Collector server(*pair.server);
    RUN_UNTIL(pair.loop, server.over());
    REQUIRE(server.bytes == "x");
    REQUIRE(server.ended);
  }
}

// --- crowds -------------------------------------------------------------------------------------

TEST_CASE("close: of a crowd in one turn", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    testing::EchoServer echo;
    const conn::ListenerPtr listener = site.listen(echo.handler());
    const conn::Endpoint address = testing::address_of(*listener);
    std::vector<ConnectionPtr> clients;
    std::size_t failed = 0;
    // In groups that fit into any backlog.
    while (clients.size() < transport.crowd) {
      for (int i = 0; i < 50; ++i) {
        clients.push_back(
            site.connect(address, [&](Connection& c) { failed += c.state() == State::kError; }));
      }
      RUN_UNTIL(site.loop, echo.open() + failed == clients.size());
    }
    REQUIRE(failed == 0);
    for (const ConnectionPtr& client : clients) {
      client->set_read_handler([&](Connection&) { FAIL("a handler ran after close()"); });
      client->write("x", 1);
    }
    clients.clear();
    RUN_UNTIL(site.loop, echo.open() == 0);
    RUN_UNTIL(site.loop, open(site) == 0);
  }
}

// --- half-close and end of stream ---------------------------------------------------------------

TEST_CASE("shutdown: half-close works exactly where the type says so", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().half_close) {
      errno = 0;
      REQUIRE(pair.client->shutdown() == -1);
      REQUIRE(errno == EOPNOTSUPP);
      testing::send(pair.loop, *pair.client, "still open");
      REQUIRE(testing::receive(pair.loop, *pair.server, 10) == "still open");
      return;
    }
    testing::send(pair.loop, *pair.client, "request");
    REQUIRE(pair.client->shutdown() == 0);
    REQUIRE(pair.client->write("x", 1) == -1);
    REQUIRE(errno == EPIPE);

    Collector server(*pair.server);
    RUN_UNTIL(pair.loop, server.over());
    REQUIRE(server.ended);
    REQUIRE(server.bytes == "request");
    REQUIRE(pair.server->state() == State::kConnected);

    testing::send(pair.loop, *pair.server, "answer");
    REQUIRE(testing::receive(pair.loop, *pair.client, 6) == "answer");
    REQUIRE(pair.client->state() == State::kConnected);

    REQUIRE(pair.server->shutdown() == 0);
    Collector client(*pair.client);
    RUN_UNTIL(pair.loop, client.over());
    REQUIRE(client.ended);
    REQUIRE(pair.client->state() == State::kClosed);
    REQUIRE(pair.server->state() == State::kClosed);
    REQUIRE(pair.client->last_error().empty());
  }
}

TEST_CASE("shutdown: the peer gets everything written before it", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().half_close) return;
    const testing::Pattern pattern(21);
    std::uint64_t sent = 0;
    for (;;) {
      const std::string_view next = pattern.at(sent).substr(0, 64 << 10);
      const ssize_t n = pair.client->write(next.data(), next.size());
      if (n < 0) break;
      sent += static_cast<std::uint64_t>(n);
    }
    REQUIRE(pair.client->shutdown() == 0);
    testing::Receiver server(*pair.server, 21);
    RUN_UNTIL(pair.loop, server.ended || server.error != 0);
    REQUIRE(server.ended);
    REQUIRE(server.received == sent);
    REQUIRE(server.intact);
  }
}

TEST_CASE("end of stream: it comes after the last byte, and stays", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->write("last words", 10) == 10);
    pair.client.reset();
    Collector server(*pair.server, 3);
    RUN_UNTIL(pair.loop, server.over());
    REQUIRE(server.bytes == "last words");
    REQUIRE(server.ended);
    for (int i = 0; i < 3; ++i) {
      char byte;
      REQUIRE(pair.server->read(&byte, 1) == 0);
      testing::turns(pair.loop, 2);
    }
    REQUIRE(pair.server->last_error().empty());
    // Level-triggered: if the end is not read, the handler is called again.
    int calls = 0;
    pair.server->set_read_handler([&](Connection&) { ++calls; });
    RUN_UNTIL(pair.loop, calls >= 3);
  }
}

// --- delivery -----------------------------------------------------------------------------------

TEST_CASE("close: what write() took is delivered to a slow reader", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const testing::Pattern pattern(22);
    std::uint64_t sent = 0;
    for (bool full = false; !full;) {
      const std::string_view next = pattern.at(sent).substr(0, 64 << 10);
      const ssize_t n = pair.client->write(next.data(), next.size());
      full = n < 0;
      if (n > 0) sent += static_cast<std::uint64_t>(n);
    }
    REQUIRE(sent > 10'000);
    pair.client.reset();
    testing::turns(pair.loop, 10);
    testing::Receiver server(*pair.server, 22, 4096);
    RUN_UNTIL(pair.loop, server.ended || server.error != 0);
    INFO(pair.server->last_error());
    REQUIRE(server.ended);
    REQUIRE(server.received == sent);
    REQUIRE(server.intact);
    pair.server.reset();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("close: what write() took is delivered, though the end that closes left bytes unread",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.server, std::string(40'000, 'x'));
    testing::await_readable(pair.loop, *pair.client);
    const testing::Pattern pattern(23);
    std::uint64_t sent = 0;
    while (sent < 500'000) {
      const std::string_view next = pattern.at(sent).substr(0, 50'000);
      const ssize_t n = pair.client->write(next.data(), next.size());
      if (n < 0) break;
      sent += static_cast<std::uint64_t>(n);
    }
    pair.client.reset();
    testing::Receiver server(*pair.server, 23, 1024);
    RUN_UNTIL(pair.loop, server.ended || server.error != 0);
    INFO(pair.server->last_error());
    REQUIRE(server.ended);
    REQUIRE(server.received == sent);
    REQUIRE(server.intact);
  }
}

TEST_CASE("close: it never waits, and lingering is bounded", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string bytes(64 << 10, 'x');
    while (pair.client->write(bytes.data(), bytes.size()) > 0) continue;
    const auto before = std::chrono::steady_clock::now();
    pair.client.reset();
    REQUIRE(std::chrono::steady_clock::now() - before < 1s);
    // The peer never reads; only its own end remains.
    RUN_UNTIL(pair.loop, open(pair) == 1);
  }
}

TEST_CASE("close: both ends at once, with data under way in both directions", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    for (int i = 0; i < 10; ++i) {
      Pair pair(transport);
      const std::string bytes(100'000, 'x');
      REQUIRE(pair.client->write(bytes.data(), bytes.size()) > 0);
      REQUIRE(pair.server->write(bytes.data(), bytes.size()) > 0);
      pair.client.reset();
      pair.server.reset();
      RUN_UNTIL(pair.loop, open(pair) == 0);
    }
  }
}

TEST_CASE("write: after the peer closed it fails, without a signal", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    pair.server.reset();
    int error = 0;
    pair.client->set_write_handler([&](Connection& c) {
      if (c.write("x", 1) < 0 && errno != EAGAIN) {
        error = errno;
        c.set_write_handler(nullptr);
      }
    });
    RUN_UNTIL(pair.loop, error != 0);
    REQUIRE((error == EPIPE || error == ECONNRESET || error == ENOTCONN));
    REQUIRE(pair.client->state() == State::kError);
    REQUIRE_FALSE(pair.client->last_error().empty());
    REQUIRE(pair.client->error_code());
  }
}

// --- killed peers, cancelled connects, loops that end --------------------------------------------

TEST_CASE("peer: one that is killed is noticed, also by a connection that only waits",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.reaches_far) return;
    testing::ClientProcess peer(transport);
    Site site(transport);
    ConnectionPtr server;
    const conn::ListenerPtr listener =
        site.listen([&](ConnectionPtr accepted) { server = std::move(accepted); });
    peer.connect(testing::address_of(*listener));
    RUN_UNTIL(site.loop, server != nullptr);
    REQUIRE(testing::receive(site.loop, *server, 5) == "hello");
    Collector collector(*server);
    peer.kill();
    testing::run_until(
        site.loop, [&] { return collector.over(); }, "the end of a killed peer", 5s);
    REQUIRE(collector.bytes.empty());
  }
}

TEST_CASE("close: while it connects cancels the connect handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    testing::EchoServer echo;
    const conn::ListenerPtr listener = site.listen(echo.handler());
    for (const int iterations : {0, 1, 2, 3}) {
      bool ran = false;
      ConnectionPtr client =
          site.connect(testing::address_of(*listener), [&](Connection&) { ran = true; });
      testing::turns(site.loop, iterations);
      const bool before = ran;
      client.reset();
      RUN_UNTIL(site.loop, open(site) == 0);
      REQUIRE(ran == before);
    }
  }
}

TEST_CASE("loop: destroyed under live connections, it leaves them dead but safe", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);  // for its transports only
    auto loop = std::make_unique<testing::AnyLoop>();
    ConnectionPtr server, closing;
    conn::ListenerPtr listener = site.type.listen(
        *loop, site.fresh(), [&](ConnectionPtr accepted) { server = std::move(accepted); });
    ConnectionPtr client = site.type.create(*loop);
    client->connect(testing::address_of(*listener), nullptr);
    RUN_UNTIL(*loop, server && client->state() == State::kConnected);
    const ConnectionPtr fresh = site.type.create(*loop);
    const ConnectionPtr connecting = site.type.create(*loop);
    bool ran = false;
    const auto handler = [&](Connection&) { ran = true; };
    connecting->connect(testing::address_of(*listener), handler);
    client->set_read_handler(handler);
    server->set_write_handler(handler);
    REQUIRE(client->write("never read", 10) == 10);
    loop.reset();
    REQUIRE_FALSE(ran);
    for (Connection* one : {client.get(), server.get(), fresh.get(), connecting.get()}) {
      REQUIRE(one->loop() == nullptr);
      REQUIRE(one->state() == State::kError);
      REQUIRE(one->error_code() == std::errc::operation_canceled);
      REQUIRE_FALSE(one->last_error().empty());
      char byte;
      REQUIRE(one->read(&byte, 1) == -1);
      REQUIRE(one->write("x", 1) == -1);
      one->set_read_handler(handler);
      one->set_read_handler(nullptr);
      one->connect(site.fresh(), handler);
    }
    REQUIRE_FALSE(ran);
    client.reset();
    listener.reset();
  }
}
