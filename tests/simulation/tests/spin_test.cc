// SPDX-License-Identifier: BSD-3-Clause
// Loops that spin before they sleep, with realistic costs of sleeping: two ends that run in
// parallel in simulated time.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "conn/transports/transports.h"
#include "conn/url/spin_option.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/processors.h"
#include "tests/support/catch.h"

using namespace simulation;
using conn::Connection;
using conn::ConnectionPtr;

namespace {

double us(Nanoseconds span) { return static_cast<double>(span.count()) / 1e3; }

Config machines() {
  Config config;
  config.weather.least_delay = 1us;
  config.weather.most_delay = 1200ns;
  config.wake_latency = config.wake_cpu = 11us;
  return config;
}

/// A server on one processor and its client on another.
struct Ends {
  struct Setup {
    std::string server = "no", client = "no";  ///< as for --spin
    Nanoseconds work = 1us;                    ///< CPU time of a request at the server
    Nanoseconds pause = 0us;                   ///< the client's pause after each `burst` requests
    int burst = 0;
    Config config = machines();
  };
  explicit Ends(const Setup& its_setup) : setup(its_setup), world(setup.config) {
    world.add_device("sim0", "10.77.0.1");
    world.add_device("sim1", "10.77.0.2");
    // Before the loops run: otherwise a spin while taking turns would see only its own time.
    listener = registry.require("rdma").listen(
        processors.loop(0), conn::Endpoint::parse("rdma://10.77.0.1:0"),
        [this](ConnectionPtr next) { serve(std::move(next)); });
    conn::Endpoint to = listener->endpoints().front();
    to.options.set("source", "10.77.0.2");
    client = registry.require("rdma").create(processors.loop(1));
    client->connect(to, {});
    processors.take_turns_until(
        [this] { return client->state() != conn::State::kConnecting && !served.empty(); });
    REQUIRE(client->state() == conn::State::kConnected);
    client->set_read_handler([this](Connection&) { answered(); });
    processors.loop(0).set_spin(conn::parse_spin(setup.server));
    processors.loop(1).set_spin(conn::parse_spin(setup.client));
    processors.loop(1).post([this] { ask(); });
  }
  ~Ends() {
    processors.end();
    client.reset();
    served.clear();
    listener.reset();
  }
  void serve(ConnectionPtr next) {
    Connection& here = *next;
    served.push_back(std::move(next));
    here.set_read_handler([this](Connection& c) {
      char byte = 0;
      if (c.read(&byte, 1) != 1) return;
      world.spend(setup.work);
      REQUIRE(c.write(&byte, 1) == 1);
    });
  }
  void ask() {
    begun = world.now();
    REQUIRE(client->write("?", 1) == 1);
  }
  void answered() {
    char byte = 0;
    if (client->read(&byte, 1) != 1) return;
    times.push_back(world.now() - begun);
    if (setup.burst == 0 || times.size() % static_cast<std::size_t>(setup.burst) != 0) return ask();
    processors.loop(1).add_time_event(setup.pause, [this] { return ask(), ae::kNoMore; });
  }
  struct Figures {
    double p50 = 0, server = 0, client = 0;  ///< round trip, CPU time per request; us
    std::uint64_t server_wakes = 0;
  };
  Figures measure(std::size_t requests) {
    times.clear();
    const Nanoseconds server = processors.cpu(0), mine = processors.cpu(1);
    const std::uint64_t wakes = processors.wakes(0);
    processors.run_until([this, requests] { return times.size() >= requests; });
    std::vector<Nanoseconds> sorted = times;
    std::sort(sorted.begin(), sorted.end());
    const auto count = static_cast<double>(requests);
    const Figures figures{us(sorted[sorted.size() / 2]), us(processors.cpu(0) - server) / count,
                          us(processors.cpu(1) - mine) / count, processors.wakes(0) - wakes};
    std::printf("spin server=%s client=%s: p50 %.1f us, CPU %.1f and %.1f us, %zu wakes of %zu\n",
                setup.server.c_str(), setup.client.c_str(), figures.p50, figures.server,
                figures.client, static_cast<std::size_t>(figures.server_wakes), requests);
    return figures;
  }

  const Setup setup;
  World world;
  conn::Registry registry = conn::all_transports();
  Processors processors{world, 2};
  conn::ListenerPtr listener;
  ConnectionPtr client;
  std::vector<ConnectionPtr> served;
  Nanoseconds begun{};
  std::vector<Nanoseconds> times;
};

}  // namespace

