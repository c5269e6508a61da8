// SPDX-License-Identifier: BSD-3-Clause
// Hostile peers on a processor of their own that attack continuously: how they delay a neighbour's
// requests, and whether the loop's shared receives are complete afterwards.
#if AECONN_RDMA

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "conn/rdma/device/verbs.h"
#include "tests/support/neighbour.h"
#include "tests/support/rdma_kit.h"

using testing::Child;
using testing::Neighbour;
using testing::RawNet;
using testing::RawOptions;
using testing::RawPeer;
using testing::Scene;

namespace {

/// The actions of a hostile connection, repeated as long as it is established.
struct Flood {
  std::string name;
  std::function<void(RawPeer&)> strike;
  RawOptions options = {};
  std::string sentence;  ///< in the error of connections that it ends; empty: none is ended
  std::size_t at_once = 1;
};

/// A process that only floods the given address. It starts by exec: a forked child would share
/// librdmacm's open device with this process, whose memory it cannot use.
class Flooder {
 public:
  Flooder(std::size_t kind, const conn::Endpoint& to)
      : child_([&] {
          setenv("AECONN_FLOOD_KIND", std::to_string(kind).c_str(), 1);
          setenv("AECONN_FLOOD_URL", to.to_string().c_str(), 1);
          unsetenv("AECONN_TEST_TALLY");
          execl("/proc/self/exe", "unit-tests", kTest, "-o", "/dev/null", nullptr);
        }) {}
  static constexpr const char* kTest = "rdma hostile: what a flooder does";

 private:
  Child child_;
};

void each_of_256(RawPeer& peer, const std::function<void()>& one) {
  for (int i = 0; i < 256 && peer.can_post(); ++i) one();
}

std::vector<Flood> floods() {
  RawOptions incomplete, gone;
  incomplete.completes = false;
  gone.at_established = [](RawPeer& p) { p.disconnect(); };
  return {
      {"keepalives",
       [](RawPeer& p) { each_of_256(p, [&] { p.send(testing::raw_keepalive()); }); },
       {},
       "floods us"},
      {"windows", [](RawPeer& p) { each_of_256(p, [&] { p.announce(); }); }, {}, "floods us"},
      {"immediates of 0",
       [](RawPeer& p) { each_of_256(p, [&] { p.immediate(0); }); },
       {},
       "floods us"},
      {"questions",
       [](RawPeer& p) { each_of_256(p, [&] { p.send(testing::raw_feature(0, 0, 0)); }); },
       {},
       "t"},
      {"unknown opcodes", [](RawPeer& p) { p.send(testing::raw_control(77)); }, {}, "opcode", 4},
      {"connections that leave at once", {}, gone, "", 4},
      {"requests that are never completed", {}, incomplete, "", 64},
  };
}

}  // namespace

// Run only by Flooder, in a process of its own, until it is killed.
TEST_CASE("rdma hostile: what a flooder does", "[.]") {
  const Flood flood = floods().at(std::stoul(std::getenv("AECONN_FLOOD_KIND")));
  const conn::Endpoint to = conn::Endpoint::parse(std::getenv("AECONN_FLOOD_URL"));
  testing::AnyLoop loop;
  RawNet net(loop);
  std::vector<std::unique_ptr<RawPeer>> peers(flood.at_once);
  // It pauses between its attacks: it shares the machine with its victims.
  constexpr ae::Duration kPause = std::chrono::milliseconds(1);
  loop.add_time_event(kPause, [&] {
    for (auto& peer : peers) {
      if (!peer || peer->over()) peer = net.connect(to, flood.options);
      if (flood.strike && peer->established && !peer->offers.empty()) flood.strike(*peer);
    }
    return kPause;
  });
  for (;;) loop.process_events(ae::kFullIteration);
}

TEST_CASE("rdma hostile: a neighbour is served throughout every kind of flood",
          "[rdma-device][hostile][long]") {
  constexpr std::size_t kTrips = 300;
  std::string report;
  const std::vector<Flood> all = floods();
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    const Flood& flood = all[kind];
    INFO(flood.name);
    // Incomplete connects must time out to make room for more of the flood.
    Scene scene(flood.options.completes ? "backlog=32" : "backlog=32&accept-timeout=500ms");
    Neighbour neighbour(scene.loop, *scene.innocent);
    const auto served = [&](std::size_t trips) {
      const std::size_t before = neighbour.round_trips;
      RUN_UNTIL(scene.loop, neighbour.round_trips >= before + trips || !neighbour.trouble.empty());
      REQUIRE(neighbour.trouble == "");
    };
    served(kTrips);
    report += "\n" + flood.name + "\n  before: " + neighbour.take_figures();
    const auto& statistics = [&] { return testing::counter(scene.type, scene.loop, "cm_events"); };
    const std::uint64_t events = statistics();
    const Flooder flooder(kind, scene.address);
    RUN_UNTIL(scene.loop, statistics() > events);
    neighbour.times.clear();
    served(kTrips);
    // Checks that the flood went on for as long as the neighbour was observed.
    RUN_UNTIL(scene.loop,
              flood.sentence.empty() ? statistics() > events + 20 : scene.log.endings.size() >= 2);
    for (const std::string& each : scene.log.endings) UNSCOPED_INFO("it ended with: " << each);
    if (!flood.sentence.empty())
      CHECK(std::any_of(scene.log.endings.begin(), scene.log.endings.end(), [&](const auto& each) {
        return each.find(flood.sentence) != std::string::npos;
      }));
    report += "\n  during: " + neighbour.take_figures() +
              "; connections ended: " + std::to_string(scene.log.endings.size());
    scene.log.close_all_but_first();
  }
  CHECK(conn::rdma::teardown_failures() == 0);
  WARN("round trips of a neighbour:" << report);
}

TEST_CASE("rdma hostile: connections that break the rules use up no shared receives",
          "[rdma-device][hostile]") {
  // If each connection lost one receive, none would be left for the neighbour's last requests.
  constexpr int kReceives = 64;
  const auto kind = GENERATE(0, 1, 2);
  INFO("kind " << kind);
  // Not shorter: the machine may be emulated, and the server shares it with 72 connects and ends.
  Scene scene("keepalive=1s&shared-receive-queue=" + std::to_string(kReceives));
  Neighbour neighbour(scene.loop, *scene.innocent);
  for (int i = 0; i < kReceives + 8; ++i) {
    const std::size_t endings = scene.log.endings.size();
    const auto peer = scene.raw_client();
    switch (kind) {
      case 0:
        peer->send(std::string(64, 'x'));
        break;
      case 1:
        peer->write("x", peer->offer().address, peer->offer().key + 1, 1);
        RUN_UNTIL(scene.loop, !peer->errors.empty());
        peer->disconnect();
        break;
      default:  // and the connection is gone before it is processed
        for (int n = 0; n < 8; ++n) peer->send(testing::raw_keepalive());
        peer->write(std::string(8000, 'x'), peer->offer().address, peer->offer().key ^ 0x100, 1);
        peer->disconnect();
    }
    RUN_UNTIL(scene.loop, scene.log.endings.size() > endings);
  }
  const std::size_t trips = neighbour.round_trips;
  RUN_UNTIL(scene.loop, neighbour.round_trips >= trips + 50 || !neighbour.trouble.empty());
  CHECK(neighbour.trouble == "");
}

#endif
