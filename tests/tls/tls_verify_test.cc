// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: how a client verifies a server's certificate, and what each side reports.
#if AECONN_TLS

#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::Failure;
using conn::State;
using conn::tls::Errc;
using testing::Authority;
using testing::CertificateRequest;
using testing::Identity;
using testing::KeyType;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsSite;
using namespace std::chrono_literals;
using namespace std::string_literals;
using Catch::Matchers::StartsWith;
using testing::Contains;

namespace {

/// The result of a connect to this library's server.
struct Outcome {
  ConnectionPtr client;
  Failure refused;
};

/// A handshake that is expected to fail.
Outcome refuse(TlsSite& site, const Identity& identity, const conn::Options& client = {}) {
  const conn::ListenerPtr listener = site.listen(site.options_of(identity));
  Outcome outcome;
  outcome.client = site.connect(*listener, client);
  INFO("connected without complaint");
  REQUIRE(outcome.client->state() == State::kError);
  outcome.refused = site.next_refused();
  REQUIRE(site.accepted.empty());
  return outcome;
}

/// The client's error names the certificate and the reason; the server gets this alert.
void require_refused(const Outcome& outcome, const std::string& subject, const std::string& reason,
                     const std::string& alert) {
  CAPTURE(outcome.client->last_error(), outcome.refused.text);
  REQUIRE(outcome.client->error_code() == Errc::kVerification);
  REQUIRE_THAT(outcome.client->last_error(), StartsWith("TLS handshake with 127.0.0.1:"));
  REQUIRE_THAT(outcome.client->last_error(), Contains("CN=" + subject));
  REQUIRE_THAT(outcome.client->last_error(), Contains(reason));
  REQUIRE(outcome.refused.code == Errc::kVerification);
  REQUIRE_THAT(outcome.refused.text, StartsWith("TLS handshake with 127.0.0.1:"));
  REQUIRE_THAT(outcome.refused.text, Contains("alert \"" + alert + "\""));
}

void require_accepted(TlsSite& site, const conn::Options& server, const conn::Options& client) {
  const conn::ListenerPtr listener = site.listen(server);
  const ConnectionPtr a = site.connect(*listener, client);
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);
}

/// Connects to a server that OpenSSL would not refuse to run; returns the client's connection.
ConnectionPtr connect_to_raw(TlsSite& site, const Identity& identity,
                             const conn::Options& client = {}, std::string* alert = nullptr,
                             int max_version = TLS1_3_VERSION) {
  const RawSocket listening = RawSocket::listening();
  RawContext context = RawContext::server(identity);
  context.set_versions(TLS1_2_VERSION, max_version);
  bool done = false;
  ConnectionPtr connection =
      site.start(listening.endpoint(), client, [&](conn::Connection&) { done = true; });
  const std::string told = testing::aside(site.loop, [&] {
    RawTls peer(context, listening.accept());
    // In TLS 1.3 the server's handshake ends with the client's; reading gets an alert sent before
    // that.
    (void)peer.handshake();
    return peer.alert();
  });
  if (alert != nullptr) *alert = told;
  RUN_UNTIL(site.loop, done);
  return connection;
}

const CertificateRequest kServer{.common_name = "server",
                                 .names = {"DNS:localhost", "IP:127.0.0.1"}};

/// kServer with changes.
template <class Change>
CertificateRequest server_with(Change change) {
  CertificateRequest request = kServer;
  change(request);
  return request;
}

}  // namespace

// --- valid certificates --------------------------------------------------------------------------

TEST_CASE("tls: a certificate of a trusted CA is accepted by address and by name",
          "[tls][verify]") {
  TlsSite site;
  require_accepted(site, {}, {});
  require_accepted(site, {}, {{"server-name", "localhost"}});
  const conn::ListenerPtr listener = site.listen();
  conn::Endpoint by_name = testing::address_of(*listener);
  by_name.hosts.front().name = "localhost";
  const ConnectionPtr client = site.connect(by_name);
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
}

TEST_CASE("tls: an IPv6 address is checked against the certificate's addresses", "[tls][verify]") {
  TlsSite site;
  const Identity six = site.ca.issue({.common_name = "six", .names = {"IP:::1"}});
  require_accepted(site, site.options_of(six), {{"server-name", "::1"}});
  require_refused(refuse(site, six, {{"server-name", "::2"}}), "six", "IP address mismatch",
                  "bad certificate");
}

TEST_CASE("tls: a chain over an intermediate CA is accepted if the server sends it",
          "[tls][verify]") {
  TlsSite site;
  const Authority between = site.ca.intermediate();
  const Identity leaf = between.issue(kServer);
  require_accepted(site, site.options_of(leaf), {});
  const Identity alone{.cert = leaf.cert, .chain = leaf.cert, .key = leaf.key};
  require_refused(refuse(site, alone), "server", "unable to get local issuer certificate",
                  "unknown CA");
}