TEST_CASE("simulation: two loops that may spin find out that it pays, and do",
          "[simulation][spin]") {
  const auto by_hand = Ends({.server = "100us", .client = "100us"}).measure(500);
  const auto asleep = Ends({}).measure(500);
  CHECK(asleep.p50 > 2 * by_hand.p50);
  Ends ends({.server = "auto", .client = "auto"});
  ends.measure(8000);  // the first probe needs 100 ms
  const auto adaptive = ends.measure(1000);
  CHECK(adaptive.p50 <= 1.1 * by_hand.p50);
  CHECK(adaptive.server <= asleep.server);
  CHECK(adaptive.client <= asleep.client);
  CHECK(ends.processors.loop(0).times().spin_hits > 500);
}

TEST_CASE("simulation: towards a peer that sleeps spinning costs next to nothing",
          "[simulation][spin]") {
  const auto asleep = Ends({}).measure(6000);
  Ends ends({.server = "auto"});
  const auto adaptive = ends.measure(6000);
  CHECK(adaptive.server <= 1.03 * asleep.server);
  CHECK(adaptive.p50 <= 1.01 * asleep.p50);
}

TEST_CASE("simulation: for a peer that takes 30 us nobody spins", "[simulation][spin]") {
  const auto asleep = Ends({.work = 30us}).measure(4000);
  Ends ends({.client = "auto", .work = 30us});
  const auto adaptive = ends.measure(4000);
  CHECK(adaptive.client <= 1.03 * asleep.client);
  const ae::LoopTimes times = ends.processors.loop(1).times();
  CHECK(times.spin_hits + times.spin_misses <= 32 * times.spin_probes);
}

TEST_CASE("simulation: bursts are spun through, pauses are slept", "[simulation][spin]") {
  const Ends::Setup bursts{.server = "auto", .client = "100us", .pause = 2ms, .burst = 64};
  Ends::Setup sleeping = bursts;
  sleeping.server = "no";
  const auto asleep = Ends(sleeping).measure(3200);
  Ends ends(bursts);
  ends.measure(1280);
  const auto adaptive = ends.measure(3200);
  CHECK(adaptive.server <= 0.6 * asleep.server);
  CHECK(adaptive.p50 <= 0.6 * asleep.p50);
  CHECK(adaptive.server_wakes <= 3200 / 64 * 4);
}

TEST_CASE("simulation: one processor is none to spin on", "[simulation][spin]") {
  Ends::Setup setup{.server = "auto", .client = "auto"};
  setup.config.processors = 1;
  Ends ends(setup);
  ends.measure(3000);
  for (const std::size_t end : {0u, 1u}) {
    CHECK(ends.processors.loop(end).times().spin_hits == 0);
    CHECK(ends.processors.loop(end).times().spun == 0us);
  }
}

TEST_CASE("simulation: a connection over tcp waits 20 us at most for a loop that spins",
          "[simulation][spin]") {
  // The server spins for rdma, whose client is slow; bytes on a socket may arrive at any time.
  Ends ends({.server = "no", .client = "no", .pause = 300us, .burst = 1});
  conn::Endpoint spinning = conn::Endpoint::parse("rdma://10.77.0.1:0?spin=always");
  const conn::ListenerPtr wish = ends.registry.require("rdma").listen(
      ends.processors.loop(0), spinning,
      [&](ConnectionPtr c) { ends.served.push_back(std::move(c)); });
  conn::Endpoint to = wish->endpoints().front();
  to.options = conn::Options::parse("source=10.77.0.2");
  const ConnectionPtr asks = ends.registry.require("rdma").create(ends.processors.loop(1));
  asks->connect(to, {});
  ConnectionPtr near;
  const conn::ListenerPtr tcp = ends.registry.require("tcp").listen(
      ends.processors.loop(0), conn::Endpoint::parse("tcp://127.0.0.1:0"),
      [&](ConnectionPtr c) { near = std::move(c); });
  const ConnectionPtr far = ends.registry.require("tcp").create(ends.processors.loop(1));
  far->connect(tcp->endpoints().front(), {});
  ends.processors.take_turns_until([&] { return near != nullptr && ends.served.size() == 2; });

  Nanoseconds sent{}, longest{};
  int heard = 0;
  near->set_read_handler([&](Connection& c) {
    char byte = 0;
    if (c.read(&byte, 1) != 1) return;
    longest = std::max(longest, ends.world.now() - sent);
    ++heard;
  });
  ends.processors.loop(1).add_time_event(100us, [&]() -> ae::Duration {
    sent = ends.world.now();
    (void)far->write("!", 1);
    return Nanoseconds(97'000 + 1'300 * heard);  // at another point of the spin each time
  });
  ends.processors.run_until([&] { return heard >= 100; });
  ends.processors.end();
  CHECK(us(longest) <= 22);  // including the loop and its handler
  CHECK(ends.processors.wakes(0) == 0);
  CHECK(ends.processors.loop(0).times().slept == 0us);
}
