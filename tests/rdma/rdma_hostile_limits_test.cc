// SPDX-License-Identifier: BSD-3-Clause
// What a peer can make this side allocate, and what it can reach with a key: the limits and their
// counters, keys that are no longer valid, and the end of everything while events still wait.
#if AECONN_RDMA

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "tests/support/neighbour.h"
#include "tests/support/rdma_kit.h"

using conn::rdma::registered_bytes;
using testing::counter;
using testing::Neighbour;
using testing::RawNet;
using testing::RawOptions;
using testing::RawPeer;
using testing::Scene;

namespace {

std::uint64_t pinned_by(const conn::Connection& connection) {
  for (const auto& [name, value] : connection.info())
    if (name == "pinned") return std::stoull(value);
  return 0;
}

std::uint64_t count(Scene& scene, const std::string& name) {
  return counter(scene.type, scene.loop, name);
}

}  // namespace

TEST_CASE("rdma hostile: a budget bounds a peer's unearned messages, and floods are counted",
          "[rdma-device][hostile]") {
  Scene scene;
  const auto peer = scene.raw_client();
  const auto flood = [&peer](int most) {
    int sent = 0;
    while (sent < most && peer->can_post() && !peer->over()) {
      peer->send(testing::raw_keepalive());
      ++sent;
    }
    return sent;
  };
  int left = 2000;
  RUN_UNTIL(scene.loop, (left -= flood(left)) == 0);
  peer->stream("within its budget");
  RUN_UNTIL(scene.loop, peer->received == "within its budget");
  CHECK(count(scene, "control_floods") == 0);
  RUN_UNTIL(scene.loop, (flood(256), scene.log.endings.size() == 1));
  CHECK(scene.log.endings.front().find("floods us") != std::string::npos);
  CHECK(count(scene, "control_floods") == 1);
  scene.innocent_echoes();
}

TEST_CASE("rdma hostile: max-peer-window bounds what a peer offers, and is counted",
          "[rdma-device][hostile]") {
  Scene scene("max-peer-window=64k");
  const auto modest = scene.raw_client();
  modest->stream("as long as is allowed");
  RUN_UNTIL(scene.loop, modest->received == "as long as is allowed");
  CHECK(count(scene, "peer_windows_refused") == 0);
  RawOptions options;
  options.window = 65537;
  const auto greedy = scene.net.connect(scene.address, options);
  // Its first message may come before the connection was accepted: then only the listener sees it.
  RUN_UNTIL(scene.loop, greedy->over());
  CHECK(count(scene, "peer_windows_refused") == 1);
  for (const std::string& each : scene.log.endings)
    CHECK(each.find("max-peer-window") != std::string::npos);
  scene.innocent_echoes();
}

TEST_CASE("rdma hostile: windows stop growing at max-window, whatever a peer sends",
          "[rdma-device][hostile]") {
  Scene scene("max-window=128k");
  const auto peer = scene.raw_client();
  const std::size_t total = 3 << 20;
  peer->stream(std::string(total, 'g'));
  std::uint64_t most = 0;
  RUN_UNTIL(scene.loop,
            (most = std::max(most, pinned_by(*scene.log.newest)), peer->received.size() == total));
  CHECK(most <= 2 * (128u << 10));
}

