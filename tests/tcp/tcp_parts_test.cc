// SPDX-License-Identifier: BSD-3-Clause
// Parts of a connection over a socket by themselves: what the loop watches, and the facts that a
// socket tells.

#include <sys/socket.h>

#include <array>
#include <future>
#include <memory>
#include <string>

#include "conn/kit/errno_of.h"
#include "conn/tcp/connected_socket.h"
#include "conn/tcp/file_events.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"

using conn::tcp::ConnectedSocket;
using conn::tcp::Fd;
using conn::tcp::FileEvents;

namespace {

struct Ends {
  Ends() {
    std::array<int, 2> fds{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
    one = Fd(fds[0]);
    other = Fd(fds[1]);
  }
  Fd one, other;
};

}  // namespace

TEST_CASE("tcp file events: the loop watches what is wanted, and nothing else", "[tcp]") {
  testing::AnyLoop loop;
  Ends ends;
  const int fd = ends.one.get();
  FileEvents events;
  std::string calls;
  const auto want = [&](ae::Mask wanted) {
    events.watch(
        loop, fd, wanted, [&] { calls += 'r'; }, [&] { calls += 'w'; });
    REQUIRE(events.any() == (wanted != ae::kNone));
    REQUIRE(loop.file_events(fd) == wanted);
  };
  REQUIRE_FALSE(events.any());
  want(ae::kNone);
  want(ae::kReadable);
  want(ae::kReadable | ae::kWritable);
  want(ae::kWritable);
  want(ae::kWritable | ae::kBarrier);
  want(ae::kReadable | ae::kWritable | ae::kBarrier);
  want(ae::kReadable);
  want(ae::kNone);
  REQUIRE(::send(ends.other.get(), "x", 1, MSG_NOSIGNAL) == 1);
  want(ae::kReadable | ae::kWritable);
  loop.process_events(ae::kFileEvents | ae::kDontWait);
  REQUIRE(calls == "rw");
  want(ae::kReadable | ae::kWritable | ae::kBarrier);
  loop.process_events(ae::kFileEvents | ae::kDontWait);
  REQUIRE(calls == "rwwr");
  events.stop(loop, fd);
  REQUIRE_FALSE(events.any());
  REQUIRE(loop.file_events(fd) == ae::kNone);
  events.stop(loop, fd);  // no effect
}

TEST_CASE("tcp facts: without a socket nothing is known", "[tcp]") {
  const auto settings = std::make_shared<const conn::tcp::Settings>();
  const ConnectedSocket socket(settings);
  const conn::CarrierFacts& facts = socket;
  REQUIRE(facts.fd() == -1);
  REQUIRE(facts.local_address().empty());
  REQUIRE(facts.peer_address().empty());
  REQUIRE(facts.peer_sockaddr().size == 0);
  REQUIRE(facts.is_local() == std::nullopt);
  REQUIRE(facts.info().empty());
  REQUIRE_FALSE(facts.peer_credentials());
}

TEST_CASE("tcp facts: behind a proxy they are the client's, and not those of the socket", "[tcp]") {
  ConnectedSocket socket(std::make_shared<const conn::tcp::Settings>());
  Ends ends;
  const int fd = ends.one.get();
  conn::SocketAddress unix_peer;
  unix_peer.storage.ss_family = AF_UNIX;
  unix_peer.size = sizeof(sa_family_t);
  socket.set(std::move(ends.one), unix_peer);
  REQUIRE(socket.is_unix());
  REQUIRE_FALSE(socket.is_inet());
  REQUIRE(socket.fd() == fd);
  REQUIRE(socket.is_local() == true);
  REQUIRE(socket.peer_credentials()->pid == getpid());
  conn::SocketAddress client;
  auto& in = reinterpret_cast<sockaddr_in&>(client.storage);
  in.sin_family = AF_INET;
  in.sin_port = htons(7);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  client.size = sizeof in;
  socket.set_client(client);
  REQUIRE(socket.peer_address() == "127.0.0.1:7");
  REQUIRE(socket.peer_sockaddr().size == client.size);
  REQUIRE(socket.is_local() == std::nullopt);  // it may be an address of the proxy's machine
  REQUIRE_FALSE(socket.peer_credentials());
  bool proxied = false;
  for (const auto& [name, value] : socket.info()) proxied = proxied || name == "proxy";
  REQUIRE(proxied);
}

TEST_CASE("errno of a failure: its own, that of its default condition, or EIO", "[conn]") {
  const auto of = [](std::error_code code) { return conn::errno_of(conn::Failure(code, "x")); };
  REQUIRE(of({ENOMEM, std::generic_category()}) == ENOMEM);
  REQUIRE(of({ECONNRESET, std::system_category()}) == ECONNRESET);
  REQUIRE(of(std::make_error_code(std::future_errc::no_state)) == EIO);
}
