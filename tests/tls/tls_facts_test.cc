// SPDX-License-Identifier: BSD-3-Clause
// The facts of a TLS connection by themselves: of engines in memory, and TlsFacts over a session
// without a TLS connection above.
#if AECONN_TLS

#include "conn/tls/facts.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "conn/core/connection_core.h"
#include "conn/tcp/unix_type.h"
#include "conn/tls/session.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/tls_kit.h"

using Catch::Matchers::StartsWith;
using conn::ConnectionPtr;
using conn::State;
using conn::tls::Engine;
using conn::tls::Role;
using conn::tls::Session;
using conn::tls::TlsFacts;
using testing::Contains;
using testing::Engines;
using Facts = std::vector<std::pair<std::string, std::string>>;

namespace {

std::string value(const Facts& facts, std::string_view key) {
  for (const auto& [each, text] : facts)
    if (each == key) return text;
  return "(none)";
}
std::string client_fact(const Engines& both, std::string_view key) {
  return value(conn::tls::facts_of(both.client), key);
}
std::string server_fact(const Engines& both, std::string_view key) {
  return value(conn::tls::facts_of(both.server), key);
}

/// The end of the certificate as a date of RFC 3339.
std::string end_of(const X509* certificate) {
  const std::time_t end = conn::tls::end_of(certificate);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&end))};
}

/// Sessions on both ends of a connection, and a carrier above whose connection the test moves.
struct Bed {
  explicit Bed(bool with_path = false) {
    const conn::ConnectionType& type =
        with_path ? static_cast<const conn::ConnectionType&>(unix) : site.tcp;
    listener = type.listen(site.loop,
                           conn::Endpoint::parse(with_path ? "unix:" + site.folder.path() + "/s"
                                                           : "tcp://127.0.0.1:0"),
                           [this](ConnectionPtr one) { accepted = std::move(one); });
    connected = type.create(site.loop);
    connected->connect(testing::address_of(*listener), {});
    RUN_UNTIL(site.loop, accepted && connected->state() == State::kConnected);
    above->connect(conn::Endpoint::parse("stuck://x"), [](conn::Connection&) {});
  }
  void take() {
    conn::Options options = testing::test_tls_options("localhost");
    options.set("auth-clients", "yes");
    options.set("peer-user", "cn");
    const auto context = std::make_shared<conn::tls::Context>(conn::tls::parse_settings(options),
                                                              conn::tls::Secret());
    a.take(std::move(connected), context);
    b.take(std::move(accepted), context);
  }
  void make_engines() {
    a.make_engine(Role::kClient, "localhost");
    b.make_engine(Role::kServer, "");
  }
  void handshake() {
    const auto over = [](Session& session) {
      const Engine::Step step = session.engine().handshake();
      (void)session.engine().flush();
      return step == Engine::Step::kDone;
    };
    bool both = false;
    for (int i = 0; i < 1000 && !both; ++i) {
      both = over(a);
      both = over(b) && both;
      if (!both)
        (void)a.below().carrier().wait_for(
            ae::kReadable, std::chrono::steady_clock::now() + std::chrono::milliseconds(10));
    }
    REQUIRE(both);
    stuck.connect_all();
  }
  conn::CarrierHost& host() const { return conn::ConnectionCore::of(*above); }

  testing::TlsSite site;
  conn::tcp::UnixType unix;
  testing::StuckType stuck;
  ConnectionPtr above = stuck.create(site.loop);
  conn::ListenerPtr listener;
  ConnectionPtr accepted, connected;
  Session a, b;
  TlsFacts client{conn::ConnectionCore::of(*above).carrier(), a};
  TlsFacts server{conn::ConnectionCore::of(*above).carrier(), b};
};

}  // namespace

// --- of an engine --------------------------------------------------------------------------------

TEST_CASE("tls facts: what both ends have agreed on", "[tls][facts]") {
  const bool old = GENERATE(false, true);
  CAPTURE(old);
  Engines both(old ? conn::Options{{"max-version", "1.2"}, {"alpn", "kv,other"}} : conn::Options{});
  REQUIRE(both.handshake());
  for (const Engine* const end : {&both.client, &both.server}) {
    const Facts facts = conn::tls::facts_of(*end);
    CHECK(value(facts, "tls") == (old ? "TLSv1.2" : "TLSv1.3"));
    CHECK(value(facts, "cipher") == SSL_get_cipher_name(end->ssl()));
    CHECK(value(facts, "resumed") == "no");
    CHECK(value(facts, "server-name") == "localhost");
    CHECK(value(facts, "alpn") == (old ? "kv" : "(none)"));
    CHECK(value(facts, "ktls") == "no");
    const std::string group = value(facts, "group");
    CHECK(group != "(none)");
    CHECK(conn::tls::path_of(*end) ==
          "tls " + value(facts, "tls") + " " + value(facts, "cipher") + " " + group);
  }
}

