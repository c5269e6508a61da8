// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: sessions that are resumed, and sessions that must not be resumed.
#if AECONN_TLS

#include <openssl/evp.h>

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "conn/tls/ticket_keys.h"
#include "tests/support/catch.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::Options;
using conn::State;
using conn::tls::Errc;
using testing::Authority;
using testing::Contains;
using testing::Identity;
using testing::info_of;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsSite;
using namespace std::chrono_literals;

namespace {

using Session = std::shared_ptr<SSL_SESSION>;

/// Connects and returns whether the session was resumed ("yes", "no"), or the error.
std::string visit(TlsSite& site, const conn::Endpoint& to, const Options& options = {}) {
  const ConnectionPtr a = site.connect(to, options);
  if (a->state() != State::kConnected) return a->last_error();
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);  // TLS 1.3 sends its tickets before the answer
  REQUIRE(info_of(*a, "resumed") == info_of(*b, "resumed"));
  return info_of(*a, "resumed");
}

/// A client that keeps all sessions and can offer any of them, even improperly.
class Hoarder {
 public:
  Hoarder(TlsSite& site, int version) : site_(site) {
    context_.set_versions(version, version);
    kept_ = context_.keep_sessions();
  }
  RawContext& context() { return context_; }
  /// The newest session; null if there is none.
  Session newest() const { return kept_->empty() ? nullptr : kept_->back(); }
  std::size_t kept() const { return kept_->size(); }
  /// Whether the server resumed; the connection must be established in any case.
  bool resumes(const conn::Listener& listener, const Session& session,
               const std::string& name = {}) {
    // A copy, since OpenSSL offers a session of TLS 1.3 only once.
    const Session offered(session ? SSL_SESSION_dup(session.get()) : nullptr, SSL_SESSION_free);
    std::optional<RawTls> peer;
    const bool connected = testing::aside(site_.loop, [&] {
      peer.emplace(context_, RawSocket::connect(testing::address_of(listener)));
      if (!name.empty()) SSL_set_tlsext_host_name(peer->ssl(), name.c_str());
      if (offered) SSL_set_session(peer->ssl(), offered.get());
      return peer->handshake();
    });
    INFO("alert: " << peer->alert());
    REQUIRE(connected);
    const ConnectionPtr server = site_.next_accepted();
    user = server->peer_user();
    server->write("x", 1);
    const std::string got = testing::aside(site_.loop, [&] { return peer->receive(1); });
    REQUIRE(got == "x");
    REQUIRE(info_of(*server, "resumed") == (peer->resumed() ? "yes" : "no"));
    return peer->resumed();
  }
  std::string user;  ///< the user name at the server

 private:
  TlsSite& site_;
  RawContext context_ = RawContext::client();
  std::shared_ptr<std::vector<Session>> kept_;
};

int number_of(const std::string& version) {
  return version == "1.2" ? TLS1_2_VERSION : TLS1_3_VERSION;
}

}  // namespace

// --- this library's client -----------------------------------------------------------------------

TEST_CASE("tls: a client that comes back resumes, by ticket and by cache", "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache");
  CAPTURE(version, kind);
  TlsSite site({{"resumption", kind}}, {{"max-version", version}});
  const conn::ListenerPtr listener = site.listen();
  const conn::Endpoint where = testing::address_of(*listener);
  REQUIRE(visit(site, where) == "no");
  for (int i = 0; i < 3; ++i) REQUIRE(visit(site, where) == "yes");
  const auto statistics = site.server.statistics(site.loop);
  REQUIRE(std::count(statistics.begin(), statistics.end(),
                     std::pair<std::string, std::uint64_t>{"resumed", 3}) == 1);
}

TEST_CASE("tls: a client resumes whatever time it has to connect", "[tls][resumption]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  const conn::Endpoint where = testing::address_of(*listener);
  REQUIRE(visit(site, where) == "no");
  for (const char* const limit : {"5s", "6s", "7s"})
    REQUIRE(visit(site, where, {{"connect-timeout", limit}}) == "yes");
  const ConnectionPtr wrong = site.connect(where, {{"connect-timeout", "0"}});
  REQUIRE_THAT(wrong->last_error(), Contains("connect-timeout"));
}

