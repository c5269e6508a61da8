// SPDX-License-Identifier: BSD-3-Clause
// Options of the network under a connection: each must reach the queue pair, rdma_cm and path(), at
// both ends; a feature that a device, a port or a peer lacks must give a clear error message.

#include <arpa/inet.h>

#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using testing::Contains;

namespace {

QueuePair& queue_pair_on(Room& room, const Device& device) {
  for (const auto& [number, qp] : room.world.queue_pairs)
    if (&qp->device_of() == &device && qp->actual == IBV_QPS_RTS) return *qp;
  throw std::runtime_error("no queue pair stands there");
}

std::string fact(const conn::Connection& here, const std::string& name) {
  for (const auto& [key, value] : here.info())
    if (key == name) return value;
  return "?";
}

std::string failure_of(Room& room, const std::string& options) {
  const auto client = room.dial(options);
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  REQUIRE(client->state() == conn::State::kError);
  return client->last_error();
}

conn::ListenerPtr listens(Room& room, const std::string& options) {
  return room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?" + options), {});
}

const Profile& mlx5() { return profile_named("mlx5"); }

}  // namespace

TEST_CASE("simulation: a traffic class is each end's own, in its packets and in rdma_cm's",
          "[simulation]") {
  Room room({}, "?traffic-class=104", mlx5(), mlx5());
  room.address.options = conn::Options::parse("source=10.77.0.2");
  const auto client = room.connected("traffic-class=33");
  CHECK(queue_pair_on(room, *room.near).way.grh.traffic_class == 104);
  CHECK(queue_pair_on(room, *room.far).way.grh.traffic_class == 33);
  CHECK_THAT(client->path(), Contains(" tc 33 sl 0 "));
  CHECK_THAT(room.log.clients.front()->path(), Contains(" tc 104 sl 0 "));
  CHECK(fact(*client, "traffic-class") == "33");
  for (const auto& [key, id] : room.world.ids)
    if (id->state == CmState::kConnected) CHECK(id->traffic_class == 33);  // the connecting end's
}

TEST_CASE("simulation: without the option the accepting end takes the other's traffic class",
          "[simulation]") {
  Room room({}, {}, mlx5(), mlx5());
  const auto client = room.connected("traffic-class=12");
  CHECK(queue_pair_on(room, *room.near).way.grh.traffic_class == 12);
}

TEST_CASE("simulation: a service level reaches the queue pair, and is shown", "[simulation]") {
  Room room({}, "?service-level=3", mlx5(), mlx5());
  const auto client = room.connected("service-level=5");
  CHECK(queue_pair_on(room, *room.near).way.sl == 3);
  CHECK(queue_pair_on(room, *room.far).way.sl == 5);
  CHECK_THAT(client->path(), Contains(" sl 5 "));
  CHECK(fact(*room.log.clients.front(), "service-level") == "3");
  CHECK_THAT(failure_of(room, "service-level=9"),
             Contains("service-level=9: sim1 is on Ethernet, which has 0 to 7"));
}

TEST_CASE("simulation: a device that refuses what was asked for is named with it", "[simulation]") {
  Profile profile = mlx5();
  profile.most_service_level = 2;
  Room room({}, {}, mlx5(), profile);
  CHECK_THAT(failure_of(room, "service-level=3&traffic-class=4"),
             Contains("the device refuses one of traffic-class=4, service-level=3, at "
                      "ibv_modify_qp (RTR): Invalid argument"));
  (void)room.connected("service-level=2");
}

TEST_CASE("simulation: both ends agree on the smaller MTU", "[simulation]") {
  const bool server_is_smaller = GENERATE(true, false);
  Room room({}, {}, mlx5(), mlx5());
  room.near->active_mtu = server_is_smaller ? IBV_MTU_1024 : IBV_MTU_4096;
  room.far->active_mtu = server_is_smaller ? IBV_MTU_4096 : IBV_MTU_1024;
  const auto client = room.connected();
  CHECK(queue_pair_on(room, *room.near).path_mtu == IBV_MTU_1024);
  CHECK(queue_pair_on(room, *room.far).path_mtu == IBV_MTU_1024);
  room.echoes(*client, 20000);
  CHECK_THAT(client->path(), Contains(" mtu 1024 "));
}

