// SPDX-License-Identifier: BSD-3-Clause
// conn/tcp: how connections end, in order and forcibly.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::RawSocket;
using testing::Site;
using namespace std::chrono_literals;
using Catch::Matchers::StartsWith;

namespace {

const testing::Transport kTcp{.name = "tcp"};

/// A connection, with a plain socket as its peer.
struct Half : Site {
  explicit Half(conn::Options options = {}) : Site(kTcp) {
    type.configure(options);
    listener = listen([this](ConnectionPtr c) { server = std::move(c); });
    client = RawSocket::connect(testing::address_of(*listener));
    RUN_UNTIL(loop, server != nullptr);
  }
  std::uint64_t open() { return type.counters(loop).open; }

  conn::ListenerPtr listener;
  ConnectionPtr server;
  RawSocket client;
};

/// Writes until the buffers are full.
std::size_t fill(Connection& connection) {
  const std::string chunk(64 << 10, 'x');
  std::size_t sent = 0;
  for (;;) {
    const ssize_t n = connection.write(chunk.data(), chunk.size());
    if (n < 0) return sent;
    sent += static_cast<std::size_t>(n);
  }
}

}  // namespace

TEST_CASE("tcp: a reset is told once by read, with the peer's address", "[tcp]") {
  Half half;
  const std::string peer = half.server->peer_address();
  testing::Collector collector(*half.server);
  half.client.reset();
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.error == ECONNRESET);
  REQUIRE(half.server->state() == State::kError);
  REQUIRE(half.server->last_error() == "read from " + peer + ": Connection reset by peer");
  REQUIRE(half.server->error_code() == std::errc::connection_reset);
  char byte;
  REQUIRE(half.server->read(&byte, 1) == -1);
  REQUIRE(errno == ENOTCONN);
  REQUIRE(half.server->write("x", 1) == -1);
  REQUIRE(errno == ECONNRESET);
  REQUIRE(half.server->write("x", 1) == -1);
  REQUIRE(errno == ENOTCONN);
  REQUIRE(half.server->peer_address() == peer);
  REQUIRE(half.type.counters(half.loop).failed == 1);
}

TEST_CASE("tcp: bytes that came before a reset are read first", "[tcp]") {
  Half half;
  half.client.send("last words");
  half.client.reset();
  testing::Collector collector(*half.server);
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.bytes == "last words");
  REQUIRE(collector.error == ECONNRESET);
}

TEST_CASE("tcp: bytes that came before a reset can be read after a write has met it", "[tcp]") {
  Half half;
  half.client.send("last words");
  half.client.reset();
  while (half.server->write("x", 1) >= 0 || errno == EAGAIN) std::this_thread::sleep_for(1ms);
  REQUIRE(half.server->state() == State::kError);
  SECTION("by the read handler") {
    testing::Collector collector(*half.server);
    RUN_UNTIL(half.loop, collector.over());
    REQUIRE(collector.bytes == "last words");
    REQUIRE(collector.error != 0);
  }
  SECTION("by hand, in every way") {
    char byte;
    REQUIRE(half.server->read(&byte, 1) == 1);
    REQUIRE(byte == 'l');
    const iovec vector{&byte, 1};
    REQUIRE(half.server->readv(&vector, 1) == 1);
    const conn::View view = half.server->peek(100);
    REQUIRE(view.size == 8);
    REQUIRE(view.last);
    half.server->consume(7);
    REQUIRE(half.server->read(&byte, 1) == 1);
    REQUIRE(byte == 's');
    REQUIRE(half.server->bytes_read() == 10);
    REQUIRE(half.server->peek().size == 0);
    REQUIRE((errno == EPIPE || errno == ECONNRESET));
  }
  char byte;
  REQUIRE(half.server->read(&byte, 1) == -1);
  REQUIRE(errno == ENOTCONN);
  testing::IterationCounter iterations(half.loop);
  REQUIRE(iterations.during(50ms) <= 2);
}

