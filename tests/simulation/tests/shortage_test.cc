// SPDX-License-Identifier: BSD-3-Clause
// A device is removed while memory runs out: whichever allocation fails, the device's connections
// end, the loop goes on, and the listener serves again when the device is back.

#include <array>
#include <string>
#include <vector>

#include "tests/simulation/child.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;
using conn::rdma::registered_bytes;

TEST_CASE("simulation: a device that goes while memory runs out is found again",
          "[simulation][torture]") {
  std::uint64_t number = 1;
  for (bool failed = true; failed; ++number) {
    CAPTURE(number);
    REQUIRE(number < 500);
    Room room;
    const auto client = room.connected();
    const auto other = room.connected();
    for (const conn::ConnectionPtr& each : room.log.clients) each->set_read_handler(nullptr);
    bool over = false;
    room.loop.add_time_event(1s, [&] {
      over = true;
      return ae::kNoMore;
    });
    fail_allocation(Allocator::kNew, number);
    {
      const Below below;
      room.world.remove_device(*room.near);
    }
    while (!over) (void)room.loop.process_events(ae::kFullIteration);
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    CHECK(room.log.clients.front()->state() != conn::State::kConnected);
    room.log.clients.clear();
    room.near = &room.world.add_device("sim0", "10.77.0.1");
    room.run_for(1500ms);
    (void)room.connected();
  }
  WARN(number - 2 << " allocations failed in turn while a device went");
  CHECK(number > 3);
}

TEST_CASE("simulation: a send queue of any length sends what is written a little at a time",
          "[simulation][shortage]") {
  const unsigned length = GENERATE(8u, 9u, 10u, 11u, 12u, 16u);
  const bool inlined = GENERATE(true, false);
  CAPTURE(length, inlined);
  const std::string options =
      "keepalive=0ms&send-queue=" + std::to_string(length) + (inlined ? "" : "&inline=0");
  Room room({}, "?" + options);
  const auto client = room.connected(options);
  std::size_t read = 0;
  room.log.clients.front()->set_read_handler([&](conn::Connection& here) {
    std::array<char, 100> bytes;
    for (ssize_t n = 0; (n = here.read(bytes.data(), bytes.size())) > 0;)
      read += static_cast<std::size_t>(n);
  });
  const Nanoseconds begin = room.world.now();
  for (std::size_t written = 1; written <= 200; ++written) {
    REQUIRE(client->write("x", 1) == 1);
    RUN_UNTIL(room.loop, read == written);
  }
  CHECK(room.world.now() - begin < 100ms);
}

// Polled completions are handed out one by one; when a connection ends in between, its queue is
// drained. That must not reorder the completions of other connections.
TEST_CASE("simulation: completions keep their order where one of them finds no memory",
          "[simulation][shortage]") {
  Config config;
  config.weather.least_delay = config.weather.most_delay = 1us;
  config.weather.in_step = true;
  Room room(config, "?keepalive=0ms");
  testing::RawNet net(room.loop);
  testing::RawOptions options;
  options.source = "10.77.0.2";
  std::size_t ended = 0;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    CAPTURE(number);
    const auto unlucky = net.connect(room.address, options),
               other = net.connect(room.address, options);
    RUN_UNTIL(room.loop,
              room.log.clients.size() == 2 && !unlucky->offers.empty() && !other->offers.empty());
    room.run_for(10ms);
    const auto window = other->own_window();
    const std::size_t endings = room.log.endings.size();
    // The first batch of completions ends between the two offers of windows.
    unlucky->send(testing::raw_control(999));  // no such message
    other->send(testing::raw_register(window.address, 1000, window.key));
    for (int i = 0; i < 30; ++i) other->send(testing::raw_keepalive());
    other->send(testing::raw_register(window.address, 7, window.key));
    const Nanoseconds until = room.world.now() + 1ms;
    while (room.world.advance(until)) {
    }
    fail_allocation(Allocator::kNew, number);
    testing::turns(room.loop, 4);
    const bool failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    RUN_UNTIL(room.loop, room.log.endings.size() > endings);
    ended += failed ? 1 : 0;
    REQUIRE(room.log.clients.size() == 1);
    for (const auto& [name, value] : room.log.clients.front()->info())
      if (name == "peer-window") CHECK(value == "7");
    unlucky->disconnect();
    other->disconnect();
    RUN_UNTIL(room.loop, room.log.clients.empty());
    room.run_for(1s);
  }
  CHECK(ended != 0);
}

