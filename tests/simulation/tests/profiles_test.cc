// SPDX-License-Identifier: BSD-3-Clause
// Differences between kinds of devices (profile.h), each tested where it is visible: connections
// between two kinds, features that a device lacks, and duties that a driver leaves to its users.
//
//   AECONN_PAIR_PROFILE=mlx5,hns   only pairs of these

#include <algorithm>
#include <set>

#include "tests/simulation/room.h"

using namespace simulation;
using testing::Contains;

namespace {

// Echoes 100 kB, in large pieces, and one byte.
void exchange(Room& room, conn::Connection& client) {
  room.echoes(client, 100000);
  room.echoes(client, 1);
}

bool fails_with(conn::Connection& client, const std::string& sentence) {
  INFO(client.last_error());
  CHECK_THAT(client.last_error(), Contains(sentence));
  return client.state() == conn::State::kError;
}

}  // namespace

TEST_CASE("simulation: every profile says where it was read", "[simulation][profiles]") {
  std::set<std::string> names;
  for (const Profile& each : all_profiles()) {
    names.insert(each.name);
    CHECK(std::string(each.read_in).find(".c") != std::string::npos);
  }
  CHECK(names.size() == all_profiles().size());
  CHECK(serving_profiles().size() == 8);
  CHECK_THROWS_WITH(profile_named("cx9"), Contains("no profile cx9; there are rxe mlx5"));
}

TEST_CASE("simulation: devices of two kinds talk to each other", "[simulation][profiles]") {
  for (const Profile* near : profiles_from("AECONN_PAIR_PROFILE")) {
    for (const Profile* far : profiles_from("AECONN_PAIR_PROFILE")) {
      if (near->iwarp != far->iwarp) continue;  // different transports do not interoperate
      DYNAMIC_SECTION("server " << near->name << ", client " << far->name) {
        Room room({}, {}, *near, *far);
        conn::ConnectionPtr client = room.connected();
        exchange(room, *client);
        client.reset();
        RUN_UNTIL(room.loop, room.log.endings.size() == 1);
        CHECK(room.log.endings[0] == "end of stream");
      }
    }
  }
}

TEST_CASE("simulation: two transports do not understand each other, and one clear word says so",
          "[simulation][profiles]") {
  Room room({}, {}, profile_named("rxe"), profile_named("erdma"));
  const auto client = room.dial();
  CHECK(room.until_failed(*client) < 100ms);
  CHECK_THAT(client->last_error(), Contains("refused"));
}

// --- devices that cannot serve -------------------------------------------------------------------

TEST_CASE("simulation: a device without reliable connections is refused in words, at listen",
          "[simulation][profiles]") {
  World world;
  world.add_device("sim0", "10.77.0.1", profile_named("no-rc"));
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  CHECK_THROWS_WITH(
      registry.require("rdma").listen(loop, conn::Endpoint::parse("rdma://10.77.0.1:0"), {}),
      Contains("sim0") && Contains("reliable connected"));
}

TEST_CASE("simulation: a device without reliable connections is refused in words, at connect",
          "[simulation][profiles]") {
  Room room({}, {}, profile_named("rxe"), profile_named("no-rc"));
  const auto client = room.dial();
  room.until_failed(*client);
  CHECK(fails_with(*client, "reliable connected"));
  CHECK_THAT(client->last_error(), Contains("sim1"));
}

TEST_CASE("simulation: a device without WRITE WITH IMMEDIATE is refused in words, at listen",
          "[simulation][profiles]") {
  World world;
  world.add_device("sim0", "10.77.0.1", profile_named("iwarp-no-imm"));
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  CHECK_THROWS_WITH(
      registry.require("rdma").listen(loop, conn::Endpoint::parse("rdma://10.77.0.1:0"), {}),
      Contains("sim0") && Contains("WRITE WITH IMMEDIATE"));
}

TEST_CASE("simulation: a device without WRITE WITH IMMEDIATE is refused in words, at connect",
          "[simulation][profiles]") {
  Room room({}, {}, profile_named("erdma"), profile_named("iwarp-no-imm"));
  const auto client = room.dial();
  room.until_failed(*client);
  CHECK(fails_with(*client, "WRITE WITH IMMEDIATE"));
  CHECK_THAT(client->last_error(), Contains("sim1"));
}

