// SPDX-License-Identifier: BSD-3-Clause
// Faults of the network and of devices, and how soon they end the connections concerned. Time is
// simulated, so that the bounds promised to users are verified exactly.

#include <sys/stat.h>

#include <algorithm>

#include "tests/simulation/room.h"

using namespace simulation;
using testing::Contains;

TEST_CASE("simulation: connect into a black hole ends after connect-timeout",
          "[simulation][faults]") {
  Room room;
  room.world.set_path(*room.near, *room.far, false);
  const auto client = room.dial();
  // Address resolution gets no answer and has two seconds.
  CHECK(room.until_failed(*client) < 2100ms);
  CHECK_THAT(client->last_error(), Contains("no answer from the address"));
}

TEST_CASE("simulation: a path lost after the address was found ends connect in time",
          "[simulation][faults]") {
  Config config;
  config.weather.least_cm_delay = config.weather.most_cm_delay = 10ms;
  Room room(config);
  const auto client = room.dial();
  room.run_for(15ms);  // the address is resolved, the request not sent yet
  room.world.set_path(*room.near, *room.far, false);
  // The kernel would take 102 s.
  CHECK(room.until_failed(*client) < 5100ms);
  CHECK_THAT(client->last_error(), Contains("did not answer in time"));
}

TEST_CASE("simulation: where nobody listens connect fails at once", "[simulation][faults]") {
  Room room;
  room.listener.reset();
  const auto client = room.dial();
  CHECK(room.until_failed(*client) < 100ms);
  // iWARP does not tell why the connect was refused.
  CHECK_THAT(client->last_error(),
             Contains(room.far->profile.iwarp ? "refused" : "nobody listens there"));
}

TEST_CASE("simulation: an address that fails at once leaves nothing behind for the next one",
          "[simulation][faults]") {
  Room room;
  room.address.hosts.push_back(room.address.hosts.front());
  room.world.fail_call(2);  // rdma_resolve_addr of the first address
  const auto client = room.connected();
  CHECK(room.world.last_failed() == "rdma_resolve_addr");
  room.echoes(*client, 100000);
}

TEST_CASE("simulation: an address's deadline that passes unseen costs the next address nothing",
          "[simulation][faults]") {
  // The first address has no listener. The loop stands still at one step or another; then there is
  // more to process than fits into an iteration: refusals and deadlines of the same connections.
  const int steps = GENERATE(range(1, 12));
  CAPTURE(steps);
  Config config;
  config.weather.least_cm_delay = config.weather.most_cm_delay = 10ms;
  Room room(config, "?backlog=1000");
  room.world.add_device("sim2", "10.77.0.3");
  room.address.hosts.insert(room.address.hosts.begin(), {"10.77.0.3"});
  std::vector<conn::ConnectionPtr> clients;
  for (int i = 0; i < 100; ++i) clients.push_back(room.dial());
  room.run_for(steps * 5ms);
  const Nanoseconds until = room.world.now() + 3s;
  while (room.world.advance(until)) {
  }
  room.world.config.system_call = 50us;
  RUN_UNTIL(room.loop, std::all_of(clients.begin(), clients.end(), [](const auto& each) {
              return each->state() != conn::State::kConnecting;
            }));
  room.world.config.system_call = 0ns;
  for (const conn::ConnectionPtr& each : clients) {
    INFO(each->last_error());
    CHECK(each->state() == conn::State::kConnected);
  }
}

// A byte stream retransmits for minutes: the loss is detected by the peer's silence only, after
// three keepalives of 3 s plus the clock's granularity.
static Nanoseconds silence_shows(const Room& room, Nanoseconds otherwise) {
  return room.far->profile.stream ? 12s : otherwise;
}

TEST_CASE("simulation: a black hole under data shows within 3 s", "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  room.world.set_path(*room.near, *room.far, false);
  REQUIRE(client->write("lost", 4) == 4);
  CHECK(room.until_failed(*client) < silence_shows(room, 3s));
  CHECK_THAT(client->last_error(),
             Contains(room.far->profile.stream ? "silent" : "does not answer any more"));
}

