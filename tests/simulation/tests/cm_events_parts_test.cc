// SPDX-License-Identifier: BSD-3-Clause
// Whom the events of rdma_cm reach, and how many are taken at once: CmEvents on a channel of its
// own, with a listener that records.

#include <netinet/in.h>

#include <vector>

#include "conn/rdma/loop/cm_events.h"
#include "tests/simulation/link_bed.h"

using namespace simulation;
using Most = conn::rdma::IterationBudget::Most;

namespace {

struct Listener final : conn::rdma::LoopListener {
  explicit Listener(const conn::rdma::Settings& its) : settings_(its) {}
  const conn::rdma::Settings& settings() const noexcept override { return settings_; }
  bool wishes_prepared() const noexcept override { return false; }
  bool is_on(const std::string&) const override { return true; }
  void retry_if_down() noexcept override {}
  ae::TimePoint retry_if_due(ae::TimePoint) noexcept override { return ae::TimePoint::max(); }
  void follow_addresses() noexcept override {}
  void drop_request(const rdma_cm_id* id) noexcept override { dropped.push_back(id); }
  void loop_gone() noexcept override {}

  const conn::rdma::Settings& settings_;
  std::vector<const rdma_cm_id*> dropped;
};

struct Bed {
  Bed() { listeners.add(listener); }
  /// An id with an event that is pending. `owned`: the bed is its owner.
  rdma_cm_id* add(bool owned) {
    ids.push_back(channel.create_id(owned ? static_cast<conn::rdma::CmUser*>(&bed) : nullptr));
    sockaddr_in peer{};
    peer.sin_family = AF_INET;
    inet_pton(AF_INET, "10.77.0.1", &peer.sin_addr);
    REQUIRE(rdma_resolve_addr(ids.back().get(), nullptr, reinterpret_cast<sockaddr*>(&peer),
                              1000) == 0);
    return ids.back().get();
  }
  void let_events_come() {
    bed.world.spend(2s);
    bed.world.run_due();
  }

  LinkBed bed;
  conn::rdma::CmChannel channel;
  std::vector<conn::rdma::CmId> ids;
  conn::rdma::LoopListeners listeners{bed.loop};
  Listener listener{*bed.settings};
  std::uint64_t taken = 0;
  conn::rdma::CmEvents events{channel, bed.state.devices(), listeners, bed.state.iteration(),
                              taken};
};

}  // namespace

TEST_CASE("rdma_cm events: each reaches the owner of its id", "[simulation][cm-events]") {
  Bed one;
  one.add(true);
  const rdma_cm_id* const nobodys = one.add(false);
  one.let_events_come();
  one.events.take(Most::kAll);
  CHECK(one.taken == 2);
  CHECK(one.bed.take() == "event ");
  // A listener may have queued the request of an id without an owner.
  CHECK(one.listener.dropped == std::vector{nobodys});
  one.events.take(Most::kAll);
  CHECK(one.taken == 2);
}

TEST_CASE("rdma_cm events: one call takes 64, or what the iteration has time for",
          "[simulation][cm-events]") {
  Bed one;
  for (int i = 0; i < 100; ++i) one.add(true);
  one.let_events_come();
  SECTION("all") {
    one.events.take(Most::kAll);
    CHECK(one.taken == 64);
    one.events.take(Most::kAll);
    CHECK(one.taken == 100);
  }
  SECTION("a share: one in any case") {
    one.bed.when_event = [&](const auto&) { one.bed.world.spend(2ms); };
    one.events.take(Most::kShare);
    CHECK(one.taken == 1);
    one.events.take(Most::kShare);
    CHECK(one.taken == 2);
    one.bed.state.iteration().begin();
    one.bed.when_event = nullptr;
    one.events.take(Most::kShare);
    CHECK(one.taken == 66);
  }
  SECTION("drained") {
    one.events.drain();
    CHECK(one.taken == 100);
  }
}
