// SPDX-License-Identifier: BSD-3-Clause
// Peers that violate the protocol, on a real device: each loses its own connection, promptly and
// with an error text, and no other connection is affected.
#if AECONN_RDMA

#include <algorithm>
#include <functional>
#include <limits>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "tests/support/rdma_kit.h"

using conn::rdma::registered_bytes;
using testing::RawNet;
using testing::RawOptions;
using testing::RawPeer;
using testing::Scene;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kHighest = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kHuge = std::numeric_limits<std::uint32_t>::max();

struct Attack {
  std::string name;
  std::function<void(RawPeer&)> strike;  ///< called until the connection ends, while it can post
  std::string sentence;                  ///< part of this side's error text
  bool once = true;
};

void fill(RawPeer& peer, const std::function<void()>& one) {
  for (int i = 0; i < 256 && peer.can_post(); ++i) one();
}

/// The attack must end the attacker's connection promptly, with its error text; an innocent
/// connection continues, and everything that the attacker caused to be allocated is freed.
void survive(Scene& scene, const Attack& attack, RawOptions options = {}) {
  INFO(attack.name);
  const std::uint64_t held = registered_bytes();
  const testing::DeviceObjects objects = testing::device_objects();
  const std::size_t endings = scene.log.endings.size();
  {
    const auto peer = scene.raw_client(std::move(options));
    const ae::TimePoint begin = testing::now();
    attack.strike(*peer);
    RUN_UNTIL(scene.loop, (attack.once || peer->over() ? void() : attack.strike(*peer),
                           scene.log.endings.size() > endings && peer->over()));
    if (attack.once) CHECK(testing::now() - begin < testing::promptly());
    INFO("it ended with: " << scene.log.endings.back());
    CHECK(scene.log.endings.size() == endings + 1);
    CHECK(scene.log.endings.back().find(attack.sentence) != std::string::npos);
    scene.innocent_echoes();
  }
  RUN_UNTIL(scene.loop, scene.type.counters(scene.loop).open == 2);
  // Memory is kept for later connections for a while.
  CHECK(registered_bytes() <= held + (1 << 20));
  testing::DeviceObjects now = testing::device_objects();
  now["mr"] = objects.at("mr");
  CHECK(now == objects);
  CHECK(conn::rdma::teardown_failures() == 0);
}

void survive_all(const std::vector<Attack>& attacks, const std::string& options = {}) {
  const std::uint64_t held = registered_bytes();
  {
    Scene scene(options);
    scene.raw_client();  // creates everything that is created only once
    RUN_UNTIL(scene.loop, scene.log.open() == 1 && scene.type.counters(scene.loop).open == 2);
    scene.log.endings.clear();
    for (const Attack& attack : attacks) survive(scene, attack);
    CHECK(scene.log.open() == 1);
  }
  CHECK(registered_bytes() == held);
}

}  // namespace

TEST_CASE(
    "rdma hostile: control messages of wrong sizes and unknown opcodes end only their connection",
    "[rdma-device]") {
  std::vector<Attack> attacks;
  for (const std::size_t size : {0, 2, 31})
    attacks.push_back({"SEND of " + std::to_string(size) + " bytes",
                       [size](RawPeer& p) { p.send(std::string(size, '\0')); }, "wrong size"});
  for (const std::size_t size : {33, 64, 5000})
    attacks.push_back({"SEND of " + std::to_string(size) + " bytes",
                       [size](RawPeer& p) { p.send(std::string(size, '\0')); }, ""});
  for (const int opcode : {4, 0x300, 0xffff})
    attacks.push_back(
        {"opcode " + std::to_string(opcode),
         [opcode](RawPeer& p) { p.send(testing::raw_control(static_cast<std::uint16_t>(opcode))); },
         "unknown opcode"});
  survive_all(attacks);
}

TEST_CASE("rdma hostile: absurd windows end only their connection", "[rdma-device]") {
  const auto offer = [](std::uint64_t address, std::uint32_t length) {
    return [=](RawPeer& p) { p.send(testing::raw_register(address, length, 1)); };
  };
  survive_all({
      {"no bytes", offer(4096, 0), "window of no bytes"},
      {"2^32-1 bytes", offer(4096, kHuge), "beyond max-peer-window"},
      {"1 GiB", offer(4096, 1u << 30), "beyond max-peer-window"},
      {"wraps around", offer(kHighest - 4096, 65536), "wraps around"},
      {"a key that is none",
       [](RawPeer& p) {
         p.send(testing::raw_register(p.own_window().address, 65536, 0xdeadbeef));
         p.stream("and now echo this");
       },
       "window it offered is not writable"},
      {"an address that is none",
       [](RawPeer& p) {
         p.send(testing::raw_register(4096, 65536, p.own_window().key));
         p.stream("and now echo this");
       },
       "window it offered is not writable"},
      {"longer than its memory",
       [](RawPeer& p) {
         p.send(testing::raw_register(p.own_window().address + 65530, 65536, p.own_window().key));
         p.stream("more than six bytes come back");
       },
       "window it offered is not writable"},
  });
}

