// SPDX-License-Identifier: BSD-3-Clause
// Ports that lose their link and get it back, with and without an event that reports it.

#include "tests/simulation/room.h"

using namespace simulation;
using testing::Contains;

TEST_CASE("simulation: a flap that the retries carry ends nothing", "[simulation][ports]") {
  Room room;
  const auto client = room.connected();
  for (int i = 0; i < 5; ++i) {
    Device& device = i % 2 == 0 ? *room.near : *room.far;
    room.world.set_link(device, false);
    REQUIRE(client->write("under way", 9) == 9);
    room.run_for(200ms);
    room.world.set_link(device, true);
    CHECK(testing::receive(room.loop, *client, 9) == "under way");
    room.run_for(2s);
  }
  CHECK(room.log.endings.empty());
}

TEST_CASE("simulation: connections that ended while the port was down leave nothing when it is up",
          "[simulation][ports]") {
  Room room;
  std::vector<conn::ConnectionPtr> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(room.connected());
  room.world.set_link(*room.near, false);
  RUN_UNTIL(room.loop, room.log.endings.size() == 20);
  clients.clear();
  room.run_for(10s);
  room.world.set_link(*room.near, true);
  room.run_for(2s);
  const int ids = room.world.objects()["cm_id"];
  // A listener, and an id per device that watches for its removal.
  CHECK(ids <= 3);
  const auto next = room.connected();
  CHECK(room.world.objects()["cm_id"] == ids + 2);
}

TEST_CASE("simulation: a close after the port came back unseen is told to the peer",
          "[simulation][ports]") {
  Config config;
  Profile mute = chosen_profile();  // its driver reports no link events
  mute.port_events = false;
  Room room(config, {}, mute, mute);
  conn::ConnectionPtr first = room.connected();
  conn::ConnectionPtr second = room.connected();
  room.world.set_link(*room.far, false);
  REQUIRE(first->write("lost", 4) == 4);
  CHECK(room.until_failed(*first) < 12s);
  first.reset();
  room.run_for(1s);
  room.world.set_link(*room.far, true);
  // No connection proves that the link is back: the port is queried.
  room.run_for(12s);
  second.reset();
  conn::ConnectionPtr third = room.connected();
  const std::size_t before = room.log.endings.size();
  third.reset();
  const Nanoseconds begin = room.world.now();
  RUN_UNTIL(room.loop, room.log.endings.size() == before + 1);
  CHECK(room.world.now() - begin < 1s);
  CHECK(room.log.endings.back() == "end of stream");
  room.run_for(2s);
  CHECK(room.world.objects()["cm_id"] <= 3);
}

TEST_CASE("simulation: a close asks the port only where a driver needs that",
          "[simulation][ports]") {
  Room room;
  const auto queries = [&] { return room.far->costs.slow["ibv_query_port"]; };
  (void)room.connected().reset();
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  room.run_for(1s);
  const std::int64_t before = queries();
  for (std::size_t i = 2; i < 7; ++i) {
    room.connected().reset();
    RUN_UNTIL(room.loop, room.log.endings.size() == i);
    room.run_for(1s);
  }
  const bool rxe = room.far->profile.vendor_id == 0xffffff;
  CHECK(queries() - before == (rxe ? 5 : 0));
}

TEST_CASE("simulation: many that close at once ask the port once", "[simulation][ports]") {
  const Profile& rxe = profile_named("rxe");
  Room room({}, {}, rxe, rxe);
  std::vector<conn::ConnectionPtr> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(room.connected());
  const auto queries = [&] { return room.far->costs.slow["ibv_query_port"]; };
  const std::int64_t before = queries();
  clients.clear();
  RUN_UNTIL(room.loop, room.log.endings.size() == 20);
  CHECK(queries() - before >= 1);
  CHECK(queries() - before <= 2);
}

TEST_CASE("simulation: a port that is down ends its connections when the retries would be over",
          "[simulation][ports]") {
  const Profile& profile = profile_named("mlx5");
  // 4.096 us * 2^16, eight times.
  Room room({}, "?keepalive=0ms&ack-timeout=16&retry-count=7", profile, profile);
  for (std::size_t i = 1; i <= 3; ++i) {
    const auto client = room.connected("keepalive=0ms");
    room.run_for(i * 300ms);
    room.world.set_link(*room.near, false);
    const Nanoseconds begin = room.world.now();
    RUN_UNTIL(room.loop, room.log.endings.size() == i);
    const Nanoseconds took = room.world.now() - begin;
    CHECK(took >= 2147ms);
    CHECK(took < 2147ms + 250ms + 10ms);
    CHECK_THAT(room.log.endings.back(), Contains("the port has no link"));
    room.world.set_link(*room.near, true);
    room.run_for(2s);
  }
}

