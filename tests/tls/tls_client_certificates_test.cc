// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: how a server verifies its clients' certificates, and which user names it derives from
// them.
#if AECONN_TLS

#include <openssl/core_names.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <memory>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Failure;
using conn::Options;
using conn::State;
using conn::tls::Errc;
using testing::Authority;
using testing::CertificateRequest;
using testing::Identity;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsSite;
using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::Contains;

namespace {

/// A server that requests client certificates of its own CA.
struct AskingSite : TlsSite {
  explicit AskingSite(const std::string& auth, Options more = {}) : auth_clients(auth) {
    more.set("auth-clients", auth);
    more.set("ca", ca.cert());
    listener = listen(more);
  }
  Identity issue(const CertificateRequest& request) const { return ca.issue(request); }

  /// Connects; returns the client's and the server's end. The test fails if the handshake does.
  std::pair<ConnectionPtr, ConnectionPtr> meet(Options client_options) {
    ConnectionPtr a = connect(*listener, client_options);
    INFO(a->last_error());
    REQUIRE(a->state() == State::kConnected);
    ConnectionPtr b = next_accepted();
    return {std::move(a), std::move(b)};
  }

  /// Returns the client's error and the server's failure for a client that writes at once; none of
  /// its bytes may be delivered. In TLS 1.3 the client's handshake completes before the server
  /// verifies its certificate: the client's first read reports the failure.
  std::pair<std::string, Failure> turn_away(Options client_options) {
    ConnectionPtr a = connect(*listener, client_options);
    if (a->state() == State::kConnected) {
      a->write("let me in", 9);
      (void)testing::read_event(loop, *a);
    }
    INFO("the client thinks all is well");
    REQUIRE(a->state() == State::kError);
    // In TLS 1.2 the only alert for a missing certificate is "handshake failure".
    REQUIRE((a->error_code() == Errc::kVerification || a->error_code() == Errc::kHandshake));
    const Failure why = next_refused();
    REQUIRE(accepted.empty());
    REQUIRE(server.counters(loop).bytes_read == 0);
    return {a->last_error(), why};
  }

  const std::string auth_clients;
  conn::ListenerPtr listener;
};

Options with(Options options, const std::string& version) {
  options.set("max-version", version);
  options.set("min-version", version);
  return options;
}

}  // namespace

// --- requesting certificates ---------------------------------------------------------------------

TEST_CASE("tls: a server does not ask for certificates by itself", "[tls][clients]") {
  TlsSite site;
  const Identity id = site.ca.issue({.common_name = "somebody"});
  const conn::ListenerPtr listener = site.listen();
  const ConnectionPtr a = site.connect(*listener, site.options_of(id));
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  REQUIRE(b->peer_certificate().empty());
  REQUIRE(b->peer_user().empty());
  site.require_echo(*a, *b);
}

TEST_CASE("tls: a good certificate of a client is accepted, and both sides have the other's",
          "[tls][clients]") {
  const std::string auth = GENERATE(as<std::string>{}, "optional", "yes");
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(auth, version);
  AskingSite site(auth);
  const Identity id = site.issue({.common_name = "alice", .extended_key_usage = "clientAuth"});
  const auto [a, b] = site.meet(with(site.options_of(id), version));
  REQUIRE(b->peer_certificate() == testing::read_file(id.cert));
  REQUIRE(a->peer_certificate() == testing::read_file(site.identity.cert));
  REQUIRE(b->peer_user() == "alice");
  REQUIRE(a->peer_user() == "server");
  site.require_echo(*a, *b);
}

TEST_CASE("tls: a client's certificate over an intermediate CA is accepted", "[tls][clients]") {
  AskingSite site("yes");
  const Identity id = site.ca.intermediate().issue({.common_name = "bob"});
  const auto [a, b] = site.meet(site.options_of(id));
  REQUIRE(b->peer_user() == "bob");
  REQUIRE(b->peer_certificate() == testing::read_file(id.cert));
}

