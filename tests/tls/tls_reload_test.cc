// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: certificates and settings that change while listeners and connections exist.
#if AECONN_TLS

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <ctime>
#include <filesystem>

#include "conn/error.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
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

namespace {

/// A type whose certificate is in files with fixed names.
struct ReloadSite : TlsSite {
  ReloadSite() {
    install(issue("first"));
    server.configure(files);
  }
  Identity issue(const std::string& name) const {
    return ca.issue({.common_name = name, .names = {"IP:127.0.0.1"}});
  }
  void install(const Identity& id) const {
    std::filesystem::copy_file(id.chain, files.text("cert", ""),
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::copy_file(id.key, files.text("key", ""),
                               std::filesystem::copy_options::overwrite_existing);
  }
  /// The common name of the certificate that a new client gets.
  std::string visit(const conn::Listener& listener, const Options& options = {}) {
    const ConnectionPtr a = connect(listener, options);
    if (a->state() != State::kConnected) return a->last_error();
    const ConnectionPtr b = next_accepted();
    require_echo(*a, *b);
    return a->peer_user();
  }
  const Options files{{"cert", folder.path() + "/server.pem"},
                      {"key", folder.path() + "/server.key"}};
};

}  // namespace

TEST_CASE("tls: a listener serves the new certificate after configure(), and old connections go on",
          "[tls][reload]") {
  ReloadSite site;
  const conn::ListenerPtr listener = site.listen();
  const ConnectionPtr a = site.connect(*listener);
  REQUIRE(a->peer_user() == "first");
  const ConnectionPtr b = site.next_accepted();

  site.install(site.issue("second"));
  REQUIRE(site.visit(*listener) == "first");  // files are read only by configure()
  site.server.configure(site.files);          // the same options: reads the files again
  REQUIRE(site.visit(*listener) == "second");
  site.require_echo(*a, *b);
  REQUIRE(a->peer_user() == "first");

  site.server.configure(site.options_of(site.issue("third")));
  REQUIRE(site.visit(*listener) == "third");
  site.require_echo(*a, *b);
}

TEST_CASE("tls: statistics and info() say when certificates end", "[tls][reload]") {
  using std::chrono::hours;
  TlsSite site;
  const auto names = std::vector<std::string>{"IP:127.0.0.1"};
  const auto ends = [&] {
    for (const auto& [name, value] : site.server.statistics(site.loop))
      if (name == "certificates_end") return std::int64_t(value);
    return std::int64_t{-1};
  };
  const auto is_in = [](std::int64_t seconds, std::chrono::seconds from_now) {
    const std::int64_t late = std::int64_t(std::time(nullptr)) + from_now.count() - seconds;
    return late >= 0 && late < 600;
  };
  const testing::Authority between =
      site.ca.intermediate({.common_name = "Between", .valid_until = hours(24 * 5)});
  site.server.configure(site.options_of(
      site.ca.issue({.common_name = "ten", .names = names, .valid_until = hours(24 * 10)})));
  const conn::ListenerPtr listener = site.listen();
  CHECK(is_in(ends(), hours(24 * 10)));
  // A listener with a certificate of its own: the first of both.
  const conn::ListenerPtr other = site.listen(site.options_of(
      site.ca.issue({.common_name = "eight", .names = names, .valid_until = hours(24 * 8)})));
  CHECK(is_in(ends(), hours(24 * 8)));
  conn::ListenerPtr third = site.listen(site.options_of(
      between.issue({.common_name = "nine", .names = names, .valid_until = hours(24 * 9)})));
  CHECK(is_in(ends(), hours(24 * 5)));  // the intermediate one
  third.reset();
  testing::turns(site.loop, 3);
  CHECK(is_in(ends(), hours(24 * 8)));

  const ConnectionPtr a = site.connect(*listener);
  const ConnectionPtr b = site.next_accepted();
  const auto time_of = [](const conn::Connection& connection, const char* key) {
    std::tm when{};
    const std::string text = info_of(connection, key);
    INFO(key << ": " << text);
    REQUIRE(::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &when) != nullptr);
    return std::int64_t(::timegm(&when));
  };
  CHECK(is_in(time_of(*a, "peer-certificate-ends"), hours(24 * 10)));
  CHECK(is_in(time_of(*b, "certificate-ends"), hours(24 * 10)));
  CHECK(info_of(*b, "peer-certificate-ends") == "(none)");
}

TEST_CASE("tls: a handshake that has begun ends with the certificate it began with",
          "[tls][reload]") {
  ReloadSite site;
  const conn::ListenerPtr listener = site.listen();
  RawContext context = RawContext::client();
  RawTls peer(context, RawSocket::connect(testing::address_of(*listener)));
  RUN_UNTIL(site.loop, [&] {
    const auto all = site.server.statistics(site.loop);
    return std::count(all.begin(), all.end(),
                      std::pair<std::string, std::uint64_t>{"handshaking", 1}) == 1;
  }());
  site.install(site.issue("second"));
  site.server.configure(site.files);
  const bool connected = testing::aside(site.loop, [&] { return peer.handshake(); });
  REQUIRE(connected);
  const ConnectionPtr server = site.next_accepted();
  REQUIRE(site.visit(*listener) == "second");
  server->write("x", 1);
  REQUIRE(testing::aside(site.loop, [&] { return peer.receive(1); }) == "x");
}