TEST_CASE("simulation: path-mtu of either end is both ends'", "[simulation]") {
  const bool of_server = GENERATE(true, false);
  Room room({}, of_server ? "?path-mtu=512" : "", mlx5(), mlx5());
  room.address.options = conn::Options::parse("source=10.77.0.2");
  room.near->active_mtu = room.far->active_mtu = IBV_MTU_4096;
  const auto client = room.connected(of_server ? "path-mtu=2k" : "path-mtu=512");
  CHECK(queue_pair_on(room, *room.near).path_mtu == IBV_MTU_512);
  CHECK(queue_pair_on(room, *room.far).path_mtu == IBV_MTU_512);
  room.echoes(*client, 20000);
  CHECK_THAT(client->path(), Contains(" mtu 512 "));
  CHECK_THAT(room.log.clients.front()->path(), Contains(" mtu 512 "));
}

TEST_CASE("simulation: a network interface that gets another MTU is seen within a second",
          "[simulation]") {
  Room room({}, {}, mlx5(), mlx5());
  room.near->active_mtu = room.far->active_mtu = IBV_MTU_4096;
  const auto before = room.connected();
  CHECK_THAT(before->path(), Contains(" mtu 4096 "));
  room.near->active_mtu = IBV_MTU_1024;
  room.run_for(1s);
  const auto after = room.connected();
  CHECK_THAT(after->path(), Contains(" mtu 1024 "));
}

TEST_CASE("simulation: a path-mtu beyond the port's is a sentence at either end", "[simulation]") {
  Room room({}, {}, mlx5(), mlx5());
  CHECK_THAT(
      failure_of(room, "path-mtu=4096"),
      Contains("path-mtu=4096: port 1 of sim1 takes 1024; the MTU of its network interface"));
  CHECK_THROWS_WITH(listens(room, "path-mtu=2048"), Contains("port 1 of sim0 takes 1024"));
}

TEST_CASE("simulation: a peer without a hello cannot agree on an MTU", "[simulation]") {
  Room room({}, "?path-mtu=512", mlx5(), mlx5());
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  const auto refused = net.connect(room.address, options);
  RUN_UNTIL(room.loop, refused->reject_status >= 0);
  CHECK_THAT(refused->private_data,
             Contains("path-mtu=512: only a peer of ours can agree on that, and "
                      "this one counts with 1024"));
}

TEST_CASE("simulation: a peer without a hello whose packets would be too long is refused",
          "[simulation]") {
  Room narrow({}, {}, mlx5(), mlx5());
  testing::RawOptions options;
  options.source = "10.77.0.2";
  narrow.far->active_mtu = IBV_MTU_4096;
  testing::RawNet wide(narrow.loop);
  const auto longer = wide.connect(narrow.address, options);
  RUN_UNTIL(narrow.loop, longer->reject_status >= 0);
  CHECK_THAT(longer->private_data,
             Contains("the peer's packets are of up to 4096 bytes, and those of "
                      "sim0/1 of up to 1024"));
}

