// SPDX-License-Identifier: BSD-3-Clause
// conn/tcp: listeners with option proxy-protocol, over real sockets of tcp and unix.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "conn/core/transport.h"
#include "conn/error.h"
#include "conn/kit/proxy_header.h"
#include "conn/tcp/awaited_headers.h"
#include "conn/tcp/trusted_senders.h"
#include "tests/support/catch.h"
#include "tests/support/forked.h"
#include "tests/support/group_kit.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::SocketAddress;
using conn::tcp::TrustedSenders;
using testing::Contains;
using testing::RawSocket;
using testing::Site;
using namespace std::chrono_literals;
using namespace std::string_literals;

namespace {

const testing::Transport kTcp{.name = "tcp"};
const std::string kV1 = "PROXY TCP4 203.0.113.7 198.51.100.1 40112 6379\r\n";
const std::string kClient = "203.0.113.7:40112";

SocketAddress address(const std::string& host) {
  SocketAddress made;
  REQUIRE(conn::numeric_address(host, 1, made));
  return made;
}

/// A listener with the options, and what it has accepted and refused.
struct Place : Site {
  explicit Place(const std::string& options, const std::string& at = "tcp://127.0.0.1:0")
      : Site(testing::Transport{.name = at.substr(0, at.find(':'))}) {
    auto where = conn::Endpoint::parse(at);
    where.options = conn::Options::parse(options);
    listener =
        type.listen(loop, where, [this](ConnectionPtr c) { accepted.push_back(std::move(c)); });
    listener->on_refused([this](const conn::Failure& why) { refused.push_back(why); });
  }
  RawSocket connect() const { return RawSocket::connect(testing::address_of(*listener)); }
  std::uint64_t errors() { return type.counters(loop).accept_errors; }

  std::vector<ConnectionPtr> accepted;
  std::vector<conn::Failure> refused;
  conn::ListenerPtr listener;
};

/// The peer of `socket` sees its end, or a reset.
bool is_closed(const RawSocket& socket) {
  char byte;
  return ::recv(socket.fd(), &byte, 1, 0) <= 0;
}

std::string fact(const conn::Connection& connection, std::string_view name) {
  for (const auto& [key, value] : connection.info())
    if (key == name) return value;
  return "(none)";
}

}  // namespace

TEST_CASE("proxy protocol: a trusted sender's header gives the client", "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=10.9.0.0/16,127.0.0.0/8");
  const RawSocket proxy = place.connect();
  const auto version = GENERATE(conn::ProxyVersion::kV1, conn::ProxyVersion::kV2);
  const std::string client = GENERATE("203.0.113.7", "2001:db8::7");
  SocketAddress from = address(client);
  from.set_port(40112);
  // Header and request in one segment.
  proxy.send(conn::proxy_header(version, from, address("198.51.100.1")) + "PING");
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  const conn::Connection& server = *place.accepted[0];
  CHECK(server.peer_address() == from.to_string());
  CHECK(server.peer_host_port().host == client);
  CHECK(server.path().find(from.to_string()) != std::string::npos);
  CHECK(fact(server, "proxy").find("127.0.0.1:") == 0);
  // The client may be on the proxy's machine, whichever its address is.
  CHECK_FALSE(server.is_local().has_value());
  CHECK(testing::receive(place.loop, *place.accepted[0], 4) == "PING");
  testing::send(place.loop, *place.accepted[0], "PONG");
  CHECK(proxy.receive(4) == "PONG");
  CHECK(place.refused.empty());
  CHECK(place.errors() == 0);
}

TEST_CASE("proxy protocol: a header without an address leaves that of the socket",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  const std::string signature = "\r\n\r\n\0\r\nQUIT\n"s;
  const std::string header =
      GENERATE_COPY("PROXY UNKNOWN\r\n"s, signature + "\x20\x00\x00\x00"s,  // LOCAL
                    signature + "\x21\x00\x00\x02TL"s);
  const RawSocket proxy = place.connect();
  proxy.send(header + "x");
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  CHECK(place.accepted[0]->peer_address() == "127.0.0.1:" + std::to_string(proxy.endpoint().port));
  CHECK(place.accepted[0]->is_local() == true);
  CHECK(fact(*place.accepted[0], "proxy") == "(none)");
  CHECK(testing::receive(place.loop, *place.accepted[0], 1) == "x");
}

