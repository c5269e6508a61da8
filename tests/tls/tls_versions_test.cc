// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: versions, ciphers, groups and DH parameters.
#if AECONN_TLS

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

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

/// "TLSv1.3 with TLS_AES_128_GCM_SHA256", reported by both ends; "refused" if there is no
/// connection.
std::string meet(TlsSite& site, const Options& server, const Options& client) {
  const conn::ListenerPtr listener = site.listen(server);
  const ConnectionPtr a = site.connect(*listener, client);
  if (a->state() != State::kConnected) {
    (void)site.next_refused();
    return "refused: " + a->last_error();
  }
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);
  REQUIRE(info_of(*a, "tls") == info_of(*b, "tls"));
  REQUIRE(info_of(*a, "cipher") == info_of(*b, "cipher"));
  REQUIRE(info_of(*a, "group") == info_of(*b, "group"));
  return info_of(*a, "tls") + " with " + info_of(*a, "cipher") + ", " + info_of(*a, "group");
}

}  // namespace

TEST_CASE("tls: the newest version that both sides allow is used", "[tls][versions]") {
  struct Case {
    Options server, client;
    const char* version;
  };
  const Options old{{"max-version", "1.2"}}, recent{{"min-version", "1.3"}},
      both{{"min-version", "1.2"}, {"max-version", "1.3"}}, any;
  const Case one = GENERATE_COPY(Case{any, any, "TLSv1.3"}, Case{both, any, "TLSv1.3"},
                                 Case{any, both, "TLSv1.3"}, Case{old, any, "TLSv1.2"},
                                 Case{any, old, "TLSv1.2"}, Case{old, old, "TLSv1.2"},
                                 Case{recent, any, "TLSv1.3"}, Case{both, recent, "TLSv1.3"});
  TlsSite site;
  REQUIRE_THAT(meet(site, one.server, one.client), Catch::Matchers::StartsWith(one.version));
}

TEST_CASE("tls: without a version in common both sides say that it is the version",
          "[tls][versions]") {
  const bool server_is_old = GENERATE(true, false);
  const Options old{{"max-version", "1.2"}}, recent{{"min-version", "1.3"}};
  TlsSite site;
  const conn::ListenerPtr listener = site.listen(server_is_old ? old : recent);
  const ConnectionPtr client = site.connect(*listener, server_is_old ? recent : old);
  const Failure why = site.next_refused();
  CAPTURE(client->last_error(), why.text);
  REQUIRE(client->state() == State::kError);
  REQUIRE(client->error_code() == Errc::kHandshake);
  REQUIRE_THAT(client->last_error(), Contains("alert \"protocol version\""));
  REQUIRE(why.code == Errc::kHandshake);
  REQUIRE_THAT(why.text, Contains("unsupported protocol"));
}

TEST_CASE("tls: TLS 1.0 and 1.1 are neither offered nor accepted", "[tls][versions]") {
  TlsSite site;
  RawContext context = RawContext::client();
  context.set_versions(TLS1_VERSION, TLS1_1_VERSION);
  REQUIRE(SSL_CTX_set_cipher_list(context.get(), "ALL:@SECLEVEL=0") == 1);
  const conn::ListenerPtr listener = site.listen();
  const std::string alert = testing::aside(site.loop, [&] {
    RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
    return peer.handshake() ? std::string("connected") : peer.alert();
  });
  REQUIRE(alert == "protocol version");
  REQUIRE(site.next_refused().code == Errc::kHandshake);

  const RawSocket listening = RawSocket::listening();
  RawContext server = RawContext::server(site.identity);
  server.set_versions(TLS1_VERSION, TLS1_1_VERSION);
  REQUIRE(SSL_CTX_set_cipher_list(server.get(), "ALL:@SECLEVEL=0") == 1);
  bool done = false;
  const ConnectionPtr client =
      site.start(listening.endpoint(), {}, [&](conn::Connection&) { done = true; });
  testing::aside(site.loop, [&] {
    RawTls peer(server, listening.accept());
    (void)peer.handshake();
  });
  RUN_UNTIL(site.loop, done);
  REQUIRE(client->state() == State::kError);
  REQUIRE(client->error_code() == Errc::kHandshake);
}

