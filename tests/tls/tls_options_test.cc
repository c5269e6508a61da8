// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: invalid options, key logs, kernel TLS.
#if AECONN_TLS

#include <fcntl.h>
#include <openssl/err.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "conn/error.h"
#include "conn/registry.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/tls_kit.h"

using Catch::Matchers::StartsWith;
using conn::ConnectionPtr;
using conn::Options;
using conn::State;
using testing::Authority;
using testing::Contains;
using testing::Identity;
using testing::info_of;
using testing::RawSocket;
using testing::TlsPair;
using testing::TlsSite;

namespace {

const char* const kSecret = "correct horse battery";

/// The error of configure() for a server's options; "fine" if there is none.
std::string complaint(TlsSite& site, Options options) {
  try {
    site.server.configure(options);
    return "fine";
  } catch (const conn::Error& error) {
    return error.what();
  }
}

std::string listen_complaint(TlsSite& site, const Options& options) {
  try {
    (void)site.listen(options);
    return "fine";
  } catch (const conn::Error& error) {
    return error.what();
  }
}

/// The server's certificate and key, and one more option.
Options with(const TlsSite& site, const std::string& key, const std::string& value) {
  Options options = site.options_of(site.identity);
  options.set(key, value);
  return options;
}

}  // namespace

// --- values --------------------------------------------------------------------------------------

TEST_CASE("tls: a value that cannot be is refused in a sentence with the key and the value",
          "[tls][options]") {
  TlsSite site;
  struct Case {
    const char *key, *value, *must_say;
  };
  const Case one = GENERATE(
      Case{"min-version", "1.1", "1.2, 1.3"}, Case{"max-version", "TLSv1.3", "1.2, 1.3"},
      Case{"verify", "maybe", "yes, chain, no"}, Case{"auth-clients", "sometimes", "optional"},
      Case{"resumption", "always", "tickets, cache, no"}, Case{"peer-user", "ou", "cn, uri"},
      Case{"crl-check", "all", "leaf, chain"}, Case{"handshake-timeout", "0", "1ms"},
      Case{"handshake-timeout", "soon", "soon"}, Case{"ticket-rotation", "0s", "1s"},
      Case{"session-timeout", "8000h", "8000h"}, Case{"session-cache", "0", "1"},
      Case{"max-handshakes", "0", "1"}, Case{"ktls", "perhaps", "perhaps"},
      Case{"prefer-server-ciphers", "2", "2"}, Case{"ciphers", "NONSENSE", "NONSENSE"},
      Case{"ciphersuites", "TLS_NOTHING", "TLS_NOTHING"}, Case{"groups", "P-1", "P-1"},
      Case{"alpn", "a,,b", "empty"}, Case{"alpn", ",a", "empty"}, Case{"alpn", "a,", "empty"},
      Case{"cert", "a.pem,,b.pem", "empty"}, Case{"key", "a.key,", "empty"});
  const std::string said = complaint(site, with(site, one.key, one.value));
  CAPTURE(one.key, one.value, said);
  REQUIRE_THAT(said, Contains(one.key));
  REQUIRE_THAT(said, Contains(one.value) || Contains("empty"));
  REQUIRE_THAT(said, Contains(one.must_say));
  REQUIRE(listen_complaint(site, {{one.key, one.value}}) != "fine");
}

TEST_CASE("tls: options that contradict each other are refused", "[tls][options]") {
  TlsSite site;
  const auto& id = site.identity;
  REQUIRE_THAT(complaint(site, {{"min-version", "1.3"}, {"max-version", "1.2"}}),
               Contains("max-version=1.2") && Contains("min-version"));
  REQUIRE_THAT(complaint(site, {{"key", id.key}}), Contains("cert=FILE is missing"));
  REQUIRE_THAT(complaint(site, {{"cert", id.chain + "," + id.chain}, {"key", id.key}}),
               Contains("key names 1 files and cert 2"));
  REQUIRE_THAT(complaint(site, with(site, "auth-clients", "yes")), Contains("ca=FILE"));
  REQUIRE_THAT(complaint(site, with(site, "auth-clients", "optional")), Contains("ca=FILE"));
}