TEST_CASE("tcp: a failed write calls the read handler, so that the host notices", "[tcp]") {
  Half half;
  half.client.reset();
  while (half.server->write("x", 1) >= 0 || errno == EAGAIN) std::this_thread::sleep_for(1ms);
  REQUIRE(half.server->state() == State::kError);
  REQUIRE_THAT(half.server->last_error(), StartsWith("write to 127.0.0.1:"));
  int calls = 0, error = 0;
  half.server->set_read_handler([&](Connection& c) {
    char byte;
    if (c.read(&byte, 1) < 0 && error == 0) error = errno;
    ++calls;
  });
  RUN_UNTIL(half.loop, calls > 0);
  REQUIRE(error != 0);
  // The error has been read: the loop does not spin until the program closes the connection.
  testing::IterationCounter iterations(half.loop);
  REQUIRE(iterations.during(50ms) <= 2);
  REQUIRE(calls == 1);
}

TEST_CASE("tcp: a connection that died may be closed inside the handler that hears of it",
          "[tcp]") {
  Half half;
  half.client.reset();
  half.server->set_read_handler([&](Connection&) { half.server.reset(); });
  half.server->set_write_handler([&](Connection&) { half.server.reset(); });
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(half.server == nullptr);
}

TEST_CASE("tcp: a handler that throws when it hears of an error hears of it again", "[tcp]") {
  Half half;
  half.client.reset();
  while (half.server->write("x", 1) >= 0 || errno == EAGAIN) std::this_thread::sleep_for(1ms);
  int calls = 0;
  half.server->set_read_handler([&](Connection& c) {
    if (++calls == 1) throw std::runtime_error("host");
    char byte;
    REQUIRE(c.read(&byte, 1) == -1);
  });
  REQUIRE_THROWS_WITH([&] { RUN_UNTIL(half.loop, calls == 2); }(), "host");
  RUN_UNTIL(half.loop, calls == 2);
}

TEST_CASE("tcp: a connect handler that throws leaves the others in place", "[tcp]") {
  Site site(kTcp);
  const RawSocket listener = RawSocket::listening();
  int writable = 0;
  const ConnectionPtr client =
      site.connect(listener.endpoint(), [](Connection&) { throw std::runtime_error("host"); });
  client->set_write_handler([&](Connection&) { ++writable; });
  REQUIRE_THROWS_WITH([&] { RUN_UNTIL(site.loop, writable > 0); }(), "host");
  RUN_UNTIL(site.loop, writable > 0);
}

TEST_CASE("tcp: a write to a closed peer says EPIPE or ECONNRESET and raises no signal", "[tcp]") {
  struct sigaction plain {
  }, before{};
  plain.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &plain, &before);
  {
    Half half;
    half.client.close();
    iovec two[2]{{const_cast<char*>("a"), 1}, {const_cast<char*>("b"), 1}};
    while (half.server->writev(two, 2) >= 0 || errno == EAGAIN) std::this_thread::sleep_for(1ms);
    REQUIRE((errno == EPIPE || errno == ECONNRESET));
    REQUIRE(half.server->state() == State::kError);
  }
  sigaction(SIGPIPE, &before, nullptr);
}

TEST_CASE("tcp: after a half-close by the peer the answer still goes out", "[tcp]") {
  Half half;
  half.client.send("question");
  half.client.half_close();
  testing::Collector collector(*half.server);
  RUN_UNTIL(half.loop, collector.ended);
  REQUIRE(collector.bytes == "question");
  REQUIRE(half.server->state() == State::kConnected);
  REQUIRE(half.server->write("answer", 6) == 6);
  REQUIRE(half.server->shutdown() == 0);
  REQUIRE(half.server->state() == State::kClosed);
  REQUIRE(half.server->shutdown() == 0);
  REQUIRE(half.client.receive(100) == "answer");
  char byte;
  REQUIRE(half.server->read(&byte, 1) == 0);
  REQUIRE(half.server->write("x", 1) == -1);
  REQUIRE(errno == EPIPE);
  REQUIRE(half.server->last_error().empty());
}

TEST_CASE("tcp: writing after our own shutdown says EPIPE and leaves reading alone", "[tcp]") {
  Half half;
  REQUIRE(half.server->shutdown() == 0);
  REQUIRE(half.server->write("x", 1) == -1);
  REQUIRE(errno == EPIPE);
  REQUIRE(half.server->state() == State::kConnected);
  half.client.send("more");
  REQUIRE(testing::receive(half.loop, *half.server, 4) == "more");
}

TEST_CASE("tcp: an idle connection is gone at once when it is closed", "[tcp]") {
  Half half;
  half.server.reset();
  testing::turns(half.loop, 2);
  REQUIRE(half.open() == 0);
  REQUIRE(half.client.receive(1).empty());
}