TEST_CASE("simulation: a machine that fell silent is noticed by who only waits within 10 s",
          "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  room.world.set_path(*room.near, *room.far, false);
  CHECK(room.until_failed(*client) < silence_shows(room, 10s));
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  CHECK(room.log.endings[0] != "end of stream");
}

TEST_CASE("simulation: a keepalive is on time whoever went before", "[simulation][faults]") {
  const Profile& rxe = profile_named("rxe");
  Room room({}, "?keepalive=1h", rxe, rxe);
  const auto stays = room.connected("keepalive=1h");
  for (int i = 0; i < 5; ++i) {
    CAPTURE(i);
    conn::ConnectionPtr goes = room.connected("keepalive=600ms");
    room.run_for(2s + i * 130ms);
    goes.reset();
    room.run_for(2s);  // it is gone when its next check would be due
    const auto next = room.connected("keepalive=600ms");
    room.world.set_path(*room.near, *room.far, false);
    // The keepalive that detects it, plus the retries: 8 * 4.096 us * 2^15.
    CHECK(room.until_failed(*next) < 600ms + 1074ms + 50ms);
    room.world.set_path(*room.near, *room.far, true);
    room.run_for(10s);
  }
}

TEST_CASE("simulation: a path that heals in time costs nothing but time", "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  room.world.set_path(*room.near, *room.far, false);
  room.world.after(200ms, [&] { room.world.set_path(*room.near, *room.far, true); });
  room.echoes(*client, 100000);
}

TEST_CASE("simulation: a link that goes down ends its connections, and up again serves",
          "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  room.world.set_link(*room.near, false);
  CHECK(room.until_failed(*client) < silence_shows(room, 10s));
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  // Without an event the peer's silence ends it.
  if (room.near->profile.port_events) CHECK_THAT(room.log.endings[0], Contains("sim0"));
  room.world.set_link(*room.near, true);
  room.run_for(1s);
  (void)room.connected();
}

TEST_CASE("simulation: an address that is taken away ends the connections that use it",
          "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  room.world.set_address(*room.near, false);
  if (!room.near->profile.address_events) return room.echoes(*client);  // no event, no end
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  CHECK_THAT(room.log.endings[0], Contains("no longer on this machine"));
  CHECK(room.until_failed(*client) < 1s);
}

TEST_CASE("simulation: a device that is removed is let go of within a second, and serves again",
          "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  const auto second = room.connected();
  // Counters never decrease, not even those of a removed device.
  const auto counted = [&](const char* name) {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == std::string("sim0_") + name) return value;
    return std::uint64_t{0};
  };
  std::uint64_t completions = counted("completions"), arms = counted("arms");
  CHECK(completions > 0);
  const auto none_fell = [&] {
    CHECK(counted("completions") >= std::exchange(completions, counted("completions")));
    CHECK(counted("arms") >= std::exchange(arms, counted("arms")));
  };
  room.world.remove_device(*room.near);
  CHECK(room.until_failed(*client) < 1s);
  CHECK(room.until_failed(*second) < 1s);
  none_fell();
  RUN_UNTIL(room.loop, room.log.endings.size() == 2);
  CHECK_THAT(room.log.endings[0], Contains("was removed"));
  room.run_for(1s);
  CHECK(room.near->handles.empty());  // the device is no longer open
  // rdma_cm has forgotten the device, so its handle's descriptors may have been reused by now.
  struct stat behind {};
  REQUIRE(fstat(room.near->cm_handle->async_fd, &behind) == 0);
  CHECK_FALSE(S_ISCHR(behind.st_mode));
  room.near = &room.world.add_device("sim0", "10.77.0.1");
  none_fell();
  room.run_for(1s);  // the listener looks for the device twice per second
  (void)room.connected();
  none_fell();
}

TEST_CASE("simulation: the death of the peer's process ends its connections at once",
          "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  // The kernel does the same with the objects of a dead process.
  room.world.remove_device(*room.far);
  const Nanoseconds begin = room.world.now();
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  CHECK(room.world.now() - begin < 100ms);
}

