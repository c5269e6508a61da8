// SPDX-License-Identifier: BSD-3-Clause
// What a loop concludes about its device when a first bind fails: a peer that stops the queue pair,
// or that invalidates a key, must not cost other connections their bound keys.

#include <cerrno>
#include <string>
#include <vector>

#include "tests/simulation/posts.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;

namespace {

std::string isolation_of(const conn::Connection& connection) {
  for (const auto& [key, value] : connection.info())
    if (key == "isolation") return value;
  return {};
}

/// As in early_message_test.cc: the server's first request meets the client between the start of
/// its queue pair and the end of the first bind.
Config at_the_bind() {
  Config config;
  config.strangers = true;
  config.weather.least_delay = config.weather.most_delay = 300us;
  config.weather.least_cm_delay = config.weather.most_cm_delay = 67ms;
  return config;
}

/// Connects to a raw server that writes where it may not, before the client's handshake is over.
/// Returns the client's error.
std::string meet_hostile_server(Room& room, testing::RawNet& net, const std::string& options) {
  conn::Endpoint to = net.listen();
  to.options = conn::Options::parse("source=10.77.0.2" + options);
  bool told = false;
  conn::ConnectionPtr client = room.type.create(room.loop);
  client->connect(to, [&](conn::Connection&) { told = true; });
  RUN_UNTIL(room.loop, !net.accepted.empty());
  net.accepted.front()->write("no memory of the client", 4096, 0x5a5a00);
  RUN_UNTIL(room.loop, told);
  room.run_for(2s);
  std::string error = client->last_error();
  client.reset();
  room.run_for(2s);
  net.accepted.clear();
  return error;
}

}  // namespace

TEST_CASE("simulation: a server that stops the first queue pair costs other peers no keys",
          "[simulation][keys][hostile]") {
  const std::string options = GENERATE("", "&isolation=window");
  CAPTURE(options);
  const Profile& profile = profile_named("mlx5");
  Room room(at_the_bind(), {}, profile, profile);
  testing::RawNet net(room.loop);
  const std::string error = meet_hostile_server(room, net, options);
  CHECK(error.find("no type 2 memory windows") == std::string::npos);
  const conn::ConnectionPtr client = room.connected(options.empty() ? options : options.substr(1));
  CHECK(isolation_of(*client) == "window");
}

TEST_CASE("simulation: a flushed first bind is tried again for the next peer",
          "[simulation][keys][hostile]") {
  const Profile& profile = profile_named("mlx5");
  Room room({}, {}, profile, profile);
  room.far->profile.bind_status = IBV_WC_WR_FLUSH_ERR;
  const conn::ConnectionPtr first = room.connected();
  CHECK(isolation_of(*first) == "connection");
  // The text does not say of the device what the bind did not show.
  const conn::ConnectionPtr picky = room.dial("isolation=window");
  RUN_UNTIL(room.loop, picky->state() != conn::State::kConnecting);
  CHECK(picky->state() == conn::State::kError);
  CHECK_THAT(picky->last_error(), testing::Contains("failed before a key was bound"));
  room.far->profile.bind_status = 0;
  const conn::ConnectionPtr second = room.connected("isolation=window");
  CHECK(isolation_of(*second) == "window");
  room.echoes(*first, 100000);
  room.echoes(*second, 100000);
}

TEST_CASE("simulation: flushed first binds cost the device nothing, however many there are",
          "[simulation][keys][hostile]") {
  const Profile& profile = profile_named("mlx5");
  Room room({}, {}, profile, profile);
  room.far->profile.bind_status = IBV_WC_WR_FLUSH_ERR;
  std::vector<conn::ConnectionPtr> clients;
  for (int i = 0; i < 20; ++i) {
    const auto before = room.far->costs.slow["ibv_create_qp"];
    clients.push_back(room.connected());
    CHECK(isolation_of(*clients.back()) == "connection");
    if (i != 0) CHECK(room.far->costs.slow["ibv_create_qp"] - before == 2);
  }
  room.far->profile.bind_status = 0;
  CHECK(isolation_of(*room.connected("isolation=window")) == "window");
}

TEST_CASE("simulation: a bind that a stopped queue pair refuses is tried again for the next peer",
          "[simulation][keys][hostile]") {
  const std::string options = GENERATE("", "isolation=window");
  const bool own_receives = GENERATE(false, true);
  CAPTURE(options, own_receives);
  Profile profile = profile_named("mlx5");
  profile.in_error = EINVAL;
  if (own_receives) profile.max_srq_wr = 0;
  Room room({}, {}, profile, profile);
  // The queue pair is stopped between its start and the post of the bind.
  bool stopped = false;
  before_post = [&](QueuePair& qp, const ibv_send_wr& work) {
    if (&qp.device_of() != room.far || work.opcode != IBV_WR_BIND_MW || stopped) return;
    stopped = true;
    fail(qp);
  };
  const conn::ConnectionPtr first = room.dial(options);
  RUN_UNTIL(room.loop, first->state() != conn::State::kConnecting);
  before_post = nullptr;
  REQUIRE(stopped);
  INFO(first->last_error());
  if (options.empty()) {
    REQUIRE(first->state() == conn::State::kConnected);
    CHECK(isolation_of(*first) == "connection");
  } else {
    // The flushed receives of the queue pair must not end the connection in other words.
    REQUIRE(first->state() == conn::State::kError);
    CHECK_THAT(first->last_error(), testing::Contains("failed before a key was bound"));
  }
  CHECK(isolation_of(*room.connected("isolation=window")) == "window");
}

