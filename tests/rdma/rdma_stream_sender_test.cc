// SPDX-License-Identifier: BSD-3-Clause
// The sending side of a stream by itself: windows, receives, the end of our stream, and what stops
// it. How it works in a stream is in rdma_stream_send_test.cc.
#if AECONN_RDMA

#include <chrono>
#include <cstdint>
#include <optional>

#include "conn/rdma/protocol/stream_sender.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;
using Offer = StreamSender::Offer;

constexpr ae::TimePoint kStart{std::chrono::hours(1)};
constexpr std::uint32_t kReceives = 1024;

StreamSender sender_to(std::uint32_t flags, Role role = Role::kClient) {
  StreamSender sender(Proof(role, kReceives, true, kStart), 1);
  Hello hello;
  hello.flags = flags;
  sender.on_hello(hello);
  return sender;
}

void give(StreamSender& sender, std::uint32_t length, Offer offer = Offer::kNext) {
  REQUIRE(sender.on_offer(offer, sender.take_earned(offer), {0x1000, length, 7}) == nullptr);
  sender.check();
}

TEST_CASE("rdma sender side: bytes go into the peer's window to its last byte, and no further",
          "[rdma][stream]") {
  StreamSender sender = sender_to(0);
  CHECK(sender.sendable(5, kStart) == 0);
  CHECK(sender.waits_for(kStart) == Stall::kNone);  // the peer has not offered its first window yet
  CHECK_FALSE(sender.takes_straight(0));
  give(sender, 10);
  CHECK(sender.sendable(0, kStart) == 0);
  CHECK(sender.sendable(100, kStart) == 10);
  CHECK(sender.takes_straight(9));
  CHECK_FALSE(sender.takes_straight(10));
  sender.on_straight_posted(4, kStart);
  CHECK(sender.peer_windows().left() == 6);
  CHECK(sender.peer_windows().position() == 0x1004);
  sender.on_write_posted(6, kStart);
  CHECK(sender.peer_windows().total() == 10);
  CHECK(sender.waits_for(kStart) == Stall::kWindow);
  CHECK_FALSE(sender.retry_at(1));
}

TEST_CASE("rdma sender side: an offer is earned by a window that was filled, once",
          "[rdma][stream]") {
  StreamSender sender = sender_to(Hello::kTakesAhead);
  CHECK_FALSE(sender.take_earned(Offer::kNext));
  give(sender, 10);
  sender.on_write_posted(9, kStart);
  CHECK_FALSE(sender.take_earned(Offer::kNext));
  sender.on_write_posted(1, kStart);
  CHECK_FALSE(sender.take_earned(Offer::kMarked));
  CHECK(sender.proof().unproven() == 2);
  SECTION("by the next one, which proves what filled the last") {
    REQUIRE(sender.take_earned(Offer::kNext));
    CHECK_FALSE(sender.take_earned(Offer::kNext));
    REQUIRE(sender.on_offer(Offer::kNext, true, {0x2000, 10, 7}) == nullptr);
    CHECK(sender.proof().unproven() == 0);
  }
  SECTION("one that is not earned proves nothing") {
    REQUIRE(sender.on_offer(Offer::kNext, false, {0x2000, 10, 7}) == nullptr);
    CHECK(sender.proof().unproven() == 2);
  }
  SECTION("by one ahead, which proves nothing: it may have been sent before") {
    REQUIRE(sender.take_earned(Offer::kAhead));
    CHECK_FALSE(sender.take_earned(Offer::kAhead));
    REQUIRE(sender.on_offer(Offer::kAhead, true, {0x2000, 10, 7}) == nullptr);
    CHECK(sender.proof().unproven() == 2);
    CHECK(sender.peer_windows().left() == 10);
  }
}

TEST_CASE("rdma sender side: a marked offer makes a mark due, and earns as many offers as it ends",
          "[rdma][stream]") {
  StreamSender sender = sender_to(Hello::kMarksWindows | Hello::kTakesAhead);
  give(sender, 10);
  give(sender, 20, Offer::kAhead);
  give(sender, 30, Offer::kAhead);
  CHECK_FALSE(sender.mark_is_due());
  CHECK_FALSE(sender.may_have_control());
  give(sender, 5, Offer::kMarked);
  CHECK(sender.peer_windows().left() == 5);
  CHECK(sender.peer_windows().ahead() == 0);
  CHECK(sender.mark_is_due());
  CHECK(sender.may_have_control());
  CHECK_FALSE(sender.takes_straight(1));
  sender.on_notice_posted(kWindowMark);
  CHECK_FALSE(sender.mark_is_due());
  CHECK(sender.takes_straight(1));
  for (int i = 0; i < 3; ++i) CHECK(sender.take_earned(Offer::kAhead));
  CHECK_FALSE(sender.take_earned(Offer::kAhead));
}

