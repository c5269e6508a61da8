// SPDX-License-Identifier: BSD-3-Clause
// TLS over rdma: what the lower layer knows must reach the user of the upper layer.

#include <cerrno>
#include <string>

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

/// Fills the client, whose peer does not read, and lets the path go during a blocking flush.
/// Returns errno of the flush.
int error_of_flush(Room& room, conn::Connection& client, bool all_full) {
  const auto unsent = [&] {
    for (const auto& [name, value] : client.info())
      if (name == "unsent") return std::stoul(value);
    return 0UL;
  };
  const std::string block(1000, 'x');
  while ((all_full || unsent() == 0) && client.write(block.data(), block.size()) > 0)
    room.run_for(10ms);
  room.run_for(1s);
  REQUIRE(unsent() > 0);
  REQUIRE(client.state() == conn::State::kConnected);
  room.world.after(1s, [&] { room.world.set_path(*room.near, *room.far, false); });
  REQUIRE(client.sync_write(nullptr, 0, 500s) == -1);
  return errno;
}

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

TEST_CASE("simulation: a blocking flush ends with the error of rdma", "[simulation]") {
  const bool unread = GENERATE(true, false);
  CAPTURE(unread);
  SECTION("over TLS") {
    // What does not leave this end: bytes that only rdma has, or also bytes that TLS has.
    const bool all_full = GENERATE(true, false);
    CAPTURE(all_full);
    TlsRoom room;
    if (unread) REQUIRE(room.server->write("never read", 10) == 10);
    room.run_for(100ms);
    if (!unread) {
      char bytes[100];
      REQUIRE(room.client->read(bytes, sizeof bytes) == -1);
    }
    CHECK(error_of_flush(room, *room.client, all_full) == ETIMEDOUT);
    CHECK(room.client->why_ended().code == std::errc::timed_out);
  }
  SECTION("without TLS") {
    Room room;
    const auto client = room.connected();
    conn::Connection& server = *room.log.clients.front();
    server.set_read_handler(nullptr);
    if (unread) REQUIRE(server.write("never read", 10) == 10);
    room.run_for(100ms);
    CHECK(error_of_flush(room, *client, true) == ETIMEDOUT);
    CHECK(client->why_ended().code == std::errc::timed_out);
  }
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