TEST_CASE("proxy protocol: nothing that another sender sends is taken for a header",
          "[tcp][proxy-protocol]") {
  const std::string options = GENERATE("", "proxy-protocol=no", "proxy-protocol=10.0.0.0/8",
                                       "proxy-protocol=127.0.0.2/31,::1");
  Place place(options);
  const RawSocket sender = place.connect();
  sender.send(kV1);
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  CHECK(place.accepted[0]->peer_address() == "127.0.0.1:" + std::to_string(sender.endpoint().port));
  CHECK(testing::receive(place.loop, *place.accepted[0], kV1.size()) == kV1);
}

TEST_CASE("proxy protocol: IPv6 senders", "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=::1", "tcp://127.0.0.1,-[::1]:0");
  if (place.listener->endpoints().size() == 1) {
    WARN("this machine has no IPv6");
    return;
  }
  const RawSocket trusted = RawSocket::connect(place.listener->endpoints()[1]);
  const RawSocket other = place.connect();
  trusted.send(kV1);
  RUN_UNTIL(place.loop, place.accepted.size() == 2);
  std::vector<std::string> peers{place.accepted[0]->peer_address(),
                                 place.accepted[1]->peer_address()};
  std::sort(peers.begin(), peers.end());
  CHECK(peers[0].find("127.0.0.1:") == 0);
  CHECK(peers[1] == kClient);
}

TEST_CASE("proxy protocol: a slow header is awaited, and nobody waits for it",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  const RawSocket slow = place.connect();
  for (const char each : kV1.substr(0, kV1.size() - 1)) {
    slow.send({&each, 1});
    testing::turns(place.loop, 2);
  }
  CHECK(place.accepted.empty());
  testing::IterationCounter iterations(place.loop);
  CHECK(iterations.during(30ms) <= 2);  // part of a header does not keep the loop awake
  const RawSocket fast = place.connect();
  fast.send(kV1);
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  slow.send("\nrest");
  RUN_UNTIL(place.loop, place.accepted.size() == 2);
  CHECK(place.accepted[1]->peer_address() == kClient);
  CHECK(testing::receive(place.loop, *place.accepted[1], 4) == "rest");
}

TEST_CASE("proxy protocol: a long header of version 2 is skipped to its last byte",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  std::string header = "\r\n\r\n\0\r\nQUIT\n\x20\x00\x0f\xf0"s + std::string(0x0ff0, 't');
  REQUIRE(header.size() == conn::ProxyHeaderReader::kMost);
  const RawSocket proxy = place.connect();
  proxy.send(header + "first");
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  CHECK(testing::receive(place.loop, *place.accepted[0], 5) == "first");
}

TEST_CASE("proxy protocol: what is no header closes that connection, with a sentence",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  const auto [bytes, sentence] = GENERATE(table<std::string, std::string>(
      {{"PING\r\n", "its PROXY protocol header is missing: the first bytes are others"},
       {"PROXY TCP4 nonsense\r\n", "must have two addresses"},
       {"PROXY UNKNOWN" + std::string(200, 'x'), "is longer than 107 bytes"},
       {"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff"s, "is longer than 4096 bytes"}}));
  const RawSocket sender = place.connect();
  sender.send(bytes);
  RUN_UNTIL(place.loop, place.refused.size() == 1);
  CHECK_THAT(place.refused[0].text, Contains(sentence));
  CHECK(place.refused[0].text.find("127.0.0.1:" + std::to_string(sender.endpoint().port)) == 0);
  CHECK(place.refused[0].code == std::errc::protocol_error);
  CHECK(is_closed(sender));
  CHECK(place.errors() == 1);
  CHECK(place.accepted.empty());
  const RawSocket next = place.connect();
  next.send(kV1);
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
}

