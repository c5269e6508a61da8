// SPDX-License-Identifier: BSD-3-Clause
// TLS over rdma: what the lower layer knows must reach the user of the upper layer.

#include <cerrno>

#include "tests/simulation/room.h"
#include "tests/support/certificates.h"

using namespace simulation;

namespace {

struct TlsRoom : Room {
  TlsRoom() {
    conn::ConnectionType& tls = registry.require("tls+rdma");
    tls.configure(testing::test_tls_options("localhost"));
    tls_listener = tls.listen(loop, conn::Endpoint::parse("tls+rdma://10.77.0.1:0"),
                              [this](conn::ConnectionPtr next) { server = std::move(next); });
    conn::Endpoint to = tls_listener->endpoints().front();
    to.options.set("source", "10.77.0.2");
    client = tls.create(loop);
    client->connect(to, {});
    RUN_UNTIL(loop, server && client->state() != conn::State::kConnecting);
    INFO(client->last_error());
    REQUIRE(client->state() == conn::State::kConnected);
  }
  /// Writes every 50 ms until that fails; returns the error.
  std::string write_until_failed(conn::Connection& here) {
    const Nanoseconds begin = world.now();
    while (here.state() == conn::State::kConnected && world.now() - begin < 200s) {
      (void)here.write("x", 1);
      run_for(50ms);
    }
    return here.last_error();
  }

  conn::ListenerPtr tls_listener;
  conn::ConnectionPtr server, client;
};

}  // namespace

TEST_CASE("simulation: TLS tells of a lost link what rdma knows, whatever it was doing",
          "[simulation][ports]") {
  TlsRoom room;
  const bool unread = GENERATE(true, false);
  CAPTURE(unread);
  if (unread) {
    // The client never reads, so bytes stay in the lower layer, and the error waits behind them.
    REQUIRE(room.server->write("never read", 10) == 10);
    room.run_for(100ms);
  } else {
    room.client->set_read_handler([](conn::Connection& here) {
      char bytes[100];
      (void)here.read(bytes, sizeof bytes);
    });
  }
  room.world.set_path(*room.near, *room.far, false);
  const std::string said = room.write_until_failed(*room.client);
  CAPTURE(said);
  CHECK(room.client->state() == conn::State::kError);
  CHECK(said.find("Broken pipe") == std::string::npos);
  CHECK(said.starts_with("rdma 10.77.0.1:"));
  CHECK(room.client->error_code() == std::errc::timed_out);
  room.client.reset();
  room.server.reset();
  room.tls_listener.reset();
}

TEST_CASE("simulation: a spin holds back no timer and no event of rdma_cm", "[simulation]") {
  Room room({}, "?spin=100ms");
  const auto client = room.connected("spin=100ms");
  SECTION("a timer is 20 us late at most, and what the loop does meanwhile") {
    const Nanoseconds begin = room.world.now();
    Nanoseconds fired{};
    room.loop.add_time_event(1ms, [&] {
      fired = room.world.now();
      return ae::kNoMore;
    });
    while (fired == Nanoseconds{}) (void)room.loop.process_events(ae::kFullIteration);
    CHECK(fired - begin >= 1ms);
    CHECK(fired - begin <= 1ms + 25us);
  }
  SECTION("a connection is made as fast as without") {
    const Nanoseconds begin = room.world.now();
    const auto next = room.dial("spin=100ms");
    RUN_UNTIL(room.loop, next->state() != conn::State::kConnecting);
    CHECK(next->state() == conn::State::kConnected);
    // Each message of rdma_cm may take 2 ms; this many are needed for both ends and for resolving.
    CHECK(room.world.now() - begin <= 50ms);
  }
}
