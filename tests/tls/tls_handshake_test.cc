// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: handshakes that hang, many handshakes at once, and handshakes that are cancelled.
#if AECONN_TLS

#include <cerrno>

#include "conn/stop.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"
#include "tests/support/tls_statistic.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Failure;
using conn::ListenerPtr;
using conn::State;
using conn::tls::Errc;
using testing::Held;
using testing::info_of;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::statistic;
using testing::TlsPair;
using testing::TlsSite;
using namespace std::chrono_literals;
using testing::Contains;

namespace {

using Clock = std::chrono::steady_clock;

/// Whether the other end has closed the socket. Discards earlier bytes, such as an alert.
bool is_over(const RawSocket& socket) {
  char bytes[256];
  ssize_t n = 0;
  do {
    n = ::recv(socket.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
  } while (n > 0);
  return n == 0 || errno != EAGAIN;
}

}  // namespace

// --- handshakes that hang ------------------------------------------------------------------------

TEST_CASE("tls: a client that hangs in the handshake does not stall accept", "[tls][handshake]") {
  TlsPair pair;
  const RawSocket silent = RawSocket::connect(testing::address_of(*pair.listener));
  const RawSocket stuck = RawSocket::connect(testing::address_of(*pair.listener));
  stuck.send(std::string_view("\x16\x03\x01\x01\x00\x01", 6));
  RUN_UNTIL(pair.loop, statistic(pair, pair.server, "handshaking") == 2);
  const ConnectionPtr client = pair.connect(*pair.listener);
  REQUIRE(client->state() == State::kConnected);
  const ConnectionPtr server = pair.next_accepted();
  pair.require_echo(*client, *server);
  pair.require_echo(*pair.a, *pair.b);
  REQUIRE(pair.refused.empty());
}

TEST_CASE(
    "tls: a handshake ends after the server's handshake-timeout, the client's connect-timeout",
    "[tls][handshake]") {
  TlsSite site({{"handshake-timeout", "200ms"}}, {{"connect-timeout", "200ms"}});
  Held held(site);
  {
    const ListenerPtr listener = site.listen();
    const RawSocket silent = RawSocket::connect(testing::address_of(*listener));
    const auto begun = Clock::now();
    const Failure why = site.next_refused();
    REQUIRE(Clock::now() - begun >= 150ms);
    REQUIRE(why.code == Errc::kTimeout);
    REQUIRE(why.code == std::errc::timed_out);
    REQUIRE_THAT(why.text, Contains("127.0.0.1:" + std::to_string(silent.endpoint().port)));
    LOOK_UNTIL(site.loop, is_over(silent));

    const RawSocket listening = RawSocket::listening();
    const ConnectionPtr client = site.connect(listening.endpoint());
    REQUIRE(client->state() == State::kError);
    REQUIRE(client->error_code() == Errc::kTimeout);
    REQUIRE(Clock::now() - begun < 3s);
    REQUIRE_THAT(client->last_error(),
                 Contains("127.0.0.1:" + std::to_string(listening.endpoint().port)));
    REQUIRE(statistic(site, site.server, "handshake_timeouts") == 1);
    REQUIRE(statistic(site, site.client, "handshake_timeouts") == 1);
    REQUIRE(statistic(site, site.server, "handshaking") == 0);
    REQUIRE(statistic(site, site.client, "handshaking") == 0);
  }
  held.require_same();
}

TEST_CASE("tls: a client that sends byte after byte gets no more time", "[tls][handshake]") {
  TlsSite site({{"handshake-timeout", "200ms"}});
  const ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
  SSL_do_handshake(peer.ssl());
  const std::string hello = peer.take_outgoing();
  std::size_t sent = 0;
  site.loop.add_time_event(0ns, [&]() -> ae::Duration {
    if (sent == hello.size() || peer.socket().send_what_fits(hello.substr(sent, 1)) != 1) {
      return ae::kNoMore;
    }
    ++sent;
    return 10ms;
  });
  const auto begun = Clock::now();
  REQUIRE(site.next_refused().code == Errc::kTimeout);
  CAPTURE(sent, hello.size());
  REQUIRE(sent < hello.size());
  REQUIRE(Clock::now() - begun < 2s);
}

TEST_CASE("tls: handshakes that are through do not count for handshake-timeout",
          "[tls][handshake]") {
  TlsPair pair({{"handshake-timeout", "50ms"}}, {{"handshake-timeout", "50ms"}});
  bool later = false;
  pair.loop.add_time_event(120ms, [&] {
    later = true;
    return ae::kNoMore;
  });
  RUN_UNTIL(pair.loop, later);
  pair.require_echo(*pair.a, *pair.b);
}

TEST_CASE("tls: an idle loop sleeps while a client hangs", "[tls][handshake]") {
  TlsPair pair;
  const RawSocket silent = RawSocket::connect(testing::address_of(*pair.listener));
  const RawSocket stuck = RawSocket::connect(testing::address_of(*pair.listener));
  stuck.send(std::string_view("\x16\x03\x01\x01\x00\x01", 6));
  RUN_UNTIL(pair.loop, statistic(pair, pair.server, "handshaking") == 2);
  testing::turns(pair.loop, 5);
  testing::IterationCounter counter(pair.loop);
  REQUIRE(counter.during(100ms) <= 5);
}

// --- many handshakes -----------------------------------------------------------------------------

TEST_CASE("tls: max-handshakes hanging clients do not keep an honest one out", "[tls][handshake]") {
  TlsPair pair({{"max-handshakes", "4"}});
  const conn::Endpoint where = testing::address_of(*pair.listener);
  std::vector<RawSocket> hanging;
  for (int i = 0; i < 6; ++i) hanging.push_back(RawSocket::connect(where));
  RUN_UNTIL(pair.loop, statistic(pair, pair.server, "handshaking") == 4);
  testing::turns(pair.loop, 5);
  REQUIRE(statistic(pair, pair.server, "handshaking") == 4);  // and no more
  // An established connection is not delayed by them.
  const auto begun = Clock::now();
  pair.require_echo(*pair.a, *pair.b);
  REQUIRE(Clock::now() - begun < 500ms);

  const ConnectionPtr client = pair.connect(*pair.listener);
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  const ConnectionPtr server = pair.next_accepted();
  pair.require_echo(*client, *server);
  REQUIRE(statistic(pair, pair.server, "handshakes_evicted") >= 3);
  REQUIRE(pair.refused.size() >= 3);
  for (const Failure& why : pair.refused) {
    REQUIRE(why.code == Errc::kTimeout);
    REQUIRE_THAT(why.text, Contains("max-handshakes"));
  }
  REQUIRE(is_over(hanging.front()));
}

TEST_CASE("tls: more clients at once than max-handshakes all get through", "[tls][handshake]") {
  TlsSite site({{"max-handshakes", "2"}});
  const ListenerPtr listener = site.listen();
  std::vector<ConnectionPtr> clients;
  std::size_t done = 0;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(site.start(testing::address_of(*listener), {}, [&](Connection&) { ++done; }));
  }
  RUN_UNTIL(site.loop, done == clients.size() && site.accepted.size() == clients.size());
  for (const ConnectionPtr& client : clients) REQUIRE(client->state() == State::kConnected);
  REQUIRE(site.refused.empty());
}