TEST_CASE("proxy protocol: a sender that closes within its header is refused",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  const std::string part = GENERATE("", "PROXY TCP4 1");
  RawSocket sender = place.connect();
  sender.send(part);
  testing::turns(place.loop, 3);
  sender.close();
  RUN_UNTIL(place.loop, place.refused.size() == 1);
  CHECK_THAT(place.refused[0].text, Contains("is incomplete: the connection was closed"));
  RawSocket another = place.connect();
  testing::turns(place.loop, 3);
  another.reset();
  RUN_UNTIL(place.loop, place.refused.size() == 2);
  CHECK_THAT(place.refused[1].text, Contains("cannot be read"));
  CHECK(place.accepted.empty());
}

TEST_CASE("proxy protocol: a header and the end of the stream together", "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  const RawSocket sender = place.connect();
  sender.send(kV1 + "all");
  sender.half_close();
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  testing::Collector got(*place.accepted[0]);
  RUN_UNTIL(place.loop, got.ended);
  CHECK(got.bytes == "all");
}

TEST_CASE("proxy protocol: no more than backlog connections wait for headers",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1&backlog=2");
  const RawSocket oldest = place.connect();
  testing::turns(place.loop, 3);
  const RawSocket second = place.connect();
  testing::turns(place.loop, 3);
  CHECK(place.refused.empty());
  const RawSocket third = place.connect();
  RUN_UNTIL(place.loop, place.refused.size() == 1);
  CHECK(place.refused[0].text.find("127.0.0.1:" + std::to_string(oldest.endpoint().port)) == 0);
  CHECK_THAT(place.refused[0].text, Contains("option backlog"));
  CHECK(is_closed(oldest));
  second.send(kV1);
  third.send(kV1);
  RUN_UNTIL(place.loop, place.accepted.size() == 2);
}

TEST_CASE("proxy protocol: max-connections counts clients, and its refusal names them",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1&max-connections=1");
  const RawSocket one = place.connect(), two = place.connect();
  one.send(kV1);
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  two.send("PROXY TCP4 203.0.113.8 198.51.100.1 1 2\r\n");
  RUN_UNTIL(place.loop, place.refused.size() == 1);
  CHECK(place.refused[0].text.find("203.0.113.8:1: 1 connections are open") == 0);
  CHECK(is_closed(two));
}

TEST_CASE("proxy protocol: headers stay in their sockets while the listener is paused",
          "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  const RawSocket sender = place.connect();
  testing::turns(place.loop, 3);
  place.listener->pause();
  sender.send(kV1);
  testing::IterationCounter iterations(place.loop);
  CHECK(iterations.during(30ms) <= 2);
  CHECK(place.accepted.empty());
  place.listener->resume();
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
}

TEST_CASE("proxy protocol: handlers may destroy the listener", "[tcp][proxy-protocol]") {
  Place place("proxy-protocol=127.0.0.1");
  const RawSocket waits = place.connect(), bad = place.connect();
  SECTION("told of a refusal") {
    place.listener->on_refused([&](const conn::Failure&) { place.listener.reset(); });
    bad.send("nonsense");
    RUN_UNTIL(place.loop, place.listener == nullptr);
  }
  SECTION("in the accept handler") {
    auto where = conn::Endpoint::parse("tcp://127.0.0.1:0?proxy-protocol=127.0.0.1");
    conn::ListenerPtr other;
    other = place.type.listen(place.loop, where, [&](ConnectionPtr) { other.reset(); });
    const RawSocket third = RawSocket::connect(testing::address_of(*other));
    testing::turns(place.loop, 3);
    third.send(kV1);
    RUN_UNTIL(place.loop, other == nullptr);
    CHECK(is_closed(third));
    place.listener.reset();
  }
  testing::turns(place.loop, 3);
  CHECK(is_closed(waits));
}