TEST_CASE("tls: ca-dir is a folder of CAs by the hash of their names", "[tls][verify]") {
  TlsSite site({}, {{"ca", ""}});
  const testing::TempFolder trusted;
  require_refused(refuse(site, site.identity, {{"ca-dir", trusted.path()}}), "server",
                  "unable to get local issuer certificate", "unknown CA");
  const testing::TempFolder folder;
  std::unique_ptr<BIO, int (*)(BIO*)> pem(BIO_new_file(site.ca.cert().c_str(), "r"), BIO_free);
  std::unique_ptr<X509, void (*)(X509*)> root(
      PEM_read_bio_X509(pem.get(), nullptr, nullptr, nullptr), X509_free);
  char name[16];
  std::snprintf(name, sizeof name, "%08lx.0",
                X509_NAME_hash_ex(X509_get_subject_name(root.get()), nullptr, nullptr, nullptr));
  testing::write_file(folder, name, testing::read_file(site.ca.cert()));
  require_accepted(site, {}, {{"ca-dir", folder.path()}});
}

// --- invalid certificates ------------------------------------------------------------------------

TEST_CASE("tls: a certificate that has expired is refused, and both sides say why",
          "[tls][verify]") {
  TlsSite site;
  const Identity expired = site.ca.issue(server_with([](CertificateRequest& r) {
    r.valid_from = -48h;
    r.valid_until = -1h;
  }));
  require_refused(refuse(site, expired), "server", "certificate has expired",
                  "certificate expired");
}

TEST_CASE("tls: a certificate that is not valid yet is refused", "[tls][verify]") {
  TlsSite site;
  const Identity early =
      site.ca.issue(server_with([](CertificateRequest& r) { r.valid_from = 1h; }));
  require_refused(refuse(site, early), "server", "certificate is not yet valid", "bad certificate");
}

TEST_CASE("tls: an intermediate CA that has expired is refused and named", "[tls][verify]") {
  TlsSite site;
  const Authority between =
      site.ca.intermediate({.common_name = "Old Middle", .valid_from = -48h, .valid_until = -1h});
  const Outcome outcome = refuse(site, between.issue(kServer));
  require_refused(outcome, "Old Middle", "certificate has expired", "certificate expired");
  REQUIRE_THAT(outcome.client->last_error(), !Contains("CN=server"));
}

TEST_CASE("tls: a certificate of an unknown CA is refused, whatever the CA is called",
          "[tls][verify]") {
  TlsSite site;
  const Authority other(site.folder, {.common_name = "Other CA"});
  require_refused(refuse(site, other.issue(kServer)), "server",
                  "unable to get local issuer certificate", "unknown CA");
  const Authority impostor(site.folder);  // with the same name as site.ca
  const Outcome outcome = refuse(site, impostor.issue(kServer));
  REQUIRE(outcome.client->error_code() == Errc::kVerification);
}

TEST_CASE("tls: a certificate that signs itself is refused unless it is trusted", "[tls][verify]") {
  TlsSite site;
  const Identity own = testing::self_signed(site.folder, kServer);
  require_refused(refuse(site, own), "server", "self-signed certificate", "unknown CA");
  require_accepted(site, site.options_of(own), {{"ca", own.cert}});
}

TEST_CASE("tls: a certificate for another name or address is refused, with what was wanted",
          "[tls][verify]") {
  TlsSite site;
  const Outcome name = refuse(site, site.identity, {{"server-name", "other.example"}});
  require_refused(name, "server", "hostname mismatch", "bad certificate");
  REQUIRE_THAT(name.client->last_error(), Contains("wanted other.example"));
  REQUIRE_THAT(name.client->last_error(), Contains("DNS:localhost, IP:127.0.0.1"));

  const Identity elsewhere =
      site.ca.issue({.common_name = "far", .names = {"IP:2001:db8::1", "IP:10.0.0.1"}});
  const Outcome address = refuse(site, elsewhere);
  require_refused(address, "far", "IP address mismatch", "bad certificate");
  REQUIRE_THAT(address.client->last_error(), Contains("wanted 127.0.0.1"));
  REQUIRE_THAT(address.client->last_error(), Contains("it names IP:2001:db8::1, IP:10.0.0.1"));
  // An IP address is not a name: a common name or DNS entry with the same text is not sufficient.
  const Identity spelt = site.ca.issue({.common_name = "127.0.0.1", .names = {"DNS:127.0.0.1"}});
  require_refused(refuse(site, spelt), "127.0.0.1", "IP address mismatch", "bad certificate");
}

