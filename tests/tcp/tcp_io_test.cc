// SPDX-License-Identifier: BSD-3-Clause
// Blocking operations and moving between loops, over tcp.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "conn/transports/transports.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Pair;
using testing::RawSocket;
using namespace std::chrono_literals;

namespace {

const testing::Transport kTcp{.name = "tcp"};

}  // namespace

// --- sync_* --------------------------------------------------------------------------------------

TEST_CASE("sync_read: it waits for exactly as many bytes, while no handler runs", "[conn][tcp]") {
  Pair pair(kTcp);
  pair.server->set_read_handler([](Connection&) { FAIL("a handler ran"); });
  const testing::RawSocket raw(::dup(pair.client->fd()));
  std::thread writer([&] {
    for (const char* part : {"he", "l", "lo world"}) {
      std::this_thread::sleep_for(5ms);
      (void)::send(raw.fd(), part, strlen(part), MSG_NOSIGNAL);
    }
  });
  char buffer[8] = {};
  REQUIRE(pair.server->sync_read(buffer, 5, 10s) == 5);
  REQUIRE(std::string(buffer) == "hello");
  writer.join();
  REQUIRE(pair.server->sync_read(buffer, 6, 10s) == 6);
}

TEST_CASE("sync_read: it gives fewer bytes at the end of the stream", "[conn][tcp]") {
  Pair pair(kTcp);
  REQUIRE(pair.client->sync_write("abc", 3, 1s) == 3);
  pair.client.reset();
  char buffer[8];
  REQUIRE(pair.server->sync_read(buffer, 8, 10s) == 3);
  REQUIRE(pair.server->sync_read(buffer, 8, 10s) == 0);
}

TEST_CASE("sync_read: it gives up in time, and at once without any", "[conn][tcp]") {
  Pair pair(kTcp);
  char buffer[8];
  auto begin = std::chrono::steady_clock::now();
  REQUIRE(pair.server->sync_read(buffer, 8, 50ms) == -1);
  REQUIRE(errno == ETIMEDOUT);
  REQUIRE(std::chrono::steady_clock::now() - begin >= 50ms);
  for (const ae::Duration none : {ae::Duration(0), ae::Duration(-1s)}) {
    begin = std::chrono::steady_clock::now();
    REQUIRE(pair.server->sync_read(buffer, 8, none) == -1);
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(std::chrono::steady_clock::now() - begin < 1s);
  }
  REQUIRE(pair.client->sync_write("x", 1, 0s) == 1);
  REQUIRE(pair.server->sync_read(buffer, 1, 10s) == 1);
  REQUIRE(pair.client->sync_write("y", 1, 0s) == 1);
  std::this_thread::sleep_for(5ms);
  REQUIRE(pair.server->sync_read(buffer, 1, 0s) == 1);  // available bytes need no time
  REQUIRE(pair.server->sync_read(buffer, 0, 0s) == 0);
}

TEST_CASE("sync_write: it writes all to a slow reader, or gives up in time", "[conn][tcp]") {
  Pair pair(kTcp);
  const std::string much(16 << 20, 'm');
  REQUIRE(pair.client->sync_write(much.data(), much.size(), 50ms) == -1);
  REQUIRE(errno == ETIMEDOUT);
  const testing::RawSocket reader(::dup(pair.server->fd()));
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    std::string bytes(1 << 20, '\0');
    while (!stop) {
      if (::recv(reader.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT) < 0) {
        std::this_thread::sleep_for(1ms);
      }
    }
  });
  const ssize_t n = pair.client->sync_write(much.data(), much.size(), 20s);
  stop = true;
  thread.join();
  REQUIRE(n == static_cast<ssize_t>(much.size()));
}

TEST_CASE("sync_readline: lines come without their ends, and no byte beyond is taken",
          "[conn][tcp]") {
  Pair pair(kTcp);
  const std::string_view text = "one\r\ntwo\n\r\n\nlast\rword\nrest";
  REQUIRE(pair.client->sync_write(text.data(), text.size(), 1s) ==
          static_cast<ssize_t>(text.size()));
  char line[32];
  for (const char* expected : {"one", "two", "", "", "last\rword"}) {
    REQUIRE(pair.server->sync_readline(line, sizeof line, 10s) ==
            static_cast<ssize_t>(strlen(expected)));
    REQUIRE(std::string(line) == expected);
  }
  REQUIRE(testing::receive(pair.loop, *pair.server, 4) == "rest");
}