TEST_CASE("simulation: gid-index takes another kind of packet for the same address",
          "[simulation]") {
  Room room({}, {}, mlx5(), mlx5());
  in_addr address{};
  inet_pton(AF_INET, "10.77.0.2", &address);
  room.far->gids[4] = {gid_of(address), IBV_GID_TYPE_ROCE_V1};
  const auto client = room.connected("gid-index=4");
  CHECK(queue_pair_on(room, *room.far).way.grh.sgid_index == 4);
  CHECK_THAT(client->path(), Contains("rdma sim1/1 gid 4 RoCEv1 10.77.0.2:"));
  CHECK(fact(*client, "gid-index") == "4");
  CHECK_THAT(failure_of(room, "gid-index=2"),
             Contains("gid-index=2: port 1 of sim1 has no GID there; it has 0 fe80::1 RoCEv2, 1 "
                      "10.77.0.2 RoCEv2, 4 10.77.0.2 RoCEv1"));
  CHECK_THAT(failure_of(room, "gid-index=0"),
             Contains("gid-index=0 of sim1 is fe80::1, and this end is 10.77.0.2; there are 0 "));
  CHECK_THROWS_WITH(listens(room, "gid-index=9"), Contains("port 1 of sim0 has no GID there"));
  for (std::uint32_t i = 5; i < 16; ++i) room.far->gids[i] = room.far->gids[4];
  CHECK_THAT(failure_of(room, "gid-index=3"), Contains("9 10.77.0.2 RoCEv1 and more"));
}

TEST_CASE("simulation: pkey-index has to name a partition key", "[simulation]") {
  Room room({}, {}, mlx5(), mlx5());
  room.far->pkeys = {0xffff, 0, 0x8001};
  (void)room.connected("pkey-index=2");
  CHECK_THAT(failure_of(room, "pkey-index=1"),
             Contains("pkey-index=1: port 1 of sim1 has no partition key there, of 3 in all"));
  CHECK_THAT(failure_of(room, "pkey-index=3"), Contains("of 3 in all"));
  const auto client = room.connected("pkey-index=2");
  CHECK(queue_pair_on(room, *room.far).pkey_index == 2);
}

TEST_CASE("simulation: on InfiniBand packets without a GID have no traffic class", "[simulation]") {
  Config config;
  config.infiniband = true;
  Room room(config, {}, mlx5(), mlx5());
  CHECK_THAT(failure_of(room, "traffic-class=4"),
             Contains("traffic-class=4: packets of this InfiniBand subnet name no GID"));
  const auto client = room.connected("service-level=9");
  CHECK(queue_pair_on(room, *room.far).way.sl == 9);
}

TEST_CASE("simulation: on iWARP only rdma_cm takes a traffic class, and the rest is a sentence",
          "[simulation]") {
  Room room({}, {}, profile_named("iwarp"), profile_named("iwarp"));
  CHECK_THAT(failure_of(room, "path-mtu=1024&service-level=1&traffic-class=8"),
             Contains("service-level=1, path-mtu=1024: sim1 is an iWARP device"));
  const auto client = room.connected("traffic-class=8");
  CHECK_THAT(client->path(), Contains(" tc 8 window"));
}

TEST_CASE("simulation: what both devices can beyond the standard is agreed on", "[simulation]") {
  Profile less = mlx5();
  less.ece = 0x10000000;
  Room room({}, {}, less, mlx5());
  const auto client = room.connected();
  CHECK(queue_pair_on(room, *room.near).ece == 0x10000000);
  CHECK(queue_pair_on(room, *room.far).ece == 0x10000000);
  CHECK(fact(*client, "ece") == "0x2c9:0x10000000");
  CHECK(fact(*room.log.clients.front(), "ece") == "0x2c9:0x10000000");
}

TEST_CASE("simulation: nothing is agreed on where one end has nothing, or does not want it",
          "[simulation]") {
  const int which = GENERATE(0, 1, 2, 3);
  const Profile& other = profile_named("bnxt_re");
  Room room({}, which == 0 ? "?ece=no" : "", which == 2 ? other : mlx5(),
            which == 3 ? other : mlx5());
  room.address.options = conn::Options::parse("source=10.77.0.2");
  const auto client = room.connected(which == 1 ? "ece=no" : "");
  CHECK(queue_pair_on(room, *room.near).ece == 0);
  CHECK(queue_pair_on(room, *room.far).ece == 0);
  CHECK(fact(*client, "ece") == "?");  // not in use
}
