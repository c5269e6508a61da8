// SPDX-License-Identifier: BSD-3-Clause
// Options that name devices and addresses, and what info() reports in each phase of a connection.

#include <set>

#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using testing::Contains;

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

TEST_CASE("simulation: info() says who the peer is, and what stands between it and others",
          "[simulation]") {
  const Profile& profile = profile_named("mlx5");
  Room room({}, {}, profile, profile);
  const auto fact = [](const conn::Connection& here, const std::string& name) {
    for (const auto& [key, value] : here.info())
      if (key == name) return value;
    return std::string("?");
  };
  const auto client = room.connected();
  CHECK(fact(*client, "peer-is-aeconn") == "yes");
  CHECK(fact(*room.log.clients.front(), "peer-is-aeconn") == "yes");
  CHECK(fact(*client, "device") == "sim1");
  CHECK(fact(*client, "isolation") == "window");
  CHECK(fact(*client, "receives") == "shared");
  const auto alone = room.connected("isolation=connection");
  CHECK(fact(*alone, "isolation") == "connection");
  CHECK(fact(*alone, "receives") == "256");
  const auto open = room.connected("isolation=none");
  CHECK(fact(*open, "isolation") == "none");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  const std::size_t before = room.log.clients.size();
  const auto peer = net.connect(room.address, options);
  RUN_UNTIL(room.loop, room.log.clients.size() == before + 1 && !peer->offers.empty());
  CHECK(fact(*room.log.clients.back(), "peer-is-aeconn") == "no");
}

TEST_CASE("simulation: the device is told how long to try, whatever the peer says",
          "[simulation]") {
  Profile profile = profile_named("mlx5");
  profile.ack_delay = GENERATE(std::uint8_t{16}, std::uint8_t{31}, std::uint8_t{200});
  const int ack_timeout = profile.ack_delay == 16 ? 17 : 31;
  const std::string options = "ack-timeout=17&retry-count=5";
  Room room({}, "?" + options, profile, profile);
  const auto client = room.connected(options);
  testing::RawNet net(room.loop);
  testing::RawOptions wish;
  wish.source = "10.77.0.2";
  wish.rnr_retry = 0;
  const auto peer = net.connect(room.address, wish);
  RUN_UNTIL(room.loop, room.log.clients.size() == 2 && !peer->offers.empty());
  std::size_t seen = 0;
  for (const auto& [number, qp] : room.world.queue_pairs) {
    if (qp->cap.max_send_wr > 1000) continue;  // that of the raw peer
    ++seen;
    CHECK(qp->ack_timeout == ack_timeout);
    CHECK(qp->retry_count == 5);
    CHECK(qp->rnr_retry == 7);
    CHECK(qp->rnr_timer == 12);
  }
  CHECK(seen == 3);
}

TEST_CASE("simulation: what an rdma URL cannot say is a sentence", "[simulation]") {
  Room room;
  const auto listens = [&](const std::string& url) {
    return room.type.listen(room.loop, conn::Endpoint::parse(url), {});
  };
  CHECK_THROWS_WITH(listens("rdma://10.77.0.1"), Contains("needs an address and a port"));
  CHECK_THROWS_WITH(listens("rdma://10.88.0.1:0"), Contains("no RDMA device has the address"));
  CHECK_THROWS_WITH(listens("rdma://10.77.0.1:0?isolation=maybe"),
                    Contains("must be one of auto, connection"));
  CHECK(listens("rdma://10.77.0.1,-10.88.0.1:0")->endpoints().size() == 1);
}

TEST_CASE("simulation: a port that is in use is reported, whatever is wrong with other addresses",
          "[simulation]") {
  Room room;
  const std::string port = ":" + std::to_string(room.address.port);
  const auto code = [&](const std::string& hosts) {
    try {
      (void)room.type.listen(room.loop, conn::Endpoint::parse("rdma://" + hosts + port), {});
    } catch (const conn::Error& error) {
      INFO(error.what());
      const bool taken = error.code() == std::errc::address_in_use;
      CHECK((std::string(error.what()).find("bind to 10.77.0.1" + port) != std::string::npos) ==
            taken);
      return error.code();
    }
    return std::error_code();
  };
  CHECK(code("10.77.0.1") == std::errc::address_in_use);
  CHECK(code("-10.77.0.1,-10.88.0.1") == std::errc::address_in_use);
  CHECK(code("-10.88.0.1,-10.77.0.1,-[::1]") == std::errc::address_in_use);
  CHECK(code("-10.88.0.1,-[::1]") == std::errc::address_family_not_supported);
  // An address that is not optional must be there.
  CHECK(code("-10.77.0.1,10.88.0.1") == std::errc::no_such_device);
}

TEST_CASE("simulation: what a device cannot do fails that connect, and says so", "[simulation]") {
  Config config;
  config.memory_windows = false;
  Room room(config);
  const auto client = room.dial("isolation=window");
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  CHECK_THAT(client->last_error(), Contains("has no type 2 memory windows"));
  (void)room.connected();
}

TEST_CASE("simulation: connections that share keys and those that do not stand side by side",
          "[simulation]") {
  Room room;
  const auto one = room.connected("isolation=none");
  const auto other = room.connected("isolation=connection");
  const auto third = room.connected("isolation=connection");
  room.echoes(*one, 30000);
  room.echoes(*other, 30000);
}

TEST_CASE("simulation: arrivals beyond the backlog are refused, and those within are served",
          "[simulation][limits]") {
  Room room({}, "?backlog=2");
  std::vector<conn::ConnectionPtr> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(room.dial());
  const auto in_state = [&](conn::State state) {
    return std::count_if(clients.begin(), clients.end(),
                         [&](const auto& each) { return each->state() == state; });
  };
  RUN_UNTIL(room.loop, in_state(conn::State::kConnecting) == 0);
  CHECK(in_state(conn::State::kConnected) >= 2);
  // With iWARP nothing is left to wait for once a request was accepted.
  if (!room.near->profile.iwarp) CHECK(in_state(conn::State::kError) >= 1);
  for (const auto& each : clients)
    if (each->state() == conn::State::kError)
      CHECK_THAT(each->last_error(),
                 Contains(room.far->profile.iwarp ? "refused" : "refused by the server"));
}

TEST_CASE("simulation: a loop that spins before it sleeps serves as well", "[simulation]") {
  Room room({}, "?spin=20us");
  const auto client = room.connected("spin=20us");
  for (int i = 0; i < 20; ++i) room.echoes(*client);
}

TEST_CASE("simulation: towards a peer without a hello rdma has no half-close, and says so",
          "[simulation]") {
  Room room;
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  const auto peer = net.connect(room.address, options);
  RUN_UNTIL(room.loop, !room.log.clients.empty());
  CHECK(room.log.clients.front()->shutdown() == -1);
  CHECK(errno == EOPNOTSUPP);
}
