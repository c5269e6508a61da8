// SPDX-License-Identifier: BSD-3-Clause
// A device that goes while memory runs out: whichever allocation fails then, its connections end,
// the loop goes on, and when the device is back its listener serves again.

#include <array>
#include <string>

#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

using namespace simulation;

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

// What is polled at once is handed out one by one, and a connection that ends in between has its
// queue drained: nobody else's completions overtake each other by that.
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
    // The first batch of completions ends between the two windows that are offered.
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
