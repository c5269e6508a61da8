// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: listeners that pause while handshakes run, and how they take a flood of clients.
#if AECONN_TLS

#include <poll.h>

#include <chrono>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"
#include "tests/support/tls_statistic.h"

using conn::ConnectionPtr;
using conn::ListenerPtr;
using conn::State;
using testing::Held;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::statistic;
using testing::TlsSite;
using namespace std::chrono_literals;
using testing::Contains;
using Clock = std::chrono::steady_clock;

TEST_CASE("tls: while a listener pauses, handshakes that are through wait for resume",
          "[tls][handshake]") {
  TlsSite site;
  const ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 1);
  listener->pause();
  listener->pause();
  const bool connected =
      testing::aside(site.loop, [&] { return peer.handshake() && peer.send("hello"); });
  REQUIRE(connected);
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshakes") == 1);
  testing::turns(site.loop, 10);
  REQUIRE(site.accepted.empty());
  // New connections stay in the backlog.
  const RawSocket later = RawSocket::connect(testing::address_of(*listener));
  testing::turns(site.loop, 10);
  REQUIRE(statistic(site, site.server, "handshaking") == 0);
  listener->resume();
  listener->resume();
  REQUIRE(site.accepted.empty());  // handlers are called from the loop only
  const ConnectionPtr server = site.next_accepted();
  REQUIRE(testing::receive(site.loop, *server, 5) == "hello");
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 1);
}

TEST_CASE("tls: a listener that was full and paused goes on when it may", "[tls][handshake]") {
  TlsSite site({{"max-handshakes", "1"}});
  const ListenerPtr listener = site.listen();
  std::optional<RawSocket> hanging(RawSocket::connect(testing::address_of(*listener)));
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 1);
  listener->pause();
  hanging.reset();  // a place is free, but the listener is paused
  (void)site.next_refused();
  ConnectionPtr client = site.start(testing::address_of(*listener));
  testing::turns(site.loop, 20);
  REQUIRE(statistic(site, site.server, "handshakes") == 0);
  listener->resume();
  (void)site.next_accepted();
  RUN_UNTIL(site.loop, client->state() == State::kConnected);
}

TEST_CASE("tls: the time of a handshake that is over does not count for the next",
          "[tls][handshake]") {
  TlsSite site({{"max-handshakes", "1"}});
  const ListenerPtr listener = site.listen();
  const conn::Endpoint where = testing::address_of(*listener);
  std::optional<RawSocket> first(RawSocket::connect(where));
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 1);
  // The second begins when a good part of the first one's second is over.
  bool later = false;
  site.loop.add_time_event(300ms, [&] {
    later = true;
    return ae::kNoMore;
  });
  RUN_UNTIL(site.loop, later);
  first.reset();
  (void)site.next_refused();
  const RawSocket second = RawSocket::connect(where);
  const auto begun = Clock::now();
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 1);
  const RawSocket third = RawSocket::connect(where);
  REQUIRE_THAT(site.next_refused().text, Contains("max-handshakes"));
  REQUIRE(Clock::now() - begun >= 1s);
  // Now the third one hangs, which takes no CPU time.
  testing::IterationCounter counter(site.loop);
  REQUIRE(counter.during(100ms) <= 10);
}

TEST_CASE("tls: a handshake that hangs does not hold up the loop's end", "[tls][handshake]") {
  const auto begun = Clock::now();
  {
    const RawSocket listening = RawSocket::listening();
    ConnectionPtr client;  // outlives its loop
    TlsSite site({}, {{"linger", "20s"}, {"end-linger", "20s"}});
    client = site.start(listening.endpoint());
    const RawSocket accepted = testing::aside(site.loop, [&] { return listening.accept(); });
    pollfd hello{accepted.fd(), POLLIN, 0};
    LOOK_UNTIL(site.loop, ::poll(&hello, 1, 0) == 1);
  }
  REQUIRE(Clock::now() - begun < 10s);
}

TEST_CASE("tls: connections that waited for resume may be lost meanwhile", "[tls][handshake]") {
  TlsSite site;
  Held held(site);
  {
    ListenerPtr listener = site.listen();
    RawContext context = RawContext::client();
    std::optional<RawTls> peer;
    peer.emplace(context, RawSocket::connect(testing::address_of(*listener)));
    RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 1);
    listener->pause();
    testing::aside(site.loop, [&] { (void)peer->handshake(); });
    RUN_UNTIL(site.loop, statistic(site, site.server, "handshakes") == 1);
    SECTION("the peer goes") {
      peer->socket().reset();
      testing::turns(site.loop, 5);
      listener->resume();
      const ConnectionPtr server = site.next_accepted();
      REQUIRE_THAT(testing::read_event(site.loop, *server), Contains("error"));
    }
    SECTION("the listener goes") {
      listener.reset();
      const RawSocket& socket = peer->socket();
      pollfd end{socket.fd(), POLLRDHUP, 0};
      LOOK_UNTIL(site.loop, ::poll(&end, 1, 0) == 1);
    }
  }
  held.require_same();
}

TEST_CASE("tls: a flood of arrivals is taken by eight, and may be paused", "[tls][handshake]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  std::vector<RawSocket> clients;
  for (int i = 0; i < 40; ++i)
    clients.push_back(RawSocket::connect(testing::address_of(*listener)));
  const auto begun = [&] {
    for (const auto& [key, value] : site.server.statistics(site.loop))
      if (key == "handshaking") return value;
    return std::uint64_t{0};
  };
  const auto after_iteration = [&] {
    testing::turns(site.loop, 1);
    return begun();
  };
  // Fewer than eight where those have taken all the time of an iteration.
  std::uint64_t before = 0;
  const auto takes_some = [&] {
    const std::uint64_t now = after_iteration();
    REQUIRE(now > before);
    REQUIRE(now <= before + 8);
    before = now;
  };
  takes_some();
  takes_some();
  listener->pause();
  REQUIRE(after_iteration() == before);
  listener->resume();
  takes_some();
  RUN_UNTIL(site.loop, begun() == 40);
  REQUIRE(site.refused.empty());
}

#endif  // AECONN_TLS