TEST_CASE("proxy protocol: a handler that throws loses its connection and nothing else",
          "[tcp][proxy-protocol]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  bool first = true;
  const auto listener = site.type.listen(
      site.loop, conn::Endpoint::parse("tcp://127.0.0.1:0?proxy-protocol=127.0.0.1"),
      [&](ConnectionPtr c) {
        if (std::exchange(first, false)) throw std::runtime_error("host");
        accepted.push_back(std::move(c));
      });
  const RawSocket one = RawSocket::connect(testing::address_of(*listener));
  const RawSocket two = RawSocket::connect(testing::address_of(*listener));
  testing::turns(site.loop, 3);
  one.send(kV1);
  REQUIRE_THROWS_WITH([&] { RUN_UNTIL(site.loop, accepted.size() == 1); }(), "host");
  two.send(kV1);
  RUN_UNTIL(site.loop, accepted.size() == 1);
  CHECK(is_closed(one));
}

// --- time ----------------------------------------------------------------------------------------

namespace {

/// Keeps what AwaitedHeaders hands over, with a time-out that a test can wait for.
struct Waiters final : conn::tcp::AwaitedHeaders::Owner {
  void header_arrived(conn::tcp::Accepted socket) override { arrived.push_back(std::move(socket)); }
  void header_failed(const conn::Failure& why) override {
    failed.push_back(why);
    if (stop_when_told) headers.clear();
  }
  void header_lost() noexcept override {}
  bool busy() const noexcept override { return is_busy; }

  RawSocket add() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    headers.add({conn::tcp::Fd(fds[1]), {}});
    return RawSocket(fds[0]);
  }

  testing::AnyLoop loop;
  std::vector<conn::tcp::Accepted> arrived;
  std::vector<conn::Failure> failed;
  bool is_busy = false, stop_when_told = false;
  conn::tcp::AwaitedHeaders headers{*this, 100, 20ms};
};

}  // namespace

TEST_CASE("proxy protocol: a header that never comes closes its connection in time",
          "[tcp][proxy-protocol]") {
  STATIC_REQUIRE(conn::tcp::AwaitedHeaders::kTimeout == 10s);  // docs/limits.md says so
  Waiters waiters;
  waiters.headers.watch(waiters.loop);
  const RawSocket one = waiters.add(), two = waiters.add();
  SECTION("each for itself") {
    RUN_UNTIL(waiters.loop, waiters.failed.size() == 2);
    CHECK(waiters.failed[0].text == "a client: its PROXY protocol header has not arrived in time");
    CHECK(waiters.failed[0].code == std::errc::timed_out);
    CHECK(is_closed(one));
    const RawSocket three = waiters.add();
    RUN_UNTIL(waiters.loop, waiters.failed.size() == 3);
  }
  SECTION("a handler that is told of the first may stop the listener") {
    waiters.stop_when_told = true;
    RUN_UNTIL(waiters.loop, waiters.failed.size() == 1);
    testing::turns(waiters.loop, 3);
    CHECK(waiters.failed.size() == 1);
    CHECK(is_closed(two));
  }
  SECTION("no function is called while a handler runs") {
    waiters.is_busy = true;
    two.send(kV1);
    const auto until = std::chrono::steady_clock::now() + 60ms;
    RUN_UNTIL(waiters.loop, std::chrono::steady_clock::now() >= until);
    CHECK(waiters.failed.empty());
    CHECK(waiters.arrived.empty());
    waiters.is_busy = false;
    RUN_UNTIL(waiters.loop, waiters.failed.size() == 1 && waiters.arrived.size() == 1);
  }
  SECTION("a header that has arrived is read, however late the loop is") {
    waiters.headers.unwatch();
    two.send(kV1);
    std::this_thread::sleep_for(30ms);  // both deadlines pass
    waiters.headers.watch(waiters.loop);
    RUN_UNTIL(waiters.loop, waiters.failed.size() == 1 && waiters.arrived.size() == 1);
    CHECK(waiters.arrived[0].client.to_string() == kClient);
  }
}