// Soft-RoCE has one status for a lost route and for a lack of memory for packets.
TEST_CASE("simulation: requests of others that find no route end nobody", "[simulation][ports]") {
  const Profile& rxe = profile_named("rxe");
  Room room({}, {}, rxe, rxe);
  const std::string options = "keepalive=0ms&ack-timeout=14&retry-count=1";  // for 134 ms
  const auto neighbour = room.connected(options);
  for (int i = 0; i < 30; ++i) {
    const auto unlucky = room.connected(options);
    room.far->has_route = false;
    REQUIRE(unlucky->write("x", 1) == 1);
    room.run_for(1ms);
    room.far->has_route = true;
    room.run_for(20ms);
    REQUIRE(unlucky->state() == conn::State::kError);
  }
  room.run_for(1s);
  CHECK(neighbour->state() == conn::State::kConnected);
  CHECK(neighbour->last_error() == "");
}

TEST_CASE("simulation: an address that moves to another device costs a connect one more try",
          "[simulation][ports]") {
  Room room;
  const std::int64_t before = room.far->costs.slow["rdma_resolve_addr"];
  const auto client = room.dial("connect-timeout=10s");
  RUN_UNTIL(room.loop, room.far->costs.slow["rdma_resolve_addr"] > before);
  room.world.move_address(*room.far);
  const Nanoseconds begin = room.world.now();
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  INFO(client->last_error());
  CHECK(client->state() == conn::State::kConnected);
  CHECK(room.world.now() - begin < 500ms);
  CHECK(room.far->costs.slow["rdma_resolve_addr"] == before + 2);
  // Only once: an address that changes again is an error.
  const auto unlucky = room.dial("connect-timeout=10s");
  for (int i = 1; i <= 2; ++i) {
    RUN_UNTIL(room.loop, room.far->costs.slow["rdma_resolve_addr"] == before + 2 + i);
    room.world.move_address(*room.far);
  }
  RUN_UNTIL(room.loop, unlucky->state() != conn::State::kConnecting);
  CHECK_THAT(unlucky->last_error(), Contains("address of the RDMA device changed"));
}

// Without `source`, the kernel reaches each address through a device of its own.
TEST_CASE("simulation: a device that fails during connect() leaves the other addresses",
          "[simulation][ports]") {
  const bool removed = GENERATE(false, true);
  for (const Profile* profile : serving_profiles()) {
    CAPTURE(profile->name, removed);
    Room room({}, {}, *profile, *profile);
    Device& first = room.world.add_device("sim2", "10.77.0.5", *profile);
    conn::Endpoint to = room.address;
    to.options = conn::Options::parse("connect-timeout=60s");
    to.hosts = {{"10.77.0.5"}, {"10.77.0.1"}};
    const auto client = room.type.create(room.loop);
    client->connect(to, [](conn::Connection&) {});
    RUN_UNTIL(room.loop, first.costs.slow["rdma_connect"] == 1);
    if (removed)
      room.world.remove_device(first);
    else
      room.world.set_link(first, false);
    const Nanoseconds begin = room.world.now();
    testing::run_until(
        room.loop, [&] { return client->state() != conn::State::kConnecting; }, "an end", 50s);
    INFO(client->last_error());
    CHECK(client->state() == conn::State::kConnected);
    // Where the driver does not report that a link is down, the address has half of the time.
    CHECK(room.world.now() - begin < (removed || profile->port_events ? 12s : 31s));
  }
}

TEST_CASE("simulation: a listener whose address moves listens again at once",
          "[simulation][ports]") {
  Room room;
  room.world.move_address(*room.near);
  room.run_for(20ms);
  const Nanoseconds begin = room.world.now();
  const auto client = room.connected("connect-timeout=5s");
  CHECK(room.world.now() - begin < 100ms);
}

// Goal: librdmacm's mask bits for Ethernet addresses are not passed to a port with InfiniBand's
// link layer, where modify_qp refuses them. Method: the simulation's old kernel.
TEST_CASE("simulation: InfiniBand links connect on kernels that name Ethernet's addresses",
          "[simulation][ports]") {
  Config config;
  config.infiniband = true;
  Room room(config);
  const auto client = room.connected();
  CHECK(client->state() == conn::State::kConnected);
}

TEST_CASE("simulation: a port that is down for good does not shorten the other's flaps",
          "[simulation][ports]") {
  Room room;
  const auto client = room.connected();
  room.world.set_other_port(*room.near, 2, false);
  room.run_for(10s);
  room.world.set_link(*room.near, false);
  room.run_for(400ms);
  room.world.set_link(*room.near, true);
  room.run_for(3s);
  INFO(client->last_error());
  CHECK(client->state() == conn::State::kConnected);
  CHECK(room.log.endings.empty());
  room.world.set_other_port(*room.near, 2, true);
}