TEST_CASE("tls: a flood of handshakes leaves established connections their turns",
          "[tls][handshake]") {
  TlsPair pair;
  std::vector<ConnectionPtr> clients;
  std::size_t done = 0;
  for (int i = 0; i < 150; ++i) {
    clients.push_back(
        pair.start(testing::address_of(*pair.listener), {}, [&](Connection&) { ++done; }));
  }
  // b echoes; a sends one request after the other until the flood is over.
  std::size_t rounds = 0;
  pair.b->set_read_handler([](Connection& c) {
    char byte;
    if (c.read(&byte, 1) == 1) c.write(&byte, 1);
  });
  pair.a->set_read_handler([&](Connection& c) {
    char byte;
    if (c.read(&byte, 1) == 1) {
      ++rounds;
      c.write(&byte, 1);
    }
  });
  pair.a->write("x", 1);
  RUN_UNTIL(pair.loop, done == clients.size());
  CAPTURE(rounds);
  REQUIRE(rounds > 20);  // several during a few handshakes; none if they had to wait
}

// --- the accept handler --------------------------------------------------------------------------

TEST_CASE("tls: the accept handler sees connections whose handshake is over, with what came along",
          "[tls][handshake]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({{"max-version", version}});
  std::string seen, got;
  State state = State::kNone;
  ConnectionPtr kept;
  const ListenerPtr listener = site.server.listen(
      site.loop, conn::Endpoint::parse("tls://127.0.0.1:0"), [&](ConnectionPtr one) {
        kept = std::move(one);
        state = kept->state();
        seen = info_of(*kept, "tls");
        kept->set_read_handler([&](Connection& c) {
          char buffer[100];
          const ssize_t n = c.read(buffer, sizeof buffer);
          if (n > 0) got.assign(buffer, static_cast<std::size_t>(n));
        });
      });
  RawContext context = RawContext::client();
  RawTls peer = testing::aside(site.loop, [&] {
    RawTls made(context, RawSocket::connect(testing::address_of(*listener)));
    (void)made.handshake(1000, "first request");
    return made;
  });
  RUN_UNTIL(site.loop, !got.empty());
  REQUIRE(got == "first request");
  REQUIRE(state == State::kConnected);
  REQUIRE(seen == "TLSv" + version);
}