TEST_CASE("tls: with auth-clients=optional a client may have no certificate, but no bad one",
          "[tls][clients]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  AskingSite site("optional");
  {
    const auto [a, b] = site.meet(with({}, version));
    REQUIRE(b->peer_certificate().empty());
    REQUIRE(b->peer_user().empty());
    site.require_echo(*a, *b);
  }
  AskingSite strict("optional");  // a new site, since bytes are counted
  const Authority other_ca(strict.folder, {.common_name = "Other CA"});
  const Identity other = other_ca.issue({.common_name = "mallory"});
  const auto [text, why] = strict.turn_away(with(strict.options_of(other), version));
  CAPTURE(text, why.text);
  REQUIRE(why.code == Errc::kVerification);
  REQUIRE_THAT(why.text, Contains("CN=mallory"));
}

TEST_CASE("tls: with auth-clients=yes a client without a certificate is turned away unheard",
          "[tls][clients]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  AskingSite site("yes");
  const auto [text, why] = site.turn_away(with({}, version));
  CAPTURE(text, why.text);
  REQUIRE(why.code == Errc::kVerification);
  REQUIRE_THAT(why.text, Contains("peer did not return a certificate"));
  REQUIRE_THAT(text, Contains(version == "1.2" ? "handshake failure" : "certificate required"));
}

TEST_CASE("tls: a client with a bad certificate is turned away unheard, with the reason",
          "[tls][clients]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  AskingSite site("yes");
  Identity bad;
  std::string reason, alert;
  SECTION("of a CA that the server does not know") {
    const Authority other(site.folder, {.common_name = "Other CA"});
    bad = other.issue({.common_name = "mallory"});
    reason = "unable to get local issuer certificate";
    alert = "unknown CA";
  }
  SECTION("signed by itself") {
    bad = testing::self_signed(site.folder, {.common_name = "mallory"});
    reason = "self-signed certificate";
    alert = "unknown CA";
  }
  SECTION("expired") {
    bad = site.issue({.common_name = "mallory", .valid_from = -48h, .valid_until = -1h});
    reason = "certificate has expired";
    alert = "certificate expired";
  }
  SECTION("for servers only") {
    bad = site.issue({.common_name = "mallory", .extended_key_usage = "serverAuth"});
    reason = "certificate purpose";
    alert = "unsupported certificate";
  }
  const auto [text, why] = site.turn_away(with(site.options_of(bad), version));
  CAPTURE(version, text, why.text);
  REQUIRE(why.code == Errc::kVerification);
  REQUIRE_THAT(why.text, Contains("CN=mallory"));
  REQUIRE_THAT(why.text, Contains(reason));
  REQUIRE_THAT(why.text, Contains("127.0.0.1:"));
  REQUIRE_THAT(text, Contains("alert \"" + alert + "\""));
}

TEST_CASE("tls: a revoked client is turned away, another of the same CA is not", "[tls][clients]") {
  TlsSite maker;
  const Identity good = maker.ca.issue({.common_name = "good"});
  const Identity stolen = maker.ca.issue({.common_name = "stolen"});
  const conn::ListenerPtr listener = maker.listen(
      {{"auth-clients", "yes"}, {"ca", maker.ca.cert()}, {"crl", maker.ca.revoke({stolen})}});
  const ConnectionPtr a = maker.connect(*listener, maker.options_of(good));
  REQUIRE(maker.next_accepted()->peer_user() == "good");
  const ConnectionPtr b = maker.connect(*listener, maker.options_of(stolen));
  const Failure why = maker.next_refused();
  REQUIRE(why.code == Errc::kVerification);
  REQUIRE_THAT(why.text, Contains("CN=stolen") && Contains("certificate revoked"));
}

