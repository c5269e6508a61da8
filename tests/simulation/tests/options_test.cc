// Options that name devices and addresses, and what info() says on the way through a connection's
// life.

#include <set>

#include "tests/simulation/room.h"

using namespace simulation;
using Catch::Matchers::Contains;

TEST_CASE("simulation: device= that does not have the address is a sentence at either end",
          "[simulation]") {
  Room room;
  CHECK_THROWS_WITH(
      room.type.listen(room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0?device=sim1"), {}),
      Contains("device=sim1 does not have 10.77.0.1"));
  const auto client = room.dial("device=sim0");
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  CHECK_THAT(client->last_error(), Contains("belongs to sim1, not to device=sim0"));
  (void)room.connected("device=sim1");
}

TEST_CASE("simulation: a source that is no address is a sentence", "[simulation]") {
  Room room;
  const auto client = room.dial("source=nowhere");
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  CHECK_THAT(client->last_error(), Contains("source=nowhere is not an address"));
}

TEST_CASE("simulation: options of the type hold for its endpoints, whose own go first",
          "[simulation]") {
  Room room;
  room.type.configure(conn::Options::parse("window=8192"));
  const auto window = [&](const std::string& more) {
    const auto client = room.connected(more);
    for (const auto& [name, value] : client->info())
      if (name == "window") return value;
    return std::string("none");
  };
  CHECK(window("") == "8192");
  CHECK(window("window=16384") == "16384");
  CHECK_THROWS(room.type.configure(conn::Options::parse("window=-1")));
}

TEST_CASE("simulation: info() names each phase of a connection", "[simulation]") {
  Room room;
  std::set<std::string> phases;
  conn::ConnectionPtr client = room.type.create(room.loop);
  const auto look = [&] { phases.insert(client->info().front().second); };
  look();
  client->connect(room.address, [](conn::Connection&) {});
  while (client->state() == conn::State::kConnecting) {
    look();
    (void)room.loop.process_events(ae::kFullIteration);
  }
  look();
  room.world.remove_device(*room.far);
  while (phases.count("dead") == 0) {
    look();
    (void)room.loop.process_events(ae::kFullIteration);
  }
  CHECK(phases.count("idle") == 1);
  CHECK(phases.count("resolving") == 1);
  CHECK(phases.count("connecting") == 1);
  CHECK(phases.count("open") == 1);
}
