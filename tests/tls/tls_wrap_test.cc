// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: TLS started on an existing connection (STARTTLS).
#if AECONN_TLS

#include <sys/socket.h>

#include <array>
#include <cstring>
#include <span>

#include "conn/error.h"
#include "conn/registry.h"
#include "conn/stop.h"
#include "conn/tcp/unix_type.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"
#include "tests/support/tls_statistic.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::State;
using conn::tls::Errc;
using conn::tls::Role;
using testing::Contains;
using testing::Held;
using testing::info_of;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::statistic;
using testing::TlsSite;
using namespace std::chrono_literals;

namespace {

/// Two ends of a plain tcp connection.
struct PlainPair : TlsSite {
  explicit PlainPair(const std::string& options = "") {
    listener = tcp.listen(loop, Endpoint::parse("tcp://127.0.0.1:0" + options),
                          [this](ConnectionPtr one) { b = std::move(one); });
    a = tcp.create(loop);
    Endpoint to = testing::address_of(*listener);
    to.options = Endpoint::parse("tcp://127.0.0.1:1" + options).options;
    a->connect(to, {});
    RUN_UNTIL(loop, b != nullptr && a->state() == State::kConnected);
  }
  conn::ListenerPtr listener;
  ConnectionPtr a, b;
};

}  // namespace

TEST_CASE("tls: an established tcp connection becomes a TLS one, in both roles", "[tls][wrap]") {
  PlainPair site;
  testing::send(site.loop, *site.a, "STARTTLS\r\n");
  REQUIRE(testing::receive(site.loop, *site.b, 10) == "STARTTLS\r\n");
  testing::send(site.loop, *site.b, "+OK\r\n");
  REQUIRE(testing::receive(site.loop, *site.a, 5) == "+OK\r\n");
  const std::string peer = site.a->peer_address();
  int client_calls = 0, server_calls = 0;
  const ConnectionPtr server =
      site.server.wrap(std::move(site.b), Role::kServer, "", [&](Connection&) { ++server_calls; });
  const ConnectionPtr client = site.client.wrap(std::move(site.a), Role::kClient, "localhost",
                                                [&](Connection&) { ++client_calls; });
  REQUIRE(client_calls + server_calls == 0);  // handlers are called from the loop
  REQUIRE(client->state() == State::kConnecting);
  REQUIRE(server->state() == State::kAccepting);
  RUN_UNTIL(site.loop, client_calls == 1 && server_calls == 1);
  INFO(client->last_error() << server->last_error());
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(server->state() == State::kConnected);
  REQUIRE(&client->type() == &site.client);
  REQUIRE(client->peer_address() == peer);
  REQUIRE(info_of(*server, "server-name") == "localhost");
  REQUIRE(client->peer_user() == "server");
  site.require_echo(*client, *server);
  REQUIRE(client_calls == 1);
  REQUIRE(server_calls == 1);
}

/// A plain connection from a client whose ClientHello is made but not sent.
struct EarlyClient : TlsSite {
  EarlyClient() : peer(context, RawSocket::connect(testing::address_of(*listener))) {
    SSL_do_handshake(peer.ssl());
  }
  /// Sends `before` and the ClientHello, and waits for the connection that it comes from.
  void send_after(const std::string& before) {
    peer.socket().send(before + peer.take_outgoing());
    RUN_UNTIL(loop, plain != nullptr);
  }
  ConnectionPtr wrapped() {
    bool done = false;
    ConnectionPtr made =
        server.wrap(std::move(plain), Role::kServer, "", [&](Connection&) { done = true; });
    REQUIRE(testing::aside(loop, [&] { return peer.handshake(); }));
    RUN_UNTIL(loop, done);
    REQUIRE(made->state() == State::kConnected);
    return made;
  }
  ConnectionPtr plain;
  conn::ListenerPtr listener = tcp.listen(loop, Endpoint::parse("tcp://127.0.0.1:0"),
                                          [this](ConnectionPtr one) { plain = std::move(one); });
  RawContext context = RawContext::client();
  RawTls peer;
};