TEST_CASE("tls: names that OpenSSL does not know are refused also without a certificate",
          "[tls][options]") {
  TlsSite site;
  const auto [key, value] = GENERATE(table<std::string, std::string>(
      {{"ciphers", "NONSENSE"}, {"ciphersuites", "TLS_NOTHING"}, {"groups", "P-1"}}));
  const Options wrong{{key, value}};
  const auto names_it = Contains("option " + key + "=" + value + ": OpenSSL");
  CHECK_THAT(complaint(site, wrong), names_it);
  CHECK_THAT(complaint(site, Options{{"verify", "no"}}.merged_with(wrong)), names_it);
  CHECK_THAT(complaint(site, Options{{"ca", site.ca.cert()}}.merged_with(wrong)), names_it);
  CHECK_THAT(listen_complaint(site, wrong), names_it);
  const ConnectionPtr client = site.connect(*site.listen(), wrong);
  CHECK(client->state() == State::kError);
  CHECK_THAT(client->last_error(), names_it);
}

TEST_CASE("tls: an option that does nothing without another names the other", "[tls][options]") {
  struct Case {
    Options options;
    std::string says;
    bool given_by_type = false;  // whether the options of TlsSite's server have what is missing
  };
  TlsSite site;
  const std::string ca = site.ca.cert(), file = site.identity.key;
  const Case cases[] = {
      {{{"crl-check", "leaf"}}, "option crl-check=leaf: crl=FILE is missing"},
      {{{"crl-check", "chain"}, {"ca", ca}}, "option crl-check=chain: crl=FILE is missing"},
      {{{"key-pass-file", file}}, "option key-pass-file=" + file + ": cert=FILE is missing", true},
      {{{"key-pass-file", file}, {"key", file}}, "option key=" + file + ": cert=FILE is", true}};
  const conn::ListenerPtr listener = site.listen();
  for (const Case& one : cases) {
    CAPTURE(one.says);
    CHECK_THAT(complaint(site, one.options), Contains(one.says));
    // The options of the type count together with those of the URL.
    if (!one.given_by_type) CHECK_THAT(listen_complaint(site, one.options), Contains(one.says));
    const ConnectionPtr client = site.connect(*listener, one.options);
    CHECK(client->state() == State::kError);
    CHECK_THAT(client->last_error(), Contains(one.says));
    conn::Endpoint url = conn::Endpoint::parse("tls://127.0.0.1:1");
    url.options = one.options;
    CHECK_THROWS_WITH(site.client.check(url), StartsWith(url.to_string()) && Contains(one.says));
  }
}

TEST_CASE("tls: options that one of the roles does not use are accepted", "[tls][options]") {
  TlsSite site;
  const std::string ca = site.ca.cert();
  const std::string crl = site.ca.revoke({});
  const Options cases[] = {
      {{"ca", ca}, {"verify", "no"}},
      {{"ca", ca}, {"verify", "no"}, {"auth-clients", "yes"}},
      {{"crl", crl}, {"verify", "no"}},
      {{"ca", ca}, {"crl", crl}, {"crl-check", "chain"}},
      {{"server-name", "other"}, {"dh-params", "/nowhere"}, {"max-handshakes", "7"}}};
  for (const Options& one : cases) {
    const conn::Endpoint url = conn::Endpoint::parse("tls://127.0.0.1:1?" + one.to_string());
    CAPTURE(url.to_string());
    CHECK_NOTHROW(site.server.check(url));
    CHECK(complaint(site, one) == "fine");
    CHECK(complaint(site, site.options_of(site.identity)) == "fine");
  }
}

