// SPDX-License-Identifier: BSD-3-Clause
// Addresses for socket calls, over each transport: those that the texts name.

#include <arpa/inet.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <string>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/like_host_and_port.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::Connection;
using testing::Pair;

namespace {

struct Known {
  sockaddr_storage address{};
  std::size_t size = 0;
};
Known local(const Connection& its) {
  Known known;
  known.size = its.local_sockaddr(known.address);
  return known;
}
Known peer(const Connection& its) {
  Known known;
  known.size = its.peer_sockaddr(known.address);
  return known;
}

/// As the library's texts have it.
std::string text_of(const Known& known) {
  std::array<char, INET6_ADDRSTRLEN> host{};
  const void* const from = &known.address;
  switch (known.address.ss_family) {
    case AF_INET: {
      sockaddr_in at{};
      REQUIRE(known.size == sizeof at);
      std::memcpy(&at, from, sizeof at);
      return inet_ntop(AF_INET, &at.sin_addr, host.data(), host.size()) + std::string(":") +
             std::to_string(ntohs(at.sin_port));
    }
    case AF_INET6: {
      sockaddr_in6 at{};
      REQUIRE(known.size == sizeof at);
      std::memcpy(&at, from, sizeof at);
      return "[" + std::string(inet_ntop(AF_INET6, &at.sin6_addr, host.data(), host.size())) +
             "]:" + std::to_string(ntohs(at.sin6_port));
    }
    case AF_VSOCK: {
      sockaddr_vm at{};
      REQUIRE(known.size == sizeof at);
      std::memcpy(&at, from, sizeof at);
      return std::to_string(at.svm_cid) + ":" + std::to_string(at.svm_port);
    }
    case AF_UNIX: {
      sockaddr_un at{};
      std::memcpy(&at, from, known.size);
      return known.size > offsetof(sockaddr_un, sun_path) ? at.sun_path : "";
    }
    default:
      return known.size == 0 ? "unknown" : "another family";
  }
}

}  // namespace

TEST_CASE("sockaddr: both ends name the addresses that the texts name", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    for (const Connection* each : {pair.client.get(), pair.server.get()}) {
      const Known here = local(*each), there = peer(*each);
      CAPTURE(each->path());
      if (!transport.in_library) {  // the default of a transport: unknown
        CHECK(here.size == 0);
        CHECK(here.address.ss_family == AF_UNSPEC);
        CHECK(there.size == 0);
        continue;
      }
      CHECK(text_of(here) == each->local_address());
      // Of a Unix socket without a name the text is the listener's.
      const bool nameless = there.address.ss_family == AF_UNIX && text_of(there).empty();
      CHECK((nameless ? each->local_address() : text_of(there)) == each->peer_address());
      if (nameless) CHECK(there.size == sizeof(sa_family_t));
    }
    if (!transport.in_library) return;
    CHECK(text_of(local(*pair.server)) == text_of(peer(*pair.client)));
    CHECK(text_of(local(*pair.client)) == text_of(peer(*pair.server)));
  }
}

TEST_CASE("sockaddr: before a connection is established there is no address of a peer",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    const conn::ConnectionPtr idle = site.type.create(site.loop);
    CHECK(local(*idle).size == 0);
    CHECK(peer(*idle).size == 0);
  }
}