TEST_CASE("tls: a handshake that comes right behind the last plain byte is not lost",
          "[tls][wrap]") {
  EarlyClient site;
  site.send_after("STARTTLS\r\n");
  REQUIRE(testing::receive(site.loop, *site.plain, 10) == "STARTTLS\r\n");
  (void)site.wrapped();
}

TEST_CASE("tls: bytes that were peeked at are the beginning of the handshake", "[tls][wrap]") {
  EarlyClient site;
  site.send_after("");
  RUN_UNTIL(site.loop, site.plain->peek(100).size >= 100);  // all of it is read ahead
  const std::uint64_t id = site.plain->id();
  const ConnectionPtr server = site.wrapped();
  REQUIRE(server->id() != id);
  REQUIRE(site.tcp.counters(site.loop).bytes_read > 100);
}

TEST_CASE("tls: a stop that aborts fails a wrapped connection whose handshake runs",
          "[tls][wrap][stop]") {
  EarlyClient site;
  bool ended = false;
  conn::Stop stop(site.loop, {.limit = 1ms, .signals = {}, .ends = [&] { ended = true; }});
  site.send_after("");
  int calls = 0;
  const bool has_handler = GENERATE(false, true);
  Connection::Handler done;
  if (has_handler) done = [&](Connection&) { ++calls; };
  const ConnectionPtr server =
      site.server.wrap(std::move(site.plain), Role::kServer, "", std::move(done));
  stop.request();
  RUN_UNTIL(site.loop, ended);
  CHECK(stop.left().connections == 1);
  CHECK(server->state() == State::kError);
  RUN_UNTIL(site.loop, calls == has_handler);
  (void)testing::aside(site.loop, [&] { return site.peer.handshake(); });
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 0);
  CHECK(statistic(site, site.server, "handshake_failures") == 1);
  CHECK(server->state() == State::kError);
  CHECK(server->last_error() == "the server was stopped before the connection ended");
  testing::turns(site.loop, 5);
  CHECK(calls == has_handler);
}

TEST_CASE("tls: wrap() takes no connection whose output waits above the transport", "[tls][wrap]") {
  // The kernel's buffers of both ends together hold much less than what is sent.
  PlainPair site("?send-buffer=4k&receive-buffer=4k");
  const std::string bytes(1 << 20, 'x');
  const bool by_reference = GENERATE(false, true);
  bool released = false;
  if (by_reference) {
    const auto release = [](void* flag, std::error_code error) noexcept {
      *static_cast<bool*>(flag) = !error;
    };
    REQUIRE(site.a->send({std::as_bytes(std::span(bytes)), release, &released, nullptr}) > 0);
  } else {
    const std::span<std::byte> room = site.a->reserve(conn::kMaxContiguous);
    REQUIRE(room.size() >= conn::kMaxContiguous);
    std::memcpy(room.data(), bytes.data(), conn::kMaxContiguous);
    site.a->commit(conn::kMaxContiguous);
  }
  REQUIRE_THROWS_WITH(
      site.client.wrap(std::move(site.a), Role::kClient, "localhost", [](Connection&) {}),
      Contains("output"));
  testing::Collector rest(*site.b);  // it is closed, which delivers all
  RUN_UNTIL(site.loop, rest.over());
  REQUIRE(rest.ended);
  REQUIRE(rest.bytes == bytes.substr(0, by_reference ? bytes.size() : conn::kMaxContiguous));
  LOOK_UNTIL(site.loop, released == by_reference);
}