TEST_CASE("tls: an option that is gone from a layer says what to do", "[tls][options]") {
  TlsSite site;
  REQUIRE_THAT(complaint(site, with(site, "tickets", "2")),
               Contains("tls has no option tickets any more: leave it out, or give resumption=no"));
  const conn::Registry registry = conn::all_transports();
  const conn::ConnectionType& over_unix = registry.require("tls+unix");
  REQUIRE_NOTHROW(over_unix.check(conn::Endpoint::parse("tls+unix:///x?linger=1s")));
  std::string said;
  try {
    over_unix.check(conn::Endpoint::parse("tls+unix:///x?receive-buffer=1m"));
  } catch (const conn::Error& error) {
    said = error.what();
  }
  REQUIRE_THAT(said, StartsWith("tls+unix:///x?receive-buffer=1m: unix has no option "
                                "receive-buffer any more: leave it out"));
  REQUIRE_THAT(said, !Contains("those of tls"));
}

TEST_CASE("tls: a list that tls refuses to configure changes none of its types", "[tls][options]") {
  const conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  const auto nodelay = [&] {
    ConnectionPtr server;
    const conn::ListenerPtr listener = registry.listen(
        loop, "tcp://127.0.0.1:0", [&](ConnectionPtr next) { server = std::move(next); });
    RawSocket client = RawSocket::connect(testing::address_of(*listener));
    RUN_UNTIL(loop, server != nullptr);
    return info_of(*server, "nodelay");
  };
  const auto refused =
      GENERATE(as<Options>{}, Options{{"ca", "/nowhere/ca.pem"}},
               Options{{"cert", "/nowhere/cert.pem"}, {"key", "/nowhere/key.pem"}});
  conn::ConnectionType& list = registry.require(GENERATE("tcp|tls", "tls|tcp"));
  REQUIRE(nodelay() == "yes");
  REQUIRE_THROWS_AS(list.configure(refused.merged_with(Options{{"nodelay", "no"}})), conn::Error);
  REQUIRE(nodelay() == "yes");
  REQUIRE_NOTHROW(list.configure({{"nodelay", "no"}}));
  REQUIRE(nodelay() == "no");
}

TEST_CASE("tls: a list configures all of its types of tls or none", "[tls][options][lists]") {
  const testing::TempFolder folder;
  const Authority ca{folder};
  const Identity locked = ca.issue({.common_name = "locked", .pass_phrase = kSecret});
  conn::Registry registry;
  auto& tcp = registry.add(std::make_unique<conn::tcp::TcpType>());
  auto& stuck = registry.add(std::make_unique<testing::StuckType>());
  const auto add = [&](conn::ConnectionType& below) {
    auto type = std::make_unique<conn::tls::TlsType>(below);
    conn::tls::TlsType* const added = type.get();
    registry.add(std::move(type));
    return added;
  };
  conn::tls::TlsType* const knows = add(tcp);
  conn::tls::TlsType* const does_not = add(stuck);
  const auto has_certificate = [](const conn::tls::TlsType& type) {
    try {
      type.prepare(conn::Endpoint::parse(std::string(type.name()) + "://127.0.0.1:1"));
      return true;
    } catch (const conn::Error& error) {
      CHECK_THAT(error.what(), Contains("needs a certificate"));
      return false;
    }
  };
  conn::ConnectionType& list =
      registry.require(GENERATE("tls|tls+stuck", "tls+stuck|tls", "stuck|tls|tcp|tls+stuck"));
  const Options options{{"cert", locked.chain}, {"key", locked.key}};
  knows->set_pass_phrase(kSecret);
  REQUIRE_THROWS_WITH(list.configure(options), Contains("encrypted"));
  CHECK_FALSE(has_certificate(*knows));
  CHECK_FALSE(has_certificate(*does_not));
  does_not->set_pass_phrase(kSecret);
  REQUIRE_NOTHROW(list.configure(options));
  CHECK(has_certificate(*knows));
  CHECK(has_certificate(*does_not));
}