TEST_CASE("simulation: a long linger delivers to a peer that pauses for longer than keepalives",
          "[simulation][faults]") {
  Room room({}, "?linger=60s&window=16384&max-window=16384&send-buffer=1m");
  const auto client = room.connected("window=16384&max-window=16384");
  client->set_read_handler(nullptr);
  const std::string bytes(200000, 'z');
  REQUIRE(room.log.clients.front()->write(bytes.data(), bytes.size()) ==
          static_cast<ssize_t>(bytes.size()));
  room.log.clients.clear();
  room.run_for(15s);
  CHECK(testing::receive(room.loop, *client, bytes.size()) == bytes);
}

TEST_CASE("simulation: close towards a peer that never reads is over after linger, 3 s",
          "[simulation][faults]") {
  Room room;
  auto client = room.connected();
  for (const conn::ConnectionPtr& each : room.log.clients) each->set_read_handler(nullptr);
  const std::string bytes(100000, 'b');
  while (client->write(bytes.data(), bytes.size()) > 0) room.run_for(1ms);
  const std::uint64_t open = room.type.counters(room.loop).open;
  const Nanoseconds begin = room.world.now();
  client.reset();
  CHECK(room.world.now() - begin < 1ms);
  RUN_UNTIL(room.loop, room.type.counters(room.loop).open < open);
  CHECK(room.world.now() - begin > 2900ms);
  CHECK(room.world.now() - begin < 3600ms);
}

TEST_CASE("simulation: a device that nobody uses any more can still be removed",
          "[simulation][faults]") {
  Room room;
  room.connected().reset();
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  room.run_for(10s);
  REQUIRE_FALSE(room.far->handles.empty());
  room.world.remove_device(*room.far);
  room.run_for(100ms);
  CHECK(room.far->handles.empty());
}

TEST_CASE("simulation: a device can be removed after an attempt that ended before it was opened",
          "[simulation][faults]") {
  Room room;
  const std::string how = GENERATE("given up", "another device");
  DYNAMIC_SECTION(how) {
    for (int round = 0; round < 2; ++round) {  // and so can its successor
      CAPTURE(round);
      conn::ConnectionPtr client = room.dial(how == "another device" ? "device=sim7" : "");
      if (how == "given up")
        RUN_UNTIL(room.loop, room.far->cm_holds);
      else
        CHECK(room.until_failed(*client) < 1s);
      client.reset();
      REQUIRE(room.far->cm_holds);
      REQUIRE(room.far->handles.empty());  // it was never opened
      room.world.remove_device(*room.far);
      room.run_for(100ms);
      CHECK_FALSE(room.far->cm_holds);
      room.far = &room.world.add_device("sim1", "10.77.0.2");
    }
  }
}

TEST_CASE("simulation: a device that only librdmacm has opened can be removed",
          "[simulation][faults]") {
  Room room;
  (void)room.connected();
  auto& spare = room.world.add_device("sim2", "10.77.0.3");
  room.world.remove_device(*room.near);
  RUN_UNTIL(room.loop, spare.cm_holds);
  room.run_for(100ms);
  room.world.remove_device(spare);
  RUN_UNTIL(room.loop, !spare.cm_holds);
}

TEST_CASE("simulation: the last device may go, and its like come back", "[simulation][faults]") {
  Room room;
  {
    const auto client = room.connected();
    room.world.remove_device(*room.near);
    room.world.remove_device(*room.far);
    CHECK(room.until_failed(*client) < 1s);
  }
  room.run_for(2s);
  room.near = &room.world.add_device("sim0", "10.77.0.1");
  room.far = &room.world.add_device("sim1", "10.77.0.2");
  room.run_for(1s);
  (void)room.connected();
}

