// SPDX-License-Identifier: BSD-3-Clause
// Closing connections: when an end waits for the peer's answer to its disconnect, when there is no
// peer to wait for, and what is sent without waiting any longer.

#include <span>
#include <string>
#include <vector>

#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;

namespace {

int queue_pairs(const Room& room) {
  const auto objects = room.world.objects();
  const auto found = objects.find("qp");
  return found == objects.end() ? 0 : found->second;
}

std::string fact(const conn::Connection& connection, const std::string& name) {
  for (const auto& [key, value] : connection.info())
    if (key == name) return value;
  return "";
}

Config slow_goodbyes() {
  Config config;
  config.weather.least_cm_delay = config.weather.most_cm_delay = 10ms;
  return config;
}

}  // namespace

TEST_CASE("simulation: who said goodbye stays until the peer has answered", "[simulation][close]") {
  // An end that left earlier could not repeat a disconnect message that was lost.
  Room room(slow_goodbyes());
  conn::ConnectionPtr client = room.connected();
  REQUIRE(queue_pairs(room) == 2);
  client.reset();
  room.run_for(5ms);
  CHECK(queue_pairs(room) == 2);
  room.run_for(100ms);
  CHECK(queue_pairs(room) == 0);
}

TEST_CASE("simulation: who answered a goodbye has nothing to wait for", "[simulation][close]") {
  Room room(slow_goodbyes());
  const conn::ConnectionPtr client = room.connected();
  room.log.clients.clear();
  CHECK(room.until_failed(*client) < 30ms);
  room.run_for(100ms);  // the answer's delay, and the device's last events
  CHECK(queue_pairs(room) == 0);
}

TEST_CASE("simulation: who could tell nobody waits for no answer", "[simulation][close]") {
  Room room(slow_goodbyes());
  // The number of the disconnect among the calls of a close varies: polls come before it.
  for (std::uint64_t attempt = 0; attempt < 200; ++attempt) {
    const std::uint64_t number = 1 + attempt % 12;
    conn::ConnectionPtr client = room.connected();
    room.log.clients.back()->set_read_handler(nullptr);  // the server does not close
    const int before = queue_pairs(room);
    room.world.fail_call(number);
    client.reset();
    room.run_for(5ms);
    const bool told_nobody =
        room.world.last_failed() == "rdma_disconnect" && room.world.calls() >= number;
    room.world.fail_call(0);
    if (told_nobody) {
      CHECK(queue_pairs(room) == before - 1);
      return;
    }
    room.run_for(1s);
  }
  FAIL("a close that does not say goodbye");
}