// A program's own transport, which uses a type of tls while it is configured.
class Consulting final : public conn::Transport {
 public:
  explicit Consulting(const conn::ConnectionType& its_tls) : tls(its_tls) {}
  std::string_view name() const noexcept override { return "consulting"; }
  conn::Capabilities capabilities() const noexcept override { return {}; }
  void configure(const Options&) override {
    tls.check(conn::Endpoint::parse("tls://127.0.0.1:1"));
    ++configured;
  }
  void check(const conn::Endpoint&) const override {}
  ConnectionPtr create(ae::EventLoop& loop) const override { return tls.create(loop); }
  conn::ListenerPtr listen(ae::EventLoop& loop, const conn::Endpoint& at,
                           conn::AcceptHandler handler) const override {
    return tls.listen(loop, at, std::move(handler));
  }
  const conn::ConnectionType& tls;
  int configured = 0;
};

TEST_CASE("tls: a list configures a transport that uses its type of tls", "[tls][options][lists]") {
  conn::Registry registry;
  auto& tcp = registry.add(std::make_unique<conn::tcp::TcpType>());
  const auto& tls = registry.add(std::make_unique<conn::tls::TlsType>(tcp));
  auto consulting = std::make_unique<Consulting>(tls);
  const Consulting& its = *consulting;
  registry.add(std::move(consulting));
  registry.require("tls|consulting").configure({{"verify", "no"}});
  CHECK(its.configured == 1);
}

TEST_CASE("tls: an option that neither layer has is refused", "[tls][options]") {
  TlsSite site;
  REQUIRE_THAT(complaint(site, with(site, "colour", "blue")), Contains("colour"));
  REQUIRE_THAT(listen_complaint(site, {{"colour", "blue"}}), Contains("colour"));
  REQUIRE_THROWS_WITH(site.server.check(conn::Endpoint::parse("tls://127.0.0.1:1?colour=blue")),
                      StartsWith("tls://127.0.0.1:1?colour=blue: ") && Contains("colour"));
  REQUIRE_THROWS_WITH(site.server.check(conn::Endpoint::parse("tcp://127.0.0.1:1")),
                      Contains("tls"));
}

TEST_CASE("tls: options of the layer below reach it", "[tls][options]") {
  TlsSite site({{"keepalive", "90s"}}, {{"nodelay", "no"}});
  const conn::ListenerPtr listener = site.listen({{"user-timeout", "1500ms"}});
  const ConnectionPtr a = site.connect(*listener);
  const ConnectionPtr b = site.next_accepted();
  REQUIRE(info_of(*a, "nodelay") == "no");
  REQUIRE(info_of(*b, "nodelay") == "yes");
  REQUIRE_THAT(complaint(site, with(site, "keepalive", "sometimes")), Contains("keepalive"));
  REQUIRE_THAT(complaint(site, with(site, "mode", "770")), Contains("mode"));
}

TEST_CASE("tls: what was refused changes nothing", "[tls][options]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  REQUIRE_THROWS_AS(site.server.configure(with(site, "min-version", "7")), conn::Error);
  REQUIRE_THROWS_AS(site.server.configure(with(site, "keepalive", "x")), conn::Error);
  REQUIRE_THROWS_AS(site.server.configure({{"cert", "/nowhere"}}), conn::Error);
  const ConnectionPtr a = site.connect(*listener);
  REQUIRE(a->state() == State::kConnected);
  REQUIRE_NOTHROW(site.listen());
}

TEST_CASE("tls: a client's bad option is an error of its connection", "[tls][options]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  const ConnectionPtr a = site.connect(*listener, {{"ca", "/nowhere/ca.pem"}});
  REQUIRE(a->state() == State::kError);
  REQUIRE_THAT(a->last_error(), Contains("/nowhere/ca.pem") && Contains("No such file"));
}