TEST_CASE("a socket's sync_readline: a line that is too long, late or cut off is an error",
          "[conn][tcp]") {
  Pair pair(kTcp);
  char line[8];
  REQUIRE(pair.client->sync_write("123456\n1234567\nab", 17, 1s) == 17);
  REQUIRE(pair.server->sync_readline(line, sizeof line, 10s) == 6);
  REQUIRE(pair.server->sync_readline(line, sizeof line, 10s) == -1);
  REQUIRE(errno == EMSGSIZE);
  REQUIRE(std::string(line) == "1234567");
  REQUIRE(pair.server->sync_readline(line, sizeof line, 10s) == 0);  // the '\n' left unread
  REQUIRE(pair.server->sync_readline(line, sizeof line, 20ms) == -1);
  REQUIRE(errno == ETIMEDOUT);
  REQUIRE(pair.server->sync_readline(line, 0, 1s) == -1);
  REQUIRE(errno == EINVAL);
  REQUIRE(pair.client->sync_write("cd", 2, 1s) == 2);
  pair.client.reset();
  REQUIRE(pair.server->sync_readline(line, sizeof line, 10s) == -1);
  REQUIRE(errno == ECONNRESET);
}

TEST_CASE("sync operations on a dead connection tell its failure", "[conn][tcp]") {
  Pair pair(kTcp);
  testing::RawSocket(::dup(pair.client->fd())).reset();
  pair.client.reset();
  ::shutdown(pair.server->fd(), SHUT_RDWR);
  char byte;
  const ConnectionPtr fresh = pair.type.create(pair.loop);
  REQUIRE(fresh->sync_read(&byte, 1, 1s) == -1);
  REQUIRE(errno == ENOTCONN);
  REQUIRE(fresh->sync_write(&byte, 1, 1s) == -1);
  REQUIRE(errno == ENOTCONN);
}

TEST_CASE("reads and writes check their arguments", "[conn][tcp]") {
  Pair pair(kTcp);
  REQUIRE(pair.client->read(nullptr, 5) == -1);
  REQUIRE(errno == EINVAL);
  REQUIRE(pair.client->write(nullptr, 5) == -1);
  REQUIRE(errno == EINVAL);
  REQUIRE(pair.client->writev(nullptr, 1) == -1);
  REQUIRE(errno == EINVAL);
  const iovec bad{nullptr, 5};
  REQUIRE(pair.client->writev(&bad, 1) == -1);
  REQUIRE(errno == EINVAL);
  REQUIRE(pair.client->writev(&bad, -1) == -1);
  REQUIRE(errno == EINVAL);
  REQUIRE(pair.client->state() == State::kConnected);
  const ConnectionPtr fresh = pair.type.create(pair.loop);
  REQUIRE(fresh->write("x", 1) == -1);
  REQUIRE(errno == ENOTCONN);
  REQUIRE(fresh->shutdown() == -1);
  REQUIRE(errno == ENOTCONN);
}

TEST_CASE("writev takes more pieces than one system call does", "[conn][tcp]") {
  Pair pair(kTcp);
  char byte = 'x';
  const std::vector<iovec> pieces(2 * IOV_MAX + 1, iovec{&byte, 1});
  REQUIRE(pair.client->writev(pieces.data(), static_cast<int>(pieces.size())) ==
          static_cast<ssize_t>(pieces.size()));
}

TEST_CASE("the end is the end, whatever errno was", "[conn][tcp]") {
  Pair pair(kTcp);
  bool readable = false;
  pair.client->set_read_handler([&](Connection&) { readable = true; });
  pair.server.reset();
  RUN_UNTIL(pair.loop, readable);
  char byte;
  errno = EINTR;
  REQUIRE(pair.client->read(&byte, 1) == 0);
}

// --- rebind --------------------------------------------------------------------------------------

TEST_CASE("rebind: a connection goes on on another loop, with its handlers", "[conn][tcp]") {
  Pair pair(kTcp);
  testing::AnyLoop other;
  std::string got;
  pair.server->set_read_handler([&](Connection& c) {
    char buffer[64];
    const ssize_t n = c.read(buffer, sizeof buffer);
    if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
  });
  REQUIRE(pair.server->rebind(other));
  REQUIRE(pair.server->loop() == &other);
  REQUIRE(pair.client->write("hello", 5) == 5);
  testing::turns(pair.loop, 3);
  REQUIRE(got.empty());
  RUN_UNTIL(other, got == "hello");
  REQUIRE(pair.type.counters(pair.loop).open == 1);
  REQUIRE(pair.type.counters(other).open == 1);
  REQUIRE(pair.type.counters(other).bytes_read == 5);
  REQUIRE(pair.server->rebind(other));  // its current loop
  pair.server.reset();
  testing::turns(other, 2);
  REQUIRE(pair.type.counters(other).open == 0);
}