TEST_CASE("rdma hostile: beyond memory-limit windows do not grow, bytes flow and it is counted",
          "[rdma-device][hostile]") {
  Scene scene("max-window=64k");
  // Memory for the connection's first window and no other.
  const std::uint64_t limit = registered_bytes() + (100u << 10);
  const auto tight = scene.type.listen(
      scene.loop, testing::rdma_endpoint("max-window=1m&memory-limit=" + std::to_string(limit)),
      scene.log.handler());
  const conn::Endpoint to = testing::with_options(testing::address_of(*tight), {});
  const auto connect = [&] {
    auto peer = scene.net.connect(to);
    RUN_UNTIL(scene.loop, !peer->offers.empty() || peer->over());
    return peer;
  };
  const auto peer = connect();
  REQUIRE_FALSE(peer->over());
  const std::size_t total = 2 << 20;
  std::string bytes(total, '\0');
  for (std::size_t i = 0; i < total; ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  peer->stream(bytes);
  std::uint64_t most = 0;
  RUN_UNTIL(scene.loop,
            (most = std::max(most, pinned_by(*scene.log.newest)), peer->received.size() == total));
  CHECK(peer->received == bytes);
  CHECK(most == 64u << 10);
  const std::uint64_t refusals = count(scene, "memory_refusals");
  CHECK(refusals > 0);
  // Free memory in existing slabs is used first.
  std::vector<std::unique_ptr<RawPeer>> late;
  do {
    late.push_back(connect());
  } while (!late.back()->over() && late.size() < 32);
  REQUIRE(late.back()->over());
  CHECK(late.back()->private_data.find("memory-limit") == 0);
  CHECK(count(scene, "memory_refusals") > refusals);
  scene.innocent_echoes();
}

TEST_CASE("rdma hostile: the key of a window that was taken back is refused",
          "[rdma-device][hostile]") {
  // Without bound keys the memory stays registered for a while, in a protection domain of its own:
  // a write to it reaches no other connection, and not even the writer's.
  const std::string isolation = GENERATE("auto", "connection");
  INFO("isolation=" << isolation);
  Scene scene("keepalive=200ms&max-window=64k&isolation=" + isolation);
  const auto peer = scene.raw_client();
  const RawPeer::Offer first = peer->offer();
  peer->stream(std::string(65536, 'f'));
  RUN_UNTIL(scene.loop, peer->received.size() == 65536 && peer->offers.size() == 2);
  // After a second without traffic one window is enough, and the first one is freed.
  RUN_UNTIL(scene.loop, pinned_by(*scene.log.newest) == 65536);
  scene.innocent_echoes();  // the freed window's key becomes invalid
  peer->write("x", first.address, first.key);
  const std::pair<std::string, std::string> bound("isolation", "window");
  const auto info = scene.log.newest->info();
  if (std::find(info.begin(), info.end(), bound) == info.end()) {
    RUN_UNTIL(scene.loop, peer->idle() || peer->over());
    peer->stream("as before");
    RUN_UNTIL(scene.loop, peer->received.size() == 65536 + 9 || peer->over());
    CHECK(peer->received.ends_with("as before"));
    CHECK(peer->received.find('x') == std::string::npos);
    return scene.innocent_echoes();
  }
  RUN_UNTIL(scene.loop, scene.log.endings.size() == 1);
  CHECK(peer->errors.front() == IBV_WC_REM_ACCESS_ERR);
  CHECK_FALSE(scene.log.endings.front().empty());
  scene.innocent_echoes();
}

TEST_CASE("rdma hostile: a peer that invalidates another connection's key harms only itself",
          "[rdma-device][hostile]") {
  // Not with keys bound to queue pairs: docs/options.md explains what soft-RoCE lacks there.
  Scene scene("keepalive=200ms&isolation=connection");
  const auto victim = scene.raw_client();
  const auto attacker = scene.raw_client();
  attacker->send_and_invalidate(testing::raw_keepalive(), victim->offer().key);
  RUN_UNTIL(scene.loop, attacker->idle() || attacker->over());
  victim->stream("not harmed");
  RUN_UNTIL(scene.loop, victim->received == "not harmed" || victim->over());
  CHECK(victim->received == "not harmed");
  scene.innocent_echoes();
}

TEST_CASE("rdma hostile: a loop may go while messages, closes and completions wait for it",
          "[rdma-device][hostile]") {
  const std::uint64_t held = registered_bytes();
  const testing::DeviceObjects objects = testing::device_objects();
  {
    testing::AnyLoop theirs;  // lets the peers act while the other loop does not run
    RawNet net(theirs);
    std::vector<std::unique_ptr<RawPeer>> peers;
    {
      Scene scene;
      for (int i = 0; i < 8; ++i) peers.push_back(net.connect(scene.address));
      RUN_UNTIL(scene.loop, (theirs.process_events(ae::kFullIteration | ae::kDontWait),
                             std::all_of(peers.begin(), peers.end(),
                                         [](const auto& p) { return !p->offers.empty(); }) &&
                                 scene.log.accepted == 9));
      for (const auto& peer : peers)
        for (int i = 0; i < 200; ++i) peer->send(testing::raw_keepalive());
      RUN_UNTIL(theirs,
                std::all_of(peers.begin(), peers.end(), [](const auto& p) { return p->idle(); }));
      for (std::size_t i = 0; i < peers.size(); i += 2) peers[i]->disconnect();
    }
    RUN_UNTIL(theirs,
              std::all_of(peers.begin(), peers.end(), [](const auto& p) { return p->over(); }));
  }
  CHECK(registered_bytes() == held);
  CHECK(conn::rdma::teardown_failures() == 0);
  CHECK(testing::device_objects() == objects);
}

#endif
