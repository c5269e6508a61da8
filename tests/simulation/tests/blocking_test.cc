// SPDX-License-Identifier: BSD-3-Clause
// Blocking operations, during which the loop's own timers and descriptors are not processed.

#include <algorithm>
#include <new>
#include <string>

#include "conn/kit/interruption.h"
#include "tests/simulation/child.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"

using namespace simulation;

TEST_CASE("simulation: a blocking write to a full send queue ends soon after there is room",
          "[simulation][blocking]") {
  Room room;
  const auto client = room.connected();
  for (auto& [number, qp] : room.world.queue_pairs) qp->used += qp->cap.max_send_wr;
  room.world.after(20ms, [&] {
    for (auto& [number, qp] : room.world.queue_pairs) qp->used = 0;
  });
  const Nanoseconds begin = room.world.now();
  const std::uint64_t waits = room.world.waits;
  REQUIRE(client->sync_write("patience", 8, 2s) == 8);
  CHECK(room.world.now() - begin >= 20ms);
  CHECK(room.world.now() - begin < 30ms);
  CHECK(room.world.waits - waits < 100);
  CHECK(testing::receive(room.loop, *client, 8) == "patience");
}

TEST_CASE("simulation: a blocking read looks at every device", "[simulation][blocking]") {
  Room room({}, "?keepalive=0ms");
  room.world.add_device("sim2", "10.77.0.3");
  const auto first = room.connected("keepalive=0ms");
  const auto third = room.connected("keepalive=0ms&source=10.77.0.3");
  REQUIRE(room.log.clients.size() == 2);
  for (const auto& each : room.log.clients) each->set_read_handler(nullptr);
  // Longer than the receive windows, so that completions of both ends are needed.
  const std::string bytes(200000, 'b');
  const auto reads = [&](conn::Connection& from, conn::Connection& to) {
    REQUIRE(from.write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    std::string got(bytes.size(), ' ');
    const Nanoseconds begin = room.world.now();
    CHECK(to.sync_read(got.data(), got.size(), 2s) == static_cast<ssize_t>(got.size()));
    CHECK(room.world.now() - begin < 10ms);
    CHECK(got == bytes);
  };
  reads(*room.log.clients.front(), *first);
  reads(*room.log.clients.back(), *third);
  reads(*third, *room.log.clients.back());
  // Bytes that arrive during the last poll before the sleep, and bytes that arrive during the
  // sleep.
  const Nanoseconds delay = GENERATE(0us, 1us, 1000us);
  CAPTURE(delay.count());
  room.world.config.weather.least_delay = room.world.config.weather.most_delay = delay;
  for (conn::Connection* here : {first.get(), third.get(), room.log.clients.back().get()}) {
    conn::Connection* there = here == first.get()   ? room.log.clients.front().get()
                              : here == third.get() ? room.log.clients.back().get()
                                                    : third.get();
    (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
    REQUIRE(there->write("ping", 4) == 4);
    char answer[4];
    const Nanoseconds begin = room.world.now();
    CHECK(here->sync_read(answer, sizeof answer, 2s) == 4);
    CHECK(room.world.now() - begin < delay + 1ms);
  }
}

TEST_CASE("simulation: a blocking read does not sleep over what came when it looked last",
          "[simulation][blocking]") {
  Room room({}, "?keepalive=0ms");
  const auto client = room.connected("keepalive=0ms");
  conn::Connection& server = *room.log.clients.front();
  server.set_read_handler(nullptr);
  const std::string bytes(100000, 'b');
  Nanoseconds longest{0};
  for (Nanoseconds delay = 0ns; delay < 5us; delay += 50ns) {
    room.world.config.weather.least_delay = room.world.config.weather.most_delay = delay;
    REQUIRE(server.write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    std::string got(bytes.size(), ' ');
    const Nanoseconds begin = room.world.now();
    REQUIRE(client->sync_read(got.data(), got.size(), 5s) == static_cast<ssize_t>(got.size()));
    longest = std::max(longest, room.world.now() - begin);
    room.run_for(10ms);
  }
  CHECK(longest < 1ms);
}

// Goal: a failed connect stays failed. Method: fail each allocation or device call in turn, or
// interrupt it by a signal at each point, for both ways to connect; then run the loop: late answers
// of the peer must change nothing and leave nothing behind.
TEST_CASE("simulation: a connect that failed does not come back to life",
          "[simulation][blocking][torture]") {
  const std::string by = GENERATE("memory", "a call", "a signal");
  const bool blocking = by != "memory" || GENERATE(true, false);
  CAPTURE(by, blocking);
  struct Sums {
    bool failed = false;
  };
  int failed = 0;
  for (std::uint64_t number = 1;; ++number) {
    CAPTURE(number);
    REQUIRE(number < 300);
    const auto run = run_in_child<Sums>([&](Sums& sums) -> std::string {
      Config config;
      config.weather.least_cm_delay = config.weather.most_cm_delay = 10ms;
      Room room(config);
      conn::ConnectionPtr client = room.type.create(room.loop);
      if (by == "memory") fail_allocation(Allocator::kNew, number);
      if (by == "a call") room.world.fail_call(number);
      if (by == "a signal") {
        conn::Interruption::ask([](void*) { return 1; }, nullptr);
        room.world.after(number * 1ms, [] { (void)conn::Interruption::came(); });
      }
      try {
        if (blocking)
          (void)client->connect_blocking(room.address, 2s);
        else
          client->connect(room.address, {});
      } catch (const std::bad_alloc&) {
      }
      sums.failed = by == "memory"   ? allocation_failed()
                    : by == "a call" ? room.world.failed_calls() != 0
                                     : client->state() == conn::State::kError;
      fail_allocation(Allocator::kNew, 0);
      room.world.fail_call(0);
      conn::Interruption::ask(nullptr, nullptr);
      const conn::State before = client->state();
      const std::string why = client->last_error();
      room.run_for(3s);
      if (before != conn::State::kConnecting && client->state() != before)
        return std::string(conn::to_string(before)) + " became " +
               std::string(conn::to_string(client->state())) + ", " + client->last_error();
      if (before == conn::State::kError && why.empty()) return "it failed and did not say why";
      client.reset();
      // On iWARP only accept-timeout tells a server that a client went before its first message.
      room.run_for(15s);
      if (!room.log.clients.empty()) return "the server still has it";
      for (const auto& [kind, count] : room.world.objects())
        if (kind == "qp" && count != 0) return "a queue pair is left";
      return {};
    });
    CHECK(run.complaint == "");
    if (!run.sums.failed) break;
    ++failed;
  }
  CHECK(failed > 3);
}
