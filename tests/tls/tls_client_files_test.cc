// SPDX-License-Identifier: BSD-3-Clause
// reload_tls() and prepare_client(): the files of all types of tls of a registry.
#if AECONN_TLS

#include "c/aeconn.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "conn/error.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/environment.h"
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
    return visit(listener, {{"ca", ca.cert()}, {"verify", "chain"}});
  }
  /// The same for a client with these options; why it failed, else.
  std::string visit(const conn::Listener& listener, const conn::Options& options) {
    Endpoint to = listener.endpoints().front();
    to.options = options;
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

TEST_CASE("tls: prepare_client() throws an Error with the code of the file's", "[tls][prepare]") {
  const conn::Registry registry = conn::all_transports();
  const std::string bad =
      GENERATE(as<std::string>{}, "tls://127.0.0.1:1?ca=/nonexistent", "tls+shm:/s?ca=/nonexistent",
               "tls+rdma|tls://127.0.0.1:1?crl=/nonexistent");
  CAPTURE(bad);
  try {
    prepare_client(registry, bad);
    FAIL("it read a file that there is not");
  } catch (const conn::Error& error) {
    CHECK(error.code() == std::errc::no_such_file_or_directory);
    CHECK_THAT(error.what(), Contains("?c") && Contains("/nonexistent"));
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

TEST_CASE("tls: reloading reads the system's certificates for clients that were prepared",
          "[tls][prepare]") {
  AllTls site;
  const testing::TempFolder other_folder;
  const testing::Authority other{other_folder};
  const std::string system = site.folder.path() + "/system.pem";
  const auto install = [&](const std::string& from) {
    std::filesystem::copy_file(from, system, std::filesystem::copy_options::overwrite_existing);
  };
  const testing::Variable variable("SSL_CERT_FILE", system);
  const auto listener = site.listen("tls://127.0.0.1:0");
  const conn::Options client{{"verify", "chain"}};
  install(other.cert());
  prepare_client(site.registry, "tls://127.0.0.1:1?verify=chain");
  install(site.ca.cert());
  CHECK_THAT(site.visit(*listener, client), Contains("certificate"));
  SECTION("by reload_tls()") { site.registry.reload_tls(); }
  SECTION("by configure()") { site.registry.require("tls").configure({}); }
  // From here on no certificate can be read, so only those that were read just now can be trusted.
  std::filesystem::remove(system);
  CHECK(site.visit(*listener, client) == "first");
  // The next reloading finds none.
  site.registry.reload_tls();
  CHECK_THAT(site.visit(*listener, client), Contains("certificate"));
}

TEST_CASE("tls in C: reloading, and the check of a client's URL", "[tls][prepare]") {
  CHECK(aeconn_reload_tls() == 0);
  CHECK(aeconn_prepare_client_url("tls://127.0.0.1:1?verify=no") == 0);
  errno = 0;
  const int result = aeconn_prepare_client_url("tls://127.0.0.1:1?ca=/nonexistent");
  const int code = errno;
  CHECK(result == -1);
  CHECK(code == ENOENT);
  CHECK_THAT(std::string(aeconn_error()), Contains("/nonexistent"));
  CHECK(aeconn_prepare_client_url(nullptr) == -1);
}

#endif
