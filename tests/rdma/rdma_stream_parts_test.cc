// SPDX-License-Identifier: BSD-3-Clause
// The parts of a stream, each by itself. How they work together is in the other stream tests.
#if AECONN_RDMA

#include <chrono>
#include <optional>

#include "conn/rdma/mtu.h"
#include "conn/rdma/protocol/control_budget.h"
#include "conn/rdma/protocol/liveness.h"
#include "conn/rdma/protocol/peer_facts.h"
#include "conn/rdma/protocol/proof.h"
#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;

constexpr ae::TimePoint kStart{std::chrono::hours(1)};

TEST_CASE("rdma proof: messages are counted until the peer has handled them", "[rdma][stream]") {
  Proof proof(Role::kClient, 1024, true, kStart);
  for (int i = 0; i < 10; ++i) proof.on_posted(kStart);
  CHECK(proof.sent() == 10);
  CHECK(proof.unproven() == 10);
  CHECK_FALSE(proof.all_completed());
  proof.on_completed(10);
  CHECK(proof.all_completed());
  proof.prove(4);
  proof.prove(3);  // nothing is unproven again
  CHECK(proof.unproven() == 6);
  proof.on_full();
  proof.on_posted(kStart);
  proof.prove_full();
  CHECK(proof.unproven() == 1);
  proof.check();
}

TEST_CASE("rdma proof: one probe at a time, and its answer proves what came before it",
          "[rdma][stream]") {
  Proof proof(Role::kServer, 1024, true, kStart);
  proof.on_hello(std::nullopt, true);
  const std::uint64_t due = flow::probe_at(1024);
  CHECK(proof.probe_is_due(static_cast<std::uint32_t>(due)));
  CHECK_FALSE(proof.probe_is_due(static_cast<std::uint32_t>(due) - 1));
  for (std::uint64_t i = 0; i < due; ++i) proof.on_posted(kStart);
  CHECK(proof.probe_is_due(0));
  const std::uint16_t select = proof.next_probe();
  CHECK((select & Proof::kServerProbe) != 0);
  proof.on_posted(kStart);
  proof.on_probe_posted(select);
  CHECK_FALSE(proof.probe_is_due(0));
  proof.on_posted(kStart);
  CHECK_FALSE(proof.on_answer(static_cast<std::uint16_t>(select + 1)));
  CHECK(proof.on_answer(select));
  CHECK_FALSE(proof.on_answer(select));
  CHECK(proof.unproven() == 1);
  CHECK(proof.next_probe() != select);
}

TEST_CASE("rdma proof: a peer that cannot be probed proves by what it sends", "[rdma][stream]") {
  Proof proof(Role::kServer, 8, true, kStart);
  while (!proof.few_receives(0)) proof.on_posted(kStart);
  CHECK(proof.is_exceeded());
  CHECK(proof.lacks_receives(kStart, 0));  // one message at a time, each completed
  proof.on_completed(static_cast<std::uint32_t>(proof.sent()));
  CHECK_FALSE(proof.lacks_receives(kStart, 0));
  CHECK(proof.lacks_receives(kStart, 1));
  CHECK_FALSE(proof.retry_at());
  proof.on_received();
  CHECK(proof.received() == 1);
  CHECK(proof.unproven() == 0);
}

TEST_CASE("rdma proof: where a completion proves nothing, a message goes at its pace",
          "[rdma][stream]") {
  Proof proof(Role::kServer, 8, false, kStart);
  while (!proof.few_receives(0)) proof.on_posted(kStart);
  proof.on_completed(static_cast<std::uint32_t>(proof.sent()));
  REQUIRE(proof.retry_at());
  CHECK(*proof.retry_at() == kStart + flow::kPace);
  CHECK(proof.lacks_receives(kStart + flow::kPace - 1ns, 0));
  CHECK_FALSE(proof.lacks_receives(kStart + flow::kPace, 0));
}

TEST_CASE("rdma budget: so many at once, and so many in a second", "[rdma][stream]") {
  ControlBudget budget(10, 3, kStart);
  for (int i = 0; i < 3; ++i) CHECK(budget.spend(kStart));
  CHECK_FALSE(budget.spend(kStart));
  CHECK_FALSE(budget.spend(kStart - 1s));  // a loop whose time is older
  CHECK(budget.spend(kStart + 100ms));
  CHECK_FALSE(budget.spend(kStart + 100ms));
  for (int i = 0; i < 3; ++i) CHECK(budget.spend(kStart + 1h));
  CHECK_FALSE(budget.spend(kStart + 1h));
  budget.check();
}

