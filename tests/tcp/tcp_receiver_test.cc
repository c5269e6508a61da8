// SPDX-License-Identifier: BSD-3-Clause
// conn/tcp: the loop's acceptor, which takes a group's pending connections on one loop.

#include "conn/tcp/socket_receiver.h"

#include <fcntl.h>

#include <vector>

#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using testing::RawSocket;
using namespace std::chrono_literals;

TEST_CASE("tcp: arrivals during a pause wait without work, and all begin after it", "[tcp]") {
  testing::AnyLoop loop;
  const conn::tcp::TcpType tcp;
  std::vector<ConnectionPtr> accepted;
  const conn::LoopAcceptorPtr receiver =
      tcp.open_acceptor(loop, conn::Endpoint::parse("tcp://127.0.0.1:0?accept-batch=1"),
                        [&](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  const RawSocket listening = RawSocket::listening();
  conn::SocketAddress peer;
  REQUIRE(conn::numeric_address("127.0.0.1", 1, peer));
  receiver->pause();
  std::vector<RawSocket> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(RawSocket::connect(listening.endpoint()));
    conn::tcp::Fd fd(::fcntl(listening.accept().fd(), F_DUPFD_CLOEXEC, 0));
    receiver->arrive(
        std::make_unique<conn::tcp::SocketPending>(tcp, conn::tcp::Accepted{std::move(fd), peer}));
  }
  testing::turns(loop, 3);
  testing::IterationCounter counter(loop);
  REQUIRE(counter.during(30ms) <= 5);
  REQUIRE(accepted.empty());
  receiver->resume();
  RUN_UNTIL(loop, accepted.size() == 3);
}
