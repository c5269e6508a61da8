// SPDX-License-Identifier: BSD-3-Clause
// ConnectionType::prepare(): keys are read before they cannot be read any more.
#if AECONN_TLS

#include <filesystem>

#include "conn/error.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::Endpoint;
using conn::Options;
using testing::Contains;
using testing::TlsSite;

namespace {

/// Its files vanish, as they do for a process without privileges.
struct PrepareSite : TlsSite {
  explicit PrepareSite(const std::string& more = {}) {
    std::filesystem::create_directory(keys);
    std::filesystem::copy(identity.chain, keys + "/server.pem");
    std::filesystem::copy(identity.key, keys + "/server.key");
    options = Options::parse("cert=" + keys + "/server.pem&key=" + keys + "/server.key" + more);
    url = Endpoint::parse("tls://127.0.0.1:0");
    url.options = options;
  }
  void take_keys_away() const { std::filesystem::remove_all(keys); }
  const std::string keys = folder.path() + "/keys";
  Options options;
  Endpoint url;
};

}  // namespace

TEST_CASE("tls prepare: a listener opens with keys that can be read no more", "[tls][prepare]") {
  PrepareSite site;
  site.server.prepare(site.url);
  site.server.prepare(site.url);
  site.take_keys_away();
  const conn::ListenerPtr listener = site.listen(site.options);
  const ConnectionPtr a = site.connect(*listener);
  INFO(a->last_error());
  REQUIRE(a->state() == conn::State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);
  // What was prepared is as if a listener used it: a new configuration that cannot have the keys is
  // refused, and the old one stays.
  CHECK_THROWS_AS(site.server.configure({}), conn::Error);
  const conn::ListenerPtr another = site.listen(site.options);
  CHECK(site.connect(*another)->state() == conn::State::kConnected);
}

TEST_CASE("tls prepare: what was prepared counts although nobody listens", "[tls][prepare]") {
  PrepareSite site;
  const auto ends = [&] {
    for (const auto& [name, value] : site.server.statistics(site.loop))
      if (name == "certificates_end") return value;
    return std::uint64_t{1};
  };
  CHECK(ends() == 0);
  site.server.configure({});
  site.server.prepare(site.url);
  CHECK(ends() > 1);
  site.server.configure({});
  site.take_keys_away();
  CHECK_THROWS_AS(site.server.configure({}), conn::Error);
}

TEST_CASE("tls prepare: without it the files are opened by the listener", "[tls][prepare]") {
  PrepareSite site;
  site.take_keys_away();
  CHECK_THROWS_AS((void)site.listen(site.options), conn::Error);
  // prepare() says what listen() would.
  try {
    site.server.prepare(site.url);
    FAIL("it read a file that there is not");
  } catch (const conn::Error& error) {
    CHECK_THAT(error.what(), Contains("tls://127.0.0.1:0") && Contains("server.pem"));
  }
  Endpoint wrong = site.url;
  wrong.options.set("wings", "2");
  CHECK_THROWS_AS(site.server.prepare(wrong), conn::Error);
}

TEST_CASE("tls prepare: each scheme of a list and other transports", "[tls][prepare]") {
  PrepareSite site;
  const conn::Registry registry = conn::all_transports();
  const Endpoint list = Endpoint::parse("shm|tls://127.0.0.1:0?shm-path=" + site.folder.path() +
                                        "/list.shm&cert=" + site.keys +
                                        "/server.pem&key=" + site.keys + "/server.key");
  registry.require(list.scheme).prepare(list);
  site.take_keys_away();
  const conn::ListenerPtr listener = registry.listen(site.loop, list, [](ConnectionPtr) {});
  CHECK(conn::describe(listener->not_served()) == "");
  const Endpoint plain = Endpoint::parse("tcp://127.0.0.1:1");
  CHECK_NOTHROW(registry.require("tcp").prepare(plain));
  CHECK_THROWS_AS(registry.require("tcp").prepare(Endpoint::parse("tcp://127.0.0.1:1?wings=2")),
                  conn::Error);
}

#endif  // AECONN_TLS