// --- duties that a driver leaves to its users ----------------------------------------------------

TEST_CASE("simulation: no ACK time-out is below what the devices say they need",
          "[simulation][profiles]") {
  for (const Profile* each : serving_profiles()) {
    if (each->iwarp) continue;  // it has none
    DYNAMIC_SECTION(each->name) {
      Room room({}, {}, *each, *each);
      const auto client = room.connected();
      for (const auto& [number, qp] : room.world.queue_pairs) {
        CAPTURE(number);
        CHECK(qp->ack_timeout >= each->ack_delay);
      }
    }
  }
}

TEST_CASE("simulation: a number that its former owner's peer still remembers is tried again",
          "[simulation][profiles]") {
  Room room({}, {}, profile_named("mlx5"), profile_named("mlx5"));
  room.far->stale_answers = 1;
  (void)room.connected();
}

TEST_CASE("simulation: a number that comes round while it is remembered is answered as stale",
          "[simulation][profiles]") {
  // Tests the simulated rdma_cm itself: two connections, the second with the first one's number.
  Room room({}, {}, profile_named("mlx5"), profile_named("mlx5"));
  conn::ConnectionPtr first = room.connected();
  const std::uint32_t number = room.far->next_number - 1;
  first.reset();
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  RUN_UNTIL(room.loop, room.world.queue_pairs.empty());
  room.far->next_number = number;
  const auto second = room.dial();
  RUN_UNTIL(room.loop, second->state() != conn::State::kConnecting);
  // The connect is refused once: it either reports the refusal or tries again.
  if (second->state() == conn::State::kError)
    CHECK_THAT(second->last_error(), Contains("reject reason 10"));
  CHECK(room.far->next_number > number + (second->state() == conn::State::kError ? 0u : 1u));
  CHECK(room.far->costs.slow["ibv_create_qp"] >= 2);
}

TEST_CASE("simulation: a link that comes back where no event says so closes as ever",
          "[simulation][profiles]") {
  for (const Profile* each : serving_profiles()) {
    if (each->port_events || each->stream) continue;
    DYNAMIC_SECTION(each->name) {
      Room room({}, {}, *each, *each);
      conn::ConnectionPtr first = room.connected();
      room.world.set_link(*room.near, false);
      room.world.set_link(*room.far, false);
      RUN_UNTIL(room.loop, room.log.endings.size() == 1);
      CHECK(room.until_failed(*first) < 10s);
      first.reset();
      room.run_for(1s);
      room.world.set_link(*room.near, true);
      room.world.set_link(*room.far, true);
      conn::ConnectionPtr second = room.connected();
      second.reset();
      const Nanoseconds begin = room.world.now();
      RUN_UNTIL(room.loop, room.log.endings.size() == 2);
      CHECK(room.world.now() - begin < 1s);
      CHECK(room.log.endings[1] == "end of stream");
    }
  }
}

TEST_CASE("simulation: receives of a shared queue that vanish are posted again",
          "[simulation][profiles]") {
  // One message after the other to connections that close while it is under way.
  for (const char* name : {"mlx5", "bnxt_re", "hns", "irdma-gen3"}) {
    DYNAMIC_SECTION(name) {
      Room room({}, "?shared-receive-queue=64", profile_named(name), profile_named(name));
      const auto stays = room.connected();
      for (int i = 0; i < 100; ++i) {
        conn::ConnectionPtr goes = room.connected();
        const std::size_t before = room.log.clients.size();
        REQUIRE(goes->write("under way", 9) == 9);
        room.loop.add_time_event(1us, [&] {
          room.log.clients.pop_back();
          return ae::kNoMore;
        });
        RUN_UNTIL(room.loop, room.log.clients.size() < before);
        goes.reset();
      }
      room.run_for(10s);
      const std::uint64_t missing = room.world.receives_missing;
      room.echoes(*stays, 200000);
      CHECK(room.world.receives_missing == missing);
    }
  }
}
