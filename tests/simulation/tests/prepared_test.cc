// SPDX-License-Identifier: BSD-3-Clause
// The option prepared: queue pairs, keys and windows are made before clients connect. Tests what
// that saves at a connect, and that nothing is left when no listener has the option any more.

#include "tests/simulation/room.h"

using namespace simulation;
using namespace std::chrono_literals;

namespace {

std::uint64_t statistic(Room& room, std::string_view name) {
  for (const auto& [key, value] : room.type.statistics(room.loop))
    if (key == name) return value;
  return ~std::uint64_t{0};
}

/// Where keys cannot be bound, connections share a receive queue only if they trust each other.
std::string sharing(const std::string& more) {
  return "?backlog=1000" + more + (chosen_profile().bound_keys() ? "" : "&isolation=none");
}
/// Nothing is prepared where each connection has receives of its own.
bool prepares() {
  const bool shares = chosen_profile().shared_receives && !chosen_profile().iwarp;
  if (!shares) WARN("not run: " << chosen_profile().name << " shares no receive queue");
  return shares;
}

std::int64_t slow(const Costs& costs, const std::string& call) {
  const auto found = costs.slow.find(call);
  return found == costs.slow.end() ? 0 : found->second;
}

/// Costs of the server's device for `clients` clients that connect at once.
Costs storm(Room& room, std::size_t clients) {
  const Costs before = room.world.costs(*room.near);
  std::vector<conn::ConnectionPtr> all;
  while (all.size() < clients) all.push_back(room.dial("connect-timeout=1h"));
  RUN_UNTIL(room.loop, room.log.clients.size() == clients);
  for (const conn::ConnectionPtr& each : all) room.echoes(*each, 64);
  const Costs after = room.world.costs(*room.near);
  return after - before;
}

}  // namespace

TEST_CASE("simulation: with prepared a hundred arrivals find queue pair, key and window ready",
          "[simulation][prepared][storm]") {
  constexpr std::size_t kMany = 100;
  if (!prepares()) return;
  Costs without, with;
  {
    Room room({}, sharing(""));
    (void)storm(room, 1);  // makes what connections share
    room.log.clients.clear();
    without = storm(room, kMany);
    CHECK(statistic(room, "prepared_used") == 0);
  }
  Room room({}, sharing("&prepared=100"));
  room.run_for(2s);
  REQUIRE(statistic(room, "prepared") == kMany);
  with = storm(room, kMany);
  CHECK(statistic(room, "prepared_used") >= kMany - 1);  // one may serve to prove that keys bind
  WARN(kMany << " arrivals, slow calls of the server's device: " << without.slow_calls()
             << ", with prepared=100 " << with.slow_calls() << " (" << with.slow_text() << ')');
  CHECK(slow(without, "ibv_create_qp") >= static_cast<std::int64_t>(kMany));
  CHECK(slow(with, "ibv_create_qp") <= 1);
  CHECK(slow(with, "ibv_reg_mr") <= 2);
  CHECK(with.slow_calls() < without.slow_calls());
  // They are made again when the loop is idle.
  room.run_for(3s);
  CHECK(statistic(room, "prepared") == kMany);
}

TEST_CASE("simulation: what was prepared goes with the last listener that wishes it",
          "[simulation][prepared]") {
  if (!prepares()) return;
  Room room({}, sharing("&prepared=40"));
  room.run_for(2s);
  REQUIRE(statistic(room, "prepared") == 40);
  const auto queue_pairs = [&] { return room.world.costs(*room.near).queue_pairs; };
  CHECK(queue_pairs() >= 40);
  conn::ListenerPtr other = room.type.listen(
      room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0" + sharing("&prepared=7")),
      room.log.handler());
  room.listener.reset();
  room.run_for(2s);
  CHECK(statistic(room, "prepared") == 40);  // a listener still wants some
  other.reset();
  room.run_for(2s);
  CHECK(statistic(room, "prepared") == 0);
  CHECK(queue_pairs() == 0);
}

TEST_CASE("simulation: a device that is removed does not wait for what was prepared on it",
          "[simulation][prepared]") {
  if (!prepares()) return;
  Room room({}, sharing("&prepared=100"));
  room.run_for(2s);
  REQUIRE(statistic(room, "prepared") == 100);
  room.world.remove_device(*room.near);
  RUN_UNTIL(room.loop, statistic(room, "prepared") == 0);
  room.run_for(1s);
  CHECK(room.world.costs(*room.near).queue_pairs == 0);
}

TEST_CASE("simulation: memory-limit keeps its last quarter from what is prepared",
          "[simulation][prepared][memory]") {
  if (!prepares()) return;
  Room room({}, sharing("&prepared=1000&memory-limit=16m"));
  room.run_for(3s);
  const std::uint64_t prepared = statistic(room, "prepared");
  CHECK(prepared > 0);
  CHECK(prepared < 1000);
  CHECK(statistic(room, "registered_bytes") <= 12u << 20);
  (void)room.connected();
}

TEST_CASE("simulation: a connection of another shape takes nothing that was prepared",
          "[simulation][prepared]") {
  if (!prepares()) return;
  Room room({}, sharing("&prepared=5"));
  room.run_for(2s);
  conn::ListenerPtr other = room.type.listen(
      room.loop, conn::Endpoint::parse("rdma://10.77.0.1:0" + sharing("&send-queue=32")),
      room.log.handler());
  conn::Endpoint to = other->endpoints().front();
  to.options = conn::Options::parse("source=10.77.0.2");
  conn::ConnectionPtr client = room.type.create(room.loop);
  client->connect(to, [](conn::Connection&) {});
  RUN_UNTIL(room.loop, room.log.clients.size() == 1);
  room.echoes(*client);
  CHECK(statistic(room, "prepared_used") == 0);
  CHECK(statistic(room, "prepared") == 5);
}