TEST_CASE("rdma hostile: immediates that claim too much end only their connection",
          "[rdma-device]") {
  survive_all({
      {"one byte too many", [](RawPeer& p) { p.immediate(p.offer().length + 1); },
       "past the end of the window"},
      {"2^32-1", [](RawPeer& p) { p.immediate(kHuge); }, "past the end of the window"},
      {"wraps around with what came before",
       [](RawPeer& p) {
         p.immediate(100);
         p.immediate(kHuge - 50);
       },
       "past the end of the window"},
      {"goes on where the window ended",
       [](RawPeer& p) {
         p.immediate(p.offer().length);
         p.immediate(1);
       },
       "was not offered"},
      {"a second full window",
       [](RawPeer& p) {
         p.immediate(p.offer().length);
         p.immediate(p.offer().length);
       },
       "was not offered"},
  });
}

TEST_CASE("rdma hostile: floods of messages that cost nothing end only their connection",
          "[rdma-device]") {
  const auto flood = [](const std::string& message) {
    return [message](RawPeer& p) { fill(p, [&] { p.send(message); }); };
  };
  survive_all({
      {"keepalives", flood(testing::raw_keepalive()), "floods us", false},
      {"registrations", [](RawPeer& p) { fill(p, [&] { p.announce(); }); }, "floods us", false},
      {"immediates of 0", [](RawPeer& p) { fill(p, [&] { p.immediate(0); }); }, "floods us", false},
      {"settings of features", flood(testing::raw_feature(1, 0, kHighest)), "floods us", false},
      {"questions for features", flood(testing::raw_feature(0, 0, 0)), "", false},
  });
}

TEST_CASE("rdma hostile: writing outside of its window ends only the writer's connection",
          "[rdma-device]") {
  survive_all(
      {
          {"before it", [](RawPeer& p) { p.write("x", p.offer().address - 1, p.offer().key, 1); },
           ""},
          {"behind it",
           [](RawPeer& p) {
             p.write("xx", p.offer().address + p.offer().length - 1, p.offer().key, 1);
           },
           ""},
          {"with another key",
           [](RawPeer& p) { p.write("x", p.offer().address, p.offer().key + 1, 1); }, ""},
          {"without saying so",
           [](RawPeer& p) { p.write("x", p.offer().address, p.offer().key ^ 0x100); }, ""},
      },
      "keepalive=300ms");
}

TEST_CASE("rdma hostile: a peer that has another connection's key cannot change its bytes",
          "[rdma-device]") {
  const std::string isolation = GENERATE("auto", "connection");
  INFO("isolation=" << isolation);
  // With a shared receive queue no event reports the refused write; the next keepalive fails.
  Scene scene("keepalive=300ms&isolation=" + isolation);
  const auto victim = scene.raw_client();
  // Plain writes first and their total later: the bytes in the window have not been announced yet.
  victim->write("honest bytes", victim->offer().address, victim->offer().key);
  RUN_UNTIL(scene.loop, victim->idle());
  const auto attacker = scene.raw_client();
  const ae::TimePoint begin = testing::now();
  attacker->write("forged bytes", victim->offer().address, victim->offer().key);
  RUN_UNTIL(scene.loop, attacker->over() && scene.log.endings.size() == 1);
  CHECK(testing::now() - begin < testing::promptly());
  REQUIRE(attacker->errors.front() == IBV_WC_REM_ACCESS_ERR);
  victim->immediate(12);
  RUN_UNTIL(scene.loop, victim->received.size() == 12);
  CHECK(victim->received == "honest bytes");
  scene.innocent_echoes();
}

TEST_CASE("rdma hostile: bytes that were claimed but never written are zeros", "[rdma-device]") {
  Scene scene;
  {
    const auto before = scene.raw_client();
    before->stream(std::string(70000, 's'));
    RUN_UNTIL(scene.loop, before->received.size() == 70000);
  }
  const auto peer = scene.raw_client();
  peer->immediate(peer->offer().length);
  RUN_UNTIL(scene.loop, peer->received.size() == 65536);
  CHECK(peer->received == std::string(65536, '\0'));
  // A renewed window may contain old bytes of the same peer, never another connection's.
  const std::uint32_t next = peer->offer().length;
  peer->immediate(next);
  RUN_UNTIL(scene.loop, peer->received.size() == 65536 + next);
  CHECK(peer->received == std::string(65536 + next, '\0'));
}