TEST_CASE("rdma liveness: a silent peer's device is probed, then the peer counts as dead",
          "[rdma][stream]") {
  Liveness liveness({.keepalive = 0s}, kStart);
  CHECK(liveness.next_tick() == ae::TimePoint::max());
  liveness.set_promise(100ms);
  liveness.on_open(kStart);
  const Liveness::Facts idle{.last_write_at = kStart};
  CHECK(liveness.next_tick() == kStart + 225ms);
  CHECK(liveness.tick(kStart + 200ms, false, idle) == Liveness::Peer::kAlive);
  CHECK_FALSE(liveness.wants_probe());
  CHECK(liveness.tick(kStart + 225ms, false, idle) == Liveness::Peer::kAlive);
  CHECK(liveness.wants_probe());
  liveness.on_probe_posted();
  SECTION("no answer") {
    CHECK(liveness.tick(kStart + 326ms, false, idle) == Liveness::Peer::kSilent);
  }
  SECTION("its device answers") {
    liveness.on_confirmed(kStart + 230ms);
    CHECK(liveness.tick(kStart + 326ms, false, idle) == Liveness::Peer::kAlive);
  }
  SECTION("it sends") {
    liveness.on_heard(kStart + 230ms);
    CHECK(liveness.tick(kStart + 326ms, false, idle) == Liveness::Peer::kAlive);
    CHECK(liveness.heard());
  }
  SECTION("our loop stood still") {
    CHECK(liveness.tick(kStart + 326ms, true, idle) == Liveness::Peer::kAlive);
  }
  SECTION("a message may wait for a receive: the device's retries decide") {
    CHECK(liveness.tick(kStart + 326ms, false, {.last_write_at = kStart, .all_completed = false}) ==
          Liveness::Peer::kAlive);
  }
}

TEST_CASE("rdma liveness: a keepalive where the peer has a receive for it, else a probe",
          "[rdma][stream]") {
  Liveness liveness({.keepalive = 10ms}, kStart);
  const ae::TimePoint due = liveness.next_tick();
  const bool takes = GENERATE(true, false);
  CHECK(liveness.tick(due, false, {.last_write_at = kStart - 1s, .takes_keepalive = takes}) ==
        Liveness::Peer::kAlive);
  CHECK(liveness.keepalive_is_due() == takes);
  CHECK(liveness.wants_probe() != takes);
  liveness.on_keepalive_posted();
  CHECK_FALSE(liveness.keepalive_is_due());
  CHECK(liveness.next_tick() == due + 10ms);
}

TEST_CASE("rdma peer facts: what a hello says, and what is assumed without one", "[rdma][stream]") {
  PeerFacts peer;
  CHECK(peer.kind() == "valkey");
  CHECK_FALSE(peer.receives());
  CHECK(peer.promise() == 0s);
  Hello hello;
  hello.flags = Hello::kTellsReceives | Hello::kSendsKeepalives;
  hello.receives = 0;
  hello.keepalive_ms = 1;
  peer.set(hello);
  CHECK(peer.kind() == "aeconn");
  CHECK(peer.receives() == 0u);
  CHECK(peer.promise() == PeerFacts::kShortestPromise);
  hello.release = {1, 2, 3};
  hello.keepalive_ms = 0;
  peer.set(hello);
  CHECK(peer.kind() == "aeconn 1.2.3");
  CHECK(peer.promise() == 0s);
}

// An id whose path has this MTU.
struct Id : rdma_cm_id {
  explicit Id(ibv_mtu mtu) : rdma_cm_id{} {
    route.num_paths = 1;
    route.path_rec = &path;
    path.mtu = static_cast<std::uint8_t>(mtu);
  }
  ibv_sa_path_rec path{};
};

TEST_CASE("rdma mtu: both ends take the smallest of what they can and may", "[rdma]") {
  const Id wide(IBV_MTU_4096);
  Fabric fabric;
  Mtu asking, answering;
  Hello hello;
  asking.offer(&wide, fabric);
  asking.tell(hello);
  CHECK(hello.mtu == IBV_MTU_4096);
  CHECK((hello.flags & Hello::kTellsMtu) != 0);
  fabric.path_mtu = IBV_MTU_2048;
  answering.agree(&wide, fabric, hello.mtu, IBV_MTU_4096, "sim0/1");
  CHECK(answering.agreed() == IBV_MTU_2048);
  Hello answer;
  answering.tell(answer);
  asking.take_answer(&wide, {}, answer.mtu);
  CHECK(asking.agreed() == IBV_MTU_2048);
}

TEST_CASE("rdma mtu: a peer without a hello takes the path's, or there is no connection",
          "[rdma]") {
  const Id wide(IBV_MTU_4096);
  Fabric fabric;
  Mtu mtu;
  mtu.offer(&wide, fabric);
  mtu.take_answer(&wide, fabric, 0);
  CHECK(mtu.agreed() == 0);
  mtu.agree(&wide, fabric, 0, IBV_MTU_4096, "sim0/1");
  CHECK(mtu.agreed() == 0);
  Hello hello;
  mtu.tell(hello);
  CHECK((hello.flags & Hello::kTellsMtu) == 0);
  CHECK_THROWS_AS(mtu.agree(&wide, fabric, 0, IBV_MTU_1024, "sim0/1"), VerbsError);
  fabric.path_mtu = IBV_MTU_1024;
  CHECK_THROWS_AS(mtu.take_answer(&wide, fabric, 0), VerbsError);
}

}  // namespace
}}}  // namespace conn::rdma

#endif