TEST_CASE("tls: output that was committed and sent before wrap() goes first", "[tls][wrap]") {
  PlainPair site;
  bool released = false;
  const auto release = [](void* flag, std::error_code error) noexcept {
    *static_cast<bool*>(flag) = !error;
  };
  std::memcpy(site.a->reserve(4).data(), "STAR", 4);
  site.a->commit(4);
  const std::string rest = "TTLS\r\n";
  REQUIRE(site.a->send({std::as_bytes(std::span(rest)), release, &released, nullptr}) == 6);
  const ConnectionPtr client =
      site.client.wrap(std::move(site.a), Role::kClient, "localhost", [](Connection&) {});
  REQUIRE(testing::receive(site.loop, *site.b, 10) == "STARTTLS\r\n");
  RUN_UNTIL(site.loop, released);
  const ConnectionPtr server =
      site.server.wrap(std::move(site.b), Role::kServer, "", [](Connection&) {});
  RUN_UNTIL(site.loop, client->state() == State::kConnected);
  RUN_UNTIL(site.loop, server->state() == State::kConnected);
  site.require_echo(*client, *server);
}

TEST_CASE("tls: a list of schemes may be below TLS", "[tls][fallback]") {
  TlsSite site;
  conn::Registry registry;
  conn::ConnectionType& tcp = registry.add(std::make_unique<conn::tcp::TcpType>());
  registry.add_unavailable("rdma", "not here");
  conn::ConnectionType& list = registry.require("rdma|tcp");
  conn::tls::TlsType over_list(list);
  over_list.configure({{"ca", site.ca.cert()}});
  testing::AnyLoop loop;  // destroyed before the types
  conn::tls::TlsType served(tcp);
  served.configure(site.options_of(site.identity));
  ConnectionPtr server;
  const conn::ListenerPtr listener =
      served.listen(loop, Endpoint::parse("tls://127.0.0.1:0"),
                    [&](ConnectionPtr one) { server = std::move(one); });
  Endpoint to = testing::address_of(*listener);
  ConnectionPtr client;
  const bool wraps = GENERATE(false, true);
  if (wraps) {
    to.scheme = list.name();
    ConnectionPtr plain = list.create(loop);
    plain->connect(to, {});
    RUN_UNTIL(loop, plain->state() == State::kConnected);
    client = over_list.wrap(std::move(plain), Role::kClient, "localhost", {});
  } else {
    to.scheme = over_list.name();
    to.options = conn::Options{{"server-name", "localhost"}};
    client = over_list.create(loop);
    client->connect(to, {});
  }
  RUN_UNTIL(loop, client->state() != State::kConnecting);
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  RUN_UNTIL(loop, server != nullptr);
  CHECK(client->fd() >= 0);
  CHECK(info_of(*client, "carrier") == "tcp");
  CHECK_THAT(client->path(), Contains("over tcp") && Contains("rdma"));
  CHECK(tcp.counters(loop).open == 2);
  CHECK(list.counters(loop).open == 0);
  testing::send(loop, *client, "through a list");
  REQUIRE(testing::receive(loop, *server, 14) == "through a list");
  client.reset();
  REQUIRE(testing::read_event(loop, *server) == "(end)");
  server.reset();
  LOOK_UNTIL(loop, tcp.counters(loop).open == 0);
}

TEST_CASE("tls: wrap() checks the name it is given, unless server-name says otherwise",
          "[tls][wrap]") {
  PlainPair site;
  const bool overridden = GENERATE(false, true);
  bool done = false;
  const ConnectionPtr server =
      site.server.wrap(std::move(site.b), Role::kServer, "", [](Connection&) {});
  const ConnectionPtr client = site.client.wrap(
      std::move(site.a), Role::kClient, "other.example", [&](Connection&) { done = true; },
      overridden ? conn::Options{{"server-name", "localhost"}} : conn::Options{});
  RUN_UNTIL(site.loop, done && server->state() != State::kAccepting);
  if (overridden) {
    REQUIRE(client->state() == State::kConnected);
    return;
  }
  REQUIRE(client->state() == State::kError);
  REQUIRE(client->error_code() == Errc::kVerification);
  REQUIRE_THAT(client->last_error(), Contains("wanted other.example"));
  REQUIRE(server->state() == State::kError);
  REQUIRE(server->error_code() == Errc::kVerification);
}