TEST_CASE("tls: behind another scheme of a list a client resumes, however late its turn comes",
          "[tls][resumption]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  conn::Registry registry;
  registry.add(std::make_unique<testing::StuckType>());
  conn::ConnectionType& tcp = registry.add(std::make_unique<conn::tcp::TcpType>());
  registry.add(std::make_unique<conn::tls::TlsType>(tcp)).configure({{"ca", site.ca.cert()}});
  conn::Endpoint where = testing::address_of(*listener);
  where.scheme = "stuck|tls";
  std::string resumed;
  for (const char* const delay : {"1ms", "5ms", "9ms", "13ms"}) {
    where.options = {{"fallback-delay", delay}};
    const ConnectionPtr client = registry.create(site.loop, where);
    client->connect(where, [](conn::Connection&) {});
    const ConnectionPtr server = site.next_accepted();
    RUN_UNTIL(site.loop, client->state() == State::kConnected);
    site.require_echo(*client, *server);
    resumed += info_of(*client, "resumed") + ' ';
  }
  REQUIRE(resumed == "no yes yes yes ");
}

TEST_CASE("tls: resumption=no on either side makes every handshake a full one",
          "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const bool by_server = GENERATE(true, false);
  CAPTURE(version, by_server);
  const Options no{{"resumption", "no"}, {"max-version", version}}, old{{"max-version", version}};
  TlsSite site(by_server ? no : old, by_server ? old : no);
  const conn::ListenerPtr listener = site.listen();
  for (int i = 0; i < 3; ++i) REQUIRE(visit(site, testing::address_of(*listener)) == "no");
}

TEST_CASE("tls: a session is not resumed with another name or another port", "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({}, {{"max-version", version}});
  const conn::ListenerPtr listener = site.listen();
  conn::Endpoint where = testing::address_of(*listener);
  REQUIRE(visit(site, where) == "no");
  where.hosts.front().name = "localhost";  // the same server with another name
  REQUIRE(visit(site, where) == "no");
  const conn::ListenerPtr other = site.listen();
  REQUIRE(visit(site, testing::address_of(*other)) == "no");
  REQUIRE(visit(site, where) == "yes");
}

TEST_CASE("tls: a client offers a session to the name it got it from, whatever the server takes",
          "[tls][resumption]") {
  const int version = GENERATE(TLS1_2_VERSION, TLS1_3_VERSION);
  CAPTURE(version);
  TlsSite site;
  // OpenSSL's server resumes for any name.
  RawContext context = RawContext::server(site.identity);
  context.set_versions(version, version);
  const RawSocket listening = RawSocket::listening();
  const auto visited = [&](const std::string& name) {
    conn::Endpoint where = listening.endpoint();
    where.hosts.front().name = name;
    const ConnectionPtr client = site.start(where);
    const bool resumed = testing::aside(site.loop, [&] {
      RawTls peer(context, listening.accept());
      (void)peer.handshake();
      (void)peer.send("x");
      return peer.resumed();
    });
    RUN_UNTIL(site.loop, client->state() != State::kConnecting);
    INFO(client->last_error());
    REQUIRE(client->state() == State::kConnected);
    REQUIRE(testing::receive(site.loop, *client, 1) == "x");  // preceded by a ticket
    return resumed;
  };
  REQUIRE_FALSE(visited("127.0.0.1"));
  REQUIRE_FALSE(visited("localhost"));
  REQUIRE(visited("localhost"));
  REQUIRE(visited("127.0.0.1"));
}

TEST_CASE("tls: a client that trusts another CA from now on does not resume past it",
          "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({}, {{"max-version", version}});
  const conn::ListenerPtr listener = site.listen();
  REQUIRE(visit(site, testing::address_of(*listener)) == "no");
  const Authority other(site.folder, {.common_name = "Other CA"});
  site.client.configure({{"ca", other.cert()}, {"max-version", version}});
  const ConnectionPtr a = site.connect(*listener);
  REQUIRE(a->state() == State::kError);
  REQUIRE(a->error_code() == Errc::kVerification);
}