// Goal: an event of a device is not lost when memory runs out, and no exception leaves the loop.
// Method: each kind of event, and each allocation from then on that fails, alone or with all others
// of the next second: the connection concerned ends, and memory that is returned once a minute is
// returned.
TEST_CASE("simulation: no news of a device is lost where memory runs out",
          "[simulation][shortage][torture]") {
  const std::string news = GENERATE("a port is down", "an address goes", "a refusal",
                                    "a queue pair fails", "a device fails", "a crowd leaves");
  const bool all = GENERATE(false, true);
  CAPTURE(news, all);
  if (news == "a port is down" && !chosen_profile().port_events) return;
  if (news == "an address goes" && !chosen_profile().address_events) return;
  std::uint64_t number = 1, rest = 0;
  for (bool failed = true; failed; ++number) {
    CAPTURE(number);
    REQUIRE(number < 200);
    Room room({}, "?keepalive=0ms");
    auto client = room.connected("keepalive=0ms");
    std::vector<conn::ConnectionPtr> crowd;
    for (int i = 0; news == "a crowd leaves" && i < 8; ++i)
      crowd.push_back(room.connected("keepalive=0ms"));
    for (const conn::ConnectionPtr& each : room.log.clients) each->set_read_handler(nullptr);
    std::string thrown;
    const auto turn = [&](Nanoseconds span) {
      const Nanoseconds until = room.world.now() + span;
      while (room.world.now() < until) {
        try {
          (void)room.loop.process_events(ae::kAllEvents | ae::kDontWait);
        } catch (const std::exception& error) {
          thrown = error.what();
        }
        (void)room.world.advance(room.world.now() + 1ms);
      }
    };
    turn(2s);
    {
      const Below below;
      const auto raise_at_qp = [&](ibv_event_type type) {
        for (const auto& [key, qp] : room.world.queue_pairs) {
          if (&qp->device_of() != room.near) continue;
          ibv_async_event event{};
          event.event_type = type;
          event.element.qp = qp;
          static_cast<Handle*>(qp->context)->raise(event);
        }
      };
      if (news == "a port is down") room.world.set_link(*room.near, false);
      if (news == "an address goes") room.world.set_address(*room.near, false);
      if (news == "a refusal") raise_at_qp(IBV_EVENT_QP_ACCESS_ERR);
      if (news == "a queue pair fails") raise_at_qp(IBV_EVENT_QP_FATAL);
      if (news == "a device fails") room.world.raise(*room.near, IBV_EVENT_DEVICE_FATAL);
      crowd.clear();
    }
    fail_allocation(Allocator::kNew, number, all ? std::uint64_t{1} << 40 : 1);
    turn(1s);
    failed = allocation_failed();
    fail_allocation(Allocator::kNew, 0);
    CHECK(thrown == "");
    turn(3s);
    const conn::Connection& server = *room.log.clients.front();
    if (news == "a crowd leaves") {
      room.log.clients.resize(1);
      room.run_for(120s);
      if (rest == 0) rest = registered_bytes();
      CHECK(registered_bytes() <= rest);
    } else {
      CHECK(server.state() != conn::State::kConnected);
      CHECK(server.error_code());
    }
    (void)room.world.take_violations();
  }
  WARN(news << ": " << number - 2 << " allocations failed in turn");
}

// Goal: connections that wait for memory keep waiting while there is none, whatever else runs out.
// Method: a few, and more than are called in one iteration, while no allocation succeeds.
TEST_CASE("simulation: those that wait for memory wait on where nothing is to be had",
          "[simulation][shortage]") {
  const std::size_t count = GENERATE(1u, 2u, 20u);
  CAPTURE(count);
  struct Sums {
    std::size_t waiting = 0;
  };
  const auto run = run_in_child<Sums>([&](Sums& sums) -> std::string {
    Room room({}, "?keepalive=0ms");
    auto loop = testing::make_loop();
    conn::Endpoint to = room.address;
    to.options = to.options.merged_with(conn::Options::parse(
        "send-buffer=4m&keepalive=0ms&memory-limit=" + std::to_string(6 + count) + "m"));
    std::vector<conn::ConnectionPtr> clients;
    std::string thrown;
    const auto both = [&](Nanoseconds span) {
      const Nanoseconds until = room.world.now() + span;
      while (room.world.now() < until) {
        try {
          for (ae::EventLoop* each : std::array<ae::EventLoop*, 2>{&room.loop, loop.get()})
            (void)each->process_events(ae::kAllEvents | ae::kDontWait);
        } catch (const std::exception& error) {
          thrown = std::string("an exception left the loop: ") + error.what();
        }
        (void)room.world.advance(room.world.now() + 100us);
      }
    };
    for (std::size_t i = 0; i < count; ++i) {
      clients.push_back(room.type.create(*loop));
      clients.back()->connect(to, {});
    }
    both(200ms);
    if (room.log.clients.size() != count) return "not all are connected";
    for (const auto& each : room.log.clients) each->set_read_handler(nullptr);
    static const std::string bytes(64 * 1024, 'f');
    for (int round = 0; round < 30; ++round) {
      for (const auto& each : clients)
        while (each->write(bytes.data(), bytes.size()) > 0) {
        }
      both(2ms);
    }
    for (const auto& each : clients) {
      while (each->write("x", 1) > 0) {
      }
      sums.waiting += each->state() == conn::State::kConnected ? 1 : 0;
      each->set_write_handler([](conn::Connection&) {});
    }
    both(2ms);
    fail_allocation(Allocator::kNew, 1, std::uint64_t{1} << 40);
    both(1500ms);
    fail_allocation(Allocator::kNew, 0);
    if (!thrown.empty()) return thrown;
    // When memory is available, their write handlers are called.
    std::size_t called = 0;
    for (const auto& each : clients)
      each->set_write_handler([&](conn::Connection& here) {
        ++called;
        here.set_write_handler(nullptr);
      });
    for (const auto& each : room.log.clients)
      each->set_read_handler([](conn::Connection& here) {
        static std::array<char, 1 << 16> into;
        while (here.read(into.data(), into.size()) > 0) {
        }
      });
    both(3s);
    const std::string missed = called != clients.size() ? "only " + std::to_string(called) : "";
    clients.clear();
    both(4s);
    loop.reset();
    return missed;
  });
  CHECK(run.complaint == "");
  CHECK(run.sums.waiting == count);
}