TEST_CASE("simulation: what fits into an iteration's share is closed in one",
          "[simulation][close]") {
  Room room;
  std::vector<conn::ConnectionPtr> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(room.connected("linger=0ms"));
  room.run_for(1s);
  const auto goodbyes = [&] { return room.far->costs.slow["rdma_disconnect"]; };
  REQUIRE(goodbyes() == 0);
  room.loop.add_time_event(0ms, [&] {
    clients.clear();
    return ae::kNoMore;
  });
  for (int i = 0; i < 3; ++i) (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
  CHECK(goodbyes() == 20);
}

TEST_CASE("simulation: who closes where no loop runs says goodbye at once", "[simulation][close]") {
  Room room;
  conn::ConnectionPtr client = room.connected("linger=0ms");
  const std::int64_t before = room.far->costs.slow["rdma_disconnect"];
  client.reset();
  CHECK(room.far->costs.slow["rdma_disconnect"] == before + 1);
}

TEST_CASE("simulation: a queue pair stays until the device has said all of it, or 50 ms",
          "[simulation][close]") {
  // When the device reports that the queue pair's last receive has completed.
  enum class Says { kAtOnce, kLate, kNever };
  const Says says = GENERATE(Says::kAtOnce, Says::kLate, Says::kNever);
  const bool chatter = GENERATE(false, true);
  CAPTURE(says, chatter);
  Profile profile = profile_named("mlx5");
  profile.last_wqe_reached = says == Says::kAtOnce;
  Room room({}, {}, profile, profile);
  conn::ConnectionPtr client = room.connected();
  QueuePair* mine = nullptr;
  for (auto& [number, qp] : room.world.queue_pairs)
    if (&qp->device_of() == room.far) mine = qp;
  REQUIRE(mine != nullptr);
  const std::uint32_t number = mine->qp_num;
  const Nanoseconds begin = room.world.now();
  client.reset();
  if (says == Says::kLate)
    room.world.after(20ms, [&, serial = mine->serial] {
      const auto found = room.world.queue_pairs.find(number);
      if (found == room.world.queue_pairs.end() || found->second->serial != serial) return;
      ibv_async_event event{};
      event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
      event.element.qp = found->second;
      static_cast<Handle*>(found->second->context)->raise(event);
    });
  while (room.world.queue_pairs.count(number) != 0) {
    REQUIRE(room.world.now() - begin < 1s);
    room.run_for(1ms);
    if (!chatter || room.world.queue_pairs.count(number) == 0) continue;
    Completion entry{};  // of a request that was still pending
    entry.wc.status = IBV_WC_WR_FLUSH_ERR;
    entry.wc.qp_num = number;
    entry.owner = mine->serial;
    static_cast<Queue*>(mine->send_cq)->push(entry);
  }
  const Nanoseconds took = room.world.now() - begin;
  CHECK(took >= (says == Says::kNever ? 50ms : says == Says::kLate ? 20ms : 0ms));
  CHECK(took < (says == Says::kNever ? 70ms : says == Says::kLate ? 25ms : 20ms));
}

TEST_CASE("simulation: what waited for a sign of the peer leaves with the peer's next byte",
          "[simulation][close]") {
  Room room({}, "?keepalive=0ms");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  options.window = 1 << 20;
  const auto peer = net.connect(room.address, options);
  RUN_UNTIL(room.loop, room.log.clients.size() == 1 && !peer->offers.empty());
  conn::Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  // More messages than the peer is known to have receives for, and the peer cannot be asked: from
  // here on each message waits until the one before is known to have arrived, or for 10 ms.
  std::size_t written = 0;
  const auto write = [&] {
    REQUIRE(server.write("m", 1) == 1);
    ++written;
  };
  while (written < 1100) {
    write();
    RUN_UNTIL(room.loop, peer->received.size() == written);
  }
  room.world.config.weather.least_delay = room.world.config.weather.most_delay = 5ms;
  room.run_for(50ms);
  const Nanoseconds begin = room.world.now();
  peer->stream("y");
  room.run_for(3ms);
  for (int i = 0; i < 2; ++i) {
    write();
    for (int turn = 0; turn < 3; ++turn)
      (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
  }
  CHECK(fact(server, "unsent") == "1");
  CHECK(fact(server, "unread") == "0");
  RUN_UNTIL(room.loop, peer->received.size() == written);
  const Nanoseconds took = room.world.now() - begin;
  CHECK(took > 9ms);  // the delays of the byte and of the answer
  CHECK(took < 12ms);
}

TEST_CASE("simulation: a close that discards output is no end of the stream",
          "[simulation][close]") {
  Room room;
  conn::ConnectionPtr client = room.connected("linger=300ms&send-buffer=8192");
  RUN_UNTIL(room.loop, room.log.clients.size() == 1);
  conn::Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  const std::string output(10000, 'c');
  std::size_t sent = 0;
  // Until output waits in front of the carrier, for windows that do not come.
  while (client->send({std::as_bytes(std::span(output)), nullptr, nullptr, nullptr}) >= 0) {
    sent += output.size();
    room.run_for(1ms);
  }
  client.reset();
  room.run_for(310ms);
  std::size_t received = 0;
  std::string ending;
  server.set_read_handler([&](conn::Connection& here) {
    std::array<char, 8192> bytes;
    const ssize_t n = here.read(bytes.data(), bytes.size());
    if (n > 0) received += static_cast<std::size_t>(n);
    if (n > 0 || (n < 0 && errno == EAGAIN)) return;
    ending = n == 0 ? "end of stream" : here.last_error();
    here.set_read_handler(nullptr);
  });
  RUN_UNTIL(room.loop, !ending.empty());
  CHECK(received < sent);
  CHECK_THAT(ending, testing::Contains("aborted"));
}
