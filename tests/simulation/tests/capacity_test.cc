// SPDX-License-Identifier: BSD-3-Clause
// Capacity and limits: the values computed from the options alone must equal what the simulation
// counts; a listener counts limits that are too low; an error names the limit that was reached.

#include "conn/rdma/config/limits.h"
#include "tests/simulation/room.h"

using namespace simulation;
using testing::Contains;

namespace {

std::uint64_t statistic(Room& room, const std::string& name) {
  for (const auto& [each, value] : room.type.statistics(room.loop))
    if (each == name) return value;
  throw std::runtime_error("no statistic " + name);
}

}  // namespace

TEST_CASE("simulation: what connections take is what was computed before, or a little less",
          "[simulation]") {
  for (const Profile* profile : serving_profiles()) {
    DYNAMIC_SECTION(profile->name) {
      Room room({}, "?backlog=1000", *profile, *profile);
      constexpr std::size_t kCount = 150;
      std::vector<conn::ConnectionPtr> clients;
      while (clients.size() < kCount) clients.push_back(room.dial());
      RUN_UNTIL(room.loop, room.log.clients.size() == kCount);
      const bool rxe = std::string(profile->name) == "rxe";
      const conn::rdma::Need need = conn::rdma::need_of(
          kCount, {},
          {profile->bound_keys(), rxe, profile->shared_receives && !profile->iwarp,
           static_cast<std::uint64_t>(profile->max_cqe)});
      const Costs& costs = room.world.costs(*room.near);
      const auto is_near = [](std::int64_t counted, std::uint64_t computed, std::uint64_t slack) {
        CHECK(counted >= 0);
        const auto number = static_cast<std::uint64_t>(counted);
        CHECK(number <= computed);
        CHECK(computed <= number * 3 / 2 + slack);
      };
      is_near(costs.queue_pairs, need.queue_pairs, 0);
      is_near(costs.completion_queues, need.completion_queues, 16);
      is_near(costs.registrations, need.regions, 32);
      is_near(costs.keys - costs.registrations, need.keys, 0);
      is_near(costs.pinned, need.locked, 4u << 20);
      CHECK(static_cast<std::uint64_t>(costs.provider_mappings) <= need.mappings);
    }
  }
}

TEST_CASE("simulation: a listener counts the limits that are too low for it", "[simulation]") {
  Profile profile = profile_named("mlx5");
  profile.max_qp = 20;
  Room room({}, "?max-connections=30", profile, profile);
  CHECK(statistic(room, "room_for_connections") == 20);
  CHECK(statistic(room, "limits_too_low") == 1);
  const auto fewer = room.type.listen(
      room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?max-connections=20"), {});
  CHECK(statistic(room, "limits_too_low") == 0);
}

TEST_CASE("simulation: capacity() looks at the device of the address", "[simulation]") {
  Profile profile = profile_named("mlx5");
  profile.max_qp = 20;
  Room room({}, {}, profile, profile_named("bnxt_re"));
  const auto room_for = [&](const std::string& url, const std::string& name) {
    for (const conn::Capacity& each :
         room.type.capacity(conn::Endpoint::parse("rdma://" + url), 100))
      if (each.name == name) return each.text(100);
    return std::string("nothing");
  };
  CHECK(room_for("10.77.0.1:1", "queue pairs of sim0 (max_qp)") ==
        "queue pairs of sim0 (max_qp): 20, 0 used; 100 connections of these options need 100, so "
        "there is room for 20: use another device, or several");
  CHECK(room_for("10.77.0.2:1", "queue pairs of sim1 (max_qp)") ==
        "queue pairs of sim1 (max_qp): 1024, 0 used; 100 connections of these options need 100");
  CHECK(room_for("10.77.0.1:1?isolation=none", "memory windows of sim0 (max_mw)") ==
        "memory windows of sim0 (max_mw): 524288, 0 used; connections of these options need none "
        "of it");
  CHECK(room_for("*:1", "queue pairs of sim0 (max_qp)") == "nothing");
}

TEST_CASE("simulation: capacity() has the process's limits if the device cannot be opened",
          "[simulation]") {
  Room room;
  int without_device = 0;
  for (std::uint64_t call = 1; call <= 20; ++call) {
    std::vector<conn::Capacity> all;
    room.world.fail_call(call, 1000);
    try {
      all = room.type.capacity(conn::Endpoint::parse("rdma://10.77.0.1:1"), 16);
    } catch (const conn::Error&) {  // no device was found
    }
    room.world.fail_call(0);
    CAPTURE(call);
    if (all.empty()) {  // only the calls before the address is bound may end so
      CHECK(without_device == 0);
      continue;
    }
    const auto of_device = [](const conn::Capacity& each) {
      return each.name.find("(max_qp)") != std::string::npos;
    };
    CHECK(all.size() > 1);  // not just the descriptors
    if (std::none_of(all.begin(), all.end(), of_device)) ++without_device;
  }
  CHECK(without_device > 0);
}

TEST_CASE("simulation: where a limit is met the error names it", "[simulation]") {
  const bool at_server = GENERATE(true, false);
  Profile tight = profile_named("mlx5");
  tight.max_qp = 2;
  Room room({}, {}, at_server ? tight : profile_named("mlx5"),
            at_server ? profile_named("mlx5") : tight);
  const auto one = room.connected(), two = room.connected();
  const auto three = room.dial();
  RUN_UNTIL(room.loop, three->state() != conn::State::kConnecting);
  CHECK_THAT(three->last_error(), Contains("ibv_create_qp: Cannot allocate memory"));
  CHECK_THAT(three->last_error(), Contains(at_server ? "queue pairs of sim0 (max_qp): 2"
                                                     : "queue pairs of sim1 (max_qp): 2"));
  if (!at_server) CHECK_THAT(three->last_error(), Contains("so there is room for 2: use another"));
}
