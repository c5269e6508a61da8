// SPDX-License-Identifier: BSD-3-Clause
// Peers of shm that pass descriptors which are no memory: closing one may wait for as long as the
// peer likes, and the loop does not.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/shm/shm_kit.h"
#include "tests/support/lingering.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using testing::AsOlderKernel;
using testing::Attacked;
using testing::Lingering;
using testing::RawClient;
using testing::RawSocket;
using testing::Site;

namespace {

const testing::Transport kShm{.name = "shm", .lingers = false};

struct Server : testing::LocalServer {
  explicit Server(const std::string& options = "") : LocalServer(kShm, options) {}
};

}  // namespace

TEST_CASE("shm descriptors: a client that is refused does not stop the loop",
          "[shm][shm-hostile][hostile]") {
  Lingering lingering;
  const std::string hello = conn::shm::encode(conn::shm::Hello{64 << 10, 64 << 10});
  const bool full = GENERATE(false, true), timed = GENERATE(false, true);
  Server server(std::string(full ? "max-connections=1&" : "") +
                (timed ? "handshake-timeout=50ms" : "handshake-timeout=1m"));
  Attacked attacked(server, lingering);
  RawClient first(server.address);
  first.greet();
  RUN_UNTIL(server.loop, server.accepted.size() == 1);
  const std::size_t before = testing::count_descriptors();  // with `lingering`, which is given
  {
    RawSocket client = RawSocket::connect(server.address);
    SECTION("in a hello") { lingering.give(client.fd(), hello); }
    SECTION("behind foreign bytes") {
      client.send("X");
      lingering.give(client.fd(), "y");
    }
    SECTION("behind a hello that is refused") {
      client.send(hello);
      lingering.give(client.fd(), "y");
    }
    SECTION("with a part of a hello") { lingering.give(client.fd(), hello.substr(0, 9)); }
    SECTION("with nothing of the protocol") { lingering.give(client.fd(), "y"); }
    SECTION("out of band") { lingering.give(client.fd(), "a", MSG_OOB); }
    SECTION("when its time is over") {
      if (full || !timed) return;
      client.send("aeshm");
      testing::turns(server.loop, 5);
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      lingering.give(client.fd(), "y");
    }
    RUN_UNTIL(server.loop, server.refused.size() == 1);
  }
  attacked.answers();
  CHECK(testing::descriptors_become(server.loop, before - 1));
  CHECK(server.accepted[0]->state() == conn::State::kConnected);
}

TEST_CASE("shm descriptors: one behind a good hello does not stop the loop",
          "[shm][shm-hostile][hostile]") {
  const AsOlderKernel older(GENERATE(false, true));
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  RawClient client(server.address);
  const std::size_t before = testing::count_descriptors();
  client.greet();
  lingering.give(client.socket.fd(), "b");
  RUN_UNTIL(server.loop, server.accepted.size() == 1);
  if (GENERATE(false, true)) {
    testing::Collector collector(*server.accepted[0]);
    RUN_UNTIL(server.loop, collector.over());
    CHECK(collector.error == EPROTO);
  }
  server.accepted.clear();
  attacked.answers();
  CHECK(testing::descriptors_become(server.loop, before - 1));
}

TEST_CASE("shm descriptors: one among the bells does not stop the loop",
          "[shm][shm-hostile][hostile]") {
  const AsOlderKernel older;
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  RawClient client(server.address);
  const std::size_t before = testing::count_descriptors();
  client.greet();
  RUN_UNTIL(server.loop, server.accepted.size() == 1);
  const bool read = GENERATE(false, true);
  lingering.give(client.socket.fd(), "b");
  if (read) {
    testing::Collector collector(*server.accepted[0]);
    RUN_UNTIL(server.loop, collector.over());
    CHECK(collector.error == EPROTO);
  }
  server.accepted.clear();
  attacked.answers();
  CHECK(testing::descriptors_become(server.loop, before - 1));
}

TEST_CASE("shm descriptors: a listener ends though a client waits", "[shm][shm-hostile][hostile]") {
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  const RawSocket client = RawSocket::connect(server.address);
  SECTION("for its accept") {}
  SECTION("with a part of its hello") {
    client.send("aeshm");
    testing::turns(server.loop, 5);
  }
  lingering.give(client.fd(), "y");
  server.listener.reset();
  attacked.answers();
  lingering.free();
  RUN_UNTIL(server.loop, conn::tcp::closing_aside() == 0);
}