TEST_CASE("tls: a client that has finished its handshake and gone is still handed over",
          "[tls][handshake]") {
  TlsSite site;
  const ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  testing::aside(site.loop, [&] {
    RawTls made(context, RawSocket::connect(testing::address_of(*listener)));
    (void)made.handshake();
    made.take_messages();  // closing a socket with unread bytes sends a reset
    (void)made.send("last words");
    made.close_notify();
  });
  const ConnectionPtr server = site.next_accepted();
  testing::Collector collector(*server);
  RUN_UNTIL(site.loop, collector.over());
  REQUIRE(collector.bytes == "last words");
  REQUIRE(collector.ended);
}

TEST_CASE("tls: a connection that the accept handler drops is closed", "[tls][handshake]") {
  TlsSite site;
  Held held(site);
  {
    const ListenerPtr listener = site.server.listen(
        site.loop, conn::Endpoint::parse("tls://127.0.0.1:0"), [](ConnectionPtr) {});
    const ConnectionPtr client = site.connect(*listener);
    REQUIRE(client->state() == State::kConnected);
    REQUIRE(testing::read_event(site.loop, *client) == "(end)");
  }
  held.require_same();
}

// --- cancellation --------------------------------------------------------------------------------

TEST_CASE("tls: a listener that goes takes its handshakes with it", "[tls][handshake]") {
  TlsSite site;
  Held held(site);
  {
    ListenerPtr listener = site.listen();
    const conn::Endpoint where = testing::address_of(*listener);
    const RawSocket silent = RawSocket::connect(where);
    const RawSocket stuck = RawSocket::connect(where);
    stuck.send(std::string_view("\x16\x03\x01\x01\x00\x01", 6));
    const ConnectionPtr client = site.connect(where);
    REQUIRE(client->state() == State::kConnected);
    const ConnectionPtr server = site.next_accepted();
    RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 2);
    listener.reset();
    LOOK_UNTIL(site.loop, is_over(silent) && is_over(stuck));
    REQUIRE(statistic(site, site.server, "handshaking") == 0);
    REQUIRE(site.refused.empty());  // its listener is gone, so there is no handler to call
    site.require_echo(*client, *server);
  }
  held.require_same();
}

TEST_CASE("tls: a listener may go inside its accept handler and inside its refused handler",
          "[tls][handshake]") {
  TlsSite site;
  Held held(site);
  {
    ListenerPtr listener;
    ConnectionPtr accepted;
    int calls = 0;
    const auto listen = [&] {
      listener = site.server.listen(site.loop, conn::Endpoint::parse("tls://127.0.0.1:0"),
                                    [&](ConnectionPtr one) {
                                      accepted = std::move(one);
                                      ++calls;
                                      listener.reset();
                                    });
      listener->on_refused([&](const Failure& why) {
        listener.reset();
        REQUIRE_FALSE(why.text.empty());  // still valid
        ++calls;
      });
    };
    listen();
    const conn::Endpoint where = testing::address_of(*listener);
    const RawSocket hanging = RawSocket::connect(where);
    const ConnectionPtr client = site.connect(where);
    REQUIRE(client->state() == State::kConnected);
    RUN_UNTIL(site.loop, calls == 1);
    site.require_echo(*client, *accepted);
    LOOK_UNTIL(site.loop, is_over(hanging));

    listen();
    const RawSocket also_hanging = RawSocket::connect(testing::address_of(*listener));
    const RawSocket bad = RawSocket::connect(testing::address_of(*listener));
    bad.send("PING\r\n");
    RUN_UNTIL(site.loop, calls == 2);
    LOOK_UNTIL(site.loop, is_over(also_hanging));
  }
  held.require_same();
}