TEST_CASE("tls: a certificate for clients only is refused of a server", "[tls][verify]") {
  TlsSite site;
  const Identity client = site.ca.issue(
      server_with([](CertificateRequest& r) { r.extended_key_usage = "clientAuth"; }));
  const Outcome outcome = refuse(site, client);
  REQUIRE(outcome.client->error_code() == Errc::kVerification);
  REQUIRE_THAT(outcome.client->last_error(), Contains("certificate purpose"));
}

TEST_CASE("tls: a leaf that signs certificates of its own is refused", "[tls][verify]") {
  TlsSite site;
  const Authority leaf = site.ca.intermediate({.common_name = "leaf",
                                               .basic_constraints = "critical,CA:FALSE,pathlen:0",
                                               .key_usage = "digitalSignature"});
  const Outcome outcome = refuse(site, leaf.issue(kServer));
  REQUIRE(outcome.client->error_code() == Errc::kVerification);
  REQUIRE_THAT(outcome.client->last_error(), Contains("CN=leaf"));
}

// --- revocation ----------------------------------------------------------------------------------

TEST_CASE("tls: a revoked certificate is refused, and one that is not goes on", "[tls][verify]") {
  TlsSite site;
  const Identity stolen = site.ca.issue(kServer);
  const conn::Options client{{"crl", site.ca.revoke({stolen})}};
  require_refused(refuse(site, stolen, client), "server", "certificate revoked",
                  "certificate revoked");
  require_accepted(site, {}, client);
  require_accepted(site, site.options_of(stolen), {});  // this client has no CRL
}

TEST_CASE("tls: a revocation list that is missing or too old is no permission", "[tls][verify]") {
  TlsSite site;
  const Authority other(site.folder, {.common_name = "Other CA"});
  const Outcome none = refuse(site, site.identity, {{"crl", other.revoke({})}});
  REQUIRE(none.client->error_code() == Errc::kVerification);
  REQUIRE_THAT(none.client->last_error(), Contains("unable to get certificate CRL"));
  const Outcome old = refuse(site, site.identity, {{"crl", site.ca.revoke({}, -1h)}});
  REQUIRE(old.client->error_code() == Errc::kVerification);
  REQUIRE_THAT(old.client->last_error(), Contains("CRL has expired"));
}

TEST_CASE("tls: crl-check=chain looks at intermediate CAs too, leaf only at the last",
          "[tls][verify]") {
  TlsSite site;
  const Authority between = site.ca.intermediate();
  const Identity leaf = between.issue(kServer);
  const std::string lists = testing::join_files(
      site.folder,
      {site.ca.revoke({{.cert = between.cert(), .chain = {}, .key = {}}}), between.revoke({})});
  require_accepted(site, site.options_of(leaf), {{"crl", lists}});
  require_refused(refuse(site, leaf, {{"crl", lists}, {"crl-check", "chain"}}), "Test Intermediate",
                  "certificate revoked", "certificate revoked");
}

// --- weak certificates ---------------------------------------------------------------------------

TEST_CASE("tls: weak keys and signatures are refused of a server", "[tls][verify]") {
  TlsSite site;
  struct Weak {
    KeyType key;
    const char* digest;
    const char* reason;
    int max_version = TLS1_3_VERSION;
  };
  const Weak weak =
      GENERATE(Weak{KeyType::kRsa1024, "sha256", "EE certificate key too weak"},
               // Too small for any TLS 1.3 signature.
               Weak{KeyType::kRsa512, "sha256", "EE certificate key too weak", TLS1_2_VERSION},
               Weak{KeyType::kP256, "sha1", "CA signature digest algorithm too weak"});
  CAPTURE(weak.reason);
  const Identity identity = site.ca.issue(server_with([&](CertificateRequest& r) {
    r.key = weak.key;
    r.digest = weak.digest;
  }));
  std::string alert;
  const ConnectionPtr client = connect_to_raw(site, identity, {}, &alert, weak.max_version);
  CAPTURE(client->last_error(), alert);
  REQUIRE(client->state() == State::kError);
  REQUIRE(client->error_code() == Errc::kVerification);
  REQUIRE_THAT(client->last_error(), Contains("CN=server"));
  REQUIRE_THAT(client->last_error(), Contains(weak.reason));
  REQUIRE(alert == "bad certificate");
}

TEST_CASE("tls: a server refuses to begin with a weak certificate of its own", "[tls][verify]") {
  TlsSite site;
  const Identity small =
      site.ca.issue(server_with([](CertificateRequest& r) { r.key = KeyType::kRsa1024; }));
  const Identity old = site.ca.issue(server_with([](CertificateRequest& r) { r.digest = "sha1"; }));
  REQUIRE_THROWS_WITH(site.listen(site.options_of(small)),
                      Contains(small.chain) && Contains("ee key too small"));
  REQUIRE_THROWS_WITH(site.listen(site.options_of(old)),
                      Contains(old.chain) && Contains("ca md too weak"));
}

