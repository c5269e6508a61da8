// SPDX-License-Identifier: BSD-3-Clause
// Drivers that look at the state of a queue pair refuse requests once the device has stopped it.
// That says nothing of what the device can do: the connection has lost its path.

#include <optional>
#include <string>

#include "tests/simulation/posts.h"
#include "tests/simulation/resume_kit.h"

using namespace simulation;
using testing::Contains;

namespace {

Profile refusing(bool own_receives) {
  Profile profile = profile_named("mlx5");
  profile.in_error = EINVAL;
  if (own_receives) profile.max_srq_wr = 0;
  return profile;
}

/// Stops a queue pair of `device` just before it is given a chain that begins with `opcode`; only
/// once. With `reason`, its oldest request has failed so, and there must be one.
struct Stop {
  Stop(const Device* device, ibv_wr_opcode opcode,
       std::optional<ibv_wc_status> reason = std::nullopt) {
    before_post = [=, this](QueuePair& qp, const ibv_send_wr& work) {
      if (&qp.device_of() != device || work.opcode != opcode || happened) return;
      if (reason && qp.requests.empty()) return;
      happened = true;
      if (reason) {
        Completion failed{};
        failed.wc.wr_id = qp.requests.front().work.wr_id;
        failed.wc.status = *reason;
        failed.wc.opcode = IBV_WC_RDMA_WRITE;
        failed.wc.qp_num = qp.qp_num;
        failed.owner = qp.serial;
        qp.requests.pop_front();
        static_cast<Queue*>(qp.send_cq)->push(failed);
      }
      fail(qp);
    };
  }
  ~Stop() { before_post = nullptr; }
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;
  bool happened = false;
};

}  // namespace

TEST_CASE("simulation: a bind refused by a stopped queue pair ends only the path",
          "[simulation][keys][resume]") {
  const bool own_receives = GENERATE(false, true);
  CAPTURE(own_receives);
  const Profile profile = refusing(own_receives);
  Pair pair(profile, {}, kResume + "&window=4096", kResume);
  Talker client(*pair.client, 1, 2, 100000);
  Talker server(*pair.server, 2, 1, 1000);
  {
    // The server's window grows, so that another key is bound.
    const Stop stop(pair.room.near, IBV_WR_BIND_MW);
    RUN_UNTIL(pair.room.loop, stop.happened);
  }
  RUN_UNTIL(pair.room.loop,
            server.received() == 100000 || !(client.ending() + server.ending()).empty());
  CHECK(client.ending() == "");
  CHECK(server.ending() == "");
  CHECK(pair.counted("resumes") >= 2);
}

TEST_CASE("simulation: data refused by a stopped queue pair end only the path",
          "[simulation][resume]") {
  const bool own_receives = GENERATE(false, true);
  CAPTURE(own_receives);
  const Profile profile = refusing(own_receives);
  Pair pair(profile);
  Talker client(*pair.client, 1, 2, 0);
  Talker server(*pair.server, 2, 1, 0);
  pair.room.run_for(50ms);
  {
    const Stop stop(pair.room.far, IBV_WR_RDMA_WRITE_WITH_IMM);
    client.more(1000);
    RUN_UNTIL(pair.room.loop, stop.happened);
  }
  RUN_UNTIL(pair.room.loop,
            server.received() == 1000 || !(client.ending() + server.ending()).empty());
  CHECK(client.ending() == "");
  CHECK(server.ending() == "");
  CHECK(pair.counted("resumes") >= 2);
}