TEST_CASE("tls: ciphers without secrecy, authentication or a future are not accepted",
          "[tls][versions]") {
  TlsSite site;
  const Identity rsa = site.ca.issue({.common_name = "rsa", .key = testing::KeyType::kRsa2048});
  const conn::ListenerPtr listener = site.listen(site.options_of(rsa));
  for (const std::string weak : {"NULL", "aNULL", "RC4", "3DES", "kRSA", "AES128-SHA",
                                 "ECDHE-RSA-AES128-SHA256", "EXPORT"}) {
    CAPTURE(weak);
    RawContext context = RawContext::client();
    context.set_versions(TLS1_2_VERSION, TLS1_2_VERSION);
    // This OpenSSL may not support any of these.
    if (SSL_CTX_set_cipher_list(context.get(), (weak + ":@SECLEVEL=0").c_str()) != 1) continue;
    const std::string alert = testing::aside(site.loop, [&] {
      RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
      if (!peer.handshake()) return peer.alert();
      return std::string("connected with ") + SSL_get_cipher(peer.ssl());
    });
    REQUIRE(alert == "handshake failure");
    REQUIRE_THAT(site.next_refused().text, Contains("no shared cipher"));
  }
}

TEST_CASE("tls: ciphers and ciphersuites force one, from either side", "[tls][versions]") {
  TlsSite site;
  const Options old{{"max-version", "1.2"}, {"ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305"}};
  const Options old_plain{{"max-version", "1.2"}};
  REQUIRE_THAT(meet(site, old, {}), Contains("TLSv1.2 with ECDHE-ECDSA-CHACHA20-POLY1305"));
  REQUIRE_THAT(meet(site, {}, old), Contains("TLSv1.2 with ECDHE-ECDSA-CHACHA20-POLY1305"));
  for (const char* suite :
       {"TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_256_GCM_SHA384"}) {
    const Options forced{{"ciphersuites", suite}};
    REQUIRE_THAT(meet(site, forced, {}), Contains(std::string("TLSv1.3 with ") + suite));
    REQUIRE_THAT(meet(site, {}, forced), Contains(std::string("TLSv1.3 with ") + suite));
  }
}

TEST_CASE("tls: without a cipher in common there is no connection", "[tls][versions]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen({{"ciphersuites", "TLS_AES_128_GCM_SHA256"}});
  const ConnectionPtr client =
      site.connect(*listener, {{"ciphersuites", "TLS_AES_256_GCM_SHA384"}, {"min-version", "1.3"}});
  REQUIRE(client->state() == State::kError);
  REQUIRE_THAT(client->last_error(), Contains("alert \"handshake failure\""));
  const Failure why = site.next_refused();
  REQUIRE(why.code == Errc::kHandshake);
  REQUIRE_THAT(why.text, Contains("no shared cipher"));
}

TEST_CASE("tls: prefer-server-ciphers says whose order counts", "[tls][versions]") {
  TlsSite site;
  const std::string first = "ECDHE-ECDSA-AES128-GCM-SHA256";
  const std::string second = "ECDHE-ECDSA-AES256-GCM-SHA384";
  Options server{{"max-version", "1.2"}, {"ciphers", first + ":" + second}};
  const Options client{{"ciphers", second + ":" + first}};
  REQUIRE_THAT(meet(site, server, client), Contains(first));
  server.set("prefer-server-ciphers", "no");
  REQUIRE_THAT(meet(site, server, client), Contains(second));
}

TEST_CASE("tls: groups force one, and may have none in common", "[tls][versions]") {
  TlsSite site;
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  const Options any{{"max-version", version}};
  // In TLS 1.2 the certificate's own P-256 must be among them.
  REQUIRE_THAT(meet(site, {{"groups", "P-384:P-256"}}, any), Contains("secp384r1"));
  REQUIRE_THAT(meet(site, {{"groups", "P-256"}}, any), Contains("secp256r1"));
  // If several are common, TLS 1.3 takes the one that the client sent a key for, its first, and TLS
  // 1.2 the server's first. A server without `groups` has OpenSSL's order, which differs between
  // releases.
  REQUIRE_THAT(meet(site, {{"groups", "P-256:P-521"}, {"max-version", version}},
                    {{"groups", "P-521:P-256"}}),
               Contains(version == "1.2" ? "secp256r1" : "secp521r1"));
  REQUIRE_THAT(meet(site, any, {{"groups", version == "1.2" ? "P-256" : "P-521"}}),
               Contains(version == "1.2" ? "secp256r1" : "secp521r1"));
  REQUIRE_THAT(meet(site, {{"groups", "X25519"}}, {{"groups", "P-384"}, {"min-version", "1.3"}}),
               Contains("refused"));
}