TEST_CASE("tls facts: the ends of certificates, and whether the peer's was verified",
          "[tls][facts]") {
  Engines both;
  REQUIRE(both.handshake());
  const std::string end = end_of(SSL_get_certificate(both.server.ssl()));
  CHECK(server_fact(both, "certificate-ends") == end);
  CHECK(client_fact(both, "peer-certificate-ends") == end);
  CHECK(client_fact(both, "verified") == "yes");
  // The server has not asked for the client's certificate.
  CHECK(server_fact(both, "peer-certificate-ends") == "(none)");
  CHECK(server_fact(both, "verified") == "(none)");
  Engines careless({{"verify", "no"}});
  REQUIRE(careless.handshake());
  CHECK(client_fact(careless, "verified") == "no");
  CHECK(client_fact(careless, "peer-certificate-ends") == end);
}

TEST_CASE("tls facts: a name that was not asked for is not told", "[tls][facts]") {
  Engines both;
  SSL_set_tlsext_host_name(both.client.ssl(), nullptr);
  REQUIRE(both.handshake());
  CHECK(client_fact(both, "server-name") == "(none)");
  CHECK(server_fact(both, "server-name") == "(none)");
}

// --- of a connection -----------------------------------------------------------------------------

TEST_CASE("tls facts: without a connection below nothing is known", "[tls][facts]") {
  const Bed bed;
  const TlsFacts& facts = bed.client;
  CHECK(facts.local_address().empty());
  CHECK(facts.peer_address().empty());
  CHECK(facts.local_sockaddr().size == 0);
  CHECK(facts.peer_sockaddr().size == 0);
  CHECK_FALSE(facts.is_local());
  CHECK(facts.fd() == -1);
  CHECK_FALSE(facts.peer_credentials());
  CHECK(facts.path() == "tls");
  CHECK(facts.info().empty());
  CHECK(facts.peer_certificate().empty());
  CHECK(facts.peer_user().empty());
}

TEST_CASE("tls facts: before the handshake they are those of the connection below",
          "[tls][facts]") {
  Bed bed;
  const std::string local = bed.connected->local_address(), peer = bed.connected->peer_address();
  const std::string path = bed.connected->path();
  const Facts info = bed.connected->info();
  const int fd = bed.connected->fd();
  REQUIRE(local != peer);
  bed.take();
  const TlsFacts& facts = bed.client;
  for (const bool engine : {false, true}) {
    CAPTURE(engine);
    if (engine) bed.make_engines();
    CHECK(facts.local_address() == local);
    CHECK(facts.peer_address() == peer);
    CHECK(facts.local_sockaddr().to_string() == local);
    CHECK(facts.peer_sockaddr().to_string() == peer);
    CHECK(facts.is_local() == true);
    CHECK(facts.fd() == fd);
    CHECK(facts.info() == info);
    CHECK(facts.peer_certificate().empty());
    CHECK(facts.peer_user().empty());
    if (!engine) CHECK(facts.path() == "tls over " + path);
  }
}

TEST_CASE("tls facts: an established connection tells those of both layers", "[tls][facts]") {
  Bed bed;
  const std::string below_path = bed.connected->path();
  const Facts below = bed.connected->info();
  bed.take();
  bed.make_engines();
  bed.handshake();
  Facts all = conn::tls::facts_of(bed.a.engine());
  const std::string path = conn::tls::path_of(bed.a.engine());
  all.insert(all.end(), below.begin(), below.end());
  CHECK(bed.client.info() == all);
  CHECK(bed.client.path() == path + " over " + below_path);
  CHECK_THAT(bed.client.peer_certificate(), StartsWith("-----BEGIN CERTIFICATE-----"));
  CHECK_THAT(bed.server.peer_certificate(), StartsWith("-----BEGIN CERTIFICATE-----"));
  CHECK_FALSE(bed.server.peer_user().empty());
  SECTION("also at the end of the stream") {
    bed.host().move_to(State::kClosed);
    CHECK(bed.client.info() == all);
  }
  SECTION("after a failure only those below") {
    bed.stuck.lose_all();
    CHECK(bed.client.info() == below);
    CHECK(bed.client.path() == path + " over " + below_path);
  }
  SECTION("after the end of the connection below only those of TLS") {
    bed.a.below().close(false);
    CHECK(bed.client.info() == conn::tls::facts_of(bed.a.engine()));
    CHECK(bed.client.path() == path);
    CHECK(bed.client.local_address().empty());
    CHECK(bed.client.peer_address().empty());
    CHECK(bed.client.local_sockaddr().size == 0);
    CHECK(bed.client.peer_sockaddr().size == 0);
    CHECK_FALSE(bed.client.is_local());
    CHECK(bed.client.fd() == -1);
    CHECK_THAT(bed.client.peer_certificate(), Contains("CERTIFICATE"));
  }
}

TEST_CASE("tls facts: the process at the other end of a Unix socket", "[tls][facts]") {
  Bed bed(true);
  bed.take();
  REQUIRE(bed.client.peer_credentials());
  CHECK(bed.client.peer_credentials()->pid == getpid());
  bed.a.below().close(false);
  CHECK_FALSE(bed.client.peer_credentials());
}

#endif  // AECONN_TLS
