// SPDX-License-Identifier: BSD-3-Clause
// MSG_ZEROCOPY: send() over sockets that use it.

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <memory>
#include <thread>

#include "conn/tcp/tcp_type.h"
#include "tests/support/zero_copy_half.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Parcel;
using Half = testing::ZeroCopyHalf;
using namespace std::chrono_literals;

TEST_CASE("zero-copy: off unless it is asked for, and for small pieces", "[tcp]") {
  const std::string option = GENERATE("no", "0", "128k");
  Half half({{"zero-copy", option}});
  for (int i = 0; i < 3; ++i) half.send(100'000);
  auto reader = half.reader();
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
  REQUIRE(half.calls.sends(true) == 0);
  half.check_releases();
}

TEST_CASE("zero-copy: sizes that make no sense are refused", "[tcp]") {
  conn::tcp::TcpType tcp;
  REQUIRE_THROWS_AS(tcp.configure({{"zero-copy", "some"}}), conn::Error);
  REQUIRE_THROWS_AS(tcp.configure({{"zero-copy", "2g"}}), conn::Error);
  REQUIRE_NOTHROW(tcp.configure({{"zero-copy", "no"}}));
  REQUIRE_NOTHROW(tcp.configure({{"zero-copy", "16k"}}));
}

TEST_CASE("zero-copy: bytes leave from where they lie and are released, with no handler set",
          "[tcp]") {
  Half half;
  for (int i = 0; i < 20; ++i) half.send(50'000 + static_cast<std::size_t>(i));
  auto reader = half.reader(20ms);
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
  half.check_releases();
  REQUIRE(half.info() == "yes");
  REQUIRE(half.calls.sends(true) >= 20);
  REQUIRE(half.calls.sends(false) == 0);
  REQUIRE(half.calls.completions > 0);
}

TEST_CASE("zero-copy: a piece that is taken in parts stays in order with what is around it",
          "[tcp]") {
  Half half({{"send-buffer", "64k"}});
  half.commit(100);
  half.send(5'000'000);
  half.commit(50);
  half.send(1000);  // too short for zero-copy
  half.send(3'000'000);
  half.commit(10);
  auto reader = half.reader(20ms);
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
  half.check_releases();
  REQUIRE(half.calls.sends(true) > 2);
  REQUIRE(half.server->state() == State::kConnected);
}

TEST_CASE("zero-copy: where the kernel copies it is given up", "[tcp]") {
  Half half;
  half.calls.hide_copies = false;  // over the loopback the kernel always copies
  half.send(50'000);
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(half.info() == "given up");
  const int before = half.calls.sends(true);
  for (int i = 0; i < 5; ++i) half.send(50'000);
  auto reader = half.reader();
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
  REQUIRE(half.calls.sends(true) == before);
  half.check_releases();
}

TEST_CASE("zero-copy: given up in the middle of a piece, the rest follows", "[tcp]") {
  Half half({{"send-buffer", "64k"}});
  half.calls.hide_copies = false;
  half.send(5'000'000);
  half.send(2'000'000);
  auto reader = half.reader(20ms);
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
  REQUIRE(half.info() == "given up");
  half.check_releases();
}

TEST_CASE("zero-copy: where the kernel has no room to keep account it is given up", "[tcp]") {
  Half half({{"send-buffer", "64k"}});
  half.send(1'000'000);
  const bool later = GENERATE(false, true);
  if (later) half.server->flush();  // some of it was sent with MSG_ZEROCOPY
  const int before = half.calls.sends(true);
  REQUIRE((before > 0) == later);
  half.calls.refuse_zero_copy = 1;
  half.send(100'000);
  auto reader = half.reader(20ms);
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
  REQUIRE(half.info() == "given up");
  REQUIRE(half.calls.sends(true) == before);
  half.check_releases();
}

TEST_CASE("zero-copy: completions do not call a read handler, nor cost iterations", "[tcp]") {
  Half half;
  int calls = 0;
  half.server->set_read_handler([&](Connection&) { ++calls; });
  for (int i = 0; i < 5; ++i) half.send(10'000);
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(calls == 0);
  half.client.send("x");
  RUN_UNTIL(half.loop, calls > 0);
  half.server->set_read_handler(nullptr);
  for (int i = 0; i < 5; ++i) half.send(8'000'000);  // more than fits into the buffers
  INFO("of 40 MB");
  testing::turns(half.loop, 10);
  REQUIRE_FALSE(half.all_released());
  testing::IterationCounter iterations(half.loop);
  REQUIRE(iterations.during(50ms) <= 10);
  auto reader = half.reader();
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
}

TEST_CASE("zero-copy: blocking operations are not disturbed by completions", "[tcp]") {
  Half half;
  half.send(300'000);
  auto peer = std::async(std::launch::async, [&half, size = half.sent] {
    const std::string got = half.client.receive(size);
    std::this_thread::sleep_for(50ms);
    half.client.send("ok");
    return Half::intact(got, size);
  });
  half.server->flush();
  char answer[2];
  REQUIRE(half.server->sync_read(answer, 2, 5s) == 2);
  REQUIRE(peer.get());
  const auto asked = std::count_if(half.calls.pieces.begin(), half.calls.pieces.end(),
                                   [](const auto& piece) { return !piece.sent; });
  REQUIRE(asked <= 5);
  REQUIRE(half.parcels.front()->releases == 0);  // released from the loop only
  RUN_UNTIL(half.loop, half.all_released());
  half.check_releases();
}

TEST_CASE("zero-copy: close() delivers what was sent, and releases it when it is there", "[tcp]") {
  Half half;
  const bool eof_first = GENERATE(false, true);  // the peer half-closed before
  if (eof_first) {
    half.client.half_close();
    testing::Collector collector(*half.server);
    RUN_UNTIL(half.loop, collector.over());
  }
  for (int i = 0; i < 4; ++i) half.send(1'000'000);
  auto reader = half.reader(50ms);
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(reader.get());
  REQUIRE(half.all_released());
  half.check_releases();
}

TEST_CASE("zero-copy: close() towards a peer that never reads is bounded, and resets", "[tcp]") {
  Half half({{"linger", "150ms"}, {"send-buffer", "1m"}});
  const bool flushed = GENERATE(false, true);
  for (int i = 0; i < 3; ++i) half.send(8'000'000);
  if (flushed) testing::turns(half.loop, 5);
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(half.all_released());
  for (const auto& each : half.parcels) REQUIRE(each->releases == 1);
  REQUIRE(half.parcels.back()->error);
  // Bytes that arrived were copied before the memory was released.
  std::string got;
  bool broken = false;
  try {
    while (!broken) {
      const std::string piece = half.client.receive(10'000);
      got += piece;
      if (piece.size() < 10'000) break;
    }
  } catch (const std::system_error&) {
    broken = true;
  }
  REQUIRE(broken);
  REQUIRE(testing::Pattern(1).matches(0, got));
}

TEST_CASE("zero-copy: all sent and not all taken yet, close() still waits for it", "[tcp]") {
  Half half({{"linger", "5s"}});
  half.send(400'000);  // fits into both buffers, or nearly
  testing::turns(half.loop, 2);
  half.server.reset();
  auto reader = half.reader(30ms);
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(reader.get());
  half.check_releases();
}

TEST_CASE("zero-copy: a peer that resets gives everything back, once", "[tcp]") {
  Half half({{"send-buffer", "1m"}});
  const bool reads = GENERATE(false, true);
  testing::IterationCounter iterations(half.loop);
  for (int i = 0; i < 3; ++i) half.send(8'000'000);
  testing::turns(half.loop, 5);
  REQUIRE_FALSE(half.all_released());
  std::unique_ptr<testing::Collector> collector;
  if (reads) collector = std::make_unique<testing::Collector>(*half.server);
  half.client.reset();
  if (reads) {
    RUN_UNTIL(half.loop, collector->over() && half.all_released());
    REQUIRE(half.server->state() == State::kError);
  } else {
    bool gone = false;
    half.server->set_close_handler([&](Connection&) { gone = true; });
    RUN_UNTIL(half.loop, gone);
  }
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
  for (const auto& each : half.parcels) REQUIRE(each->releases == 1);
  REQUIRE(half.parcels.back()->error);
}

TEST_CASE("zero-copy: no release says of bytes that they were acknowledged when they were not",
          "[tcp]") {
  constexpr std::size_t kSize = 64 * 1024;
  Half half({{"send-buffer", "1m"}});
  const bool reads = GENERATE(false, true);
  for (int i = 0; i < 60; ++i) half.send(kSize);
  testing::turns(half.loop, 50);
  int unsent = 0, before = -1;
  while (before != unsent) {  // until the peer accepts no more
    before = unsent;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    testing::turns(half.loop, 5);
    REQUIRE(ioctl(half.server->fd(), SIOCOUTQ, &unsent) == 0);
  }
  REQUIRE(unsent > 0);
  REQUIRE_FALSE(half.all_released());
  const std::uint64_t acknowledged = half.server->bytes_written() - static_cast<unsigned>(unsent);
  std::unique_ptr<testing::Collector> collector;
  if (reads) collector = std::make_unique<testing::Collector>(*half.server);
  bool gone = false;
  half.server->set_close_handler([&](Connection&) { gone = true; });
  half.client.reset();
  RUN_UNTIL(half.loop, reads ? collector->over() : gone);
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0 && half.all_released());
  std::uint64_t said = 0;
  bool failed = false;
  for (const auto& each : half.parcels) {
    REQUIRE(each->releases == 1);
    CHECK_FALSE((failed && !each->error));  // released in order
    failed = failed || each->error;
    if (!each->error) said += kSize;
  }
  CHECK(said <= acknowledged);
}

TEST_CASE("zero-copy: the end of the loop releases everything", "[tcp]") {
  const bool closed = GENERATE(false, true);
  const bool reads = GENERATE(false, true);
  CAPTURE(closed, reads);
  Half half({{"end-linger", reads ? "10s" : "50ms"}, {"linger", "10s"}, {"send-buffer", "1m"}});
  for (int i = 0; i < 3; ++i) half.send(4'000'000);
  testing::turns(half.loop, 5);
  if (closed) half.server.reset();
  std::future<bool> reader;
  if (reads) reader = half.reader();
  half.listener.reset();
  std::destroy_at(&half.loop);
  REQUIRE(half.all_released());
  for (const auto& each : half.parcels) REQUIRE(each->releases == 1);
  if (reads) REQUIRE(reader.get());
  REQUIRE(static_cast<bool>(half.parcels.back()->error) == !reads);
  half.server.reset();
  half.client.close();
  std::construct_at(&half.loop);
}

TEST_CASE("zero-copy: a child of fork() leaves its parent's references alone", "[tcp]") {
  Half half({{"send-buffer", "1m"}});
  half.send(8'000'000);
  testing::turns(half.loop, 5);
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
  auto reader = half.reader();
  half.server.reset();
  RUN_UNTIL(half.loop, half.open() == 0);
  REQUIRE(reader.get());
  half.check_releases();
}

TEST_CASE("zero-copy: a connection moves to another loop when it has everything back", "[tcp]") {
  Half half;
  testing::AnyLoop other;
  half.send(8'000'000);
  testing::turns(half.loop, 3);
  REQUIRE_FALSE(half.server->rebind(other));
  REQUIRE(errno == EAGAIN);
  auto reader = half.reader();
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(reader.get());
  REQUIRE(half.server->rebind(other));
  testing::turns(other, 2);
  const int before = half.calls.sends(true);
  half.sent = 0;
  half.send(100'000);
  reader = half.reader();
  RUN_UNTIL(other, half.all_released());
  REQUIRE(reader.get());
  REQUIRE(half.calls.sends(true) > before);
  half.check_releases();
  half.server.reset();
  testing::turns(other, 3);
}

TEST_CASE("zero-copy: without a linger nothing is lent, since the kernel goes on after close()",
          "[tcp]") {
  Half half({{"linger", "0"}});
  half.send(100'000);
  auto reader = half.reader(20ms);
  half.server.reset();
  REQUIRE(reader.get());
  RUN_UNTIL(half.loop, half.all_released());
  REQUIRE(half.calls.sends(true) == 0);
}

TEST_CASE("zero-copy: a socket that somebody used so before is left alone", "[tcp]") {
  Half half;
  const int fd = ::dup(half.client.fd());
  const int on = 1;
  REQUIRE(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) == 0);
  const ConnectionPtr adopted = half.type.adopt(half.loop, fd);
  Parcel parcel(1, 0, 100'000);
  REQUIRE(adopted->send(parcel.outgoing()) == 100'000);
  testing::Receiver receiver(*half.server, 1);
  RUN_UNTIL(half.loop, parcel.releases == 1 && receiver.received == 100'000);
  REQUIRE(receiver.intact);
  REQUIRE(half.calls.sends(true) == 0);
}