TEST_CASE("tls: wrap() in the server's role asks clients for certificates as a listener does",
          "[tls][wrap]") {
  PlainPair site;
  bool done = false;
  const ConnectionPtr server =
      site.server.wrap(std::move(site.b), Role::kServer, "", [&](Connection&) { done = true; },
                       {{"auth-clients", "yes"}, {"ca", site.ca.cert()}});
  const ConnectionPtr client =
      site.client.wrap(std::move(site.a), Role::kClient, "localhost", [](Connection&) {});
  RUN_UNTIL(site.loop, done);
  REQUIRE(server->state() == State::kError);
  REQUIRE_THAT(server->last_error(), Contains("did not return a certificate"));
}

TEST_CASE("tls: wrap() takes connected connections of the type below and no other", "[tls][wrap]") {
  PlainPair site;
  Held held(site);
  const auto nothing = [](Connection&) {};
  conn::tcp::UnixType unix_type;
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  const RawSocket far(ends[1]);
  REQUIRE_THROWS_WITH(
      site.client.wrap(unix_type.adopt(site.loop, ends[0]), Role::kClient, "localhost", nothing),
      Contains("tls") && Contains("tcp"));
  char byte;
  LOOK_UNTIL(site.loop, ::recv(far.fd(), &byte, 1, MSG_DONTWAIT) == 0);  // it was closed
  REQUIRE_THROWS_AS(
      site.client.wrap(site.tcp.create(site.loop), Role::kClient, "localhost", nothing),
      conn::Error);
  REQUIRE_THROWS_AS(site.client.wrap(nullptr, Role::kClient, "localhost", nothing), conn::Error);
  // A connection cannot be wrapped twice.
  ConnectionPtr once = site.client.wrap(std::move(site.a), Role::kClient, "localhost", nothing);
  REQUIRE_THROWS_AS(site.client.wrap(std::move(once), Role::kClient, "localhost", nothing),
                    conn::Error);
  REQUIRE(testing::read_event(site.loop, *site.b).substr(0, 7) != "(error:");
}

TEST_CASE("tls: wrap() that throws for its options closes what it was given", "[tls][wrap]") {
  PlainPair site;
  const auto nothing = [](Connection&) {};
  SECTION("a server without a certificate") {
    REQUIRE_THROWS_WITH(site.client.wrap(std::move(site.a), Role::kServer, "", nothing),
                        Contains("cert=FILE"));
  }
  SECTION("a file that is not there") {
    REQUIRE_THROWS_WITH(site.client.wrap(std::move(site.a), Role::kClient, "localhost", nothing,
                                         {{"ca", "/nowhere"}}),
                        Contains("/nowhere"));
  }
  SECTION("a bad value") {
    REQUIRE_THROWS_WITH(site.client.wrap(std::move(site.a), Role::kClient, "localhost", nothing,
                                         {{"verify", "perhaps"}}),
                        Contains("verify=perhaps"));
  }
  SECTION("an option that nobody has") {
    REQUIRE_THROWS_WITH(site.client.wrap(std::move(site.a), Role::kClient, "localhost", nothing,
                                         {{"colour", "blue"}}),
                        Contains("colour"));
  }
  SECTION("nobody to check") {
    REQUIRE_THROWS_WITH(site.client.wrap(std::move(site.a), Role::kClient, "", nothing),
                        Contains("server-name"));
  }
  REQUIRE(testing::read_event(site.loop, *site.b) == "(end)");
  LOOK_UNTIL(site.loop, site.client.counters(site.loop).open == 0);
  REQUIRE(site.tcp.counters(site.loop).open == 1);
}

TEST_CASE("tls: close() of a wrapped connection cancels its handler and closes what is below",
          "[tls][wrap]") {
  PlainPair site;
  bool called = false;
  ConnectionPtr client = site.client.wrap(std::move(site.a), Role::kClient, "localhost",
                                          [&](Connection&) { called = true; });
  testing::turns(site.loop, 5);
  client.reset();
  testing::Collector rest(*site.b);
  RUN_UNTIL(site.loop, rest.over());
  REQUIRE_FALSE(called);
  LOOK_UNTIL(site.loop, site.tcp.counters(site.loop).open == 1);
}

