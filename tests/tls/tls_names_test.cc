// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: several certificates on one listener (SNI), and protocol negotiation (ALPN).
#if AECONN_TLS

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Failure;
using conn::Options;
using conn::State;
using conn::tls::Errc;
using testing::Contains;
using testing::Identity;
using testing::info_of;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsSite;

namespace {

/// A listener with three certificates.
struct ThreeNames : TlsSite {
  ThreeNames() {
    first = ca.issue({.common_name = "first", .names = {"DNS:first.example", "IP:127.0.0.1"}});
    second = ca.issue(
        {.common_name = "second", .names = {"DNS:second.example", "DNS:*.second.example"}});
    third = ca.issue({.common_name = "third.example", .key = testing::KeyType::kRsa2048});
    listener = listen({{"cert", first.chain + "," + second.chain + "," + third.chain},
                       {"key", first.key + "," + second.key + "," + third.key}});
  }
  /// The common name of the certificate that a client gets for the server name `name`.
  std::string ask(const std::string& name, Options more = {}) {
    more.set("verify", "chain");
    more.set("server-name", name);
    const ConnectionPtr a = connect(*listener, more);
    INFO(a->last_error());
    REQUIRE(a->state() == State::kConnected);
    const ConnectionPtr b = next_accepted();
    require_echo(*a, *b);
    return a->peer_user();
  }
  Identity first, second, third;
  conn::ListenerPtr listener;
};

}  // namespace

// --- SNI -----------------------------------------------------------------------------------------

TEST_CASE("tls: a server chooses its certificate by the name that the client asks for",
          "[tls][names]") {
  ThreeNames site;
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const Options options{{"max-version", version}, {"resumption", "no"}};
  CAPTURE(version);
  REQUIRE(site.ask("first.example", options) == "first");
  REQUIRE(site.ask("second.example", options) == "second");
  REQUIRE(site.ask("deep.second.example", options) == "second");
  REQUIRE(site.ask("third.example", options) == "third.example");
  REQUIRE(site.ask("THIRD.Example", options) == "third.example");
}

TEST_CASE("tls: the first certificate serves unknown names and clients that name none",
          "[tls][names]") {
  ThreeNames site;
  REQUIRE(site.ask("unknown.example") == "first");
  REQUIRE(site.ask("very.deep.second.example") == "first");
  const ConnectionPtr a = site.connect(*site.listener);  // by address, which SNI cannot carry
  REQUIRE(a->state() == State::kConnected);
  REQUIRE(a->peer_user() == "first");
  const ConnectionPtr b = site.next_accepted();
  REQUIRE(info_of(*a, "server-name") == "(none)");
  REQUIRE(info_of(*b, "server-name") == "(none)");
}

TEST_CASE("tls: info says at both ends which name the client asked for", "[tls][names]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({}, {{"max-version", version}});
  const conn::ListenerPtr listener = site.listen();
  for (int i = 0; i < 2; ++i) {  // a full handshake, then a resumed one
    const ConnectionPtr a = site.connect(*listener, {{"server-name", "localhost"}});
    REQUIRE(a->state() == State::kConnected);
    const ConnectionPtr b = site.next_accepted();
    site.require_echo(*a, *b);
    REQUIRE(info_of(*a, "resumed") == (i == 0 ? "no" : "yes"));
    REQUIRE(info_of(*a, "server-name") == "localhost");
    REQUIRE(info_of(*b, "server-name") == "localhost");
  }
}

TEST_CASE("tls: the host of the URL is the name asked for, unless server-name says otherwise",
          "[tls][names]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  conn::Endpoint to = testing::address_of(*listener);
  to.hosts.front().name = "localhost";
  const ConnectionPtr a = site.connect(to);
  REQUIRE(info_of(*a, "server-name") == "localhost");
  const ConnectionPtr b = site.connect(to, {{"server-name", "x.example"}, {"verify", "chain"}});
  REQUIRE(info_of(*b, "server-name") == "x.example");
}

TEST_CASE("tls: a name that no host can have does not harm the server", "[tls][names]") {
  ThreeNames site;
  const std::string name = GENERATE(std::string(255, 'a'), std::string("\xff\xfe\x01"),
                                    std::string("-"), std::string("first.example."));
  RawContext context = RawContext::client();
  const std::string got = testing::aside(site.loop, [&] {
    RawTls peer(context, RawSocket::connect(testing::address_of(*site.listener)));
    SSL_set_tlsext_host_name(peer.ssl(), name.c_str());
    return peer.handshake() ? std::string("connected") : peer.alert();
  });
  if (got == "connected") {
    (void)site.next_accepted();
  } else {
    (void)site.next_refused();
  }
  REQUIRE(site.ask("second.example") == "second");
}