TEST_CASE("tls: on_refused may be replaced and removed, from inside too", "[tls][handshake]") {
  TlsSite site;
  const ListenerPtr listener = site.listen();
  const conn::Endpoint where = testing::address_of(*listener);
  int first = 0, second = 0;
  listener->on_refused([&](const Failure&) {
    ++first;
    listener->on_refused([&](const Failure&) {
      ++second;
      listener->on_refused(nullptr);
    });
  });
  for (int i = 0; i < 3; ++i) {
    const RawSocket bad = RawSocket::connect(where);
    bad.send("PING\r\n");
    LOOK_UNTIL(site.loop, is_over(bad));
  }
  REQUIRE(first == 1);
  REQUIRE(second == 1);
  REQUIRE(site.refused.empty());
  REQUIRE(statistic(site, site.server, "handshake_failures") == 3);
}

TEST_CASE("tls: a client that its owner closes during the handshake is silent and leaves nothing",
          "[tls][handshake]") {
  TlsSite site;
  Held held(site);
  bool called = false;
  SECTION("before anything has happened") {
    const ListenerPtr listener = site.listen();
    ConnectionPtr client =
        site.start(testing::address_of(*listener), {}, [&](Connection&) { called = true; });
    client.reset();
    testing::turns(site.loop, 10);
  }
  SECTION("while the server is silent") {
    const RawSocket listening = RawSocket::listening();
    ConnectionPtr client =
        site.start(listening.endpoint(), {}, [&](Connection&) { called = true; });
    RUN_UNTIL(site.loop, statistic(site, site.client, "handshaking") == 1);
    const RawSocket peer = listening.accept();
    client.reset();
    LOOK_UNTIL(site.loop, [&] {
      char buffer[4096];  // its ClientHello
      const ssize_t n = ::recv(peer.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno == ECONNRESET);
    }());
    REQUIRE(statistic(site, site.client, "handshaking") == 0);
  }
  SECTION("from its own connect handler, failed") {
    const RawSocket listening = RawSocket::listening();
    ConnectionPtr client;
    client = site.start(listening.endpoint(), {}, [&](Connection&) { client.reset(); });
    testing::aside(site.loop, [&] { listening.accept().send("nonsense\r\n"); });
    RUN_UNTIL(site.loop, client == nullptr);
  }
  SECTION("from its own connect handler, connected") {
    const ListenerPtr listener = site.listen();
    ConnectionPtr client;
    client = site.start(testing::address_of(*listener), {}, [&](Connection&) { client.reset(); });
    RUN_UNTIL(site.loop, client == nullptr);
    const ConnectionPtr server = site.next_accepted();
    REQUIRE(testing::read_event(site.loop, *server) == "(end)");
  }
  site.refused.clear();
  held.require_same();
  REQUIRE_FALSE(called);
}

TEST_CASE("tls: the loop may end while handshakes run", "[tls][handshake]") {
  testing::TempFolder folder;
  const testing::Authority ca(folder);
  const testing::Identity id = ca.issue({.common_name = "server", .names = {"IP:127.0.0.1"}});
  conn::tcp::TcpType tcp;
  conn::tls::TlsType tls(tcp);
  tls.configure({{"cert", id.chain}, {"key", id.key}, {"ca", ca.cert()}});
  ListenerPtr listener;
  ConnectionPtr half, lost;
  const RawSocket mute = RawSocket::listening();
  RawSocket silent;
  bool called = false;
  {
    testing::AnyLoop loop;
    listener = tls.listen(loop, conn::Endpoint::parse("tls://127.0.0.1:0"), [](ConnectionPtr) {});
    silent = RawSocket::connect(testing::address_of(*listener));
    conn::Endpoint to = mute.endpoint();
    to.scheme = "tls";
    half = tls.create(loop);
    half->connect(to, [&](Connection&) { called = true; });
    lost = tls.create(loop);
    lost->connect(to, [&](Connection&) { called = true; });
    testing::turns(loop, 20);
  }
  REQUIRE_FALSE(called);
  REQUIRE(half->state() == State::kError);
  REQUIRE(half->loop() == nullptr);
  REQUIRE(is_over(silent));
  lost.reset();
  listener.reset();
}