TEST_CASE("tcp: what write took is delivered after close, however slowly it is read", "[tcp]") {
  Half half;
  const std::size_t sent = fill(*half.server);
  REQUIRE(sent > 0);
  half.server.reset();
  testing::turns(half.loop, 2);
  REQUIRE(half.open() == 1);  // lingering
  auto reader = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(50ms);
    return half.client.receive(sent + 1).size();
  });
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(reader.get() == sent);
}

namespace {
struct Layer : Connection {  // makes it accessible, as for a layer above
  using Connection::expect_no_more;
};
}  // namespace

TEST_CASE("tcp: it does not linger for a peer that has said that it sends no more", "[tcp]") {
  Half half;
  const std::size_t sent = fill(*half.server);
  REQUIRE(sent > 0);
  Layer::expect_no_more(*half.server);
  SECTION("which the kernel delivers to") {
    half.server.reset();
    testing::turns(half.loop, 2);
    REQUIRE(half.open() == 0);
    REQUIRE(half.client.receive(sent + 1).size() == sent);
  }
  SECTION("but for one that sent all the same") {
    half.client.send("x");
    const auto unread = [&] {
      int bytes = 0;
      REQUIRE(::ioctl(half.server->fd(), FIONREAD, &bytes) == 0);
      return bytes;
    };
    RUN_UNTIL(half.loop, unread() == 1);
    half.server.reset();
    testing::turns(half.loop, 2);
    REQUIRE(half.open() == 1);
  }
}

TEST_CASE("tcp: a child of fork() that ends its loop does not wait for the parent's peers",
          "[tcp]") {
  Half half({{"linger", "20s"}, {"end-linger", "20s"}});
  REQUIRE(fill(*half.server) > 0);
  half.server.reset();
  testing::turns(half.loop, 2);
  REQUIRE(half.open() == 1);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(5);
    std::destroy_at(&half.loop);
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  half.client.reset();
}

TEST_CASE("tcp: a peer that sends while we linger gets a while to go on", "[tcp]") {
  Half half({{"linger", "60s"}});
  const std::size_t sent = fill(*half.server);
  half.server.reset();
  testing::turns(half.loop, 2);
  REQUIRE(half.open() == 1);
  bool later = false;  // later than 100 ms after close()
  half.loop.add_time_event(120ms, [&] {
    later = true;
    return ae::kNoMore;
  });
  RUN_UNTIL(half.loop, later);
  const auto begun = std::chrono::steady_clock::now();
  half.client.send("not yet done");
  testing::turns(half.loop, 20);
  auto reader = std::async(std::launch::async, [&] { return half.client.receive(sent).size(); });
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(std::chrono::steady_clock::now() - begun >= 100ms);
  REQUIRE(reader.get() == sent);
}

TEST_CASE("tcp: lingering for a peer that sent ends when it has been silent for a while", "[tcp]") {
  Half half({{"linger", "60s"}});
  half.client.send("never read");
  bool arrived = false;
  half.server->set_read_handler([&](Connection&) { arrived = true; });
  RUN_UNTIL(half.loop, arrived);
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
}

// Closing a socket with unread bytes makes the kernel send a reset, which destroys sent data.
TEST_CASE("tcp: a peer that still sends gets the whole reply and then end of stream", "[tcp]") {
  Half half;
  const std::string question(1 << 20, 'q');
  std::size_t flooded = 0;
  for (int i = 0; i < 20; ++i) flooded += half.client.send_what_fits(question);
  REQUIRE(flooded > 0);
  const std::string reply(1 << 20, 'r');
  std::size_t replied = 0;
  half.server->set_write_handler([&](Connection& c) {
    const ssize_t n = c.write(reply.data() + replied, reply.size() - replied);
    if (n > 0) replied += static_cast<std::size_t>(n);
    if (replied == reply.size()) half.server.reset();
  });
  auto reader = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(20ms);
    std::string got = half.client.receive(reply.size() / 2);
    std::this_thread::sleep_for(20ms);
    const auto more = half.client.send_what_fits(question);  // the peer keeps sending
    got += half.client.receive(reply.size());
    half.client.close();
    return std::pair(got.size(), more);
  });
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(reader.get().first == reply.size());
}