TEST_CASE("tls: a client's file that is not there is told though nobody answers",
          "[tls][options]") {
  TlsSite site;
  conn::Endpoint to = testing::address_of(*site.listen());  // the listener is gone again
  const std::string key = GENERATE(as<std::string>{}, "ca", "crl", "cert", "key");
  const bool waits = GENERATE(false, true);
  CAPTURE(key, waits);
  Options options = {{key, "/nowhere/x.pem"}};
  if (key == "cert") options.set("key", site.identity.key);
  if (key == "key") options.set("cert", site.identity.chain);
  if (key == "crl") options.set("ca", site.ca.cert());
  ConnectionPtr a;
  if (waits) {
    to.options = options;
    a = site.client.create(site.loop);
    REQUIRE_FALSE(a->connect_blocking(to, std::chrono::seconds(60)));
  } else {
    a = site.connect(to, options);
  }
  REQUIRE(a->state() == State::kError);
  REQUIRE_THAT(a->last_error(), Contains("/nowhere/x.pem") && Contains("No such file"));
  REQUIRE(a->error_code() == std::errc::no_such_file_or_directory);
}

// --- files ---------------------------------------------------------------------------------------

TEST_CASE("tls: a file that cannot be read is named with the reason", "[tls][options]") {
  TlsSite site;
  const std::string key =
      GENERATE(as<std::string>{}, "cert", "key", "ca", "crl", "dh-params", "key-pass-file");
  CAPTURE(key);
  const std::string garbage =
      testing::write_file(site.folder, "garbage.pem", "this is no PEM at all\n");
  const std::string broken = testing::write_file(
      site.folder, "broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  REQUIRE_THAT(complaint(site, with(site, key, "/nowhere/x.pem")),
               Contains("/nowhere/x.pem") && Contains("No such file"));
  REQUIRE_THAT(complaint(site, with(site, key, site.folder.path())),
               Contains(site.folder.path()) && !Contains("Success"));
  if (key != "key-pass-file") {
    REQUIRE_THAT(complaint(site, with(site, key, garbage)),
                 Contains("garbage.pem") && Contains("PEM form"));
    REQUIRE_THAT(complaint(site, with(site, key, broken)), Contains("broken.pem"));
  }
  if (geteuid() != 0) {  // root can read any file
    REQUIRE(::chmod(garbage.c_str(), 0) == 0);
    REQUIRE_THAT(complaint(site, with(site, key, garbage)),
                 Contains("garbage.pem") && Contains("Permission denied"));
  }
}

TEST_CASE("tls: ca-dir must be a folder", "[tls][options]") {
  TlsSite site;
  REQUIRE_THAT(complaint(site, with(site, "ca-dir", "/nowhere")),
               Contains("/nowhere") && Contains("not a folder"));
  REQUIRE_THAT(complaint(site, with(site, "ca-dir", site.ca.cert())),
               Contains(site.ca.cert()) && Contains("not a folder"));
}

TEST_CASE("tls: a key that belongs to another certificate is refused", "[tls][options]") {
  TlsSite site;
  const Identity other = site.ca.issue({.common_name = "other"});
  const Identity rsa = site.ca.issue({.common_name = "rsa", .key = testing::KeyType::kRsa2048});
  for (const Identity* wrong : {&other, &rsa}) {
    const std::string said = complaint(site, {{"cert", site.identity.chain}, {"key", wrong->key}});
    REQUIRE_THAT(
        said, Contains("does not belong") && Contains(wrong->key) && Contains(site.identity.chain));
    REQUIRE(ERR_peek_error() == 0);  // leaves no error in OpenSSL's queue
  }
}

TEST_CASE("tls: a file with certificate and key needs no key option", "[tls][options]") {
  TlsSite site;
  const std::string both =
      testing::join_files(site.folder, {site.identity.chain, site.identity.key});
  site.server.configure({{"cert", both}});
  const conn::ListenerPtr listener = site.listen();
  REQUIRE(site.connect(*listener)->state() == State::kConnected);
  REQUIRE_THAT(complaint(site, {{"cert", site.identity.cert}}),
               Contains(site.identity.cert) && Contains("no private key"));
}

TEST_CASE("tls: a server needs a certificate, a client does not", "[tls][options]") {
  TlsSite site;
  site.server.configure({});
  REQUIRE_THROWS_WITH(site.listen(), StartsWith("tls://127.0.0.1:0: ") && Contains("cert=FILE"));
  // The port is free again: no listener was left.
  site.server.configure(site.options_of(site.identity));
  REQUIRE_NOTHROW(site.listen());
}