TEST_CASE("proxy protocol: a header that is awaited at fork() is left to the parent",
          "[tcp][proxy-protocol]") {
  const std::string then = GENERATE("it has arrived", "it is late", "others come");
  CAPTURE(then);
  Waiters waiters;
  waiters.headers.watch(waiters.loop);
  const RawSocket proxy = waiters.add();
  if (then == "it has arrived") proxy.send(kV1);
  const int status = testing::forked([&] {
    waiters.loop.after_fork();
    std::vector<RawSocket> others;
    while (then == "others come" && others.size() < 100) others.push_back(waiters.add());
    if (then == "it has arrived") testing::turns(waiters.loop, 5);
    if (then == "it is late") {
      bool later = false;
      waiters.loop.add_time_event(40ms, [&] { return later = true, ae::kNoMore; });
      while (!later) waiters.loop.process_events(ae::kFullIteration);
    }
    return waiters.failed.empty() && waiters.arrived.empty() ? 0 : 1;
  });
  CHECK(status == 0);
  if (then != "it has arrived") proxy.send(kV1);
  RUN_UNTIL(waiters.loop, !waiters.failed.empty() || !waiters.arrived.empty());
  REQUIRE(waiters.failed.empty());
  CHECK(waiters.arrived[0].client.to_string() == kClient);
}

// --- unix, several loops, TLS --------------------------------------------------------------------

TEST_CASE("proxy protocol: unix trusts whoever can connect", "[unix][proxy-protocol]") {
  testing::TempFolder folder;
  Place place("proxy-protocol=yes", "unix://" + folder.path() + "/s");
  const RawSocket proxy = place.connect(), unknown = place.connect(), other = place.connect();
  proxy.send(kV1 + "x");
  RUN_UNTIL(place.loop, place.accepted.size() == 1);
  CHECK(place.accepted[0]->peer_address() == kClient);
  CHECK(fact(*place.accepted[0], "proxy") == folder.path() + "/s");
  CHECK_FALSE(place.accepted[0]->peer_credentials().has_value());  // they are the proxy's
  CHECK(testing::receive(place.loop, *place.accepted[0], 1) == "x");
  unknown.send("PROXY UNKNOWN\r\n");
  RUN_UNTIL(place.loop, place.accepted.size() == 2);
  CHECK(place.accepted[1]->peer_address() == folder.path() + "/s");
  other.send("nonsense");
  RUN_UNTIL(place.loop, place.refused.size() == 1);
  CHECK_THAT(place.refused[0].text, Contains("header is missing"));
}

TEST_CASE("proxy protocol: a port of several loops reads headers, too", "[group][proxy-protocol]") {
  Site site(kTcp);
  testing::GroupServer server(
      site.registry, conn::Endpoint::parse("tcp://127.0.0.1:0?proxy-protocol=127.0.0.1"), 2);
  std::atomic<int> refused{0};
  server.listener->on_refused([&](const conn::Failure& why) {
    if (why.text.find("header is missing") != std::string::npos) ++refused;
  });
  const RawSocket one = RawSocket::connect(server.address()),
                  two = RawSocket::connect(server.address()),
                  bad = RawSocket::connect(server.address());
  one.send(kV1 + "one");
  CHECK(one.receive(3) == "one");
  two.send(kV1 + "two");
  CHECK(two.receive(3) == "two");
  CHECK(server.open() == std::vector<std::uint64_t>{1, 1});
  bad.send("nonsense");
  testing::watch_until(
      site.loop, [&] { return refused == 1; }, "refused == 1");
  CHECK(is_closed(bad));
}

TEST_CASE("proxy protocol: a port that moves to another loop takes along who waits",
          "[tcp][proxy-protocol]") {
  Site site(kTcp);
  testing::AnyLoop other;
  std::vector<conn::PendingConnectionPtr> arrived;
  const auto port = conn::Transport::of(site.type).open_port(
      site.loop, conn::Endpoint::parse("tcp://127.0.0.1:0?proxy-protocol=127.0.0.1"),
      [&](conn::PendingConnectionPtr next) { arrived.push_back(std::move(next)); });
  const RawSocket proxy = RawSocket::connect(testing::address_of(*port));
  testing::turns(site.loop, 3);
  REQUIRE(port->leave(nullptr));
  proxy.send(kV1);
  testing::turns(site.loop, 3);
  CHECK(arrived.empty());
  port->arrive(other);
  RUN_UNTIL(other, arrived.size() == 1);
  CHECK(arrived[0]->peer() == kClient);
}