TEST_CASE("tcp: a small reply survives the request that was not read", "[tcp]") {
  Half half;
  half.client.send(std::string(100'000, 'q'));
  std::this_thread::sleep_for(5ms);
  REQUIRE(half.server->write("-ERR too long\r\n", 15) == 15);
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(half.client.receive(100) == "-ERR too long\r\n");  // followed by no error
}

TEST_CASE("tcp: lingering ends with its time, for a peer that never reads", "[tcp]") {
  Half half({{"linger", "150ms"}});
  REQUIRE(fill(*half.server) > 0);
  const auto begin = std::chrono::steady_clock::now();
  half.server.reset();
  REQUIRE(std::chrono::steady_clock::now() - begin < 100ms);  // it did not block
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(std::chrono::steady_clock::now() - begin >= 140ms);
}

TEST_CASE("tcp: lingering ends with its time, for a peer that never stops sending", "[tcp]") {
  Half half({{"linger", "200ms"}});
  half.client.send(std::string(1000, 'x'));
  std::this_thread::sleep_for(5ms);
  const std::jthread sender([&](const std::stop_token& stop) {
    const std::string chunk(64 << 10, 'x');
    try {
      while (!stop.stop_requested()) half.client.send(chunk);
    } catch (const std::system_error&) {  // the final reset
    }
  });
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
}

TEST_CASE("tcp: linger=0 closes at once", "[tcp]") {
  Half half({{"linger", "0"}});
  REQUIRE(fill(*half.server) > 0);
  half.server.reset();
  testing::turns(half.loop, 2);
  REQUIRE(half.open() == 0);
}

TEST_CASE("tcp: a peer that dies ends the lingering", "[tcp]") {
  Half half;
  REQUIRE(fill(*half.server) > 0);
  half.server.reset();
  half.client.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
}

TEST_CASE("tcp: a loop may go while connections linger, connect and listen", "[tcp]") {
  conn::Registry registry = testing::test_registry();
  conn::ConnectionType& type = registry.require("tcp");
  const RawSocket other = RawSocket::listening();
  ConnectionPtr accepted, connecting, idle, resolving;
  conn::ListenerPtr listener;
  RawSocket client;
  {
    testing::AnyLoop loop;
    listener = type.listen(loop, conn::Endpoint::parse("tcp://127.0.0.1:0"),
                           [&](ConnectionPtr c) { accepted = std::move(c); });
    client = RawSocket::connect(testing::address_of(*listener));
    RUN_UNTIL(loop, accepted != nullptr);
    fill(*accepted);
    accepted.reset();  // lingers
    const RawSocket second = RawSocket::connect(testing::address_of(*listener));
    RUN_UNTIL(loop, accepted != nullptr);
    accepted->set_read_handler([](Connection&) {});
    connecting = type.create(loop);
    connecting->connect(other.endpoint(), [](Connection&) { FAIL("must not run"); });
    resolving = type.create(loop);
    resolving->connect(conn::Endpoint::parse("tcp://localhost:1"),
                       [](Connection&) { FAIL("must not run"); });
    idle = type.create(loop);
  }
  for (const ConnectionPtr* one : {&accepted, &connecting, &resolving, &idle}) {
    REQUIRE((*one)->state() == State::kError);
    REQUIRE((*one)->last_error() == "the event loop is gone");
    REQUIRE((*one)->loop() == nullptr);
    REQUIRE((*one)->fd() == -1);
  }
  char byte;
  REQUIRE(accepted->read(&byte, 1) == -1);
  REQUIRE(errno == ECANCELED);
  REQUIRE(accepted->sync_read(&byte, 1, 1s) == -1);
  accepted->set_read_handler([](Connection&) {});
  listener->pause();
  listener->resume();
}

TEST_CASE("tcp: a release at the end of the loop can send nothing more, and may close", "[tcp]") {
  struct Sender {
    ConnectionPtr connection;
    bool closes = false;
    int releases = 0, refused = 0;
    static void released(void* context, std::error_code) noexcept {
      auto& self = *static_cast<Sender*>(context);
      ++self.releases;
      if (!self.connection) return;
      if (self.send() < 0) ++self.refused;
      if (self.closes) self.connection.reset();
    }
    ssize_t send() {
      static const std::string text(100, 'x');
      return connection->send({std::as_bytes(std::span(text)), &released, this});
    }
  };
  Sender sender;
  sender.closes = GENERATE(false, true);
  {
    Half half({{"end-linger", "0"}, {"send-buffer", "64k"}});
    fill(*half.server);
    sender.connection = std::move(half.server);
    for (int i = 0; i < 2; ++i) REQUIRE(sender.send() == 100);
    testing::turns(half.loop, 3);
    REQUIRE(sender.releases == 0);
  }
  REQUIRE(sender.releases == 2);
  if (sender.closes) {
    REQUIRE(sender.refused == 1);
    REQUIRE(sender.connection == nullptr);
  } else {
    REQUIRE(sender.refused == 2);
    REQUIRE(sender.connection->state() == State::kError);
    REQUIRE(sender.connection->last_error() == "the event loop is gone");
  }
}

TEST_CASE("tcp: what is committed after the connection has failed does not hold up close()",
          "[tcp]") {
  Half half({{"linger", "1h"}});
  REQUIRE(half.server->reserve(100).size() >= 100);
  half.client.reset();
  char byte;
  RUN_UNTIL(half.loop, half.server->read(&byte, 1) == -1 && errno != EAGAIN);
  REQUIRE(half.server->state() == State::kError);
  half.server->commit(100);
  testing::turns(half.loop, 3);
  half.server.reset();
  testing::turns(half.loop, 3);
  REQUIRE(half.open() == 0);
}

// --- connections without a read handler ----------------------------------------------------------

TEST_CASE("tcp: a reset is heard of without a read, and told by the next one", "[tcp]") {
  Half half;
  int calls = 0;
  half.server->set_close_handler([&](Connection&) { ++calls; });
  half.client.reset();
  RUN_UNTIL(half.loop, calls > 0);
  REQUIRE(half.server->why_ended().code == std::errc::connection_reset);
  char byte;
  REQUIRE(half.server->read(&byte, 1) == -1);
  REQUIRE(errno == ECONNRESET);
  testing::turns(half.loop, 5);
  REQUIRE(calls == 1);
}

TEST_CASE("tcp: more peers than fit into one look may go at once", "[tcp]") {
  constexpr std::size_t kMany = 200;
  Site site(kTcp);
  std::vector<ConnectionPtr> servers;
  std::vector<int> calls(kMany);
  const conn::ListenerPtr listener = site.listen([&](ConnectionPtr next) {
    next->set_close_handler([&calls, at = servers.size()](Connection&) { ++calls[at]; });
    servers.push_back(std::move(next));
  });
  std::vector<RawSocket> clients;
  for (std::size_t i = 0; i < kMany; ++i)
    clients.push_back(RawSocket::connect(testing::address_of(*listener)));
  RUN_UNTIL(site.loop, servers.size() == kMany);
  clients.clear();
  RUN_UNTIL(site.loop, std::count(calls.begin(), calls.end(), 1) == kMany);
  // Each handler has run once; one that closes other connections causes no further calls.
  testing::turns(site.loop, 5);
  REQUIRE(std::count(calls.begin(), calls.end(), 1) == kMany);
}

TEST_CASE("tcp: out of descriptors, a close handler runs once there are some", "[tcp]") {
  Half half;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  int calls = 0;
  half.server->set_close_handler([&](Connection&) { ++calls; });
  testing::turns(half.loop, 2);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(calls == 0);
  half.client.close();
  RUN_UNTIL(half.loop, calls == 1);
}

TEST_CASE("tcp: a child of fork() and its parent hear of their peers each for itself", "[tcp]") {
  Half half;
  int calls = 0;
  half.server->set_close_handler([&](Connection&) { ++calls; });
  testing::turns(half.loop, 2);
  const bool goes_on = GENERATE(true, false);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(10);
    half.client.close();  // closes the parent's copy
    if (!goes_on) {
      std::destroy_at(&half.loop);
      _exit(0);
    }
    half.loop.after_fork();
    testing::turns(half.loop, 3);
    while (calls == 0) half.loop.process_events(ae::kFullIteration);
    _exit(calls == 1 ? 0 : 1);
  }
  testing::turns(half.loop, 3);
  REQUIRE(calls == 0);
  half.client.half_close();
  RUN_UNTIL(half.loop, calls > 0);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  testing::turns(half.loop, 3);
  REQUIRE(calls == 1);
}