// --- pass phrases --------------------------------------------------------------------------------

TEST_CASE("tls: an encrypted key opens with its pass phrase, from a file or from memory",
          "[tls][options]") {
  TlsSite site;
  const Identity locked =
      site.ca.issue({.common_name = "locked", .names = {"IP:127.0.0.1"}, .pass_phrase = kSecret});
  Options options = site.options_of(locked);
  SECTION("file") {
    // Only the first line is used, whatever ends it.
    const std::string ending = GENERATE(as<std::string>{}, "", "\n", "\r\n", "\nmore\n");
    options.set("key-pass-file", testing::write_file(site.folder, "phrase", kSecret + ending));
  }
  SECTION("memory") { site.server.set_pass_phrase(kSecret); }
  REQUIRE(complaint(site, options) == "fine");
  const conn::ListenerPtr listener = site.listen();
  const ConnectionPtr a = site.connect(*listener);
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  REQUIRE(a->peer_user() == "locked");
}

TEST_CASE("tls: a wrong or missing pass phrase is told without the phrase", "[tls][options]") {
  TlsSite site;
  const Identity locked = site.ca.issue({.common_name = "locked", .pass_phrase = kSecret});
  Options options = site.options_of(locked);
  const std::string none = complaint(site, options);
  REQUIRE_THAT(none, Contains(locked.key) && Contains("encrypted") && Contains("key-pass-file"));
  const std::string wrong = "a wrong phrase";
  options.set("key-pass-file", testing::write_file(site.folder, "phrase", wrong + "\n"));
  const std::string by_file = complaint(site, options);
  REQUIRE_THAT(by_file, Contains(locked.key) && Contains("cannot be decrypted"));
  REQUIRE_THAT(by_file, !Contains(wrong));
  options.set("key-pass-file", "/nowhere/phrase");
  REQUIRE_THAT(complaint(site, options), Contains("/nowhere/phrase") && Contains("No such file"));
  site.server.set_pass_phrase(wrong);
  const std::string by_call = complaint(site, site.options_of(locked));
  REQUIRE_THAT(by_call, Contains(locked.key) && Contains("cannot be decrypted"));
  REQUIRE_THAT(by_call, !Contains(wrong));
  // A pass phrase longer than OpenSSL's buffer.
  site.server.set_pass_phrase(std::string(5000, 'z'));
  const std::string endless = complaint(site, site.options_of(locked));
  REQUIRE_THAT(endless, Contains("cannot be decrypted") && !Contains("zzzz"));
}

TEST_CASE("tls: a pass phrase in a URL is refused and not repeated", "[tls][options]") {
  TlsSite site;
  const std::string phrase = "hunter2";
  const Options options{{"key-pass", phrase}};
  REQUIRE_THAT(complaint(site, with(site, "key-pass", phrase)),
               Contains("pass phrase") && Contains("key-pass-file") && !Contains(phrase));
  REQUIRE_THAT(listen_complaint(site, options), Contains("key-pass-file") && !Contains(phrase));
  try {
    site.server.check(conn::Endpoint::parse("tls://127.0.0.1:1?key-pass=" + phrase));
    FAIL("check() takes it");
  } catch (const conn::Error& error) {
    REQUIRE_THAT(error.what(), Contains("key-pass-file") && !Contains(phrase));
  }
  const conn::ListenerPtr listener = site.listen();
  const ConnectionPtr client = site.connect(*listener, options);
  REQUIRE(client->state() == State::kError);
  REQUIRE_THAT(client->last_error(), Contains("key-pass-file") && !Contains(phrase));
}

// --- key logs ------------------------------------------------------------------------------------