TEST_CASE("shm descriptors: a backlog is emptied though a loop still handles its listening socket",
          "[shm][shm-hostile][hostile]") {
  Lingering lingering;
  const testing::TempFolder folder;
  const std::string path = folder.path() + "/s";
  const int listening = testing::listening_with_credentials(path);
  const RawSocket client = RawSocket::connect(conn::Endpoint::parse("unix:" + path));
  lingering.give(client.fd(), "y");
  // An event loop holds the socket, too, while it handles an event of it. If it is the last to let
  // the socket go, it releases what the socket contains.
  const RawSocket held(::fcntl(listening, F_DUPFD_CLOEXEC, 0));
  conn::tcp::close_listening(conn::tcp::Fd(listening), false);
  CHECK(testing::is_closed_aside());
  pollfd state{client.fd(), 0, 0};
  CHECK(::poll(&state, 1, 0) == 1);
  CHECK((state.revents & POLLHUP) != 0);
  lingering.free();
}

TEST_CASE("shm descriptors: while closing is stuck each client that is refused holds few",
          "[shm][shm-hostile][hostile]") {
  Lingering lingering;
  Server server;
  Attacked attacked(server, lingering);
  const std::size_t before = testing::count_descriptors();
  std::vector<RawSocket> clients;
  clients.push_back(RawSocket::connect(server.address));
  lingering.give_nested(clients[0].fd(), "y");
  RUN_UNTIL(server.loop, server.refused.size() == 1);
  const std::string hello = conn::shm::encode(conn::shm::Hello{64 << 10, 64 << 10});
  const std::vector<int> many(conn::tcp::kMostPassed, clients[0].fd());
  constexpr std::size_t kClients = 4;
  for (std::size_t i = 1; i < kClients; ++i) {
    clients.push_back(RawSocket::connect(server.address));
    REQUIRE(testing::pass(clients.back().fd(), hello, many) == 0);
    RUN_UNTIL(server.loop, server.refused.size() == i + 1);
  }
  // Of each client the socket and two of its descriptors, and the client's own end; besides, the
  // other thread may have one message's in hand.
  CHECK(testing::count_descriptors() <= before + 4 * kClients + conn::tcp::kMostPassed);
  RawClient honest(server.address);
  honest.greet();
  RUN_UNTIL(server.loop, server.accepted.size() == 1);
  attacked.answers();
  lingering.free();
  RUN_UNTIL(server.loop, conn::tcp::closing_aside() == 0);
}

TEST_CASE("shm descriptors: credentials that a listener's owner asked for are none", "[shm]") {
  Server server;
  const std::string path = server.fresh().path;
  std::vector<ConnectionPtr> accepted;
  // A unix listener had the socket before, which refuses all descriptors.
  const int fd = testing::listening_with_credentials(path);
  conn::tcp::refuse_descriptors(fd);
  const conn::ListenerPtr listener = server.type.adopt_listener(
      server.loop, fd, [&](ConnectionPtr one) { accepted.push_back(std::move(one)); });
  RawClient client(listener->endpoints().front());
  client.greet();
  RUN_UNTIL(server.loop, accepted.size() == 1);
}

TEST_CASE("shm descriptors: a memory that was not used is freed by another thread",
          "[shm][shm-hostile][hostile]") {
  Server server;
  RawClient first(server.address);  // after it the loop has all descriptors of its own
  first.greet();
  RUN_UNTIL(server.loop, server.accepted.size() == 1 && conn::tcp::closing_aside() == 0);
  const std::size_t before = testing::count_descriptors();
  {
    const RawSocket client = RawSocket::connect(server.address);
    const int memory = memfd_create("large", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    REQUIRE(memory >= 0);
    REQUIRE(::ftruncate(memory, 1 << 20) == 0);
    const std::string hello = conn::shm::encode(conn::shm::Hello{64 << 10, 64 << 10});
    REQUIRE(testing::pass(client.fd(), hello, {memory, memory}) == 0);
    ::close(memory);
    RUN_UNTIL(server.loop, server.refused.size() == 1);
  }
  CHECK(server.accepted.size() == 1);
  CHECK(testing::open_descriptors_become(before));
}