TEST_CASE("tls: what was verified less is not resumed where more is asked", "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site({}, {{"max-version", version}});
  const Identity own = testing::self_signed(site.folder, {.common_name = "anybody"});
  const conn::ListenerPtr listener = site.listen(site.options_of(own));
  REQUIRE(visit(site, testing::address_of(*listener), {{"verify", "no"}}) == "no");
  const ConnectionPtr a = site.connect(*listener);
  REQUIRE(a->state() == State::kError);
  REQUIRE(a->error_code() == Errc::kVerification);
}

// --- sessions at servers -------------------------------------------------------------------------

TEST_CASE("tls: a server sends one ticket after a handshake of TLS 1.3, without resumption none",
          "[tls][resumption]") {
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache", "no");
  CAPTURE(kind);
  TlsSite site({{"resumption", kind}}, {});
  const conn::ListenerPtr listener = site.listen();
  Hoarder client(site, TLS1_3_VERSION);
  REQUIRE_FALSE(client.resumes(*listener, nullptr));
  REQUIRE(client.kept() == (kind == "no" ? 0 : 1));
}

TEST_CASE("tls: a session that was offered before may be offered again", "[tls][resumption]") {
  // A client that does this can be recognised; that is the client's decision.
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  Hoarder client(site, number_of(version));
  REQUIRE_FALSE(client.resumes(*listener, nullptr));
  const Session first = client.newest();
  REQUIRE(first != nullptr);
  REQUIRE(client.resumes(*listener, first));
  REQUIRE(client.resumes(*listener, first));
}

TEST_CASE("tls: a session of another listener, with another certificate, is not resumed",
          "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache");
  CAPTURE(version, kind);
  TlsSite site({{"resumption", kind}}, {});
  const Identity other = site.ca.issue({.common_name = "other", .names = {"IP:127.0.0.1"}});
  const conn::ListenerPtr here = site.listen();
  const conn::ListenerPtr there = site.listen(site.options_of(other));
  Hoarder client(site, number_of(version));
  REQUIRE_FALSE(client.resumes(*here, nullptr));
  const Session session = client.newest();
  REQUIRE_FALSE(client.resumes(*there, session));
  REQUIRE(client.resumes(*here, session));  // so the session was valid
}

TEST_CASE("tls: a session does not carry a client past a listener that asks for certificates",
          "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsSite site;
  const Authority other(site.folder, {.common_name = "Other CA"});
  const conn::ListenerPtr open = site.listen();
  const conn::ListenerPtr asking = site.listen({{"auth-clients", "yes"}, {"ca", site.ca.cert()}});
  const conn::ListenerPtr elsewhere =
      site.listen({{"auth-clients", "optional"}, {"ca", other.cert()}});
  const Identity user = site.ca.issue({.common_name = "user"});

  Hoarder nobody(site, number_of(version));
  REQUIRE_FALSE(nobody.resumes(*open, nullptr));
  const Session session = nobody.newest();
  testing::aside(site.loop, [&] {
    RawTls peer(nobody.context(), RawSocket::connect(testing::address_of(*asking)));
    SSL_set_session(peer.ssl(), session.get());
    if (peer.handshake()) (void)peer.receive(1);
  });
  (void)site.next_refused();
  REQUIRE(site.accepted.empty());

  // A certificate accepted by one listener must not be accepted by the other, with or without a
  // session.
  Hoarder client(site, number_of(version));
  client.context().use(user);
  REQUIRE_FALSE(client.resumes(*asking, nullptr));
  REQUIRE(client.user == "user");
  const Session known = client.newest();
  testing::aside(site.loop, [&] {
    RawTls peer(client.context(), RawSocket::connect(testing::address_of(*elsewhere)));
    SSL_set_session(peer.ssl(), known.get());
    if (peer.handshake()) (void)peer.receive(1);
  });
  REQUIRE(site.next_refused().code == Errc::kVerification);
  REQUIRE(site.accepted.empty());
}

