// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: the server name that a client requests, and what clients of many names share.
#if AECONN_TLS

#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "conn/tls/context_source.h"
#include "tests/support/allocations.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Options;
using conn::State;
using testing::info_of;
using testing::TlsSite;

namespace {

std::uint64_t resumed(TlsSite& site) {
  for (const auto& [name, value] : site.client.statistics(site.loop))
    if (name == "resumed") return value;
  return 0;
}

/// Connects, exchanges bytes (tickets come with them) and closes.
void visit(TlsSite& site, const conn::Listener& at, const Options& options) {
  const ConnectionPtr client = site.connect(at, options);
  CAPTURE(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  const ConnectionPtr server = site.next_accepted();
  site.require_echo(*client, *server);
}

}  // namespace

TEST_CASE("tls: the dot that ends a fully qualified name is neither sent nor checked", "[tls]") {
  TlsSite site;
  for (const char* name : {"localhost.", "localhost", "LOCALHOST."}) {
    CAPTURE(name);
    const conn::ListenerPtr listener = site.listen();
    const ConnectionPtr client = site.connect(*listener, {{"server-name", name}});
    CAPTURE(client->last_error());
    REQUIRE(client->state() == State::kConnected);
    const ConnectionPtr server = site.next_accepted();
    const std::string asked = info_of(*server, "server-name");
    REQUIRE_FALSE(asked.empty());
    REQUIRE_FALSE(asked.ends_with('.'));
  }
  for (const char* name : {".", "..", "localhost..", ".localhost."}) {
    CAPTURE(name);
    const conn::ListenerPtr listener = site.listen();
    const ConnectionPtr client = site.connect(*listener, {{"server-name", name}});
    REQUIRE(client->state() == State::kError);
  }
}

TEST_CASE("tls: a name with and without its last dot has the same session", "[tls]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  visit(site, *listener, {{"server-name", "localhost"}});
  visit(site, *listener, {{"server-name", "localhost."}});
  REQUIRE(resumed(site) == 1);
}

TEST_CASE("tls: clients of many names and options resume, and read what they trust once", "[tls]") {
  constexpr int kMany = 70;
  TlsSite site({}, {{"verify", "chain"}});
  const conn::ListenerPtr listener = site.listen();
  const bool names = GENERATE(true, false);
  CAPTURE(names);
  const auto options = [&](int i) {
    return names ? Options{{"server-name", "host" + std::to_string(i) + ".test"}}
                 : Options{{"handshake-timeout", std::to_string(5000 + i) + "ms"}};
  };
  visit(site, *listener, options(0));
  for (const auto& file : std::filesystem::directory_iterator(site.folder.path()))
    std::filesystem::remove(file);  // also the CA's certificate
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < kMany; ++i) visit(site, *listener, options(i));
  REQUIRE(resumed(site) == kMany + 1);
}

TEST_CASE("tls: of the contexts of clients those that were used longest ago go first", "[tls]") {
  conn::tls::ContextTable table;
  table.configure({});
  const auto context = [&](int i) {
    return table.source({{"handshake-timeout", std::to_string(1000 + i) + "ms"}}, false)->get();
  };
  const std::weak_ptr<const conn::tls::Context> oldest = context(0), used = context(1);
  const std::shared_ptr<const conn::tls::ContextSource> held =
      table.source({{"handshake-timeout", "9s"}}, false);
  for (int i = 2; i < 3000; ++i) {
    (void)context(i);
    (void)context(1);
  }
  REQUIRE(oldest.expired());
  REQUIRE_FALSE(used.expired());
  REQUIRE(table.source({{"handshake-timeout", "9s"}}, false) == held);
}

#if AECONN_COUNTS_ALLOCATIONS
// Each round has a context of its own, because the option differs. Each allocation of OpenSSL while
// it is made fails in one of the rounds.
TEST_CASE("tls: a client that lacked memory once connects as before", "[tls][allocation]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  conn::Endpoint at = testing::address_of(*listener);
  std::string cipher;
  for (std::size_t number = 1;; ++number) {
    CAPTURE(number);
    at.options = {{"alpn", "n" + std::to_string(number)}};
    ConnectionPtr first = site.client.create(site.loop);
    testing::fail_openssl_allocation(number);
    try {
      first->connect(at, {});
    } catch (const std::bad_alloc&) {
      CHECK(first->error_code() == std::errc::not_enough_memory);
    }
    const bool failed = testing::fail_openssl_allocation(0);
    if (!failed) break;
    first.reset();
    const ConnectionPtr second = site.connect(at, at.options);
    CAPTURE(second->last_error());
    REQUIRE(second->state() == State::kConnected);
    if (cipher.empty()) cipher = info_of(*second, "cipher");
    REQUIRE(info_of(*second, "cipher") == cipher);
    site.accepted.clear();
  }
  CHECK(!cipher.empty());
}
#endif

#endif