TEST_CASE("simulation: a refused post without resume names the queue pair that was stopped",
          "[simulation][keys]") {
  const ibv_wr_opcode opcode = GENERATE(IBV_WR_BIND_MW, IBV_WR_RDMA_WRITE_WITH_IMM);
  CAPTURE(opcode);
  const Profile profile = refusing(false);
  Room room({}, "?window=4096", profile, profile);
  const auto client = room.connected();
  const bool bind = opcode == IBV_WR_BIND_MW;
  const Stop stop(room.near, opcode);
  // The server's window grows while it echoes.
  const std::string bytes(bind ? 100000 : 10, 'k');
  REQUIRE(client->write(bytes.data(), bytes.size()) > 0);
  RUN_UNTIL(room.loop, !room.log.endings.empty());
  REQUIRE(stop.happened);
  CHECK_THAT(room.log.endings.front(), Contains("sim0 has stopped the queue pair"));
  CHECK_THAT(room.log.endings.front(), Contains(bind ? "binding a key" : "posting to the send"));
  CHECK_THAT(room.log.endings.front(), !Contains("not supported"));
  // The device counts as able to bind keys nevertheless.
  const auto next = room.connected("isolation=window");
  room.echoes(*next);
}

TEST_CASE("simulation: a refused post is told with the reason that a completion has",
          "[simulation][resume]") {
  Config config;
  config.weather.least_delay = config.weather.most_delay = 10ms;
  Pair pair(refusing(false), config);
  Talker client(*pair.client, 1, 2, 0);
  Talker server(*pair.server, 2, 1, 0);
  pair.room.run_for(500ms);
  const Stop stop(pair.room.far, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_REM_ACCESS_ERR);
  client.more(1000);
  pair.room.run_for(1ms);
  client.more(1000);
  // This is the peer's fault, not the path's: the session ends.
  RUN_UNTIL(pair.room.loop, !client.ending().empty());
  REQUIRE(stop.happened);
  CHECK_THAT(client.ending(), Contains("the window it offered is not writable"));
}

// cxgb4 refuses requests from the moment at which the peer closes its TCP stream, before it flushes
// any, and before rdma_cm reports the close.
TEST_CASE("simulation: over iWARP a message refused while the peer closes is no error",
          "[simulation]") {
  Profile profile = profile_named("iwarp");
  profile.in_error = EINVAL;
  Pair pair(profile, {}, "keepalive=40ms", "");
  constexpr std::size_t kAll = 100'000;
  std::size_t received = 0;
  std::string ending;
  bool refused = false;
  pair.server->set_read_handler([&](conn::Connection& here) {
    char bytes[4096];
    const ssize_t n = here.read(bytes, sizeof bytes);
    if (n <= 0) {
      if (n < 0 && errno == EAGAIN) return;
      ending = n == 0 ? "end of stream" : here.last_error();
      return here.set_read_handler(nullptr);
    }
    received += static_cast<std::size_t>(n);
    if (received != kAll) return;
    for (const auto& [number, qp] : pair.room.world.queue_pairs)
      if (&qp->device_of() == pair.room.near) qp->closing = refused = true;
  });
  const std::string bytes(kAll, 'b');
  std::size_t written = 0;
  RUN_UNTIL(pair.room.loop, [&] {
    const ssize_t n = pair.client->write(bytes.data() + written, kAll - written);
    if (n > 0) written += static_cast<std::size_t>(n);
    return refused;
  }());
  pair.room.run_for(100ms);  // a keepalive is refused
  CHECK(ending == "");
  pair.client.reset();
  RUN_UNTIL(pair.room.loop, !ending.empty());
  CHECK(ending == "end of stream");
}

TEST_CASE("simulation: over iWARP a refused message ends the connection though the peer goes on",
          "[simulation]") {
  Profile profile = profile_named("iwarp");
  profile.in_error = EINVAL;
  Pair pair(profile, {}, "keepalive=400ms", "keepalive=400ms");
  pair.room.run_for(50ms);
  for (const auto& [number, qp] : pair.room.world.queue_pairs)
    if (&qp->device_of() == pair.room.near) qp->closing = true;
  // A keepalive of the peer arrives, and rdma_cm reports nothing.
  const Nanoseconds begin = pair.room.world.now();
  REQUIRE(pair.server->write("x", 1) == 1);
  RUN_UNTIL(pair.room.loop, pair.server->state() == conn::State::kError);
  CHECK(pair.room.world.now() - begin < 600ms);
}