// --- blocking ------------------------------------------------------------------------------------

TEST_CASE("tls: a stop that aborts leaves the handshakes of a listener that it was not given",
          "[tls][handshake][stop]") {
  TlsSite site;
  bool ended = false;
  conn::Stop stop(site.loop, {.limit = 1ms, .signals = {}, .ends = [&] { ended = true; }});
  const ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
  SSL_do_handshake(peer.ssl());
  peer.flush();  // the first flight only
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 1);
  stop.request();
  RUN_UNTIL(site.loop, ended);
  CHECK(stop.left().connections == 0);
  REQUIRE(testing::aside(site.loop, [&] { return peer.handshake(); }));
  const ConnectionPtr server = site.next_accepted();
  CHECK(server->state() == State::kConnected);
  REQUIRE(site.refused.empty());
}

TEST_CASE("tls: connect_blocking does the handshake, and says what it could not do",
          "[tls][handshake]") {
  TlsSite site;
  const RawSocket listening = RawSocket::listening();
  RawContext context = RawContext::server(site.identity);
  conn::Endpoint where = listening.endpoint();
  where.scheme = "tls";
  SECTION("good") {
    std::thread server([&] {
      RawTls peer(context, listening.accept());
      if (peer.handshake()) (void)peer.send(peer.receive(4));
    });
    const ConnectionPtr client = site.client.create(site.loop);
    const bool connected = client->connect_blocking(where, 5s);
    char buffer[4] = {};
    const bool echoed = connected && client->sync_write("ping", 4, 5s) == 4 &&
                        client->sync_read(buffer, 4, 5s) == 4;
    server.join();
    INFO(client->last_error());
    REQUIRE(connected);
    REQUIRE(echoed);
    REQUIRE(std::string(buffer, 4) == "ping");
    REQUIRE(statistic(site, site.client, "handshakes") == 1);
    REQUIRE(statistic(site, site.client, "handshake_failures") == 0);
  }
  SECTION("a bad certificate") {
    where.options.set("server-name", "other.example");
    std::thread server([&] {
      RawTls peer(context, listening.accept());
      (void)peer.handshake();
    });
    const ConnectionPtr client = site.client.create(site.loop);
    const bool connected = client->connect_blocking(where, 5s);
    server.join();
    REQUIRE_FALSE(connected);
    REQUIRE(client->error_code() == Errc::kVerification);
    REQUIRE(statistic(site, site.client, "handshakes") == 0);
    REQUIRE(statistic(site, site.client, "handshake_failures") == 1);
    REQUIRE(statistic(site, site.client, "handshake_timeouts") == 0);
  }
  SECTION("nobody listens, so that there is no handshake") {
    where.port = RawSocket::listening().endpoint().port;
    const ConnectionPtr client = site.client.create(site.loop);
    REQUIRE_FALSE(client->connect_blocking(where, 5s));
    REQUIRE(errno == ECONNREFUSED);
    REQUIRE(statistic(site, site.client, "handshake_failures") == 0);
  }
  SECTION("a silent server, by the caller's time") {
    const ConnectionPtr client = site.client.create(site.loop);
    const auto begun = Clock::now();
    REQUIRE_FALSE(client->connect_blocking(where, 100ms));
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(Clock::now() - begun < 3s);
    REQUIRE(client->state() == State::kError);
    REQUIRE(statistic(site, site.client, "handshake_failures") == 1);
    REQUIRE(statistic(site, site.client, "handshake_timeouts") == 1);
  }
}

#endif  // AECONN_TLS
