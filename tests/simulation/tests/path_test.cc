// SPDX-License-Identifier: BSD-3-Clause
// Connection::path() over rdma: what was set on a device, what it reports, and what it does not
// report.

#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using testing::Contains;

namespace {

const std::string kRelease = " peer aeconn " AECONN_VERSION;

}  // namespace

TEST_CASE("simulation: path() of each kind of device", "[simulation][each-profile]") {
  for (const Profile* profile : serving_profiles()) {
    CAPTURE(profile->name);
    Room room({}, {}, *profile, *profile);
    const auto client = room.connected();
    const std::string way = profile->iwarp ? "iWARP " : "gid 1 RoCEv2 ";
    const std::string settings = profile->iwarp ? "" : " mtu 1024 tc 0 sl 0";
    const std::string here = client->local_address(), there = client->peer_address();
    CHECK(client->path() ==
          "rdma sim1/1 " + way + here + " > " + there + settings + " window 64k" + kRelease);
    CHECK(room.log.clients.front()->path() ==
          "rdma sim0/1 " + way + there + " > " + here + settings + " window 64k" + kRelease);
  }
}

TEST_CASE("simulation: path() on InfiniBand, where packets name no GID", "[simulation]") {
  Config config;
  config.infiniband = true;
  Room room(config, "?window=1m", profile_named("mlx5"), profile_named("mlx5"));
  const auto client = room.connected("window=64k");
  CHECK_THAT(client->path(), Contains("rdma sim1/1 ib 10.77.0.2:"));
  CHECK_THAT(client->path(), Contains(" > 10.77.0.1:"));
  CHECK_THAT(client->path(), Contains(" mtu 1024 sl 0 window 64k peer"));
  CHECK_THAT(room.log.clients.front()->path(), Contains(" window 1m peer"));
}

TEST_CASE("simulation: path() names a peer without a hello valkey", "[simulation]") {
  Room room;
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  const auto peer = net.connect(room.address, options);
  RUN_UNTIL(room.loop, !room.log.clients.empty() && !peer->offers.empty());
  CHECK_THAT(room.log.clients.back()->path(), Contains(" peer valkey"));
}

TEST_CASE("simulation: path() goes on after the device, and needs none for what it knows",
          "[simulation]") {
  Room room;
  const auto client = room.connected();
  const std::string before = client->path();
  const auto asked = [&] {
    const auto& slow = room.far->costs.slow;
    const auto found = slow.find("ibv_query_qp");
    return found == slow.end() ? 0u : static_cast<unsigned>(found->second);
  };
  const unsigned once = room.far->profile.iwarp ? 0 : 1;  // iWARP reports nothing: not asked
  CHECK(asked() == once);
  CHECK(client->path() == before);
  CHECK(asked() == once);
  room.world.remove_device(*room.far);
  (void)room.until_failed(*client);
  CHECK(client->path() == before);
}

TEST_CASE("simulation: path() shows what was asked for where the device does not answer",
          "[simulation]") {
  Room room;
  const auto client = room.connected();
  room.world.remove_device(*room.far);
  const bool iwarp = room.far->profile.iwarp;
  CHECK_THAT(client->path(),
             Contains(iwarp ? "rdma sim1/1 iWARP 10.77.0.2:" : "rdma sim1/1 gid 1 10.77.0.2:"));
  if (!iwarp) CHECK_THAT(client->path(), Contains(" mtu 1024 tc 0 sl 0 "));
}