TEST_CASE("rdma sender side: the first write after a wait for a window says so", "[rdma][stream]") {
  const bool ahead = GENERATE(true, false);
  const bool straight = GENERATE(true, false);
  StreamSender sender = sender_to(ahead ? Hello::kTakesAhead : 0);
  sender.on_staged_left();
  give(sender, 10);
  sender.on_staged_left();
  CHECK(sender.immediate(10) == 10);
  sender.on_write_posted(10, kStart);
  sender.on_staged_left();
  give(sender, 10);
  CHECK(sender.immediate(5) == (ahead ? 5 | kWaited : 5));
  straight ? sender.on_straight_posted(5, kStart) : sender.on_write_posted(5, kStart);
  CHECK(sender.immediate(5) == 5);
}

TEST_CASE("rdma sender side: data stops before the peer's receives are used up", "[rdma][stream]") {
  StreamSender sender = sender_to(0);
  give(sender, 1 << 20);
  std::uint32_t sent = 0;
  for (; sender.sendable(1, kStart) != 0; ++sent) sender.on_write_posted(1, kStart);
  CHECK(sent == kReceives - flow::reserve(kReceives));
  CHECK_FALSE(sender.takes_straight(1));
  CHECK(sender.waits_for(kStart) == Stall::kReceives);
  CHECK(sender.may_have_control());  // a probe
  sender.proof().prove(sent);
  CHECK(sender.sendable(1, kStart) == 1);
  CHECK(sender.sendable(1, kStart, sent) == 0);
  CHECK(sender.waits_for(kStart) == Stall::kNone);
}

TEST_CASE("rdma sender side: nothing is sent once it is stopped or aborted", "[rdma][stream]") {
  StreamSender sender = sender_to(Hello::kFinishes | Hello::kHearsAborts, Role::kServer);
  give(sender, 1 << 20);
  while (sender.sendable(1, kStart) != 0) sender.on_write_posted(1, kStart);
  // On iWARP a server without probes tries again at its pace.
  StreamSender paced(Proof(Role::kServer, kReceives, false, kStart), 1);
  give(paced, 1 << 20);
  while (paced.sendable(1, kStart) != 0) paced.on_write_posted(1, kStart);
  REQUIRE(paced.retry_at(1));
  CHECK_FALSE(paced.retry_at(0));
  sender.proof().prove(sender.proof().sent());
  REQUIRE(sender.takes_straight(1));
  if (GENERATE(true, false)) {
    sender.stop();
    paced.stop();
    CHECK(sender.stopped());
    CHECK_FALSE(sender.finish(true));
  } else {
    CHECK(sender.abort());
    CHECK_FALSE(paced.abort());  // its peer does not understand the message
    CHECK(sender.may_have_control());
    CHECK_FALSE(sender.finish(true));
    sender.on_notice_posted(kAborted);
    CHECK_FALSE(sender.end().abort_is_due());
  }
  CHECK(sender.sendable(1, kStart) == 0);
  CHECK_FALSE(sender.takes_straight(1));
  CHECK(sender.waits_for(kStart) == Stall::kNone);
  CHECK(paced.waits_for(kStart) == Stall::kNone);
  CHECK_FALSE(paced.retry_at(1));
}

TEST_CASE("rdma sender side: a new path begins with nothing but the count of bytes",
          "[rdma][stream]") {
  StreamSender sender = sender_to(Hello::kFinishes | Hello::kMarksWindows | Hello::kTakesAhead);
  sender.set_resumes();
  give(sender, 10);
  sender.on_write_posted(10, kStart);
  sender.on_staged_left();
  give(sender, 20, Offer::kMarked);
  REQUIRE(sender.finish(false));
  REQUIRE_FALSE(sender.finish(false));
  sender.on_notice_posted(kShutDown);
  CHECK(sender.end().finished(false));
  CHECK_FALSE(sender.end().finished(true));
  sender.stop();
  sender.begin_path(8, Proof(Role::kClient, kReceives, true, kStart));
  CHECK_FALSE(sender.stopped());
  CHECK_FALSE(sender.mark_is_due());
  CHECK_FALSE(sender.may_have_control());
  CHECK_FALSE(sender.end().finished(false));
  CHECK_FALSE(sender.peer_windows().any());
  CHECK(sender.peer_windows().total() == 8);
  CHECK(sender.proof().sent() == 0);
  CHECK(sender.immediate(1) == 1);
  CHECK_FALSE(sender.take_earned(Offer::kAhead));
  CHECK(sender.resumes());
  sender.set_written(9);
  CHECK(sender.peer_windows().total() == 9);
  CHECK(sender.finish(true));
}

}  // namespace
}}}  // namespace conn::rdma

#endif