TEST_CASE("tls: a reload of bad files says why and changes nothing", "[tls][reload]") {
  ReloadSite site;
  const conn::ListenerPtr listener = site.listen();
  const std::string cert = site.files.text("cert", ""), key = site.files.text("key", "");
  SECTION("no PEM") {
    testing::write_file(site.folder, "server.pem", "garbage");
    REQUIRE_THROWS_WITH(site.server.configure(site.files), Contains(cert));
  }
  SECTION("half a file") {
    const std::string whole = testing::read_file(cert);
    testing::write_file(site.folder, "server.pem", whole.substr(0, whole.size() / 2));
    REQUIRE_THROWS_WITH(site.server.configure(site.files), Contains(cert));
  }
  SECTION("gone") {
    std::filesystem::remove(key);
    REQUIRE_THROWS_WITH(site.server.configure(site.files),
                        Contains(key) && Contains("No such file"));
  }
  SECTION("a new certificate with the old key") {
    std::filesystem::copy_file(site.issue("second").chain, cert,
                               std::filesystem::copy_options::overwrite_existing);
    REQUIRE_THROWS_WITH(site.server.configure(site.files), Contains("does not belong"));
  }
  SECTION("options that cannot be") {
    REQUIRE_THROWS_AS(site.server.configure({{"min-version", "1.0"}}), conn::Error);
    REQUIRE_THROWS_AS(site.server.configure({{"colour", "blue"}}), conn::Error);
  }
  REQUIRE(site.visit(*listener) == "first");
  const conn::ListenerPtr another = [&]() -> conn::ListenerPtr {
    try {
      return site.listen();
    } catch (const conn::Error& error) {
      FAIL(error.what());
      return nullptr;
    }
  }();
  REQUIRE(site.visit(*another) == "first");
}

TEST_CASE("tls: options in a listener's URL survive configure() of its type", "[tls][reload]") {
  ReloadSite site;
  const Identity own = site.issue("own");
  const conn::ListenerPtr with_cert = site.listen(site.options_of(own));
  const conn::ListenerPtr with_version = site.listen({{"max-version", "1.2"}, {"alpn", "kv"}});
  Options changed = site.options_of(site.issue("second"));
  changed.set("alpn", "other");
  site.server.configure(changed);
  REQUIRE(site.visit(*with_cert) == "own");
  const ConnectionPtr a = site.connect(*with_version, {{"alpn", "kv,other"}});
  REQUIRE(a->peer_user() == "second");
  REQUIRE(info_of(*a, "tls") == "TLSv1.2");
  REQUIRE(info_of(*a, "alpn") == "kv");
  const ConnectionPtr b = site.next_accepted();
  // Files named by the URL are read again, too.
  std::filesystem::copy_file(site.issue("own again").chain, own.chain,
                             std::filesystem::copy_options::overwrite_existing);
  REQUIRE_THROWS_WITH(site.server.configure(changed), Contains("does not belong"));
  REQUIRE(site.visit(*with_cert) == "own");
}

TEST_CASE("tls: whose clients count may change for listeners that exist", "[tls][reload]") {
  ReloadSite site;
  const Authority other(site.folder, {.common_name = "Other CA"});
  const Identity alice = site.ca.issue({.common_name = "alice"});
  const conn::ListenerPtr listener = site.listen();
  const Options as_alice = site.options_of(alice);
  REQUIRE(site.visit(*listener) == "first");
  Options asking = site.files;
  asking.set("auth-clients", "yes");
  asking.set("ca", site.ca.cert());
  site.server.configure(asking);
  REQUIRE(site.visit(*listener, as_alice) == "first");
  // Alice has a session now; it must not be accepted under the new settings.
  asking.set("ca", other.cert());
  site.server.configure(asking);
  const ConnectionPtr a = site.connect(*listener, as_alice);
  REQUIRE(site.next_refused().code == Errc::kVerification);
  REQUIRE(site.accepted.empty());
}

TEST_CASE("tls: a revocation list that is loaded again ends sessions of who is on it",
          "[tls][reload]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const std::string kind = GENERATE(as<std::string>{}, "tickets", "cache");
  CAPTURE(version, kind);
  ReloadSite site;
  const Identity alice = site.ca.issue({.common_name = "alice"});
  Options asking = site.files;
  asking.set("auth-clients", "yes");
  asking.set("ca", site.ca.cert());
  asking.set("crl", site.ca.revoke({}));
  asking.set("resumption", kind);
  asking.set("max-version", version);
  site.server.configure(asking);
  const conn::ListenerPtr listener = site.listen();
  const Options as_alice = site.options_of(alice);
  REQUIRE(site.visit(*listener, as_alice) == "first");
  std::filesystem::copy_file(site.ca.revoke({alice}), asking.text("crl", ""),
                             std::filesystem::copy_options::overwrite_existing);
  site.server.configure(asking);
  const ConnectionPtr a = site.connect(*listener, as_alice);
  RUN_UNTIL(site.loop, !site.accepted.empty() || !site.refused.empty());
  REQUIRE(site.accepted.empty());
  REQUIRE_THAT(site.refused.front().text, Contains("certificate revoked"));
}

