// SPDX-License-Identifier: BSD-3-Clause
// A server that is not aeconn sends before the client's handshake is over, while the client waits
// for its device to carry out the first bind of a key.

#include <algorithm>
#include <functional>
#include <string>

#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;

namespace {

/// The server's first message is lost, because the client's queue pair is not ready when it comes.
/// It is sent again after the server's ack time-out, 67.1 ms, and then meets the client between its
/// queue pair's start and the end of the first bind.
Config at_the_bind() {
  Config config;
  config.strangers = true;
  config.weather.least_delay = config.weather.most_delay = 300us;
  config.weather.least_cm_delay = config.weather.most_cm_delay = 67ms;
  return config;
}

}  // namespace

TEST_CASE("simulation: a client takes the server's bad message before it is connected",
          "[simulation][keys][hostile]") {
  const std::string message =
      GENERATE(testing::raw_control(77), std::string(20, '\0'), testing::raw_register(4096, 0, 1));
  CAPTURE(message);
  const Profile& profile = profile_named("mlx5");
  Room room(at_the_bind(), {}, profile, profile);
  testing::RawNet net(room.loop);
  conn::Endpoint to = net.listen();
  to.options.set("source", "10.77.0.2");
  bool told = false;
  conn::ConnectionPtr client = room.type.create(room.loop);
  client->connect(to, [&](conn::Connection&) { told = true; });
  RUN_UNTIL(room.loop, !net.accepted.empty());
  net.accepted.front()->send(message);
  RUN_UNTIL(room.loop, told);
  room.run_for(2s);
  CHECK(client->state() == conn::State::kError);
  CHECK(client->last_error().find("the peer") != std::string::npos);
  client.reset();
  room.run_for(2s);
  net.accepted.clear();
}

TEST_CASE(
    "simulation: a queue pair that fails with its first bind is replaced, whatever it reports",
    "[simulation][keys]") {
  const bool at_server = GENERATE(true, false);
  CAPTURE(at_server);
  Profile profile = profile_named("mlx5");
  profile.bind_status = IBV_WC_MW_BIND_ERR;
  const Profile& works = profile_named("mlx5");
  Config config = at_the_bind();
  config.strangers = false;
  Room room(config, {}, at_server ? profile : works, at_server ? works : profile);
  const Device* device = at_server ? room.near : room.far;
  conn::ConnectionPtr client = room.dial();
  const auto made = [&] {
    return std::any_of(
        room.world.queue_pairs.begin(), room.world.queue_pairs.end(), [&](const auto& each) {
          return &each.second->device_of() == device && each.second->actual == IBV_QPS_RTS;
        });
  };
  // The event comes with the failure: 300 us after the bind, as all that the device does.
  std::function<void()> look = [&] {
    if (!made()) return room.world.after(10us, look);
    room.world.after(200us, [&] {
      for (const auto& [number, qp] : room.world.queue_pairs) {
        if (&qp->device_of() != device) continue;
        ibv_async_event event{};
        event.event_type = IBV_EVENT_QP_FATAL;
        event.element.qp = qp;
        static_cast<Handle*>(qp->context)->raise(event);
      }
    });
  };
  look();
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  INFO(client->last_error());
  REQUIRE(client->state() == conn::State::kConnected);
  room.echoes(*client);
  (void)room.world.take_violations();
}