TEST_CASE("tls: path and info show the group of the key exchange", "[tls][versions]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  const std::string named = GENERATE(as<std::string>{}, "", "P-384:P-256");
  Options client{{"max-version", version}};
  Options server;  // which chooses
  if (!named.empty()) {
    client.set("groups", named);
    server.set("groups", named);
  }
  const testing::TlsPair pair(server, client);
  for (const conn::Connection* const end : {pair.a.get(), pair.b.get()}) {
    const std::string group = testing::info_of(*end, "group"), path = end->path();
    CAPTURE(path);
    REQUIRE_FALSE(group.empty());
    REQUIRE_THAT(path, Contains(testing::info_of(*end, "cipher") + " " + group + " over tcp "));
    if (!named.empty()) REQUIRE(group == "secp384r1");
  }
}

// From OpenSSL 3.5 on, the first group by default is one that quantum computers do not break.
TEST_CASE("tls: X25519MLKEM768 is used where OpenSSL has it, else refused by its version",
          "[tls][versions]") {
  constexpr unsigned long kFirst = 0x30500000UL;
  TlsSite site;
  const auto group_with = [](const Options& options) {
    return testing::info_of(*testing::TlsPair({}, options).a, "group");
  };
  const std::string by_default = group_with({});
  std::string said = "nothing";
  try {
    site.server.configure([&] {
      Options options = site.options_of(site.identity);
      options.set("groups", "X25519MLKEM768:X25519");
      return options;
    }());
  } catch (const conn::Error& error) {
    said = error.what();
  }
  const std::string release = OpenSSL_version(OPENSSL_VERSION_STRING);
  INFO("OpenSSL " << release << ", by default " << by_default << ", groups: " << said);
  if (OpenSSL_version_num() >= kFirst) {
    REQUIRE(by_default == "X25519MLKEM768");
    REQUIRE(said == "nothing");
    REQUIRE(group_with({{"groups", "X25519MLKEM768"}}) == "X25519MLKEM768");
    REQUIRE(group_with({{"groups", "X25519"}}) == "x25519");
  } else {
    WARN("OpenSSL " << release << " has no X25519MLKEM768; by default it uses " << by_default);
    REQUIRE(by_default == "x25519");
    REQUIRE_THAT(said, Contains("groups=X25519MLKEM768:X25519: OpenSSL " + release +
                                " does not know all of these: MLKEM needs OpenSSL 3.5"));
  }
}

TEST_CASE("tls: DHE ciphers take the parameters of dh-params", "[tls][versions]") {
  TlsSite site;
  const Identity rsa = site.ca.issue(
      {.common_name = "rsa", .names = {"IP:127.0.0.1"}, .key = testing::KeyType::kRsa2048});
  // RFC 7919's ffdhe2048.
  const std::string params =
      testing::write_file(site.folder, "dh.pem",
                          "-----BEGIN DH PARAMETERS-----\n"
                          "MIIBDAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz\n"
                          "+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a\n"
                          "87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7\n"
                          "YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi\n"
                          "7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD\n"
                          "ssbzSibBsu/6iGtCOGEoXJf//////////wIBAgICAOE=\n"
                          "-----END DH PARAMETERS-----\n");
  Options server = site.options_of(rsa);
  server.set("max-version", "1.2");
  const Options client{{"ciphers", "DHE-RSA-AES128-GCM-SHA256"}, {"max-version", "1.2"}};
  REQUIRE_THAT(meet(site, server, client), Contains("refused"));  // no ciphers without parameters
  server.set("dh-params", params);
  const conn::ListenerPtr listener = site.listen(server);
  const ConnectionPtr a = site.connect(*listener, client);
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  REQUIRE(info_of(*a, "cipher") == "DHE-RSA-AES128-GCM-SHA256");
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);
}

TEST_CASE("tls: a version that was forced down from outside is noticed", "[tls][versions]") {
  // RFC 8446 4.1.3: a TLS 1.3 server that negotiates 1.2 marks its random value.
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  context.set_versions(TLS1_2_VERSION, TLS1_2_VERSION);
  const std::string random = testing::aside(site.loop, [&] {
    RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
    if (!peer.handshake()) return std::string("no connection");
    std::string bytes(SSL3_RANDOM_SIZE, '\0');
    SSL_get_server_random(peer.ssl(), reinterpret_cast<unsigned char*>(bytes.data()), bytes.size());
    return bytes.substr(bytes.size() - 8);
  });
  (void)site.next_accepted();
  REQUIRE(random == "DOWNGRD\x01");
}

#endif  // AECONN_TLS