TEST_CASE("sockaddr: the C interface copies as getpeername does", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    testing::c::Pair pair(transport);
    sockaddr_storage server{}, client{};
    socklen_t server_size = sizeof server, client_size = sizeof client;
    REQUIRE(aeconn_local_sockaddr(pair.server.get(), reinterpret_cast<sockaddr*>(&server),
                                  &server_size) == 0);
    REQUIRE(aeconn_peer_sockaddr(pair.client.get(), reinterpret_cast<sockaddr*>(&client),
                                 &client_size) == 0);
    REQUIRE(server_size == client_size);
    CHECK(std::memcmp(&server, &client, server_size) == 0);
    CHECK(server.ss_family != AF_UNSPEC);
    // A descriptor of its own tells the same.
    if (aeconn_fd(pair.client.get()) >= 0 && !transport.name.ends_with("vsock")) {
      sockaddr_storage known{};
      socklen_t size = sizeof known;
      REQUIRE(getpeername(aeconn_fd(pair.client.get()), reinterpret_cast<sockaddr*>(&known),
                          &size) == 0);
      CHECK(size == client_size);
      CHECK(std::memcmp(&known, &client, size) == 0);
    }
    // A room that is too small gets the beginning, and the whole size.
    sockaddr_storage cut{};
    socklen_t room = sizeof cut.ss_family;
    REQUIRE(aeconn_local_sockaddr(pair.server.get(), reinterpret_cast<sockaddr*>(&cut), &room) ==
            0);
    CHECK(room == server_size);
    CHECK(cut.ss_family == server.ss_family);
    const testing::c::Conn unconnected(aeconn_connect(
        pair.loop.get(), aeconn_listener_url(pair.listener.get(), 0), nullptr, nullptr));
    REQUIRE(unconnected != nullptr);
    room = sizeof cut;
    errno = 0;
    if (aeconn_peer_sockaddr(unconnected.get(), reinterpret_cast<sockaddr*>(&cut), &room) != 0)
      CHECK(errno == ENOTCONN);
    CHECK(aeconn_peer_sockaddr(pair.client.get(), nullptr, &room) == -1);
    CHECK(errno == EINVAL);
    CHECK(aeconn_local_sockaddr(nullptr, nullptr, nullptr) == -1);
  }
}

TEST_CASE("sockaddr: the name of a Unix socket is no host and port, whatever it looks like",
          "[unix][c]") {
  const std::string name = testing::kLikeHostAndPort;
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  testing::bind_like_host_and_port(ends[1]);
  testing::AnyLoop loop;
  const conn::Registry registry = testing::test_registry();
  const conn::ConnectionPtr its = registry.require("unix").adopt(loop, ends[0]);
  CHECK(its->peer_address() == name);
  CHECK(its->peer_host_port().host == name);
  CHECK(its->peer_host_port().port == 0);
  const testing::c::Loop c_loop(aeconn_loop_new());
  const testing::c::Conn theirs(aeconn_adopt(c_loop.get(), "unix", ends[1]));
  REQUIRE(theirs != nullptr);
  std::array<char, 200> host{};
  uint16_t port = 1;
  aeconn_local(theirs.get(), host.data(), host.size(), &port);
  CHECK(std::string(host.data()) == name);
  CHECK(port == 0);
}

TEST_CASE("C: behind a proxy the client of a Unix socket has a host and a port", "[c][unix]") {
  const testing::TempFolder folder;
  const testing::c::Loop loop(aeconn_loop_new());
  testing::c::Conn served;
  const std::string path = folder.path() + "/10.0.0.1:80";
  const testing::c::Listener listener(aeconn_listen(
      loop.get(), ("unix://" + path + "?proxy-protocol=yes").c_str(),
      [](void* to, aeconn_conn* conn) { static_cast<testing::c::Conn*>(to)->reset(conn); },
      &served));
  INFO(aeconn_error());
  REQUIRE(listener != nullptr);
  const testing::RawSocket proxy =
      testing::RawSocket::connect(conn::Endpoint::parse("unix://" + path));
  const bool told = GENERATE(true, false);
  proxy.send(told ? "PROXY TCP4 203.0.113.7 198.51.100.1 40112 6379\r\n" : "PROXY UNKNOWN\r\n");
  testing::c::until(loop.get(), [&] { return served != nullptr; });
  std::array<char, 200> host{};
  uint16_t port = 1;
  aeconn_peer(served.get(), host.data(), host.size(), &port);
  CHECK(std::string(host.data()) == (told ? "203.0.113.7" : path));
  CHECK(port == (told ? 40112 : 0));
  aeconn_local(served.get(), host.data(), host.size(), &port);
  CHECK(std::string(host.data()) == path);
  CHECK(port == 0);
}
