// SPDX-License-Identifier: BSD-3-Clause
// Adopting sockets of the program as connections and listeners: real ones, as passed by socket
// activation or by a master process that binds for its children.

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Options;
using conn::State;
using testing::RawSocket;

namespace {

int number(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  REQUIRE(getsockopt(fd, level, name, &value, &size) == 0);
  return value;
}

/// A descriptor to be adopted.
int tcp_listening() { return ::dup(RawSocket::listening().fd()); }

int unix_listening(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(fd, 8) == 0);
  return fd;
}

bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/// The error of adopt_listener() or adopt(); empty on success.
template <class Take>
std::string refusal(Take take) {
  try {
    (void)take();
  } catch (const conn::Error& error) {
    return error.what();
  }
  return {};
}

bool says(const std::string& text, std::string_view what) {
  UNSCOPED_INFO(text);
  return text.find(what) != std::string::npos;
}

struct Taker {
  conn::AcceptHandler handler() {
    return [this](ConnectionPtr next) { accepted.push_back(std::move(next)); };
  }
  std::vector<ConnectionPtr> accepted;
};

}  // namespace

// --- connections ---------------------------------------------------------------------------------

TEST_CASE("adopt: a socket gets the options of the type", "[conn][tcp]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  conn::ConnectionType& tcp = registry.require("tcp");
  const RawSocket listening = RawSocket::listening();
  const RawSocket client = RawSocket::connect(listening.endpoint());
  const int fd = ::dup(listening.accept().fd());

  SECTION("what they turn on") {
    REQUIRE(number(fd, IPPROTO_TCP, TCP_NODELAY) == 0);
    tcp.configure({{"keepalive", "60s"}, {"user-timeout", "7s"}, {"send-buffer", "32k"}});
    const ConnectionPtr ours = tcp.adopt(loop, fd);
    CHECK(number(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
    CHECK(number(fd, SOL_SOCKET, SO_KEEPALIVE) != 0);
    CHECK(number(fd, IPPROTO_TCP, TCP_KEEPIDLE) == 60);
    CHECK(number(fd, IPPROTO_TCP, TCP_KEEPINTVL) == 20);
    CHECK(number(fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == 7000);
    CHECK(number(fd, SOL_SOCKET, SO_SNDBUF) == 2 * 32 * 1024);  // the kernel doubles it
  }
  SECTION("what they turn off") {
    const int on = 1;
    REQUIRE(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    REQUIRE(setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0);
    tcp.configure({{"keepalive", "0"}, {"nodelay", "no"}});
    const ConnectionPtr ours = tcp.adopt(loop, fd);
    CHECK(number(fd, IPPROTO_TCP, TCP_NODELAY) == 0);
    CHECK(number(fd, SOL_SOCKET, SO_KEEPALIVE) == 0);
  }
}

TEST_CASE("adopt: a socket that listens is refused, with what takes it", "[conn][tcp]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  const RawSocket listening = RawSocket::listening();
  CHECK(says(refusal([&] { return registry.require("tcp").adopt(loop, listening.fd()); }),
             "it listens: adopt_listener() takes it"));
  CHECK(is_open(listening.fd()));
}

// --- listeners -----------------------------------------------------------------------------------

TEST_CASE("adopt_listener: a listening socket becomes a listener that owns it", "[conn][tcp]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  conn::ConnectionType& tcp = registry.require("tcp");
  tcp.configure({{"keepalive", "60s"}});
  Taker taker;
  const int fd = tcp_listening();
  conn::ListenerPtr listener = tcp.adopt_listener(loop, fd, taker.handler(), {{"nodelay", "no"}});
  CHECK_FALSE(is_open(fd));
  REQUIRE(listener->endpoints().size() == 1);
  const conn::Endpoint at = listener->endpoints().front();
  CHECK(at.scheme == "tcp");
  CHECK(at.hosts.front().name == "127.0.0.1");
  CHECK(at.port != 0);

  const ConnectionPtr client = registry.connect(loop, at.to_string(), {});
  RUN_UNTIL(loop, taker.accepted.size() == 1 && client->state() == State::kConnected);
  testing::send(loop, *client, "hello");
  CHECK(testing::receive(loop, *taker.accepted[0], 5) == "hello");
  const int theirs = taker.accepted[0]->fd();
  CHECK(number(theirs, IPPROTO_TCP, TCP_NODELAY) == 0);
  CHECK(number(theirs, IPPROTO_TCP, TCP_KEEPIDLE) == 60);

  listener->pause();
  const ConnectionPtr waiting = registry.connect(loop, at.to_string(), {});
  RUN_UNTIL(loop, waiting->state() == State::kConnected);
  testing::turns(loop, 5);
  CHECK(taker.accepted.size() == 1);
  listener->resume();
  RUN_UNTIL(loop, taker.accepted.size() == 2);

  listener.reset();
  const ConnectionPtr late = registry.connect(loop, at.to_string(), {});
  RUN_UNTIL(loop, late->state() != State::kConnecting);
  CHECK(late->error_code() == std::errc::connection_refused);
}

TEST_CASE("adopt_listener: who else holds the socket listens on", "[conn][tcp]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  const RawSocket master = RawSocket::listening();
  Taker one, two;
  conn::ListenerPtr first =
      registry.require("tcp").adopt_listener(loop, ::dup(master.fd()), one.handler());
  const RawSocket a = RawSocket::connect(master.endpoint());
  RUN_UNTIL(loop, one.accepted.size() == 1);
  first.reset();
  const RawSocket b = RawSocket::connect(master.endpoint());  // waits in the backlog
  const conn::ListenerPtr second =
      registry.require("tcp").adopt_listener(loop, ::dup(master.fd()), two.handler());
  RUN_UNTIL(loop, two.accepted.size() == 1);
  b.send("still there");
  CHECK(testing::receive(loop, *two.accepted[0], 11) == "still there");
  CHECK(one.accepted.size() == 1);
}

TEST_CASE("adopt_listener: max-connections holds for it as well", "[conn][tcp][limits]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  Taker taker;
  const conn::ListenerPtr listener = registry.require("tcp").adopt_listener(
      loop, tcp_listening(), taker.handler(), {{"max-connections", "1"}});
  int refused = 0;
  listener->on_refused([&](const conn::Failure&) { ++refused; });
  const RawSocket a = RawSocket::connect(testing::address_of(*listener));
  const RawSocket b = RawSocket::connect(testing::address_of(*listener));
  RUN_UNTIL(loop, refused == 1);
  CHECK(taker.accepted.size() == 1);
}

TEST_CASE("adopt_listener: a Unix socket's file stays when listening ends", "[conn][unix]") {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/handed-down";
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  Taker taker;
  conn::ListenerPtr listener =
      registry.require("unix").adopt_listener(loop, unix_listening(path), taker.handler());
  CHECK(listener->endpoints().front().path == path);
  const ConnectionPtr client = registry.connect(loop, "unix://" + path, {});
  RUN_UNTIL(loop, taker.accepted.size() == 1 && client->state() == State::kConnected);
  testing::send(loop, *client, "hello");
  CHECK(testing::receive(loop, *taker.accepted[0], 5) == "hello");
  listener.reset();
  struct stat info {};
  CHECK(stat(path.c_str(), &info) == 0);
}

TEST_CASE("adopt_listener: what does not listen, or is of another kind, stays the caller's",
          "[conn][tcp][unix]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  const auto take = [&](const char* type, int fd, const Options& options = {}) {
    const std::string why = refusal([&] {
      return registry.require(type).adopt_listener(
          loop, fd, [](ConnectionPtr) {}, options);
    });
    CHECK_FALSE(why.empty());
    return why;
  };
  const testing::TempFolder folder;
  const RawSocket listening = RawSocket::listening();
  const RawSocket connected = RawSocket::connect(listening.endpoint());
  const RawSocket fresh(::socket(AF_INET, SOCK_STREAM, 0));
  const RawSocket datagrams(::socket(AF_INET, SOCK_DGRAM, 0));
  const RawSocket local(unix_listening(folder.path() + "/local"));
  CHECK(says(take("tcp", connected.fd()), "it does not listen"));
  CHECK(says(take("tcp", fresh.fd()), "it does not listen"));
  CHECK(says(take("tcp", datagrams.fd()), "it is not a stream socket"));
  CHECK(says(take("tcp", local.fd()), "it is not a tcp socket"));
  CHECK(says(take("unix", listening.fd()), "it is not a unix socket"));
  CHECK(says(take("tcp", -1), "descriptor -1"));
  CHECK(says(take("tcp", listening.fd(), {{"no-such", "x"}}), "no-such"));
  for (const RawSocket* each : {&listening, &connected, &fresh, &datagrams, &local})
    CHECK(is_open(each->fd()));
#if AECONN_RDMA
  if (registry.find("rdma") != nullptr)
    CHECK(says(take("rdma", listening.fd()), "no descriptor that could be taken over"));
#endif
}

#if AECONN_TLS

TEST_CASE("adopt_listener: TLS listens on sockets of tcp and unix", "[conn][tls]") {
  testing::TlsSite site;
  Taker taker;
  site.server.configure(site.options_of(site.identity));
  conn::ListenerPtr listener = site.server.adopt_listener(
      site.loop, tcp_listening(), taker.handler(), {{"nodelay", "no"}, {"alpn", "kv"}});
  CHECK(listener->endpoints().front().scheme == "tls");
  const ConnectionPtr client =
      site.connect(testing::address_of(*listener), {{"alpn", "kv"}, {"server-name", "localhost"}});
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  RUN_UNTIL(site.loop, taker.accepted.size() == 1);
  site.require_echo(*client, *taker.accepted[0]);
  CHECK(testing::info_of(*client, "alpn") == "kv");
  CHECK(number(taker.accepted[0]->fd(), IPPROTO_TCP, TCP_NODELAY) == 0);
}

TEST_CASE("adopt_listener: TLS listens on a Unix socket", "[conn][tls][unix]") {
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/handed-down";
  const conn::Registry registry = testing::test_registry();
  testing::AnyLoop loop;
  Taker taker;
  const conn::ListenerPtr listener =
      registry.require("tls+unix").adopt_listener(loop, unix_listening(path), taker.handler());
  const ConnectionPtr client = registry.connect(loop, "tls+unix://" + path, {});
  RUN_UNTIL(loop, taker.accepted.size() == 1 && client->state() != State::kConnecting);
  INFO(client->last_error());
  REQUIRE(client->state() == State::kConnected);
  testing::send(loop, *client, "hello");
  CHECK(testing::receive(loop, *taker.accepted[0], 5) == "hello");
}

TEST_CASE("adopt_listener: what TLS cannot serve leaves the socket the caller's", "[conn][tls]") {
  testing::TlsSite site;
  const RawSocket listening = RawSocket::listening();
  const RawSocket fresh(::socket(AF_INET, SOCK_STREAM, 0));
  const auto take = [&](int fd, const Options& options) {
    return refusal([&] {
      return site.server.adopt_listener(
          site.loop, fd, [](ConnectionPtr) {}, options);
    });
  };
  CHECK(says(take(listening.fd(), {{"cert", "/no/such/file"}}), "/no/such/file"));
  CHECK(says(take(listening.fd(), {{"no-such", "x"}}), "no-such"));
  CHECK(says(take(fresh.fd(), site.options_of(site.identity)), "it does not listen"));
  CHECK(is_open(listening.fd()));
  CHECK(is_open(fresh.fd()));
}

#endif  // AECONN_TLS