TEST_CASE("tls: a client that cannot send the name it has to ask for does not connect",
          "[tls][names]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  const std::string longest(255, 'n');
  for (const char* const verify : {"chain", "no"}) {
    const Options options{{"server-name", longest}, {"verify", verify}};
    const ConnectionPtr a = site.connect(*listener, options);
    REQUIRE(a->state() == State::kConnected);
    REQUIRE(info_of(*site.next_accepted(), "server-name") == longest);
    const Options longer{{"server-name", longest + "n"}, {"verify", verify}};
    const ConnectionPtr b = site.connect(*listener, longer);
    REQUIRE(b->state() == State::kError);
    CAPTURE(b->last_error());
    REQUIRE(b->last_error().find("cannot be sent as the server's name") != std::string::npos);
    REQUIRE(b->last_error().find('\n') == std::string::npos);
  }
}

TEST_CASE("tls: each certificate keeps the listener's other settings", "[tls][names]") {
  TlsSite site;
  const Identity other = site.ca.issue({.common_name = "other", .names = {"DNS:other.example"}});
  const Identity user = site.ca.issue({.common_name = "user"});
  const conn::ListenerPtr listener = site.listen({{"cert", site.identity.chain + "," + other.chain},
                                                  {"key", site.identity.key + "," + other.key},
                                                  {"auth-clients", "yes"},
                                                  {"ca", site.ca.cert()},
                                                  {"max-version", "1.2"},
                                                  {"alpn", "kv"}});
  // A client that requests the second certificate must also send one.
  const ConnectionPtr nobody = site.connect(*listener, {{"server-name", "other.example"}});
  REQUIRE(nobody->state() == State::kError);
  (void)site.next_refused();
  Options options = site.options_of(user);
  options.set("server-name", "other.example");
  options.set("alpn", "kv");
  const ConnectionPtr a = site.connect(*listener, options);
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  REQUIRE(a->peer_user() == "other");
  REQUIRE(b->peer_user() == "user");
  REQUIRE(info_of(*a, "tls") == "TLSv1.2");
  REQUIRE(info_of(*a, "alpn") == "kv");
}

// --- ALPN ----------------------------------------------------------------------------------------

TEST_CASE("tls: the protocol is the first of the server's that the client offers", "[tls][names]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({{"alpn", "new,old,oldest"}}, {{"max-version", version}});
  const conn::ListenerPtr listener = site.listen();
  const ConnectionPtr a = site.connect(*listener, {{"alpn", "oldest,strange,old"}});
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  REQUIRE(info_of(*a, "alpn") == "old");
  REQUIRE(info_of(*b, "alpn") == "old");
}

TEST_CASE("tls: without a protocol in common there is no connection, and an alert says why",
          "[tls][names]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({{"alpn", "a,b"}}, {{"max-version", version}});
  const conn::ListenerPtr listener = site.listen();
  const ConnectionPtr client = site.connect(*listener, {{"alpn", "c,d"}});
  REQUIRE(client->state() == State::kError);
  REQUIRE(client->error_code() == Errc::kHandshake);
  REQUIRE_THAT(client->last_error(), Contains("alert \"no application protocol\""));
  const Failure why = site.next_refused();
  REQUIRE(why.code == Errc::kHandshake);
  REQUIRE_THAT(why.text, Contains("no application protocol"));
}

TEST_CASE("tls: a side without protocols leaves the other without one", "[tls][names]") {
  TlsSite site;
  const bool server_has = GENERATE(true, false);
  const Options protocols{{"alpn", "kv"}}, none;
  const conn::ListenerPtr listener = site.listen(server_has ? protocols : none);
  const ConnectionPtr a = site.connect(*listener, server_has ? none : protocols);
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  REQUIRE(info_of(*a, "alpn") == "(none)");
  REQUIRE(info_of(*b, "alpn") == "(none)");
  site.require_echo(*a, *b);
}

TEST_CASE("tls: a server that answers with a protocol nobody offered is refused", "[tls][names]") {
  TlsSite site;
  const RawSocket listening = RawSocket::listening();
  const RawContext context = RawContext::server(site.identity);
  SSL_CTX_set_alpn_select_cb(
      context.get(),
      [](SSL*, const unsigned char** out, unsigned char* size, const unsigned char*, unsigned,
         void*) {
        *out = reinterpret_cast<const unsigned char*>("evil");
        *size = 4;
        return SSL_TLSEXT_ERR_OK;
      },
      nullptr);
  bool done = false;
  const ConnectionPtr client =
      site.start(listening.endpoint(), {{"alpn", "kv"}}, [&](Connection&) { done = true; });
  testing::aside(site.loop, [&] {
    RawTls peer(context, listening.accept());
    (void)peer.handshake();
  });
  RUN_UNTIL(site.loop, done);
  CAPTURE(client->last_error(), info_of(*client, "alpn"));
  REQUIRE(client->state() == State::kError);
}

#endif  // AECONN_TLS
