// SPDX-License-Identifier: BSD-3-Clause
// conn/tcp's vsock transport: addresses, and differences to tcp. Where the kernel has vsock
// loopback, the conformance suite runs over it, too.

#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

#include <cerrno>
#include <string>

#include "conn/error.h"
#include "conn/tcp/socket.h"
#include "conn/tcp/vsock.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using conn::Endpoint;
using testing::Contains;
using testing::Site;

namespace {

const testing::Transport kVsock{.name = "vsock", .lingers = false};

bool no_loopback() {
  if (testing::has_vsock_loopback()) return false;
  WARN("skipped: this kernel has no vsock loopback (module vsock_loopback)");
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

TEST_CASE("vsock: a missing module is named", "[vsock]") {
  using conn::tcp::vsock_error_text;
  CHECK_THAT(vsock_error_text(EAFNOSUPPORT), Contains("no vsock, or its module vsock"));
  CHECK_THAT(vsock_error_text(EADDRNOTAVAIL), Contains("1 needs the module vsock_loopback"));
  CHECK_THAT(vsock_error_text(EACCES), Contains("CAP_NET_BIND_SERVICE"));
  CHECK_THAT(vsock_error_text(EPERM), Contains("container's filter"));
  CHECK_THAT(vsock_error_text(ENODEV), Contains("vhost_vsock to the virtual machines"));
  CHECK_THAT(vsock_error_text(ENETUNREACH), Contains("needs a vsock device"));
  CHECK(vsock_error_text(ECONNREFUSED) == "Connection refused");
  if (testing::has_vsock_loopback()) return;
  Site site(kVsock);
  CHECK_THROWS_WITH(
      site.type.listen(site.loop, Endpoint::parse("vsock://1:0"), [](ConnectionPtr) {}),
      Contains("vsock://1:0: listen: ") && (Contains("module vsock") || Contains("forbid vsock")));
}

TEST_CASE("vsock: TLS over it has its options, and a context ID is its host", "[vsock]") {
  Site site(kVsock);
  conn::ConnectionType* const tls = site.registry.find("tls+vsock");
  if (tls == nullptr) return;  // a build without TLS
  CHECK_NOTHROW(tls->check(Endpoint::parse("tls+vsock://2:6379?idle-timeout=5s")));
  CHECK_THROWS_WITH(tls->check(Endpoint::parse("tls+vsock://host:6379")),
                    Contains("as in vsock://2:6379"));
  CHECK_NOTHROW(tls->configure(conn::Options::parse("backlog=7")));
}

TEST_CASE("vsock: a port without a listener is one sentence", "[vsock]") {
  if (no_loopback()) return;
  Site site(kVsock);
  bool done = false;
  const ConnectionPtr client =
      site.connect(site.deserted(), [&](conn::Connection&) { done = true; });
  RUN_UNTIL(site.loop, done);
  CHECK(client->state() == conn::State::kError);
  CHECK_THAT(client->last_error(), Contains("connect to 1:") && Contains("Connection refused"));
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
  CHECK(client->is_local() == true);
  CHECK(server->is_local() == true);
  CHECK_THROWS_WITH(site.type.listen(site.loop, at, [](ConnectionPtr) {}),
                    Contains("Address already in use"));
}

TEST_CASE("vsock: connect-timeout is the kernel's, too", "[vsock]") {
  if (no_loopback()) return;
  Site site(kVsock);
  const auto listener = site.listen([](ConnectionPtr) {});
  Endpoint to = testing::address_of(*listener);
  to.options.set("connect-timeout", "1500ms");
  const ConnectionPtr client = site.connect(to);
  RUN_UNTIL(site.loop, client->state() != conn::State::kConnecting);
  REQUIRE(client->state() == conn::State::kConnected);
  timeval time{};
  socklen_t size = sizeof time;
  REQUIRE(::getsockopt(client->fd(), AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &time, &size) == 0);
  CHECK(time.tv_sec == 1);
  CHECK(time.tv_usec / 1000 >= 490);  // the kernel rounds to its ticks
}

TEST_CASE("vsock: sockets of the program are adopted", "[vsock]") {
  if (no_loopback()) return;
  Site site(kVsock);
  conn::tcp::Fd listening(::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
  conn::SocketAddress here = conn::tcp::vsock_address(Endpoint::parse("vsock://1:0"));
  std::uint16_t port = 6000;
  do {
    here.set_port(++port);
    REQUIRE(port != 0);
  } while (::bind(listening.get(), here.get(), here.size) != 0);
  REQUIRE(::listen(listening.get(), 5) == 0);
  conn::tcp::Fd raw(::socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(raw.get(), here.get(), here.size) == 0);
  CHECK_THROWS_WITH(site.registry.require("tcp").adopt(site.loop, raw.get()),
                    Contains("it is not a tcp socket"));
  ConnectionPtr server;
  const auto listener = site.type.adopt_listener(site.loop, ::dup(listening.get()),
                                                 [&](ConnectionPtr c) { server = std::move(c); });
  CHECK(testing::address_of(*listener).to_string() == "vsock://1:" + std::to_string(port));
  const ConnectionPtr client = site.type.adopt(site.loop, ::dup(raw.get()));
  RUN_UNTIL(site.loop, server != nullptr);
  testing::send(site.loop, *client, "hello");
  CHECK(testing::receive(site.loop, *server, 5) == "hello");
  CHECK(client->peer_address() == "1:" + std::to_string(port));
}

TEST_CASE("vsock: a peer that closes with unread bytes loses nothing of its own", "[vsock]") {
  if (no_loopback()) return;
  testing::Pair pair(kVsock);
  testing::send(pair.loop, *pair.client, "never read");
  testing::await_readable(pair.loop, *pair.server);
  testing::send(pair.loop, *pair.server, std::string(100'000, 'x'));
  pair.server.reset();
  const testing::Collector seen(*pair.client);
  RUN_UNTIL(pair.loop, seen.over());
  CHECK(seen.ended);
  CHECK(seen.bytes == std::string(100'000, 'x'));
}