TEST_CASE("tls: a session is not resumed for another name of the same listener",
          "[tls][resumption]") {
  // RFC 6066 3: the server must not resume for another name. Here each name has its own
  // certificate.
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache");
  CAPTURE(version, kind);
  TlsSite site;
  const Identity one = site.ca.issue({.common_name = "one", .names = {"DNS:one.example"}});
  const Identity two = site.ca.issue({.common_name = "two", .names = {"DNS:two.example"}});
  const conn::ListenerPtr listener = site.listen({{"cert", one.chain + "," + two.chain},
                                                  {"key", one.key + "," + two.key},
                                                  {"resumption", kind}});
  Hoarder client(site, number_of(version));
  REQUIRE_FALSE(client.resumes(*listener, nullptr, "one.example"));
  const Session session = client.newest();
  REQUIRE(client.resumes(*listener, session, "one.example"));
  REQUIRE_FALSE(client.resumes(*listener, session, "two.example"));
}

TEST_CASE("tls: a reload with another certificate or another CA ends old sessions",
          "[tls][resumption]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache");
  CAPTURE(version, kind);
  TlsSite site({{"resumption", kind}}, {});
  const conn::ListenerPtr listener = site.listen();
  Hoarder client(site, number_of(version));
  REQUIRE_FALSE(client.resumes(*listener, nullptr));
  const Session session = client.newest();
  REQUIRE(client.resumes(*listener, session));
  Options changed = site.options_of(site.ca.issue({.common_name = "next"}));
  changed.set("resumption", kind);
  site.server.configure(changed);
  REQUIRE_FALSE(client.resumes(*listener, session));
}

TEST_CASE("tls: a session does not outlive the certificate it was made with", "[tls][resumption]") {
  TlsSite site;
  const std::chrono::seconds lives = 2s * testing::slower();
  const Identity brief = site.ca.issue(
      {.common_name = "brief", .names = {"DNS:localhost", "IP:127.0.0.1"}, .valid_until = lives});
  const auto over = std::chrono::system_clock::now() + lives + 1s;
  site.server.configure(site.options_of(brief));
  const conn::ListenerPtr listener = site.listen();
  REQUIRE(visit(site, testing::address_of(*listener)) == "no");
  REQUIRE(visit(site, testing::address_of(*listener)) == "yes");
  std::this_thread::sleep_until(over);
  CHECK_THAT(visit(site, testing::address_of(*listener)), testing::Contains("brief"));
}

TEST_CASE("tls: a ticket that was tampered with leads to a full handshake", "[tls][resumption]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  Hoarder client(site, TLS1_2_VERSION);
  REQUIRE_FALSE(client.resumes(*listener, nullptr));
  // The bytes of a session as OpenSSL stores it; they contain the ticket unchanged.
  const Session session = client.newest();
  const unsigned char* ticket = nullptr;
  std::size_t size = 0;
  SSL_SESSION_get0_ticket(session.get(), &ticket, &size);
  REQUIRE(size > 64);
  const std::string original(reinterpret_cast<const char*>(ticket), size);
  unsigned char* der = nullptr;
  const int der_size = i2d_SSL_SESSION(session.get(), &der);
  std::string bytes(reinterpret_cast<char*>(der), static_cast<std::size_t>(der_size));
  OPENSSL_free(der);
  const std::size_t at = bytes.find(original);
  REQUIRE(at != std::string::npos);
  for (const std::size_t offset : {std::size_t{0}, std::size_t{20}, size / 2, size - 1}) {
    std::string bad = bytes;
    bad[at + offset] = static_cast<char>(bad[at + offset] ^ 1);
    const auto* begin = reinterpret_cast<const unsigned char*>(bad.data());
    const Session forged(d2i_SSL_SESSION(nullptr, &begin, static_cast<long>(bad.size())),
                         SSL_SESSION_free);
    REQUIRE(forged != nullptr);
    CAPTURE(offset);
    REQUIRE_FALSE(client.resumes(*listener, forged));
  }
  REQUIRE(client.resumes(*listener, session));
}

// --- age -----------------------------------------------------------------------------------------

