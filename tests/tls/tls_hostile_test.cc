// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: peers that use another protocol, or stop in the middle of a handshake.
#if AECONN_TLS

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>

#include <random>

#include "conn/tcp/unix_type.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Failure;
using conn::Options;
using conn::State;
using conn::tls::Errc;
using testing::Held;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsPair;
using testing::TlsSite;
using namespace std::chrono_literals;
using namespace std::string_literals;
using Catch::Matchers::StartsWith;
using testing::Contains;

namespace {

/// Bytes that a peer sends instead of a handshake.
struct Rubbish {
  const char* what;
  std::string bytes;
};

std::vector<Rubbish> all_rubbish() {
  std::string noise(4096, '\0');
  std::mt19937 random(7);
  for (char& byte : noise) byte = static_cast<char>(random());
  noise[0] = '\x7f';  // never a record type, whatever the generator yields
  const std::string zeros(4096, '\0');
  return {
      {"an HTTP request", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
      {"a request of Redis", "PING\r\n"},
      {"a request of Redis in RESP", "*1\r\n$4\r\nPING\r\n"},
      {"SSH", "SSH-2.0-OpenSSH_9.2\r\n"},
      {"noise", noise},
      {"zeros", zeros},
      {"a record longer than there are", "\x16\x03\x01\xff\xff"s + zeros},
      {"a message of 16 MiB", "\x16\x03\x01\x40\x00\x01\xff\xff\xff"s + std::string(16384, 'x')},
      {"data before a handshake", "\x17\x03\x03\x00\x05hello"s},
      {"an alert before a handshake", "\x15\x03\x03\x00\x02\x02\x28"s},
      {"a Finished out of the blue", "\x16\x03\x03\x00\x10\x14\x00\x00\x0c"s + "abcdefghijkl"},
      {"a ClientHello of nothing", "\x16\x03\x01\x00\x04\x01\x00\x00\x00"s},
      {"SSL 2", "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10"s + std::string(40, 'x')},
      {"an empty record", "\x16\x03\x01\x00\x00"s},
  };
}

/// Whether the code is for an end detected by TLS, or by the socket.
bool is_a_cut(const std::error_code& code) {
  return code == Errc::kHandshake || code == std::errc::connection_reset ||
         code == std::errc::broken_pipe;
}

}  // namespace

// --- other protocols -----------------------------------------------------------------------------

TEST_CASE("tls: who speaks something else to a TLS port is refused once, and harms nobody",
          "[tls][hostile]") {
  const Rubbish rubbish = GENERATE(from_range(all_rubbish()));
  CAPTURE(rubbish.what);
  TlsPair pair({{"handshake-timeout", "500ms"}});
  Held held(pair);
  testing::aside(pair.loop, [&] {
    const RawSocket peer = RawSocket::connect(testing::address_of(*pair.listener));
    peer.send(rubbish.bytes);
    if (rubbish.bytes.size() < 10) peer.half_close();  // may be less than a record
    char buffer[4096];
    while (::recv(peer.fd(), buffer, sizeof buffer, 0) > 0) {
    }
  });
  const Failure why = pair.next_refused();
  CAPTURE(why.text);
  REQUIRE(why.code == Errc::kHandshake);
  REQUIRE_THAT(why.text, StartsWith("TLS handshake with 127.0.0.1:"));
  REQUIRE(why.text.find_first_of("\r\n") == std::string::npos);
  held.require_same();
  REQUIRE(pair.refused.empty());
  REQUIRE(pair.accepted.empty());
  pair.require_echo(*pair.a, *pair.b);
}

TEST_CASE("tls: plain text on a TLS port is called that", "[tls][hostile]") {
  const std::string text =
      GENERATE(as<std::string>{}, "GET / HTTP/1.1\r\n\r\n", "PING\r\n", "*1\r\n$4\r\nPING\r\n");
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  const RawSocket peer = RawSocket::connect(testing::address_of(*listener));
  peer.send(text);
  REQUIRE_THAT(site.next_refused().text, Contains("does not speak TLS here"));
  // One alert, unexpected_message, and nothing else.
  REQUIRE(testing::aside(site.loop, [&] { return peer.receive(8); }) ==
          std::string("\x15\x03\x01\x00\x02\x02\x0a", 7));
}

TEST_CASE("tls: a client at a plain port says so", "[tls][hostile]") {
  const std::string answer =
      GENERATE(as<std::string>{}, "-ERR unknown command\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n",
               "220 mail.example ESMTP\r\n");
  CAPTURE(answer);
  TlsSite site;
  Held held(site);
  {
    const RawSocket listening = RawSocket::listening();
    int calls = 0;
    ConnectionPtr client = site.start(listening.endpoint(), {}, [&](Connection&) { ++calls; });
    std::optional<RawSocket> peer;
    testing::aside(site.loop, [&] {
      peer.emplace(listening.accept());
      peer->send(answer);
    });
    RUN_UNTIL(site.loop, calls > 0);
    REQUIRE(client->state() == State::kError);
    REQUIRE(client->error_code() == Errc::kHandshake);
    REQUIRE_THAT(client->last_error(), Contains("does not speak TLS here"));
    testing::turns(site.loop, 5);
    REQUIRE(calls == 1);
  }
  held.require_same();
}

TEST_CASE("tls: plain text is called that, too, of a peer that has gone already",
          "[tls][hostile]") {
  // Over a Unix socket the alert that answers plain text cannot be sent once the peer has closed.
  TlsSite site;
  conn::tcp::UnixType below;
  conn::tls::TlsType over_unix(below);
  Options options = site.options_of(site.identity);
  options.set("ca", site.ca.cert());
  over_unix.configure(options);
  testing::AnyLoop loop;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = site.folder.path() + "/s";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const auto* const where = reinterpret_cast<const sockaddr*>(&address);
  RawSocket raw(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const conn::Endpoint endpoint = conn::Endpoint::parse("tls+unix:" + path);
  std::vector<Failure> refused;
  const auto require_reason = [](const std::error_code& code, const std::string& text) {
    CAPTURE(code, text);
    REQUIRE(code == Errc::kHandshake);
    REQUIRE_THAT(text, Contains("does not speak TLS here"));
  };
  SECTION("a client") {
    const conn::ListenerPtr listener = over_unix.listen(loop, endpoint, [](ConnectionPtr) {});
    listener->on_refused([&](const Failure& why) { refused.push_back(why); });
    REQUIRE(::connect(raw.fd(), where, sizeof address) == 0);
    raw.send("GET / HTTP/1.1\r\n\r\n");
    raw.close();
    RUN_UNTIL(loop, !refused.empty());
    require_reason(refused.front().code, refused.front().text);
  }
  SECTION("a server") {
    REQUIRE(::bind(raw.fd(), where, sizeof address) == 0);
    REQUIRE(::listen(raw.fd(), 1) == 0);
    const ConnectionPtr client = over_unix.create(loop);
    client->connect(endpoint, nullptr);
    int fd = -1;
    LOOK_UNTIL(loop, (fd = ::accept4(raw.fd(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0);
    RawSocket peer(fd);
    char hello[4096];
    LOOK_UNTIL(loop, ::recv(peer.fd(), hello, sizeof hello, MSG_DONTWAIT) > 0);
    peer.send("220 mail.example ESMTP\r\n");
    peer.close();
    RUN_UNTIL(loop, client->state() == State::kError);
    require_reason(client->error_code(), client->last_error());
  }
}

TEST_CASE("tls: of a server that sends rubbish a client makes one error", "[tls][hostile]") {
  const Rubbish rubbish = GENERATE(from_range(all_rubbish()));
  CAPTURE(rubbish.what);
  TlsSite site;
  Held held(site);
  {
    const RawSocket listening = RawSocket::listening();
    int calls = 0;
    ConnectionPtr client = site.start(listening.endpoint(), {}, [&](Connection&) { ++calls; });
    const RawSocket peer = testing::aside(site.loop, [&] {
      RawSocket accepted = listening.accept();
      accepted.send(rubbish.bytes);
      accepted.half_close();
      return accepted;
    });
    RUN_UNTIL(site.loop, calls == 1);
    CAPTURE(client->last_error());
    REQUIRE(client->state() == State::kError);
    REQUIRE(is_a_cut(client->error_code()));
  }
  held.require_same();
}

// --- truncated handshakes ------------------------------------------------------------------------

namespace {

struct Cut {
  int flights;  ///< of the peer, before it closes
  bool half;    ///< followed by half of the next flight
  bool reset;   ///< closes with a reset
  const char* version;
};
std::ostream& operator<<(std::ostream& out, const Cut& cut) {
  return out << cut.flights << (cut.half ? " and a half" : "") << " flights of " << cut.version
             << ", then " << (cut.reset ? "a reset" : "an end");
}

/// Acts as `cut` says; false if the handshake was complete before.
bool go_so_far(RawTls& peer, const Cut& cut) {
  const bool done = peer.handshake(cut.flights);
  if (!done && cut.half) {
    if (cut.flights == 0) SSL_do_handshake(peer.ssl());
    const std::string next = peer.take_outgoing();
    peer.socket().send(std::string_view(next).substr(0, next.size() / 2));
  }
  if (cut.reset) {
    peer.socket().reset();
  } else {
    peer.socket().close();
  }
  return !done;
}

}  // namespace

TEST_CASE("tls: a client that goes during the handshake is told of once, and leaves nothing",
          "[tls][hostile]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const int flights = GENERATE(0, 1);
  const bool half = GENERATE(false, true), reset = GENERATE(false, true);
  const Cut cut{flights, half, reset, version.c_str()};
  CAPTURE(cut);
  TlsPair pair;
  Held held(pair);
  RawContext context = RawContext::client();
  if (version == "1.2") context.set_versions(TLS1_2_VERSION, TLS1_2_VERSION);
  const bool in_time = testing::aside(pair.loop, [&] {
    RawTls peer(context, RawSocket::connect(testing::address_of(*pair.listener)));
    return go_so_far(peer, cut);
  });
  REQUIRE(in_time);
  // After a reset before accept(2) there is no connection to report.
  if (!(reset && flights == 0 && !half)) {
    const Failure why = pair.next_refused();
    CAPTURE(why.text);
    REQUIRE(is_a_cut(why.code));
    REQUIRE_THAT(why.text, StartsWith("TLS handshake with 127.0.0.1:"));
  }
  held.require_same();
  REQUIRE(pair.refused.size() <= (reset && flights == 0 && !half ? 1 : 0));
  REQUIRE(pair.accepted.empty());
  pair.require_echo(*pair.a, *pair.b);
}

TEST_CASE("tls: a server that goes during the handshake is one error, and leaves nothing",
          "[tls][hostile]") {
  const Cut cut =
      GENERATE(Cut{0, false, false, "1.2"}, Cut{0, false, true, "1.2"}, Cut{0, true, false, "1.2"},
               Cut{0, true, true, "1.2"}, Cut{1, false, false, "1.2"}, Cut{1, false, true, "1.2"},
               Cut{1, true, false, "1.2"}, Cut{1, true, true, "1.2"}, Cut{0, false, false, "1.3"},
               Cut{0, false, true, "1.3"}, Cut{0, true, false, "1.3"}, Cut{0, true, true, "1.3"});
  CAPTURE(cut);
  TlsSite site;
  Held held(site);
  {
    const RawSocket listening = RawSocket::listening();
    RawContext context = RawContext::server(site.identity);
    if (cut.version == "1.2"s) context.set_versions(TLS1_2_VERSION, TLS1_2_VERSION);
    int calls = 0;
    ConnectionPtr client = site.start(listening.endpoint(), {}, [&](Connection&) { ++calls; });
    const bool in_time = testing::aside(site.loop, [&] {
      RawTls peer(context, listening.accept());
      return go_so_far(peer, cut);
    });
    REQUIRE(in_time);
    RUN_UNTIL(site.loop, calls == 1);
    CAPTURE(client->last_error());
    REQUIRE(client->state() == State::kError);
    REQUIRE(is_a_cut(client->error_code()));
    REQUIRE_THAT(client->last_error(), Contains("127.0.0.1:"));
    testing::turns(site.loop, 5);
    REQUIRE(calls == 1);
  }
  held.require_same();
}

TEST_CASE("tls: a ClientHello may end at any byte", "[tls][hostile]") {
  TlsPair pair;
  Held held(pair);
  RawContext context = RawContext::client();
  std::string hello;
  {
    RawTls peer(context, RawSocket());
    SSL_set_tlsext_host_name(peer.ssl(), "localhost");
    SSL_do_handshake(peer.ssl());
    hello = peer.take_outgoing();
  }
  std::size_t count = 0;
  for (std::size_t size = 0; size < hello.size(); size += 13, ++count) {
    const RawSocket peer = RawSocket::connect(testing::address_of(*pair.listener));
    peer.send(std::string_view(hello).substr(0, size));
  }
  RUN_UNTIL(pair.loop, pair.refused.size() == count);
  for (const Failure& why : pair.refused) REQUIRE(why.code == Errc::kHandshake);
  held.require_same();
  REQUIRE(pair.accepted.empty());
  pair.require_echo(*pair.a, *pair.b);
}

TEST_CASE("tls: a ClientHello may come byte by byte", "[tls][hostile]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  const bool connected = testing::aside(site.loop, [&] {
    RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
    const int yes = 1;
    setsockopt(peer.socket().fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    SSL_do_handshake(peer.ssl());
    for (const char byte : peer.take_outgoing()) peer.socket().send({&byte, 1});
    return peer.handshake();
  });
  REQUIRE(connected);
  REQUIRE(site.next_accepted()->state() == State::kConnected);
}

TEST_CASE("tls: one that fails among many leaves the others alone", "[tls][hostile]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  const conn::Endpoint where = testing::address_of(*listener);
  std::vector<RawSocket> bad;
  std::vector<ConnectionPtr> good;
  std::size_t done = 0;
  for (int i = 0; i < 20; ++i) {
    good.push_back(site.start(where, {}, [&](Connection&) { ++done; }));
    bad.push_back(RawSocket::connect(where));
    bad.back().send(i % 2 == 0 ? "PING\r\n" : std::string("\x16\x03\x01\x00\x01", 5));
    if (i % 3 == 0) bad.back().reset();
  }
  RUN_UNTIL(site.loop, done == 20 && site.accepted.size() == 20);
  for (const ConnectionPtr& one : good) {
    INFO(one->last_error());
    REQUIRE(one->state() == State::kConnected);
  }
  // It is unknown which accepted end belongs to which client: write to all, read from all.
  std::size_t heard = 0;
  for (const ConnectionPtr& one : site.accepted) {
    one->set_read_handler([&](Connection& c) {
      char byte;
      if (c.read(&byte, 1) == 1) ++heard;
      c.set_read_handler(nullptr);
    });
  }
  for (const ConnectionPtr& one : good) REQUIRE(one->write("x", 1) == 1);
  RUN_UNTIL(site.loop, heard == 20);
}

#endif  // AECONN_TLS