namespace {

using KeyOwner = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

/// A P-256 key with the public part of `shown` and the private part of `used`.
KeyOwner key_that_passes_for(const EVP_PKEY* shown, const EVP_PKEY* used) {
  std::array<unsigned char, 200> point{};
  std::size_t size = 0;
  REQUIRE(EVP_PKEY_get_octet_string_param(shown, OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                          point.size(), &size) == 1);
  BIGNUM* number = nullptr;
  REQUIRE(EVP_PKEY_get_bn_param(used, OSSL_PKEY_PARAM_PRIV_KEY, &number) == 1);
  const std::unique_ptr<OSSL_PARAM_BLD, void (*)(OSSL_PARAM_BLD*)> parts(OSSL_PARAM_BLD_new(),
                                                                         OSSL_PARAM_BLD_free);
  OSSL_PARAM_BLD_push_utf8_string(parts.get(), OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0);
  OSSL_PARAM_BLD_push_octet_string(parts.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), size);
  OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_PRIV_KEY, number);
  const std::unique_ptr<OSSL_PARAM, void (*)(OSSL_PARAM*)> all(OSSL_PARAM_BLD_to_param(parts.get()),
                                                               OSSL_PARAM_free);
  BN_clear_free(number);
  const std::unique_ptr<EVP_PKEY_CTX, void (*)(EVP_PKEY_CTX*)> maker(
      EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr), EVP_PKEY_CTX_free);
  EVP_PKEY* key = nullptr;
  REQUIRE(EVP_PKEY_fromdata_init(maker.get()) == 1);
  REQUIRE(EVP_PKEY_fromdata(maker.get(), &key, EVP_PKEY_KEYPAIR, all.get()) == 1);
  return {key, EVP_PKEY_free};
}

}  // namespace

TEST_CASE("tls: a client with another's certificate but not its key is turned away",
          "[tls][clients]") {
  const bool alters_it = GENERATE(false, true);
  AskingSite site("yes");
  const Identity alice = site.issue({.common_name = "alice"});
  RawContext context = RawContext::client();
  context.use(site.issue({.common_name = "mallory"}));
  const std::unique_ptr<BIO, int (*)(BIO*)> pem(BIO_new_file(alice.cert.c_str(), "r"), BIO_free);
  const std::unique_ptr<X509, void (*)(X509*)> stolen(
      PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr), X509_free);
  // OpenSSL accepts a pair only if both have the same public key: mallory either uses a key with
  // alice's public part, or puts the own public key into the certificate.
  EVP_PKEY* const own = SSL_CTX_get0_privatekey(context.get());
  EVP_PKEY_up_ref(own);
  KeyOwner key(own, EVP_PKEY_free);
  if (alters_it) {
    REQUIRE(X509_set_pubkey(stolen.get(), own) == 1);
    REQUIRE(i2d_re_X509_tbs(stolen.get(), nullptr) > 0);
  } else {
    key = key_that_passes_for(X509_get0_pubkey(stolen.get()), own);
  }
  REQUIRE(SSL_CTX_use_certificate(context.get(), stolen.get()) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1);
  testing::aside(site.loop, [&] {
    RawTls peer(context, RawSocket::connect(testing::address_of(*site.listener)));
    if (peer.handshake()) (void)peer.send("let me in");
    (void)peer.receive(1);
  });
  const Failure why = site.next_refused();
  CAPTURE(why.text);
  if (alters_it) {
    REQUIRE(why.code == Errc::kVerification);
    REQUIRE_THAT(why.text, Contains("CN=alice") && Contains("certificate signature failure"));
  } else {
    REQUIRE_THAT(why.text, Contains("bad signature"));
  }
  REQUIRE(site.accepted.empty());
}

TEST_CASE("tls: a server with another's certificate but not its key is nobody", "[tls][clients]") {
  TlsSite site;
  const RawContext context = RawContext::server(site.ca.issue({.common_name = "mallory"}));
  const std::unique_ptr<BIO, int (*)(BIO*)> pem(BIO_new_file(site.identity.cert.c_str(), "r"),
                                                BIO_free);
  const std::unique_ptr<X509, void (*)(X509*)> stolen(
      PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr), X509_free);
  const KeyOwner key =
      key_that_passes_for(X509_get0_pubkey(stolen.get()), SSL_CTX_get0_privatekey(context.get()));
  REQUIRE(SSL_CTX_use_certificate(context.get(), stolen.get()) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1);
  const RawSocket listening = RawSocket::listening();
  bool over = false;
  const ConnectionPtr a = site.start(listening.endpoint(), {}, [&](auto&) { over = true; });
  testing::aside(site.loop, [&] {
    RawTls peer(context, listening.accept());
    (void)peer.handshake();
  });
  RUN_UNTIL(site.loop, over);
  CHECK_THAT(a->last_error(), Contains("bad signature"));
  CHECK(a->peer_user().empty());
  CHECK(a->peer_certificate() == testing::read_file(site.identity.cert));  // for a log
}