TEST_CASE("tls: a type may be configured by another thread while handshakes run", "[tls][reload]") {
  ReloadSite site;
  const conn::ListenerPtr listener = site.listen();
  const Identity second = site.issue("second");
  std::atomic<bool> over{false};
  std::atomic<int> reloads{0}, failures{0};
  std::thread thread([&] {
    for (int i = 0; !over; ++i) {
      try {
        site.server.configure(i % 2 == 0 ? site.options_of(second) : site.files);
        site.client.configure({{"ca", site.ca.cert()}});
        ++reloads;
      } catch (const conn::Error&) {
        ++failures;
      }
    }
  });
  struct Join {
    std::thread& thread;
    std::atomic<bool>& over;
    ~Join() {
      over = true;
      thread.join();
    }
  } join{thread, over};
  int connected = 0, others = 0;
  // Both certificates are seen, whatever the threads' timing.
  for (int i = 0; i < 50; ++i) {
    const std::string name = site.visit(*listener);
    if (name == "first" || name == "second") {
      ++connected;
    } else {
      UNSCOPED_INFO(name);
      ++others;
    }
  }
  RUN_UNTIL(site.loop, reloads > 0);
  REQUIRE(connected == 50);
  REQUIRE(others == 0);
  REQUIRE(failures == 0);
}

TEST_CASE("tls: a client takes what it trusts from the configuration of the day", "[tls][reload]") {
  ReloadSite site;
  const Authority other(site.folder, {.common_name = "Other CA"});
  const conn::ListenerPtr listener = site.listen();
  REQUIRE(site.visit(*listener) == "first");
  site.client.configure({{"ca", other.cert()}});
  REQUIRE(site.connect(*listener)->error_code() == Errc::kVerification);
  (void)site.next_refused();
  site.client.configure({{"ca", site.ca.cert()}});
  REQUIRE(site.visit(*listener) == "first");
  // A URL's own options take precedence over the type's.
  site.client.configure({{"ca", other.cert()}});
  REQUIRE(site.visit(*listener, {{"ca", site.ca.cert()}}) == "first");
}

TEST_CASE("tls: a listener that came before its type had a certificate of its own reloads too",
          "[tls][reload]") {
  TlsSite site;
  const Identity own = site.ca.issue({.common_name = "own", .names = {"IP:127.0.0.1"}});
  const conn::ListenerPtr listener = site.listen(site.options_of(own));
  site.server.configure({});  // without any certificate: the listener has its own
  const ConnectionPtr a = site.connect(*listener);
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  REQUIRE(a->peer_user() == "own");
}

TEST_CASE("tls: configure() without a certificate is refused while a listener needs one",
          "[tls][reload]") {
  // Otherwise its next client could not be served.
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  REQUIRE_THROWS_WITH(site.server.configure({}), Contains("cert=FILE"));
  const ConnectionPtr a = site.connect(*listener);
  REQUIRE(a->state() == State::kConnected);
}

TEST_CASE("tls: a listener that is gone needs no certificate, and what it counted stays",
          "[tls][reload]") {
  const conn::Options own = GENERATE(conn::Options{}, conn::Options{{"session-timeout", "4m"}});
  TlsSite site({{"resumption", "cache"}, {"session-cache", "1"}});
  const conn::Options cert = site.options_of(site.identity);
  const auto dropped = [&] {
    for (const auto& [name, value] : site.server.statistics(site.loop))
      if (name == "sessions_dropped") return value;
    return std::uint64_t{0};
  };
  conn::ListenerPtr listener = site.listen(own);
  for (int i = 0; i < 3; ++i) REQUIRE(site.connect(*listener)->state() == State::kConnected);
  const std::uint64_t before = dropped();
  REQUIRE(before > 0);
  // A failed configure() changes nothing, also when repeated.
  for (int i = 0; i < 2; ++i) {
    REQUIRE_THROWS_WITH(site.server.configure({{"ca", site.ca.cert()}}), Contains("cert=FILE"));
    REQUIRE(dropped() == before);
  }
  REQUIRE(site.connect(*listener)->state() == State::kConnected);
  const std::uint64_t last = dropped();
  listener.reset();
  site.accepted.clear();
  testing::turns(site.loop, 3);
  REQUIRE_NOTHROW(site.server.configure({{"ca", site.ca.cert()}}));  // only for clients from now on
  CHECK(dropped() == last);
  REQUIRE_NOTHROW(site.server.configure({{"ca", site.ca.cert()}}));
  CHECK(dropped() == last);
  REQUIRE_THROWS_WITH(site.listen(own), Contains("cert=FILE"));
  CHECK(dropped() == last);
  REQUIRE_NOTHROW(site.server.configure(cert));
  CHECK(dropped() == last);
  listener = site.listen(own);
  REQUIRE(site.connect(*listener)->state() == State::kConnected);
}

#endif  // AECONN_TLS
