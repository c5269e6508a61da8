// SPDX-License-Identifier: BSD-3-Clause
// Memory windows bound to one queue pair: devices that claim them and refuse, and what they cost
// where they work.

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using testing::Contains;

namespace {

Profile refusing(int error) {
  Profile profile = profile_named("mlx5");
  profile.name = "refuses binds";
  profile.binds_windows = false;
  profile.bad_opcode = error;
  return profile;
}

std::string isolation_of(const conn::Connection& connection) {
  for (const auto& [key, value] : connection.info())
    if (key == "isolation") return value;
  return {};
}

// Whether each queue pair of a device has a protection domain of its own.
bool alone(const Room& room, const Device& device) {
  std::map<const ibv_pd*, int> users;
  for (const auto& [number, qp] : room.world.queue_pairs)
    if (&qp->device_of() == &device) ++users[qp->pd];
  return !users.empty() &&
         std::all_of(users.begin(), users.end(), [](const auto& each) { return each.second == 1; });
}

}  // namespace

TEST_CASE("simulation: a device that takes no binds serves all the same, from the first connection",
          "[simulation][keys]") {
  const int error = GENERATE(EINVAL, -EINVAL, EOPNOTSUPP, -EOPNOTSUPP);
  const bool at_server = GENERATE(true, false);
  CAPTURE(error, at_server);
  const Profile refuses = refusing(error), works = profile_named("mlx5");
  Room room({}, {}, at_server ? refuses : works, at_server ? works : refuses);
  Device& device = at_server ? *room.near : *room.far;
  std::vector<conn::ConnectionPtr> clients;
  clients.push_back(room.connected());
  const std::int64_t tried = device.costs.slow["ibv_alloc_mw"];
  for (int i = 0; i < 5; ++i) clients.push_back(room.connected());
  for (const auto& each : clients) room.echoes(*each, 200000);
  CHECK(device.costs.slow["ibv_alloc_mw"] == tried);  // tried once, not per connection
  CHECK(alone(room, device));
  const auto& ends = at_server ? room.log.clients : clients;
  for (const auto& each : ends) CHECK(isolation_of(*each) == "connection");
  // The same for many simultaneous clients.
  while (clients.size() < 30) clients.push_back(room.dial());
  RUN_UNTIL(room.loop, room.log.clients.size() == 30);
  CHECK(alone(room, device));
}

TEST_CASE("simulation: a crowd that meets the first refusal together is served, each on its own",
          "[simulation][keys]") {
  const bool at_server = GENERATE(true, false);
  const Profile refuses = refusing(-EINVAL), works = profile_named("mlx5");
  Room room({}, {}, at_server ? refuses : works, at_server ? works : refuses);
  std::vector<conn::ConnectionPtr> clients;
  while (clients.size() < 30) clients.push_back(room.dial());
  RUN_UNTIL(room.loop, room.log.clients.size() == 30);
  for (const auto& each : clients) room.echoes(*each, 3000);
  CHECK(alone(room, at_server ? *room.near : *room.far));
}

TEST_CASE(
    "simulation: where keys are bound connections share what they need, a server's from the "
    "first on",
    "[simulation][keys]") {
  const Profile& profile = profile_named("mlx5");
  Room room({}, {}, profile, profile);
  std::vector<conn::ConnectionPtr> clients;
  while (clients.size() < 30) clients.push_back(room.dial());  // at once
  RUN_UNTIL(room.loop, room.log.clients.size() == 30);
  std::set<const ibv_pd*> domains;
  for (const auto& [number, qp] : room.world.queue_pairs)
    if (&qp->device_of() == room.near) domains.insert(qp->pd);
  CHECK(domains.size() == 1);
}

TEST_CASE("simulation: isolation=window is refused in words where binds are",
          "[simulation][keys]") {
  const char* name = GENERATE("bnxt_re", "hns", "irdma-e810", "erdma", "iwarp");
  CAPTURE(name);
  const Profile& profile = profile_named(name);
  Room room({}, {}, profile, profile);
  const auto client = room.dial("isolation=window");
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  CHECK_THAT(client->last_error(), Contains("has no type 2 memory windows that work"));
  (void)room.connected();
}