TEST_CASE("rdma hostile: garbage in the private data is ignored", "[rdma-device]") {
  Scene scene;
  std::string almost("AECN\x03", 5);
  almost.resize(16, '\xff');
  for (const std::string& data : {std::string(1, 'x'), std::string(56, '\xff'), almost,
                                  std::string("AECN\x01", 5) + std::string(40, '\xff')}) {
    INFO(data.size() << " bytes");
    RawOptions options;
    options.private_data = data;
    const auto peer = scene.raw_client(options);
    peer->stream("hello");
    RUN_UNTIL(scene.loop, peer->received == "hello");
  }
}

TEST_CASE("rdma hostile: requests that are never completed are bounded in number and time",
          "[rdma-device]") {
  Scene scene("backlog=16&accept-timeout=500ms");
  const std::uint64_t held = registered_bytes();
  RawOptions options;
  options.completes = false;  // it gets the answer and never confirms it
  std::vector<std::unique_ptr<RawPeer>> stuck;
  for (int i = 0; i < 24; ++i) stuck.push_back(scene.net.connect(scene.address, options));
  const auto count = [&](auto what) { return std::count_if(stuck.begin(), stuck.end(), what); };
  RUN_UNTIL(scene.loop, count([](const auto& p) { return p->answered; }) >= 16);
  CHECK(registered_bytes() <= held + 2 * 17 * 65536);  // slabs grow in proportion to what exists
  scene.innocent_echoes();
  RUN_UNTIL(scene.loop, count([](const auto& p) { return p->over(); }) == 24);
  RUN_UNTIL(scene.loop, scene.type.counters(scene.loop).open == 2);
  CHECK(scene.log.accepted == 1);
  stuck.clear();
  const auto welcome = scene.raw_client();
  welcome->stream("welcome");
  RUN_UNTIL(scene.loop, welcome->received == "welcome");
}

TEST_CASE("rdma hostile: peers that connect and never offer a window go when their time is over",
          "[rdma-device]") {
  Scene scene("accept-timeout=500ms");
  const std::uint64_t held = registered_bytes();
  std::vector<std::unique_ptr<RawPeer>> silent;
  RawOptions options;
  options.announce = false;
  options.receives = 16;
  for (int i = 0; i < 20; ++i) silent.push_back(scene.net.connect(scene.address, options));
  const auto count = [&](auto what) { return std::count_if(silent.begin(), silent.end(), what); };
  RUN_UNTIL(scene.loop, count([](const auto& p) { return p->over(); }) == 20);
  // On a busy machine the time of some is over before they are accepted: those never get here.
  REQUIRE(scene.log.accepted > 1);
  RUN_UNTIL(scene.loop, scene.log.endings.size() + 1 == std::size_t(scene.log.accepted));
  for (const std::string& ending : scene.log.endings)
    CHECK(ending.find("never offered a window") != std::string::npos);
  scene.innocent_echoes();
  silent.clear();
  RUN_UNTIL(scene.loop, scene.log.open() == 1 && scene.type.counters(scene.loop).open == 2);
  CHECK(registered_bytes() <= held + 20 * 2 * 65536);
  const auto welcome = scene.raw_client();
  welcome->stream("welcome");
  RUN_UNTIL(scene.loop, welcome->received == "welcome");
}

TEST_CASE("rdma hostile: a server that misbehaves ends only our connection to it",
          "[rdma-device]") {
  Scene scene;
  const auto misbehave = GENERATE(0, 1, 2, 3);
  INFO("kind " << misbehave);
  RawNet servers(scene.loop);
  const auto to = servers.listen();
  const auto client = scene.connect(to);
  RUN_UNTIL(scene.loop, !servers.accepted.empty() && !servers.accepted.front()->offers.empty());
  RawPeer& server = *servers.accepted.front();
  testing::Collector collector(*client);
  const ae::TimePoint begin = testing::now();
  switch (misbehave) {
    case 0:
      server.send(testing::raw_control(77));
      break;
    case 1:
      server.immediate(kHuge);
      break;
    case 2:
      server.send(testing::raw_register(4096, kHuge, 1));
      break;
    default:
      server.write("x", server.offer().address, server.offer().key + 1, 1);
  }
  RUN_UNTIL(scene.loop, collector.over() && server.over());
  CHECK(testing::now() - begin < testing::promptly());
  CHECK(collector.error != 0);
  CHECK_FALSE(client->last_error().empty());
  INFO(client->last_error());
  scene.innocent_echoes();
}

#endif
