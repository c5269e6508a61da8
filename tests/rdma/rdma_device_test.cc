// SPDX-License-Identifier: BSD-3-Clause
// The library's connections against a peer on plain verbs that knows only the protocol page, in
// both roles.
#if AECONN_RDMA

#include <csignal>

#include "conn/rdma/device/verbs.h"
#include "tests/support/rdma_kit.h"

using conn::ConnectionPtr;
using conn::State;
using testing::RawNet;
using testing::RawOptions;
using testing::RawPeer;
using testing::Scene;
using testing::Site;
using namespace std::chrono_literals;

namespace {

std::string pattern_bytes(std::uint64_t seed, std::size_t size) {
  const testing::Pattern pattern(seed);
  std::string bytes;
  while (bytes.size() < size) bytes += pattern.at(bytes.size());
  bytes.resize(size);
  return bytes;
}

/// A client connected to a raw server that, like Valkey's, sends no hello.
struct RawServer : Site {
  explicit RawServer(RawOptions raw = {}, const std::string& options = {})
      : Site(testing::rdma_transport()) {
    raw.rnr_retry = 0;
    client = connect(testing::with_options(net.listen(raw), options));
    RUN_UNTIL(loop, !net.accepted.empty() && client->state() != State::kConnecting);
    INFO(client->last_error());
    REQUIRE(client->state() == State::kConnected);
    server = net.accepted.front().get();
    RUN_UNTIL(loop, server->established && !server->offers.empty());
  }
  RawNet net{loop};
  ConnectionPtr client;
  RawPeer* server = nullptr;
};

std::string info_of(const conn::Connection& connection, const std::string& name) {
  for (const auto& [each, value] : connection.info())
    if (each == name) return value;
  return {};
}

}  // namespace

TEST_CASE(
    "rdma device: a server without hello sees one window length for the life of the connection",
    "[rdma-device]") {
  RawServer site;
  testing::Receiver receiver(*site.client, 1);
  // Many windows as fast as possible: with a peer that allows it, this makes windows longer.
  constexpr std::size_t kSize = 40 * 65536 + 11;
  site.server->stream(pattern_bytes(1, kSize));
  RUN_UNTIL(site.loop, receiver.received == kSize);
  CHECK(receiver.intact);
  CHECK(site.server->offers.size() >= 40);
  for (const RawPeer::Offer& offer : site.server->offers) REQUIRE(offer.length == 65536);
}

TEST_CASE("rdma device: windows grow towards a fast client", "[rdma-device]") {
  Scene scene("max-window=512k");
  const auto client = scene.raw_client();
  const std::string bytes = pattern_bytes(2, 3 << 20);
  client->stream(bytes);
  RUN_UNTIL(scene.loop, client->received.size() == bytes.size());
  CHECK(client->received == bytes);
  std::uint32_t longest = 0;
  for (const RawPeer::Offer& offer : client->offers) {
    CHECK(offer.length >= 65536);
    CHECK(offer.length <= 512 * 1024);
    longest = std::max(longest, offer.length);
  }
  INFO("the longest of " << client->offers.size() << " windows: " << longest);
  CHECK(client->offers.front().length == 65536);
}

TEST_CASE("rdma device: our windows and our writes go to the last byte", "[rdma-device]") {
  for (const std::uint32_t window : {16u, 4096u, 65537u}) {
    INFO("the peer's window: " << window);
    RawOptions raw;
    raw.window = window;
    RawServer site(raw);
    const std::size_t size = window * 5 + 3;
    const std::string bytes = pattern_bytes(3, size);
    testing::send(site.loop, *site.client, bytes);
    RUN_UNTIL(site.loop, site.server->received.size() == size);
    CHECK(site.server->received == bytes);
    CHECK_FALSE(site.server->overrun);
    CHECK(site.server->renewals == 5);
  }
}

TEST_CASE("rdma device: plain writes with their total in a later immediate, and immediates of 0",
          "[rdma-device]") {
  Scene scene;
  const auto client = scene.raw_client();
  const RawPeer::Offer to = client->offer();
  client->write("plain ", to.address, to.key);
  client->write("and ", to.address + 6, to.key);
  client->immediate(0);
  client->write("total", to.address + 10, to.key, 15);
  client->immediate(0);
  RUN_UNTIL(scene.loop, client->received == "plain and total");
  client->write(" again", to.address + 15, to.key);
  client->immediate(6);
  RUN_UNTIL(scene.loop, client->received == "plain and total again");
}

TEST_CASE("rdma device: keepalives leave in both roles and are taken in both", "[rdma-device]") {
  Scene scene("keepalive=200ms");
  const auto client = scene.raw_client();
  RawServer other({}, "keepalive=200ms");
  client->send(testing::raw_keepalive());
  other.server->send(testing::raw_keepalive());
  RUN_UNTIL(scene.loop, client->keepalives >= 3);
  RUN_UNTIL(other.loop, other.server->keepalives >= 3);
  client->stream("still here");
  RUN_UNTIL(scene.loop, client->received == "still here");
}