TEST_CASE("tls: keylog writes the secrets of both versions into a file for the owner only",
          "[tls][options]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const bool by_server = GENERATE(true, false);
  CAPTURE(version, by_server);
  TlsSite site;
  const std::string path = site.folder.path() + "/keys";
  const ::mode_t before = ::umask(0);
  const Options log{{"keylog", path}}, none;
  Options client = by_server ? none : log;
  client.set("max-version", version);
  const conn::ListenerPtr listener = site.listen(by_server ? log : none);
  const ConnectionPtr a = site.connect(*listener, client);
  const ConnectionPtr b = site.next_accepted();
  ::umask(before);
  REQUIRE(a->state() == State::kConnected);
  const std::string text = testing::read_file(path);
  REQUIRE_THAT(text, Contains(version == "1.2" ? "CLIENT_RANDOM " : "CLIENT_TRAFFIC_SECRET_0 "));
  REQUIRE(text.back() == '\n');
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  REQUIRE((info.st_mode & 0777) == 0600);
}

TEST_CASE("tls: without the option no keys are written, whatever the environment says",
          "[tls][options]") {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/keys";
  REQUIRE(::setenv("SSLKEYLOGFILE", path.c_str(), 1) == 0);
  {
    TlsPair pair;
    pair.require_echo(*pair.a, *pair.b);
  }
  ::unsetenv("SSLKEYLOGFILE");
  REQUIRE_FALSE(std::filesystem::exists(path));
}

TEST_CASE("tls: a key log that cannot be written does not end a connection", "[tls][options]") {
  TlsPair pair({{"keylog", "/nowhere/keys"}}, {});
  pair.require_echo(*pair.a, *pair.b);
}

TEST_CASE("tls: a key log that is a pipe does not stop a handshake", "[tls][options]") {
  TlsSite site;
  const std::string path = site.folder.path() + "/keys";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const conn::ListenerPtr listener = site.listen({{"keylog", path}});
  const auto connects = [&] {
    const ConnectionPtr a = site.connect(*listener);
    if (a->state() == State::kConnected) (void)site.next_accepted();
    return a->state() == State::kConnected;
  };
  REQUIRE(connects());  // nobody reads
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(reader >= 0);
  REQUIRE(connects());
  char text[6] = {};
  CHECK(::read(reader, text, 6) == 6);
  // Somebody has the pipe open and reads no more.
  const int writer = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  const std::string page(4096, 'x');
  while (::write(writer, page.data(), page.size()) > 0) continue;
  ::close(writer);
  CHECK(connects());
  ::close(reader);
  CHECK(connects());
}

// --- kernel TLS ----------------------------------------------------------------------------------

TEST_CASE("tls: ktls=yes carries the same bytes, and info says what the kernel does",
          "[tls][options]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  CAPTURE(version);
  TlsPair pair({{"ktls", "yes"}, {"max-version", version}}, {{"ktls", "yes"}});
  for (const auto* end : {&pair.a, &pair.b}) {
    const std::string by_kernel = info_of(**end, "ktls");
    CAPTURE(by_kernel);
    REQUIRE((by_kernel == "no" || by_kernel == "send" || by_kernel == "receive" ||
             by_kernel == "send,receive"));
    // Possible only if the kernel's module is loaded.
    if (!std::filesystem::exists("/proc/net/tls_stat")) REQUIRE(by_kernel == "no");
  }
  constexpr std::uint64_t kBytes = 3'000'000;
  testing::Sender there(*pair.a, 1, kBytes), back(*pair.b, 2, kBytes);
  testing::Receiver at_b(*pair.b, 1), at_a(*pair.a, 2);
  RUN_UNTIL(pair.loop, at_b.received == kBytes && at_a.received == kBytes);
  REQUIRE(at_b.intact);
  REQUIRE(at_a.intact);
  pair.a.reset();
  RUN_UNTIL(pair.loop, at_b.ended);
  REQUIRE(at_b.error == 0);
}

TEST_CASE("tls: without ktls=yes the kernel is not asked", "[tls][options]") {
  TlsPair pair;
  REQUIRE(info_of(*pair.a, "ktls") == "no");
  REQUIRE(info_of(*pair.b, "ktls") == "no");
}

#endif  // AECONN_TLS