// Goal: a connection with isolation=window gets it or is refused with a message, no matter when the
// device's failure to bind is detected. Method: each device that claims memory windows, made to
// refuse a bind at the post or when it is carried out, at either end; connections without the
// option are served.
TEST_CASE("simulation: isolation=window is refused in words where the first bind is",
          "[simulation][keys]") {
  const int error = GENERATE(0, EINVAL, -EINVAL, EOPNOTSUPP, -EOPNOTSUPP);
  const bool at_server = GENERATE(true, false);
  CAPTURE(error, at_server);
  for (const Profile* each : serving_profiles()) {
    if (!each->bound_keys()) continue;
    CAPTURE(each->name);
    Profile refuses = *each;
    if (error == 0) {
      refuses.bind_status = IBV_WC_MW_BIND_ERR;
    } else {
      refuses.binds_windows = false;
      refuses.bad_opcode = error;
    }
    Room room({}, {}, at_server ? refuses : *each, at_server ? *each : refuses);
    const auto picky =
        room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?isolation=window"),
                         room.log.handler());
    conn::Endpoint to = at_server ? picky->endpoints().front() : room.address;
    to.options.set("source", "10.77.0.2");
    if (!at_server) to.options.set("isolation", "window");
    for (int i = 0; i < 2; ++i) {
      const auto client = room.type.create(room.loop);
      client->connect(to, {});
      RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
      CHECK(client->state() == conn::State::kError);
      CHECK_THAT(client->last_error(), Contains("has no type 2 memory windows that work"));
    }
    CHECK(room.log.clients.empty());
    const auto client = room.connected();
    CHECK(isolation_of(at_server ? *room.log.clients.front() : *client) == "connection");
    (void)room.world.take_violations();
  }
}

TEST_CASE("simulation: a bind that fails when it is carried out ends that connection alone",
          "[simulation][keys]") {
  const Profile& profile = profile_named("mlx5");
  Room room({}, {}, profile, profile);
  const auto stays = room.connected();
  // Fails the next bind that the device carries out.
  for (std::uint64_t number = 1;; ++number) {
    room.world.fail_call(number);
    const auto client = room.dial();
    RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
    room.run_for(1s);
    const bool was_bind = room.world.last_failed() == "IBV_WR_BIND_MW";
    room.world.fail_call(0);
    if (!was_bind) {
      REQUIRE(number < 300);
      continue;
    }
    break;
  }
  room.echoes(*stays, 100000);
  for (int i = 0; i < 3; ++i) room.echoes(*room.connected(), 100000);
}

TEST_CASE("simulation: a device that binds no more ends who needs it, in words",
          "[simulation][keys]") {
  const Profile& profile = profile_named(GENERATE("mlx5", "rxe"));
  Room room({}, "?window=4096", profile, profile);
  const auto client = room.connected();
  room.near->profile.binds_windows = false;
  // Makes the server's window grow.
  const std::string bytes(100000, 'k');
  REQUIRE(client->write(bytes.data(), bytes.size()) > 0);
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  CHECK_THAT(room.log.endings.front(), Contains("binding a key"));
  room.near->profile.binds_windows = true;
  room.run_for(1s);
  room.echoes(*room.connected(), 100000);
}

TEST_CASE("simulation: sending goes on while a key is bound, but on soft-RoCE",
          "[simulation][keys]") {
  // A client whose window grows while it sends. Each step of the network takes 10 ms.
  const char* name = GENERATE("mlx5", "irdma-gen3", "rxe");
  CAPTURE(name);
  Config config;
  config.weather.least_delay = config.weather.most_delay = 10ms;
  Room room(config, "?keepalive=0ms", profile_named(name), profile_named(name));
  const auto client = room.connected("keepalive=0ms");
  conn::Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  room.run_for(1s);
  const std::int64_t alone = room.world.costs(*room.far).doorbells;
  // The server fills the client's window, so that the client offers another one; the client writes
  // meanwhile.
  const std::string bytes(64 * 1024, 'b');
  testing::send(room.loop, server, bytes);
  client->set_read_handler([](conn::Connection& here) {
    std::array<char, 1 << 16> into;
    while (here.read(into.data(), into.size()) > 0) {
    }
    (void)here.write("answer", 6);
  });
  const Nanoseconds begin = room.world.now();
  std::string answer(6, '?');
  server.set_read_handler([&](conn::Connection& here) { (void)here.read(answer.data(), 6); });
  RUN_UNTIL(room.loop, answer == "answer");
  const Nanoseconds took = room.world.now() - begin;
  // A round trip takes 20 ms, and a bind's completion another 10 ms on this network.
  CHECK((took < 29ms) == (std::string(name) != "rxe"));
  CHECK(room.world.costs(*room.far).doorbells > alone);
}

TEST_CASE("simulation: a write with a wrong key ends its connection at once, without keepalives",
          "[simulation][keys][hostile]") {
  Room room({}, "?keepalive=0ms");
  const auto stays = room.connected("keepalive=0ms");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  for (const bool other_key : {true, false}) {
    const auto peer = net.connect(room.address, options);
    RUN_UNTIL(room.loop, !peer->offers.empty());
    const testing::RawPeer::Offer offer = peer->offer();
    const std::size_t before = room.log.endings.size();
    const Nanoseconds begin = room.world.now();
    if (other_key)
      peer->write("nobody's", offer.address, offer.key ^ 0x5a00);
    else
      peer->write("beyond its end", offer.address + offer.length, offer.key);
    RUN_UNTIL(room.loop, room.log.endings.size() > before);
    CHECK(room.world.now() - begin < 100ms);
    CHECK(room.log.endings.back() != "end of stream");
  }
  room.echoes(*stays);
}
