// SPDX-License-Identifier: BSD-3-Clause
// reload_tls() and prepare_client(): the files of all types of tls of a registry.
#if AECONN_TLS

#include "c/aeconn.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "conn/error.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::Endpoint;
using testing::Contains;

namespace {

void prepare_client(const conn::Registry& registry, const std::string& url) {
  const Endpoint to = Endpoint::parse(url);
  registry.require(to.scheme).prepare_client(to);
}

/// A server of two types of tls, whose certificate is in files with fixed names.
struct AllTls {
  AllTls() { install("first"); }
  void install(const std::string& name) const {
    const testing::Identity id = ca.issue({.common_name = name, .names = {"IP:127.0.0.1"}});
    const auto how = std::filesystem::copy_options::overwrite_existing;
    std::filesystem::copy_file(id.chain, cert, how);
    std::filesystem::copy_file(id.key, key, how);
  }
  conn::ListenerPtr listen(const std::string& place) {
    return registry.listen(loop, place + "?cert=" + cert + "&key=" + key,
                           [this](ConnectionPtr peer) { accepted = std::move(peer); });
  }
  /// The common name of the certificate that a new client gets.
  std::string visit(const conn::Listener& listener) {
    Endpoint to = listener.endpoints().front();
    to.options = {{"ca", ca.cert()}, {"verify", "chain"}};
    bool done = false;
    accepted.reset();
    const ConnectionPtr client = registry.create(loop, to);
    client->connect(to, [&](conn::Connection&) { done = true; });
    RUN_UNTIL(loop, done && (accepted || client->state() != conn::State::kConnected));
    return client->state() == conn::State::kConnected ? client->peer_user() : client->last_error();
  }
  const testing::TempFolder folder;
  const testing::Authority ca{folder};
  const std::string cert = folder.path() + "/server.pem", key = folder.path() + "/server.key";
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  ConnectionPtr accepted;
};

}  // namespace

TEST_CASE("tls: reload_tls() reads the files of every type of tls", "[tls][reload]") {
  AllTls site;
  const auto tcp = site.listen("tls://127.0.0.1:0");
  const auto local = site.listen("tls+unix:" + site.folder.path() + "/s");
  const auto shared = site.listen("tls+shm:" + site.folder.path() + "/m");
  REQUIRE(site.visit(*tcp) == "first");
  site.install("second");
  REQUIRE(site.visit(*local) == "first");
  site.registry.reload_tls();
  CHECK(site.visit(*tcp) == "second");
  CHECK(site.visit(*local) == "second");
  CHECK(site.visit(*shared) == "second");
  std::ofstream(site.key) << "no key";
  CHECK_THROWS_AS(site.registry.reload_tls(), conn::Error);
  CHECK(site.visit(*local) == "second");
}

TEST_CASE("tls: reload_tls() keeps the options of configure()", "[tls][reload]") {
  AllTls site;
  site.registry.require("tls").configure({{"cert", site.cert}, {"key", site.key}});
  site.install("second");
  site.registry.reload_tls();
  const auto listener = site.registry.listen(
      site.loop, "tls://127.0.0.1:0", [&](ConnectionPtr peer) { site.accepted = std::move(peer); });
  CHECK(site.visit(*listener) == "second");
}

TEST_CASE("tls: a client's URL is checked and its files are read without a connection",
          "[tls][prepare]") {
  AllTls site;
  const std::string ca = site.folder.path() + "/ca.pem";
  std::filesystem::copy_file(site.ca.cert(), ca);
  const auto listener = site.listen("tls://127.0.0.1:0");
  Endpoint to = listener->endpoints().front();
  to.options = {{"ca", ca}};
  prepare_client(site.registry, to.to_string());
  std::filesystem::remove(ca);
  bool done = false;
  const ConnectionPtr client = site.registry.create(site.loop, to);
  client->connect(to, [&](conn::Connection&) { done = true; });
  RUN_UNTIL(site.loop, done);
  INFO(client->last_error());
  CHECK(client->state() == conn::State::kConnected);
  // A client's URL needs no certificate of its own; nobody need listen, and no device be there.
  prepare_client(site.registry, "tls://127.0.0.1:1?verify=no");
  prepare_client(site.registry, "tls+rdma|tls://127.0.0.1:1?verify=no");
  prepare_client(site.registry, "rdma://127.0.0.1:1");
  for (const char* bad : {"tls://127.0.0.1:1?ca=/nonexistent", "tls://127.0.0.1:1?no=1",
                          "tls+unix|tls://127.0.0.1:1", "tcp://127.0.0.1", "tcp://127.0.0.1:1?ca=x",
                          "tls+shm:/s?ca=/nonexistent", "tls+rdma|tls://h:1?ca=/nonexistent"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(prepare_client(site.registry, bad), conn::Error);
  }
}

TEST_CASE("tls: configure() reads again what was prepared for clients", "[tls][prepare]") {
  AllTls site;
  const std::string ca = site.folder.path() + "/ca.pem";
  std::filesystem::copy_file(site.ca.cert(), ca);
  prepare_client(site.registry, "tls://127.0.0.1:1?ca=" + ca);
  site.registry.reload_tls();
  std::filesystem::remove(ca);
  CHECK_THROWS_AS(site.registry.reload_tls(), conn::Error);
}

TEST_CASE("tls in C: reloading, and the check of a client's URL", "[tls][prepare]") {
  CHECK(aeconn_reload_tls() == 0);
  CHECK(aeconn_prepare_client_url("tls://127.0.0.1:1?verify=no") == 0);
  CHECK(aeconn_prepare_client_url("tls://127.0.0.1:1?ca=/nonexistent") == -1);
  CHECK_THAT(std::string(aeconn_error()), Contains("/nonexistent"));
  CHECK(aeconn_prepare_client_url(nullptr) == -1);
}

#endif