TEST_CASE("simulation: events of the device end what they concern, and nothing else",
          "[simulation][faults]") {
  const int type = GENERATE(range(0, 20));
  CAPTURE(type);
  Room room;
  const auto client = room.connected();
  const auto other = room.connected();
  ibv_async_event event{};
  event.event_type = static_cast<ibv_event_type>(type);
  event.element.port_num = 1;
  Handle* handle = room.near->handles.front();
  const bool of_queue_pair = type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
                             type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST ||
                             type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_PATH_MIG ||
                             type == IBV_EVENT_PATH_MIG_ERR ||
                             type == IBV_EVENT_QP_LAST_WQE_REACHED;
  if (of_queue_pair) {
    for (const auto& [number, qp] : room.world.queue_pairs)
      if (qp->context == handle) {
        event.element.qp = qp;
        break;
      }
  }
  handle->raise(event);
  room.run_for(10ms);
  const bool ends_one = type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
                        type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_PATH_MIG_ERR ||
                        type == IBV_EVENT_QP_LAST_WQE_REACHED;
  // After a port error the port is queried: here it is up.
  const bool ends_all =
      type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_CQ_ERR || type == IBV_EVENT_SRQ_ERR;
  CHECK(room.log.endings.size() == (ends_all ? 2u : ends_one ? 1u : 0u));
  for (const std::string& each : room.log.endings) CHECK_THAT(each, Contains("sim0"));
  if (!ends_all) room.echoes(*other);
}

TEST_CASE("simulation: a completion event without completions, again and again, stops nobody",
          "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  for (int i = 0; i < 300; ++i) {
    for (auto& [number, qp] : room.world.queue_pairs) {
      auto& queue = *static_cast<Queue*>(qp->recv_cq);
      auto& channel = *static_cast<Channel*>(queue.channel);
      if (!channel.events.empty()) continue;
      queue.armed = false;
      channel.events.push_back(&queue);
      channel.bell.set(true);
    }
    room.run_for(1ms);
  }
  room.echoes(*client);
}

TEST_CASE("simulation: a send queue that is fuller than counted is back-pressure, no error",
          "[simulation][faults]") {
  Room room;
  const auto client = room.connected();
  for (auto& [number, qp] : room.world.queue_pairs) qp->used += qp->cap.max_send_wr - 2;
  room.world.after(50ms, [&] {
    for (auto& [number, qp] : room.world.queue_pairs) qp->used = 0;
  });
  const Nanoseconds begin = room.world.now();
  room.echoes(*client, 50000);
  CHECK(room.world.now() - begin < 60ms);
}

TEST_CASE("simulation: without a device there is one clear sentence", "[simulation][faults]") {
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  CHECK_THROWS_WITH(registry.require("rdma").listen(loop, conn::Endpoint::parse("rdma://*:0"), {}),
                    Contains("no RDMA device on this machine"));
}

TEST_CASE("simulation: devices without memory windows, inline and shared receives",
          "[simulation]") {
  Config config;
  config.memory_windows = config.shared_receives = false;
  config.max_inline = 0;
  config.max_qp_wr = 64;
  config.max_cqe = 600;
  Room room(config);
  std::vector<conn::ConnectionPtr> crowd;
  for (int i = 0; i < 20; ++i) crowd.push_back(room.connected());
  for (const auto& each : crowd) room.echoes(*each, 20000);
}

TEST_CASE("simulation: a blocking connect sleeps while it waits, whatever went before",
          "[simulation][faults]") {
  Room room;
  room.connected().reset();
  RUN_UNTIL(room.loop, room.log.endings.size() == 1);
  room.world.set_path(*room.near, *room.far, false);
  const std::uint64_t before = room.world.waits;
  const auto client = room.type.create(room.loop);
  CHECK_FALSE(client->connect_blocking(room.address, 10s));
  CHECK(room.world.waits - before < 100);
}

TEST_CASE("simulation: what completes between the last look and the sleep is not missed",
          "[simulation]") {
  Config config;
  config.seed = GENERATE(range(std::uint64_t{1}, std::uint64_t{9}));
  config.weather.least_delay = 0us;
  config.weather.most_delay = 3us;
  Room room(config);
  const auto client = room.connected();
  // One question at a time: nothing else wakes either end, except for keepalive timers once per
  // second.
  Nanoseconds longest{0}, asked = room.world.now();
  int answers = 0;
  client->set_read_handler([&](conn::Connection& here) {
    std::array<char, 16> bytes;
    while (here.read(bytes.data(), bytes.size()) > 0) {
    }
    longest = std::max(longest, room.world.now() - asked);
    asked = room.world.now();
    ++answers;
    (void)here.write("ping", 4);
  });
  REQUIRE(client->write("ping", 4) == 4);
  RUN_UNTIL(room.loop, answers >= 2000);
  CHECK(longest < 10ms);
}
