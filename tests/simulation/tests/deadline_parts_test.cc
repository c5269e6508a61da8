// SPDX-License-Identifier: BSD-3-Clause
// The time-out of a connection by itself: Deadline on a loop, with a user that records.

#include <new>

#include "tests/simulation/link_bed.h"

using namespace simulation;
using Of = conn::rdma::Deadline::Of;

TEST_CASE("rdma deadline: it expires once, for what it was set", "[simulation][deadline]") {
  LinkBed bed;
  REQUIRE(bed.deadline.set(20ms, Of::kLinger));
  bed.run_for(19ms);
  CHECK(bed.take().empty());
  bed.run_for(3ms);
  CHECK(bed.take() == "deadline ");
  CHECK(bed.expired == std::vector{Of::kLinger});
  bed.run_for(100ms);
  CHECK(bed.take().empty());
}

TEST_CASE("rdma deadline: one that has passed already expires in the loop",
          "[simulation][deadline]") {
  LinkBed bed;
  REQUIRE(bed.deadline.set(-5s, Of::kQuiet));
  CHECK(bed.take().empty());
  bed.run_for(1ms);
  CHECK(bed.expired == std::vector{Of::kQuiet});
}

TEST_CASE("rdma deadline: another one replaces it", "[simulation][deadline]") {
  LinkBed bed;
  REQUIRE(bed.deadline.set(10ms, Of::kAccept));
  REQUIRE(bed.deadline.set(50ms, Of::kLinger));
  bed.run_for(40ms);
  CHECK(bed.take().empty());
  bed.run_for(20ms);
  CHECK(bed.expired == std::vector{Of::kLinger});
}

TEST_CASE("rdma deadline: it can be cancelled, and set again", "[simulation][deadline]") {
  LinkBed bed;
  REQUIRE(bed.deadline.set(10ms, Of::kAccept));
  bed.deadline.clear(&bed.loop);
  bed.deadline.clear(&bed.loop);  // no effect
  bed.run_for(20ms);
  CHECK(bed.take().empty());
  REQUIRE(bed.deadline.set(10ms, Of::kDisconnect));
  bed.run_for(20ms);
  CHECK(bed.expired == std::vector{Of::kDisconnect});
}

TEST_CASE("rdma deadline: its user may set the next one", "[simulation][deadline]") {
  LinkBed bed;
  bed.when_expired = [&] {
    if (bed.expired.size() == 1) REQUIRE(bed.deadline.set(10ms, Of::kDisconnect));
  };
  REQUIRE(bed.deadline.set(10ms, Of::kLinger));
  bed.run_for(50ms);
  CHECK(bed.expired == std::vector{Of::kLinger, Of::kDisconnect});
}

TEST_CASE("rdma deadline: a user that runs out of memory is told so", "[simulation][deadline]") {
  LinkBed bed;
  bed.when_expired = [] { throw std::bad_alloc(); };
  REQUIRE(bed.deadline.set(10ms, Of::kAddress));
  bed.run_for(20ms);
  CHECK(bed.take() == "deadline no-memory ");
}

TEST_CASE("rdma deadline: beyond the share of an iteration, one expires in each",
          "[simulation][deadline]") {
  LinkBed bed;
  conn::rdma::Deadline other(bed.state, bed);
  // Handling a deadline takes longer than the share.
  bed.when_expired = [&] { bed.world.spend(2ms); };
  REQUIRE(bed.deadline.set(0ms, Of::kLinger));
  REQUIRE(other.set(0ms, Of::kQuiet));
  (void)bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(bed.expired.size() == 1);
  bed.run_for(10ms);
  CHECK(bed.expired == std::vector{Of::kLinger, Of::kQuiet});
}

TEST_CASE("rdma deadline: an event that came in time and sets another deadline counts",
          "[simulation][deadline]") {
  LinkBed bed;
  bed.make_id();
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  inet_pton(AF_INET, "10.77.0.1", &peer.sin_addr);
  REQUIRE(rdma_resolve_addr(bed.link.id().get(), nullptr, reinterpret_cast<sockaddr*>(&peer),
                            1000) == 0);
  bed.when_event = [&](const auto&) { REQUIRE(bed.deadline.set(1s, Of::kAccept)); };
  REQUIRE(bed.deadline.set(500ms, Of::kAddress));
  // The loop stands still; then its timer is looked at before the event.
  bed.world.spend(2s);
  bed.world.run_due();
  (void)bed.loop.process_events(ae::kTimeEvents | ae::kDontWait);
  CHECK(bed.take() == "event ");
  bed.when_event = nullptr;
  bed.run_for(1100ms);
  CHECK(bed.expired == std::vector{Of::kAccept});
}
