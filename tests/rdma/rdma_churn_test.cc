// SPDX-License-Identifier: BSD-3-Clause
// Thousands of connections that end in different ways leave nothing behind, neither in the kernel
// nor in this process.
#if AECONN_RDMA

#include <algorithm>
#include <optional>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "tests/support/rdma_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using conn::rdma::registered_bytes;
using testing::Scene;
using namespace std::chrono_literals;

TEST_CASE("rdma churn: thousands of connections, however they end, leave nothing behind",
          "[rdma-device][long]") {
  std::optional<Scene> scene(std::in_place);
  ae::EventLoop& loop = scene->loop;
  const auto& counters = scene->type.counters(loop);
  scene->raw_client();
  RUN_UNTIL(loop, counters.open == 2);
  const testing::DeviceObjects objects = testing::device_objects();
  // Registered memory is kept for later connections for a while.
  const auto without_memory = [](testing::DeviceObjects all) {
    all.erase("mr");
    return all;
  };
  const std::uint64_t held = registered_bytes();
  const std::size_t descriptors = testing::open_descriptors();
  const std::uint64_t before = scene->log.accepted;
  const ae::TimePoint begin = testing::now();
  const auto left_behind = [&] {
    RUN_UNTIL(loop, counters.open == 2);
    CHECK(without_memory(testing::device_objects()) == without_memory(objects));
    CHECK(testing::open_descriptors() == descriptors);
    scene->innocent_echoes();
  };
  // One after the other.
  for (int i = 0; i < 300; ++i) {
    const ConnectionPtr client = scene->connect(scene->address);
    RUN_UNTIL(loop, client->state() == State::kConnected);
    if (i % 3 == 0) testing::send(loop, *client, "x");
  }
  left_behind();
  // A hundred at a time: closed by the clients, by the server, or by both at once, with bytes under
  // way.
  for (int round = 0; round < 17 && testing::now() - begin < 60s; ++round) {
    std::vector<ConnectionPtr> clients(100);
    for (ConnectionPtr& client : clients) client = scene->connect(scene->address);
    RUN_UNTIL(loop, std::all_of(
                        clients.begin(), clients.end(),
                        [](const ConnectionPtr& c) { return c->state() != State::kConnecting; }) &&
                        scene->log.open() == 101);
    for (const ConnectionPtr& client : clients) REQUIRE(client->state() == State::kConnected);
    if (round % 2 == 0)
      for (const ConnectionPtr& client : clients) client->write("under way", 9);
    if (round % 4 == 1 || round % 4 == 2) scene->log.close_all_but_first();
    if (round % 4 == 3) {
      // Every other connection is closed by the client, the rest by the server.
      for (std::size_t i = 0; i < clients.size(); i += 2) clients[i].reset();
      scene->log.close_all_but_first();
    }
    if (round % 4 == 1) {
      const auto ended = [](const ConnectionPtr& c) { return c->state() != State::kConnected; };
      for (const ConnectionPtr& c : clients)
        c->set_read_handler([](Connection& each) { testing::read_some(each, 100); });
      RUN_UNTIL(loop, std::all_of(clients.begin(), clients.end(), ended));
    }
    clients.clear();
    RUN_UNTIL(loop, counters.open == 2);
  }
  left_behind();
  // By errors.
  for (int i = 0; i < 50; ++i) {
    const auto peer = scene->raw_client();
    peer->send("?");
    RUN_UNTIL(loop, peer->over());
  }
  left_behind();
  RUN_UNTIL(loop, registered_bytes() <= held);
  CHECK(testing::device_objects()["mr"] <= objects.at("mr"));
  WARN(scene->log.accepted - before << " connections in " << (testing::now() - begin) / 1ms
                                    << " ms");
  CHECK(conn::rdma::teardown_failures() == 0);
  scene.reset();
  CHECK(registered_bytes() == 0);
}

#endif