TEST_CASE("tls: a wrapped handshake has its time too, in both roles", "[tls][wrap]") {
  PlainPair site;
  const Role role = GENERATE(Role::kServer, Role::kClient);
  bool done = false;
  const ConnectionPtr stuck =
      site.server.wrap(std::move(site.a), role, "localhost", [&](Connection&) { done = true; },
                       {{"handshake-timeout", "100ms"}});
  RUN_UNTIL(site.loop, done);
  REQUIRE(stuck->state() == State::kError);
  REQUIRE(stuck->error_code() == Errc::kTimeout);
}

TEST_CASE("tls: an inherited socket becomes TLS by adopting it below", "[tls][wrap]") {
  TlsSite site;
  conn::tcp::UnixType unix_type;
  testing::AnyLoop loop;  // destroyed before unix_type
  conn::tls::TlsType over_unix(unix_type);
  REQUIRE(over_unix.name() == "tls+unix");
  over_unix.configure(
      site.options_of(site.identity).merged_with(conn::Options{{"ca", site.ca.cert()}}));
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  int done = 0;
  ConnectionPtr a = over_unix.wrap(unix_type.adopt(loop, ends[0]), Role::kServer, "",
                                   [&](Connection&) { ++done; });
  ConnectionPtr b = over_unix.wrap(unix_type.adopt(loop, ends[1]), Role::kClient, "localhost",
                                   [&](Connection&) { ++done; });
  RUN_UNTIL(loop, done == 2);
  REQUIRE(a->state() == State::kConnected);
  REQUIRE(b->state() == State::kConnected);
  testing::send(loop, *a, "over a pair of sockets");
  REQUIRE(testing::receive(loop, *b, 22) == "over a pair of sockets");
  a.reset();
  b.reset();
  REQUIRE_THROWS_WITH(over_unix.adopt(loop, 0), Contains("wrap()"));
}

TEST_CASE("tls: wrap() removes every handler of the connection below", "[tls][wrap]") {
  PlainPair site;
  int before = 0;
  const auto old = [&](Connection& c) {
    ++before;
    c.close();  // would end the TLS connection, too
  };
  for (const ConnectionPtr* each : {&site.a, &site.b}) {
    (*each)->set_read_handler(old);
    (*each)->set_write_handler(old, conn::Barrier::kYes);
    (*each)->set_close_handler(old);
  }
  const auto nothing = [](Connection&) {};
  ConnectionPtr server = site.server.wrap(std::move(site.b), Role::kServer, "", nothing);
  ConnectionPtr client = site.client.wrap(std::move(site.a), Role::kClient, "localhost", nothing);
  RUN_UNTIL(site.loop,
            client->state() == State::kConnected && server->state() == State::kConnected);
  site.require_echo(*client, *server);
  int closed = 0;
  server->set_read_handler(nullptr);
  server->set_close_handler([&](Connection&) { ++closed; });
  client.reset();
  RUN_UNTIL(site.loop, closed == 1);
  testing::turns(site.loop, 20);
  server.reset();
  testing::turns(site.loop, 20);
  REQUIRE(before == 0);
}

TEST_CASE("tls: wrap() of a connection whose close handler is due already", "[tls][wrap]") {
  PlainPair site;
  int before = 0;
  site.a.reset();
  testing::await_readable(site.loop, *site.b);
  site.b->set_close_handler([&](Connection&) { ++before; });
  const ConnectionPtr server =
      site.server.wrap(std::move(site.b), Role::kServer, "", [](Connection&) {});
  RUN_UNTIL(site.loop, server->state() == State::kError);
  testing::turns(site.loop, 20);
  REQUIRE(before == 0);
}

#endif