TEST_CASE("rdma device: a question for features is answered, a setting of them is ignored",
          "[rdma-device]") {
  Scene scene;
  const auto client = scene.raw_client();
  client->send(testing::raw_feature(0, 0x1234, 0));
  client->send(testing::raw_feature(1, 0x1234, 0xff));
  RUN_UNTIL(scene.loop, client->answers.size() == 1);
  CHECK(client->answers.front() == std::pair<std::uint16_t, std::uint64_t>(0x1234, 0));
  client->stream("and on");
  RUN_UNTIL(scene.loop, client->received == "and on");
  CHECK(client->answers.size() == 1);
}

TEST_CASE("rdma device: a client may ask before it has offered a window", "[rdma-device]") {
  Scene scene;
  RawOptions options;
  options.announce = false;
  const auto client = scene.raw_client(options);
  client->stream("early");
  RUN_UNTIL(scene.loop, client->idle() && scene.log.newest->bytes_read() == 5);
  client->announce();
  RUN_UNTIL(scene.loop, client->received == "early");
}

TEST_CASE("rdma device: a server may offer its window late", "[rdma-device]") {
  RawOptions raw;
  raw.announce = false;
  RawServer site(raw);
  REQUIRE(site.client->write("waiting", 7) == 7);
  testing::turns(site.loop, 20);
  CHECK(site.server->received.empty());
  site.server->announce();
  RUN_UNTIL(site.loop, site.server->received == "waiting");
}

TEST_CASE("rdma device: the peer's windows may change their address, key and length",
          "[rdma-device]") {
  RawServer site;
  // Each length differs from the one before (the first from 65536), so that the change is visible
  // in info().
  for (const std::uint32_t length : {65000u, 100u, 1u << 20, 16u}) {
    const std::string bytes = pattern_bytes(length, 50000);
    site.server->received.clear();
    site.server->announce_new(length);
    // Once the new window has been seen, the rest of the old one is gone.
    RUN_UNTIL(site.loop, info_of(*site.client, "peer-window-left") == std::to_string(length));
    testing::send(site.loop, *site.client, bytes);
    RUN_UNTIL(site.loop, site.server->received.size() == bytes.size());
    CHECK(site.server->received == bytes);
  }
  CHECK_FALSE(site.server->overrun);
}

TEST_CASE(
    "rdma device: a busy server that allows no retries is sent fewer messages than it receives",
    "[rdma-device]") {
  RawServer site;
  site.server->stop_polling();
  // One iteration of the loop between writes, so that each write is a message of its own.
  for (int i = 0; i < 3000; ++i) {
    REQUIRE(site.client->write("small", 5) == 5);
    site.loop.process_events(ae::kFullIteration | ae::kDontWait);
  }
  CHECK(std::stoul(info_of(*site.client, "unproven-messages")) < 1024);
  CHECK(site.client->state() == State::kConnected);
  site.server->poll_again();
  RUN_UNTIL(site.loop, site.server->received.size() == 15000);
  CHECK(site.server->errors.empty());
  CHECK(site.client->state() == State::kConnected);
}

TEST_CASE("rdma device: a server that answers probes late is waited for", "[rdma-device]") {
  RawOptions raw;
  raw.answers_features = false;
  RawServer site(raw);
  for (int i = 0; i < 2000; ++i) {
    REQUIRE(site.client->write("small", 5) == 5);
    site.loop.process_events(ae::kFullIteration | ae::kDontWait);
  }
  CHECK(std::stoul(info_of(*site.client, "unproven-messages")) < 1024);
  RUN_UNTIL(site.loop, (site.server->answer_features(), site.server->received.size() == 10000));
  CHECK(site.client->state() == State::kConnected);
}

TEST_CASE(
    "rdma device: a client that posts few receives and does not poll is served when it returns",
    "[rdma-device]") {
  Scene scene;
  RawOptions options;
  options.receives = 4;
  const auto client = scene.raw_client(options);
  client->stop_polling();
  const std::string word = "to and fro ";
  for (int i = 0; i < 200; ++i) {
    const RawPeer::Offer& to = client->offer();
    client->write(word, to.address + client->offer_used, to.key,
                  static_cast<std::uint32_t>(word.size()));
    client->offer_used += static_cast<std::uint32_t>(word.size());
    testing::turns(scene.loop, 1);
  }
  scene.innocent_echoes();
  client->poll_again();
  RUN_UNTIL(scene.loop, client->received.size() == 200 * word.size());
  CHECK(client->errors.empty());
}

TEST_CASE("rdma device: what was written before close arrives before the end", "[rdma-device]") {
  RawServer site;
  const std::string bytes = pattern_bytes(9, 200000);
  testing::send(site.loop, *site.client, bytes);
  site.client.reset();
  RUN_UNTIL(site.loop, site.server->over());
  CHECK(site.server->received == bytes);
}

TEST_CASE("rdma device: what arrived before the peer's close can be read after it",
          "[rdma-device]") {
  RawServer site;
  const std::string bytes = pattern_bytes(10, 60000);
  site.server->stream(bytes);
  RUN_UNTIL(site.loop, site.server->idle());
  site.server->disconnect();
  testing::Collector collector(*site.client, 1000);
  RUN_UNTIL(site.loop, collector.over());
  CHECK(collector.ended);
  CHECK(collector.bytes == bytes);
}

#endif