// --- users ---------------------------------------------------------------------------------------

TEST_CASE("tls: peer-user says what of the certificate is the user's name", "[tls][clients]") {
  struct Case {
    const char* option;
    std::string user;
  };
  const Case one = GENERATE(Case{"cn", "carol"}, Case{"uri", "spiffe://example.org/carol"},
                            Case{"dns", "carol.example.org"}, Case{"email", "carol@example.org"},
                            Case{"no", ""});
  CAPTURE(one.option);
  AskingSite site("yes", {{"peer-user", one.option}});
  const Identity id =
      site.issue({.common_name = "carol",
                  .names = {"URI:spiffe://example.org/carol", "DNS:carol.example.org",
                            "email:carol@example.org", "DNS:second.example.org"}});
  const auto [a, b] = site.meet(site.options_of(id));
  REQUIRE(b->peer_user() == one.user);
}

TEST_CASE("tls: a certificate without that kind of name, or with a NUL in it, is nobody's",
          "[tls][clients]") {
  const std::string kind = GENERATE(as<std::string>{}, "cn", "uri", "dns", "email");
  CAPTURE(kind);
  AskingSite site("yes", {{"peer-user", kind}});
  const Identity none = site.issue({.names = {"IP:10.1.2.3"}});
  REQUIRE(site.meet(site.options_of(none)).second->peer_user().empty());
  const Identity evil =
      site.issue({.common_name = "admin\0.evil"s,
                  .names = {"URI:admin\0.evil"s, "DNS:admin\0.evil"s, "email:admin\0@evil"s}});
  const ConnectionPtr client = site.connect(*site.listener, site.options_of(evil));
  const ConnectionPtr server = site.next_accepted();
  REQUIRE(server->peer_user().empty());
}

TEST_CASE("tls: names outside of ASCII come as UTF-8", "[tls][clients]") {
  AskingSite site("yes");
  const Identity id = site.issue({.common_name = "Zoë Ångström"});
  REQUIRE(site.meet(site.options_of(id)).second->peer_user() == "Zoë Ångström");
}

TEST_CASE("tls: statistics say when the certificate in a client's URL ends, while it is used",
          "[tls][clients]") {
  AskingSite site("yes");
  const auto ends = [&] {
    for (const auto& [name, value] : site.client.statistics(site.loop))
      if (name == "certificates_end") return std::int64_t(value);
    return std::int64_t{-1};
  };
  REQUIRE(ends() == 0);
  constexpr std::chrono::hours kLife(72);
  const auto before = std::int64_t(std::time(nullptr)) + std::chrono::seconds(kLife).count();
  auto [a, b] = site.meet(
      site.options_of(site.issue({.common_name = "client", .valid_until = kLife})));
  CHECK(ends() >= before - 1);
  CHECK(ends() <= std::int64_t(std::time(nullptr)) + std::chrono::seconds(kLife).count());
  a.reset();
  RUN_UNTIL(site.loop, ends() == 0);
}

TEST_CASE("tls: a resumed session still says who the client is", "[tls][clients]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  AskingSite site("yes");
  const Identity id = site.issue({.common_name = "dave"});
  const Options options = with(site.options_of(id), version);
  {
    const auto [a, b] = site.meet(options);
    site.require_echo(*a, *b);  // and tickets have arrived
  }
  const auto [a, b] = site.meet(options);
  REQUIRE(testing::info_of(*b, "resumed") == "yes");
  REQUIRE(b->peer_user() == "dave");
  REQUIRE(b->peer_certificate() == testing::read_file(id.cert));
}

#endif  // AECONN_TLS