TEST_CASE("tls: RSA certificates of 2048 bits work in both versions", "[tls][verify]") {
  TlsSite site;
  const Identity rsa =
      site.ca.issue(server_with([](CertificateRequest& r) { r.key = KeyType::kRsa2048; }));
  require_accepted(site, site.options_of(rsa), {});
  require_accepted(site, site.options_of(rsa), {{"max-version", "1.2"}});
}

// --- names ---------------------------------------------------------------------------------------

TEST_CASE("tls: a name with a NUL does not pass for what stands before it", "[tls][verify]") {
  TlsSite site;
  const Identity in_san =
      site.ca.issue({.common_name = "evil", .names = {"DNS:good.example\0.evil.example"s}});
  const Outcome san = refuse(site, in_san, {{"server-name", "good.example"}});
  REQUIRE(san.client->error_code() == Errc::kVerification);
  REQUIRE_THAT(san.client->last_error(), Contains("CN=evil"));
  REQUIRE(san.client->last_error().find('\0') == std::string::npos);

  const Identity in_cn = site.ca.issue({.common_name = "good.example\0.evil.example"s});
  const Outcome cn = refuse(site, in_cn, {{"server-name", "good.example"}});
  REQUIRE(cn.client->error_code() == Errc::kVerification);
  REQUIRE(cn.client->last_error().find('\0') == std::string::npos);
}

TEST_CASE("tls: a subject cannot write lines of its own into what is logged", "[tls][verify]") {
  TlsSite site;
  const Identity loud =
      site.ca.issue({.common_name = "a\nb\r\x1b[31mc\x7f", .names = {"DNS:\n\x1b"}});
  const Outcome outcome = refuse(site, loud, {{"server-name", "good.example"}});
  for (const char c : outcome.client->last_error()) {
    CAPTURE(outcome.client->last_error());
    REQUIRE((static_cast<unsigned char>(c) >= ' ' && c != '\x7f'));
  }
}

TEST_CASE("tls: a wildcard stands for one whole label", "[tls][verify]") {
  TlsSite site;
  const Identity wild = site.ca.issue({.common_name = "wild", .names = {"DNS:*.example.org"}});
  require_accepted(site, site.options_of(wild), {{"server-name", "a.example.org"}});
  require_accepted(site, site.options_of(wild), {{"server-name", "A.EXAMPLE.ORG"}});
  for (const char* name : {"example.org", "a.b.example.org", "a.example.com"}) {
    CAPTURE(name);
    const Outcome outcome = refuse(site, wild, {{"server-name", name}});
    REQUIRE(outcome.client->error_code() == Errc::kVerification);
  }
  const Identity part = site.ca.issue({.common_name = "part", .names = {"DNS:w*.example.org"}});
  require_refused(refuse(site, part, {{"server-name", "www.example.org"}}), "part",
                  "hostname mismatch", "bad certificate");
  const Identity top = site.ca.issue({.common_name = "top", .names = {"DNS:*"}});
  require_refused(refuse(site, top, {{"server-name", "localhost"}}), "top", "hostname mismatch",
                  "bad certificate");
}

TEST_CASE("tls: the common name counts only where there are no alternative names",
          "[tls][verify]") {
  TlsSite site;
  const Identity both = site.ca.issue({.common_name = "old.example", .names = {"DNS:new.example"}});
  require_accepted(site, site.options_of(both), {{"server-name", "new.example"}});
  require_refused(refuse(site, both, {{"server-name", "old.example"}}), "old.example",
                  "hostname mismatch", "bad certificate");
}

TEST_CASE("tls: a client without a CA of its own does not trust the test's", "[tls][verify]") {
  TlsSite site({}, {{"ca", ""}});
  require_refused(refuse(site, site.identity), "server", "unable to get local issuer certificate",
                  "unknown CA");
}

// --- reduced verification ------------------------------------------------------------------------

TEST_CASE("tls: verify=chain leaves the name unchecked and nothing else", "[tls][verify]") {
  TlsSite site;
  const conn::Options chain{{"verify", "chain"}, {"server-name", "other.example"}};
  require_accepted(site, {}, chain);
  const Authority other(site.folder, {.common_name = "Other CA"});
  require_refused(refuse(site, other.issue(kServer), chain), "server",
                  "unable to get local issuer certificate", "unknown CA");
}

TEST_CASE("tls: verify=no accepts anybody and calls nobody verified", "[tls][verify]") {
  TlsSite site;
  const Identity own = testing::self_signed(
      site.folder, {.common_name = "anybody", .valid_from = -48h, .valid_until = -1h});
  const conn::ListenerPtr listener = site.listen(site.options_of(own));
  const ConnectionPtr client = site.connect(*listener, {{"verify", "no"}});
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  REQUIRE(client->peer_user().empty());
  REQUIRE(client->peer_certificate() == testing::read_file(own.cert));
}

#endif  // AECONN_TLS