#if AECONN_TLS
TEST_CASE("proxy protocol: the header comes before TLS", "[tls][proxy-protocol]") {
  testing::TlsSite site;
  const conn::ListenerPtr listener = site.listen({{"proxy-protocol", "127.0.0.1"}});
  // A proxy that sends the header, and then the bytes of a client that speaks TLS.
  const RawSocket door = RawSocket::listening();
  const ConnectionPtr client = site.start(door.endpoint());
  testing::turns(site.loop, 5);
  const RawSocket from_client = door.accept();
  RawSocket to_server = RawSocket::connect(testing::address_of(*listener));
  to_server.send(kV1);
  const auto pass = [](const RawSocket& from, const RawSocket& to) {
    char bytes[4096];
    const ssize_t n = ::recv(from.fd(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0) to.send({bytes, static_cast<std::size_t>(n)});
  };
  RUN_UNTIL(site.loop, (pass(from_client, to_server), pass(to_server, from_client),
                        client->state() != conn::State::kConnecting && !site.accepted.empty()));
  INFO(client->last_error());
  REQUIRE(client->state() == conn::State::kConnected);
  CHECK(site.accepted[0]->peer_address() == kClient);
  CHECK(testing::info_of(*site.accepted[0], "proxy").find("127.0.0.1:") == 0);
  const RawSocket bare = RawSocket::connect(testing::address_of(*listener));
  bare.send("\x16\x03\x01 TLS at once");
  CHECK_THAT(site.next_refused().text, Contains("its PROXY protocol header is missing"));
}
#endif

// --- the option ----------------------------------------------------------------------------------

TEST_CASE("proxy protocol: the list of trusted senders", "[tcp][proxy-protocol]") {
  const TrustedSenders some =
      TrustedSenders::parse("10.0.0.1,10.1.0.0/16,192.0.2.128/25,fd00::/8,2001:db8::1");
  for (const char* each : {"10.0.0.1", "10.1.0.0", "10.1.255.255", "192.0.2.255", "fd12::1",
                           "2001:db8::1", "::ffff:10.0.0.1"})
    CHECK(some.has(address(each)));
  for (const char* each :
       {"10.0.0.2", "10.2.0.0", "192.0.2.127", "fc00::1", "2001:db8::2", "::10.0.0.1", "127.0.0.1"})
    CHECK_FALSE(some.has(address(each)));
  CHECK_FALSE(some.has({}));
  const TrustedSenders four = TrustedSenders::parse("0.0.0.0/0");
  CHECK(four.has(address("203.0.113.7")));
  CHECK_FALSE(four.has(address("fd00::1")));
  CHECK(TrustedSenders::parse("::/0").has(address("203.0.113.7")));
  CHECK_FALSE(TrustedSenders().has(address("127.0.0.1")));
  CHECK(TrustedSenders::everybody().has({}));
}

TEST_CASE("proxy protocol: a wrong value is one sentence", "[tcp][proxy-protocol]") {
  const auto says = [](const std::string& value, const std::string& what) {
    INFO(value);
    CHECK_THROWS_WITH(TrustedSenders::parse(value), Contains(what));
  };
  for (const char* each : {"", "yes", "10.0.0.1,", ",10.0.0.1", "host", "10.0.0.1 10.0.0.2",
                           "fe80::1%lo", "10.0.0", "*"})
    says(each, "must name the trusted senders");
  for (const char* each : {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x"})
    says(each, "a network has 0 to 32 bits");
  says("fd00::/129", "a network has 0 to 128 bits");
  says("10.0.0.1/8", "has more bits than the network");
  Site site(kTcp);
  CHECK_THROWS_WITH(
      site.type.listen(site.loop, conn::Endpoint::parse("tcp://127.0.0.1:0?proxy-protocol=yes"),
                       [](ConnectionPtr) {}),
      Contains("proxy-protocol"));
}