TEST_CASE("rebind: a connection may be closed, or its loop destroyed, before it arrives",
          "[conn][tcp]") {
  Pair pair(kTcp);
  {
    testing::AnyLoop other;
    REQUIRE(pair.server->rebind(other));
    REQUIRE_FALSE(pair.server->rebind(pair.loop));  // the first move is not complete
    REQUIRE(errno == EBUSY);
    pair.server.reset();
    REQUIRE(pair.client->rebind(other));
  }
  REQUIRE(pair.client->loop() == nullptr);
  REQUIRE(pair.client->state() == State::kError);
  REQUIRE(pair.type.counters(pair.loop).open == 0);
}

TEST_CASE("rebind: not while it connects, nor inside its own handler", "[conn][tcp]") {
  Pair pair(kTcp);
  testing::AnyLoop other;
  const ConnectionPtr connecting =
      pair.connect(testing::address_of(*pair.listener), [](Connection&) {});
  REQUIRE_FALSE(connecting->rebind(other));
  REQUIRE(errno == EBUSY);
  bool called = false;
  pair.server->set_read_handler([&](Connection& c) {
    called = true;
    REQUIRE_FALSE(c.rebind(other));
    REQUIRE(errno == EBUSY);
    c.set_read_handler(nullptr);
  });
  REQUIRE(pair.client->write("x", 1) == 1);
  RUN_UNTIL(pair.loop, called);
}

TEST_CASE("rebind: accepted here, served on another thread", "[conn][tcp]") {
  testing::Site site(kTcp);
  std::promise<testing::AnyLoop*> started;
  testing::EchoServer echo;
  std::thread worker([&] {
    testing::AnyLoop loop;
    started.set_value(&loop);
    loop.run();
  });
  testing::AnyLoop* const loop = started.get_future().get();
  const ae::Poster poster = loop->poster();
  std::vector<ConnectionPtr> served;  // used by the worker only
  const auto listener = site.listen([&](ConnectionPtr c) {
    REQUIRE(c->rebind(*loop));
    auto shared = std::make_shared<ConnectionPtr>(std::move(c));
    poster.post([shared, &served] {
      (*shared)->set_read_handler([](Connection& connection) {
        char buffer[256];
        const ssize_t n = connection.read(buffer, sizeof buffer);
        if (n > 0) (void)connection.write(buffer, static_cast<std::size_t>(n));
      });
      served.push_back(std::move(*shared));
    });
  });
  std::vector<RawSocket> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(RawSocket::connect(testing::address_of(*listener)));
    clients.back().send("ping" + std::to_string(i));
  }
  RUN_UNTIL(site.loop, site.type.counters(site.loop).accepted == 20);
  for (std::size_t i = 0; i < clients.size(); ++i) {
    const std::string expected = "ping" + std::to_string(i);
    REQUIRE(clients[i].receive(expected.size()) == expected);
  }
  poster.post([&served, loop] {
    served.clear();
    loop->stop();
  });
  worker.join();
  REQUIRE(site.type.counters(site.loop).open == 0);
}

// --- descriptors of the host program -------------------------------------------------------------

TEST_CASE("adopt: a connected socket becomes a connection that owns it", "[conn][tcp][unix]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const testing::RawSocket far(fds[1]);
  const conn::ConnectionType& type = registry.require("unix");
  ConnectionPtr near = type.adopt(loop, fds[0]);
  REQUIRE(near->state() == State::kConnected);
  REQUIRE(near->fd() == fds[0]);
  char byte = 0;
  REQUIRE(near->read(&byte, 1) == -1);
  REQUIRE(errno == EAGAIN);
  REQUIRE(near->write("x", 1) == 1);
  REQUIRE(::recv(fds[1], &byte, 1, 0) == 1);
  near.reset();
  loop.process_events(ae::kFullIteration | ae::kDontWait);
  REQUIRE(::recv(fds[1], &byte, 1, 0) == 0);
}

TEST_CASE("adopt: what is not a connected socket of the family is refused and stays the caller's",
          "[conn][tcp][unix]") {
  testing::AnyLoop loop;
  const conn::Registry registry = conn::all_transports();
  int fds[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
  const testing::RawSocket one(fds[0]), other(fds[1]);
  REQUIRE_THROWS_AS(registry.require("tcp").adopt(loop, fds[0]), conn::Error);
  REQUIRE_THROWS_AS(registry.require("unix").adopt(loop, -1), conn::Error);
  REQUIRE(::send(fds[0], "x", 1, MSG_NOSIGNAL) == 1);  // still open
  const testing::RawSocket fresh(::socket(AF_INET, SOCK_STREAM, 0));
  REQUIRE_THROWS_AS(registry.require("tcp").adopt(loop, fresh.fd()), conn::Error);
  const int file = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  REQUIRE_THROWS_WITH(registry.require("tcp").adopt(loop, file),
                      testing::Contains("Socket operation on non-socket"));
  REQUIRE(::close(file) == 0);
}
