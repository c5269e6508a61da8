// SPDX-License-Identifier: BSD-3-Clause
// The sending half of a connection by itself: Posting on a queue pair whose peer is the test.

#include "tests/simulation/link_bed.h"

using namespace simulation;
using conn::rdma::Hello;
using conn::rdma::Phase;
using testing::Contains;

namespace {

constexpr std::uint32_t kEnds = Hello::kFinishes | Hello::kWindowMayChange;

/// Confirms all requests that are on the send queue.
void confirm_all(LinkBed& bed) {
  (void)bed.link.sender.retire(bed.link.sender.requests().posted(), bed.state.now(),
                               bed.settings->limit());
  bed.link.on_keys_changed();
}

bool write(LinkBed& bed) {
  return bed.link.sender.buffer().append_straight("x", 1, [&] { return bed.state.now(); });
}

}  // namespace

TEST_CASE("rdma posting: on iWARP the accepting side waits for the first message",
          "[simulation][posting]") {
  const bool iwarp = GENERATE(true, false);
  LinkBed bed({}, iwarp ? "iwarp" : "hns");
  bed.open();
  (void)bed.posting.post_due(bed.host());  // the announcement of our window
  confirm_all(bed);
  bed.offer();
  REQUIRE(write(bed));
  bed.posting.on_accepting();
  CHECK(bed.posting.goes_straight() == !iwarp);
  if (iwarp) CHECK_FALSE(bed.posting.post_straight(bed.host()));
  CHECK_FALSE(bed.posting.post_due(bed.host()));
  CHECK(bed.link.sender.queue().staged() == (iwarp ? 1 : 0));
  (void)bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
  bed.take();
  bed.posting.on_first_message();
  CHECK(bed.posting.goes_straight());
  (void)bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(bed.take() == (iwarp ? "post " : ""));  // what has waited is due
  CHECK_FALSE(bed.posting.post_due(bed.host()));
  CHECK(bed.link.sender.queue().staged() == 0);
  bed.posting.on_first_message();
  (void)bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(bed.take().empty());
}

TEST_CASE("rdma posting: the straight path takes bytes only if nothing else is due",
          "[simulation][posting]") {
  LinkBed bed({}, "mlx5");
  bed.open(kEnds);
  // The window of our own is not offered yet.
  (void)bed.posting.post_due(bed.host());
  bed.offer();
  CHECK_FALSE(bed.posting.post_straight(bed.host()));  // nothing is staged
  REQUIRE(write(bed));
  CHECK_FALSE(bed.posting.post_straight(bed.host()));  // a key may be to change
  confirm_all(bed);
  SECTION("nothing else is due") {
    CHECK(bed.posting.post_straight(bed.host()));
    CHECK(bed.link.sender.queue().staged() == 0);
    CHECK(bed.state.statistics().inline_sends != 0);
  }
  SECTION("delivery is to be proven") {
    bed.posting.prove_delivery();
    CHECK_FALSE(bed.posting.post_straight(bed.host()));
  }
  SECTION("the phase is another one") {
    bed.link.stage.move(Phase::kHalfClosed);
    CHECK_FALSE(bed.posting.post_straight(bed.host()));
  }
}

TEST_CASE("rdma posting: what is to be delivered, in each phase", "[simulation][posting]") {
  const bool tells_end = GENERATE(true, false);
  CAPTURE(tells_end);
  LinkBed bed;
  CHECK_FALSE(bed.posting.has_undelivered());
  bed.open(tells_end ? kEnds : Hello::kWindowMayChange);
  CHECK(bed.posting.finishes() == tells_end);
  (void)bed.posting.post_due(bed.host());  // the announcement of our window
  CHECK_FALSE(bed.posting.has_undelivered());
  bed.offer();
  bed.stage("bytes");
  CHECK(bed.posting.has_undelivered());
  (void)bed.posting.post_due(bed.host());
  CHECK(bed.link.sender.queue().staged() == 0);
  CHECK(bed.posting.has_undelivered());
  confirm_all(bed);
  CHECK_FALSE(bed.posting.has_undelivered());
  bed.link.stage.move(Phase::kHalfClosed);
  CHECK(bed.posting.has_undelivered() == tells_end);
  (void)bed.posting.post_due(bed.host());
  CHECK(bed.posting.has_undelivered() == tells_end);
  confirm_all(bed);
  CHECK_FALSE(bed.posting.has_undelivered());
  bed.link.stage.move(Phase::kClosing);
  (void)bed.posting.post_due(bed.host());
  confirm_all(bed);
  CHECK_FALSE(bed.posting.has_undelivered());
  bed.stage("too late");
  CHECK(bed.posting.has_undelivered());
  bed.link.stage.move(Phase::kDisconnecting);
  CHECK_FALSE(bed.posting.has_undelivered());
}

