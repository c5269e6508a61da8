// SPDX-License-Identifier: BSD-3-Clause
// conn/tcp's vsock transport: addresses, and differences to tcp. Where the kernel has vsock
// loopback, the conformance suite runs over it, too.

#include <sys/socket.h>

#include <linux/vm_sockets.h>

#include "conn/error.h"
#include "conn/tcp/vsock.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using conn::Endpoint;
using testing::Contains;
using testing::Site;

namespace testing {
bool has_vsock_loopback();  // tests/support/testing.cc
}  // namespace testing

namespace {

const testing::Transport kVsock{.name = "vsock", .lingers = false};

bool no_loopback() {
  if (testing::has_vsock_loopback()) return false;
  WARN("not tested: this kernel has no vsock loopback (module vsock_loopback)");
  return true;
}

}  // namespace

TEST_CASE("vsock: a URL has a context ID and a port", "[vsock]") {
  Site site(kVsock);
  for (const char* good : {"vsock://2:6379", "vsock://*:1", "vsock://4294967294:65535"})
    CHECK_NOTHROW(site.type.check(Endpoint::parse(good)));
  for (const char* bad : {"vsock://host:1", "vsock://-1:1", "vsock://4294967296:1", "vsock://1,2:1",
                          "vsock://127.0.0.1:1", "vsock://2"})
    CHECK_THROWS_WITH(
        [&] {
          INFO(bad);
          site.type.check(Endpoint::parse(bad));
        }(),
        Contains("as in vsock://2:6379"));
  CHECK_THROWS_WITH(site.type.check(Endpoint::parse("vsock://2:1?nodelay=yes")),
                    Contains("vsock has no option nodelay"));
}

TEST_CASE("vsock: addresses are shown as CID and port", "[vsock]") {
  CHECK(conn::tcp::vsock_address(Endpoint::parse("vsock://2:6379")).to_string() == "2:6379");
  CHECK(conn::tcp::vsock_address(Endpoint::parse("vsock://*:6379")).host() == "*");
  conn::SocketAddress high = conn::tcp::vsock_address(Endpoint::parse("vsock://3:1"));
  reinterpret_cast<sockaddr_vm*>(high.get())->svm_port = 3'000'000'000;
  CHECK(high.to_string() == "3:3000000000");
  CHECK(high.port() == 0);  // a URL has no such port
}

TEST_CASE("vsock: a port without a listener is one sentence", "[vsock]") {
  if (no_loopback()) return;
  Site site(kVsock);
  bool done = false;
  const ConnectionPtr client =
      site.connect(site.deserted(), [&](conn::Connection&) { done = true; });
  RUN_UNTIL(site.loop, done);
  CHECK(client->state() == conn::State::kError);
  CHECK_THAT(client->last_error(), Contains("connect to 1:"));
}

TEST_CASE("vsock: a listener has a port that a URL can have", "[vsock]") {
  if (no_loopback()) return;
  Site site(kVsock);
  ConnectionPtr server;
  const auto listener = site.type.listen(site.loop, Endpoint::parse("vsock://*:0"),
                                         [&](ConnectionPtr c) { server = std::move(c); });
  const Endpoint at = testing::address_of(*listener);
  CHECK(at.to_string() == "vsock://*:" + std::to_string(at.port));
  REQUIRE(at.port != 0);
  const ConnectionPtr client =
      site.connect(Endpoint::parse("vsock://1:" + std::to_string(at.port)));
  RUN_UNTIL(site.loop, server && client->state() != conn::State::kConnecting);
  INFO(client->last_error());
  REQUIRE(client->state() == conn::State::kConnected);
  CHECK(client->peer_address() == "1:" + std::to_string(at.port));
  CHECK(server->peer_address() == client->local_address());
  CHECK_THROWS_WITH(site.type.listen(site.loop, at, [](ConnectionPtr) {}),
                    Contains("Address already in use"));
}
