// SPDX-License-Identifier: BSD-3-Clause
// The providers of each rdma-core version that docs/devices.md names, and devices that do not do
// what they claim: with each, the bytes must be correct.

#include <algorithm>
#include <string>
#include <vector>

#include "tests/simulation/in_place.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;
using testing::Contains;

namespace {

Profile that_fails_binds(ibv_wc_status status) {
  Profile profile = profile_named("mlx5");
  profile.name = "fails binds";
  profile.bind_status = status;
  return profile;
}

std::string isolation_of(const Connection& connection) {
  for (const auto& [key, value] : connection.info())
    if (key == "isolation") return value;
  return {};
}

}  // namespace

TEST_CASE(
    "simulation: what is staged over two blocks arrives as it was written, with every provider",
    "[simulation][providers]") {
  for (const Profile* profile : serving_profiles_of_all_ages()) {
    DYNAMIC_SECTION(profile->name) {
      Place place({}, *profile);
      place.join();
      std::uint64_t seed = 1;
      for (const std::size_t size : {2, 20, 40, 96, 100, 128, 160, 1000}) {
        // The first write leaves a few bytes free in its block, and is in progress when the second
        // comes.
        const std::string first = pattern_of(++seed, 4096 - size / 2),
                          second = pattern_of(++seed, size);
        REQUIRE(place.client->write(first.data(), first.size()) ==
                static_cast<ssize_t>(first.size()));
        place.client->flush();
        REQUIRE(place.client->write(second.data(), second.size()) ==
                static_cast<ssize_t>(second.size()));
        REQUIRE(testing::receive(place.loop, *place.server, 4096 + size - size / 2) ==
                first + second);
      }
    }
  }
}

TEST_CASE("simulation: with every provider bytes go both ways, in every size",
          "[simulation][providers]") {
  for (const Profile* profile : serving_profiles_of_all_ages()) {
    DYNAMIC_SECTION(profile->name) {
      Room room({}, {}, *profile, *profile);
      const ConnectionPtr client = room.connected();
      for (const std::size_t size : {1, 7, 64, 129, 5000, 100000}) room.echoes(*client, size);
      // Time for probes and keepalives.
      room.run_for(15s);
      room.echoes(*client, 100);
      testing::RawNet net(room.loop);
      testing::RawOptions options;
      options.source = "10.77.0.2";
      const auto plain = net.connect(room.address, options);
      RUN_UNTIL(room.loop, !plain->offers.empty());
      plain->stream("to an end without our hello");
      RUN_UNTIL(room.loop, plain->received == "to an end without our hello");
      room.run_for(15s);
      CHECK_FALSE(plain->over());
    }
  }
}

TEST_CASE("simulation: the profiles of older providers are named by their rdma-core",
          "[simulation][providers]") {
  CHECK(profile_named("irdma-e810@39").inlines_first_piece);
  CHECK_FALSE(profile_named("irdma-e810@44").inlines_first_piece);
  CHECK(profile_named("irdma-e810@44").immediate_is_plain);
  CHECK_FALSE(profile_named("irdma-e810").immediate_is_plain);
  CHECK(std::string(profile_named("hns@39").name) == "hns@39");
  for (const Profile& each : all_profiles()) {
    CAPTURE(each.name);
    CHECK(each.since >= 36);
  }
}

// --- binds that fail on completion ---------------------------------------------------------------

TEST_CASE("simulation: a device whose binds all fail serves without, whatever their status is",
          "[simulation][providers][keys]") {
  const ibv_wc_status status =
      GENERATE(IBV_WC_MW_BIND_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_FATAL_ERR,
               IBV_WC_GENERAL_ERR, IBV_WC_WR_FLUSH_ERR);
  const bool at_server = GENERATE(true, false);
  CAPTURE(ibv_wc_status_str(status), at_server);
  const Profile fails = that_fails_binds(status), works = profile_named("mlx5");
  Room room({}, {}, at_server ? fails : works, at_server ? works : fails);
  std::vector<ConnectionPtr> clients;
  clients.push_back(room.dial());  // the very first connection
  RUN_UNTIL(room.loop, clients.front()->state() != conn::State::kConnecting);
  room.run_for(100ms);
  INFO(clients.front()->last_error());
  for (const std::string& each : room.log.endings) UNSCOPED_INFO(each);
  room.echoes(*clients.front());
  for (int i = 0; i < 5; ++i) clients.push_back(room.connected());
  for (const ConnectionPtr& each : clients) room.echoes(*each, 200000);
  CHECK(room.log.endings.empty());
  for (const ConnectionPtr& each : at_server ? room.log.clients : clients)
    CHECK(isolation_of(*each) == "connection");
  for (const ConnectionPtr& each : at_server ? clients : room.log.clients)
    CHECK(isolation_of(*each) == "window");
}

TEST_CASE("simulation: a crowd that meets the first failed bind together is served",
          "[simulation][providers][keys]") {
  const bool at_server = GENERATE(true, false);
  const Profile fails = that_fails_binds(IBV_WC_LOC_QP_OP_ERR), works = profile_named("mlx5");
  Room room({}, {}, at_server ? fails : works, at_server ? works : fails);
  std::vector<ConnectionPtr> clients;
  while (clients.size() < 30) clients.push_back(room.dial());
  RUN_UNTIL(room.loop, std::all_of(clients.begin(), clients.end(), [](const ConnectionPtr& each) {
              return each->state() == conn::State::kConnected;
            }));
  for (const ConnectionPtr& each : clients) room.echoes(*each, 3000);
  CHECK(room.log.endings.empty());
}

TEST_CASE("simulation: isolation=window is refused in words where binds fail later",
          "[simulation][providers][keys]") {
  const Profile fails = that_fails_binds(IBV_WC_LOC_QP_OP_ERR);
  Room room({}, {}, profile_named("mlx5"), fails);
  const ConnectionPtr client = room.dial("isolation=window");
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  CHECK_THAT(client->last_error(), Contains("has no type 2 memory windows that work"));
  (void)room.connected();
}

// --- iWARP ---------------------------------------------------------------------------------------

TEST_CASE("simulation: on iWARP the accepting side sends nothing before it has heard the other",
          "[simulation][providers]") {
  const char* name = GENERATE("iwarp", "erdma");
  CAPTURE(name);
  Room room({}, "?keepalive=50ms&accept-timeout=1s", profile_named(name), profile_named(name));
  room.listener.reset();
  // A server that writes at once; the end of Room checks for violations.
  std::vector<ConnectionPtr> servers;
  room.listener = room.type.listen(
      room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?keepalive=50ms&accept-timeout=1s"),
      [&](ConnectionPtr next) {
        CHECK(next->write("welcome", 7) == 7);
        servers.push_back(std::move(next));
      });
  room.address.port = room.listener->endpoints().front().port;
  {
    const ConnectionPtr client = room.dial();
    REQUIRE(testing::receive(room.loop, *client, 7) == "welcome");
    CHECK(client->write("thanks", 6) == 6);
    REQUIRE(testing::receive(room.loop, *servers.front(), 6) == "thanks");
  }
  // A client that connects and never sends receives nothing, and the server gives it up.
  testing::RawNet net(room.loop);
  testing::RawOptions silent;
  silent.source = "10.77.0.2";
  silent.announce = false;
  const auto peer = net.connect(room.address, silent);
  RUN_UNTIL(room.loop, peer->established);
  room.run_for(500ms);
  CHECK(peer->messages == 0);
  CHECK(peer->offers.empty());
  RUN_UNTIL(room.loop, peer->over());
  servers.clear();
}