TEST_CASE("rdma posting: on a new path the kept bytes are still to be delivered",
          "[simulation][posting]") {
  LinkBed bed;
  bed.open();
  for (const Phase next : {Phase::kLost, Phase::kResolving, Phase::kConnecting, Phase::kResending})
    bed.link.stage.move(next);
  CHECK(bed.posting.has_undelivered());
}

TEST_CASE("rdma posting: of an aborted stream only the abort is to be delivered",
          "[simulation][posting]") {
  LinkBed bed;
  bed.open(kEnds | Hello::kHearsAborts);
  (void)bed.posting.post_due(bed.host());
  confirm_all(bed);
  bed.stage("lost");
  REQUIRE(bed.link.stream.outbound().abort());
  CHECK_FALSE(bed.posting.finishes());
  CHECK(bed.posting.has_undelivered());
  (void)bed.posting.post_due(bed.host());
  CHECK(bed.posting.has_undelivered());
  confirm_all(bed);
  CHECK(bed.link.sender.queue().staged() == 4);
  CHECK_FALSE(bed.posting.has_undelivered());
}

TEST_CASE("rdma posting: the end of the stream follows its last byte", "[simulation][posting]") {
  LinkBed bed;
  bed.open(kEnds);
  (void)bed.posting.post_due(bed.host());
  bed.stage("no window");
  bed.link.stage.move(Phase::kHalfClosed);
  (void)bed.posting.post_due(bed.host());
  CHECK_FALSE(bed.link.stream.outbound().end().finished(false));
  bed.offer();
  (void)bed.posting.post_due(bed.host());
  CHECK(bed.link.stream.outbound().end().finished(false));
}

TEST_CASE("rdma posting: a full send queue is tried again after a millisecond",
          "[simulation][posting]") {
  const bool cleared = GENERATE(false, true);
  LinkBed bed;
  bed.open();
  (void)bed.posting.post_due(bed.host());
  bed.offer();
  bed.stage("x");
  bed.run_for(5ms);
  bed.take();
  bed.queue_pair().used = bed.queue_pair().cap.max_send_wr;
  CHECK_FALSE(bed.posting.post_due(bed.host()));
  CHECK_FALSE(bed.posting.post_due(bed.host()));  // there is one timer nevertheless
  CHECK(bed.link.sender.queue().staged() == 1);
  REQUIRE(bed.posting.pace_at());
  CHECK(*bed.posting.pace_at() - bed.state.now() <= 1ms);
  if (cleared) bed.posting.clear_pace(&bed.loop);
  CHECK(bed.posting.pace_at().has_value() == !cleared);
  bed.run_for(3ms);
  CHECK(bed.take() == (cleared ? "" : "post "));
  bed.queue_pair().used = 0;
  CHECK_FALSE(bed.posting.post_due(bed.host()));
  CHECK(bed.link.sender.queue().staged() == 0);
  CHECK_FALSE(bed.posting.pace_at());
}

TEST_CASE("rdma posting: a refusal says whether the queue pair was stopped",
          "[simulation][posting]") {
  const bool stopped = GENERATE(true, false);
  LinkBed bed;
  bed.open();
  (void)bed.posting.post_due(bed.host());
  bed.offer();
  bed.stage("x");
  bed.device->profile.immediate = false;  // refuses what carries the data
  if (stopped) bed.queue_pair().actual = IBV_QPS_ERR;
  const auto refusal = bed.posting.post_due(bed.host());
  REQUIRE(refusal);
  CHECK(refusal->stopped == stopped);
  CHECK(refusal->why.code == (stopped ? std::errc::connection_reset : std::errc::invalid_argument));
  CHECK_THAT(refusal->why.text, Contains("posting to the send queue"));
}

TEST_CASE("rdma posting: who waits for memory is woken, and posts what could free some",
          "[simulation][posting]") {
  const bool in_flight = GENERATE(false, true);
  CAPTURE(in_flight);
  LinkBed bed;
  bed.open();
  bed.run_for(5ms);
  if (in_flight) (void)bed.posting.post_due(bed.host());
  bed.take();
  bed.posting.wait_for_memory(100);
  CHECK(bed.link.sender.buffer().waits_for_memory());
  (void)bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(bed.take() == (in_flight ? "post " : ""));
  CHECK(bed.posting.on_memory_back(bed.host()));
  CHECK_FALSE(bed.link.sender.buffer().waits_for_memory());
  CHECK_FALSE(bed.posting.on_memory_back(bed.host()));  // it does not wait any more
  (void)bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(bed.take() == "memory ");
}