TEST_CASE("tls: after two rotations, or the session's time, a ticket is worth nothing",
          "[tls][resumption]") {
  TlsSite site;
  const conn::ListenerPtr rotating = site.listen({{"ticket-rotation", "1s"}});
  const conn::ListenerPtr short_lived = site.listen({{"session-timeout", "1s"}});
  const conn::ListenerPtr cached =
      site.listen({{"session-timeout", "1s"}, {"resumption", "cache"}});
  struct Held {
    conn::Listener& listener;
    Hoarder client;
    Session session;
  };
  std::vector<Held> all;
  for (const conn::ListenerPtr* listener : {&rotating, &short_lived, &cached}) {
    for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
      all.push_back({**listener, Hoarder(site, version), nullptr});
      Held& one = all.back();
      REQUIRE_FALSE(one.client.resumes(one.listener, nullptr));
      one.session = one.client.newest();
      REQUIRE(one.client.resumes(one.listener, one.session));
      // Otherwise the client would not offer it.
      SSL_SESSION_set_timeout(one.session.get(), 3600);
    }
  }
  // The passage of time causes no event. Sessions count whole seconds.
  std::this_thread::sleep_for(2100ms);
  for (Held& one : all) {
    CAPTURE(&one.listener == rotating.get(), &one.listener == cached.get());
    REQUIRE_FALSE(one.client.resumes(one.listener, one.session));
  }
}

TEST_CASE("tls: a session that is renewed again and again lives no longer than one",
          "[tls][resumption]") {
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache");
  CAPTURE(kind);
  TlsSite site;
  const conn::ListenerPtr listener = site.listen({{"session-timeout", "1s"}, {"resumption", kind}});
  Hoarder client(site, TLS1_3_VERSION);
  REQUIRE_FALSE(client.resumes(*listener, nullptr));
  const auto begun = std::chrono::steady_clock::now();
  bool resumed = true;
  while (resumed && std::chrono::steady_clock::now() - begun < 10s) {
    const Session session = client.newest();
    SSL_SESSION_set_timeout(session.get(), 3600);  // or the client would not offer it
    resumed = client.resumes(*listener, session);
  }
  REQUIRE_FALSE(resumed);
}

namespace {

/// Results of TicketKeys for a ticket sealed with this name and vector.
struct Sealed {
  explicit Sealed(conn::tls::TicketKeys& keys) {
    REQUIRE(run([&](EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac) {
              return keys.seal(name.data(), iv.data(), cipher, mac);
            }) == 1);
  }
  int open(conn::tls::TicketKeys& keys) {
    return run([&](EVP_CIPHER_CTX* cipher, EVP_MAC_CTX* mac) {
      return keys.open(name.data(), iv.data(), cipher, mac);
    });
  }
  template <class Use>
  static int run(Use use) {
    EVP_MAC* hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    EVP_MAC_CTX* mac = EVP_MAC_CTX_new(hmac);
    EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
    const int result = use(cipher, mac);
    EVP_CIPHER_CTX_free(cipher);
    EVP_MAC_CTX_free(mac);
    EVP_MAC_free(hmac);
    return result;
  }
  std::array<unsigned char, 16> name{};
  std::array<unsigned char, EVP_MAX_IV_LENGTH> iv{};
};

}  // namespace

TEST_CASE("tls: ticket keys open what the key before sealed, and ask for a fresh one",
          "[tls][resumption]") {
  using Clock = std::chrono::steady_clock;
  constexpr auto kRotation = 100ms;
  conn::tls::TicketKeys steady(1h);
  Sealed fresh(steady);
  REQUIRE(fresh.open(steady) == 1);
  conn::tls::TicketKeys others(1h);
  REQUIRE(fresh.open(others) == 0);

  // On a busy machine the test may miss the key's second period: then it tries again.
  int opened = 0;
  for (int attempt = 0; attempt < 20 && opened == 0; ++attempt) {
    conn::tls::TicketKeys keys(kRotation);
    const auto made = Clock::now();
    Sealed one(keys);
    std::this_thread::sleep_until(made + kRotation * 3 / 2);
    const int result = one.open(keys);
    if (Clock::now() - made >= 2 * kRotation) continue;
    opened = result;
    // Counted from the first key, not from its successor.
    std::this_thread::sleep_until(made + 2 * kRotation);
    REQUIRE(one.open(keys) == 0);
  }
  REQUIRE(opened == 2);
}

TEST_CASE("tls: keys that nobody used for long open nothing old", "[tls][resumption]") {
  conn::tls::TicketKeys keys(20ms);
  Sealed one(keys);
  std::this_thread::sleep_for(50ms);
  REQUIRE(one.open(keys) == 0);
}

#endif  // AECONN_TLS