TEST_CASE("simulation: a server names the queue pair that was stopped while it accepts",
          "[simulation][keys][hostile]") {
  // Its device has bound keys before, so that the refusal says nothing of the device.
  const std::string options = GENERATE("", "?isolation=window");
  const bool own_receives = GENERATE(false, true);
  CAPTURE(options, own_receives);
  Profile profile = profile_named("mlx5");
  profile.in_error = EINVAL;
  if (own_receives) profile.max_srq_wr = 0;
  Room room({}, options, profile, profile);
  const conn::ConnectionPtr before = room.connected();
  room.echoes(*before);
  bool stopped = false;
  before_post = [&](QueuePair& qp, const ibv_send_wr& work) {
    if (&qp.device_of() != room.near || work.opcode != IBV_WR_BIND_MW || stopped) return;
    stopped = true;
    fail(qp);
  };
  const conn::ConnectionPtr client = room.dial();
  RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
  before_post = nullptr;
  REQUIRE(stopped);
  CHECK(client->state() == conn::State::kError);
  // The server's words, as the client is told.
  CHECK_THAT(client->last_error(),
             testing::Contains("binding a key to the queue pair: sim0 has stopped the queue pair"));
  room.echoes(*room.connected(), 100000);
}

TEST_CASE("simulation: an address after one whose bind was flushed gets keys",
          "[simulation][keys]") {
  // The queue pair that follows a flushed bind binds no keys. If it is not made, because a call
  // before that fails, the next address must not be treated so.
  std::size_t reached = 0;
  for (std::uint64_t call = 1; call < 40; ++call) {
    const Profile& profile = profile_named("mlx5");
    Room room({}, {}, profile, profile);
    room.address.hosts.push_back(room.address.hosts.front());
    room.far->profile.bind_status = IBV_WC_WR_FLUSH_ERR;
    int binds = 0;
    before_post = [&](QueuePair& qp, const ibv_send_wr& work) {
      if (&qp.device_of() != room.far || work.opcode != IBV_WR_BIND_MW) return;
      if (++binds == 1)
        room.world.fail_call(call);
      else
        room.far->profile.bind_status = 0;
    };
    const conn::ConnectionPtr client = room.dial();
    RUN_UNTIL(room.loop, client->state() != conn::State::kConnecting);
    before_post = nullptr;
    const std::string failed = room.world.last_failed();
    room.world.fail_call(0);
    CAPTURE(call, failed, client->last_error());
    if (failed != "rdma_resolve_addr" && failed != "route resolution" &&
        failed != "rdma_resolve_route")
      continue;
    ++reached;
    REQUIRE(client->state() == conn::State::kConnected);
    CHECK(isolation_of(*client) == "window");
    room.echoes(*client, 100000);
  }
  CHECK(reached >= 2);
}

TEST_CASE("simulation: an invalidation that fails costs other connections no keys",
          "[simulation][keys][hostile]") {
  // A peer can cause this failure: it may have invalidated the key itself (SEND WITH INVALIDATE).
  const Profile& profile = profile_named("mlx5");
  Room room({}, "?window=4096", profile, profile);
  const auto client = room.connected();
  bool failed = false;
  before_post = [&](QueuePair& qp, const ibv_send_wr& work) {
    for (const ibv_send_wr* each = &work; each != nullptr; each = each->next) {
      if (each->opcode != IBV_WR_LOCAL_INV || &qp.device_of() != room.near) continue;
      const auto found = room.world.windows.find(each->invalidate_rkey);
      if (found == room.world.windows.end()) continue;
      unbind(*found->second);
      failed = true;
    }
  };
  // Makes the server's window grow, so that the key of the first one is invalidated.
  const std::string bytes(100000, 'k');
  REQUIRE(client->write(bytes.data(), bytes.size()) > 0);
  RUN_UNTIL(room.loop, !room.log.endings.empty());
  before_post = nullptr;
  REQUIRE(failed);
  const conn::ConnectionPtr after = room.connected("isolation=window");
  CHECK(isolation_of(*after) == "window");
  CHECK(isolation_of(*room.log.clients.back()) == "window");
}
