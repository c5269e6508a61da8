// SPDX-License-Identifier: BSD-3-Clause
// kv-server over rdma: values that are requested often are sent from registered memory, whatever
// happens to them, to their clients and to the device meanwhile.

#include <string>

#include "conn/rdma/device/memory.h"
#include "examples/kv_server/server.h"
#include "tests/simulation/in_place.h"
#include "tests/support/kv_kit.h"

using namespace simulation;
using conn::rdma::registered_bytes;
using kv_kit::bulk;
using kv_kit::request;

namespace {

constexpr std::size_t kSize = 1 << 20;
const std::string kOk = "+OK\r\n";

std::int64_t fixed_clock() { return 1'700'000'000'000'000; }

struct KvPlace : Place {
  KvPlace() {
    network.listen("rdma://10.77.0.1:0?keepalive=0ms&linger=1s");
    kv_address = conn::Endpoint::parse(network.urls().front());
    kv_address.options = conn::Options::parse("source=10.77.0.2&keepalive=0ms");
  }
  conn::ConnectionPtr client() {
    conn::ConnectionPtr made = type.create(loop);
    made->connect(kv_address, [](conn::Connection&) {});
    RUN_UNTIL(loop, made->state() != conn::State::kConnecting);
    INFO(made->last_error());
    REQUIRE(made->state() == conn::State::kConnected);
    return made;
  }
  void expect(conn::Connection& connection, const std::string& requests,
              const std::string& replies) {
    testing::send(loop, connection, requests);
    REQUIRE((testing::receive(loop, connection, replies.size()) == replies));
  }
  /// Sets "k" to `value` and gets it until it is registered.
  void often(conn::Connection& connection, const std::string& value) {
    expect(connection, request({"SET", "k", value}), kOk);
    for (std::uint32_t i = 0; i < kv::RegisteredValues::kOften; ++i) {
      CHECK(registered() == 0);
      expect(connection, request({"GET", "k"}), bulk(value));
    }
    REQUIRE(registered() == value.size());
  }
  kv::Entry* entry() {
    const kv::Key key = kv.store.key("k");
    return kv.store.of(key).find(key);
  }
  std::size_t registered() const { return kv.sent_values->registered.bytes(); }

  kv::Server kv{fixed_clock};
  kv::NetworkServer network{loop, registry, kv};
  conn::Endpoint kv_address;
};

}  // namespace

TEST_CASE("simulation: kv-server sends a value from registered memory once it is asked for often",
          "[simulation][kv][in-place]") {
  KvPlace place;
  const conn::ConnectionPtr client = place.client();
  const std::string value = pattern_of(1, kSize);
  place.often(*client, value);
  const std::uint64_t copied = place.counter("bytes_copied_out");
  const std::uint64_t pinned = registered_bytes();
  for (int i = 0; i < 5; ++i) place.expect(*client, request({"GET", "k"}), bulk(value));
  // Only the requests and the framing of the replies were copied.
  CHECK(place.counter("bytes_copied_out") - copied < 1000);
  CHECK(registered_bytes() >= kSize);
  CHECK(place.kv.store.memory() >= kSize);
  // A new value is copied, and the old value's registration is dropped.
  const std::string other = pattern_of(2, kSize);
  place.expect(*client, request({"SET", "k", other}) + request({"GET", "k"}), kOk + bulk(other));
  RUN_UNTIL(place.loop, place.registered() == 0);
  CHECK(place.counter("bytes_copied_out") - copied >= kSize);
  place.run_for(100s);
  CHECK(registered_bytes() + kSize <= pinned);
}

TEST_CASE("simulation: a registered value that goes while it is sent arrives as it was",
          "[simulation][kv][in-place]") {
  const std::string change = GENERATE("SET", "APPEND", "DEL", "FLUSHALL");
  CAPTURE(change);
  KvPlace place;
  const conn::ConnectionPtr client = place.client(), other = place.client();
  const std::string value = pattern_of(1, kSize);
  place.often(*client, value);
  // More than the peer's windows hold.
  constexpr std::size_t kTimes = 8;
  std::string gets, replies;
  for (std::size_t i = 0; i < kTimes; ++i) {
    gets += request({"GET", "k"});
    replies += bulk(value);
  }
  const std::uint64_t hits = place.kv.statistics.keyspace_hits;
  testing::send(place.loop, *client, gets);
  RUN_UNTIL(place.loop, place.kv.statistics.keyspace_hits == hits + kTimes);
  place.run_for(100ms);
  REQUIRE(place.entry()->users() > 2);  // not only the data's and the registration's
  if (change == "SET") place.expect(*other, request({"SET", "k", std::string(kSize, 'n')}), kOk);
  if (change == "APPEND")
    place.expect(*other, request({"APPEND", "k", "!"}), ":" + std::to_string(kSize + 1) + "\r\n");
  if (change == "DEL") place.expect(*other, request({"DEL", "k"}), ":1\r\n");
  if (change == "FLUSHALL") place.expect(*other, request({"FLUSHALL"}), kOk);
  place.run_for(1s);  // unused values are looked for ten times per second
  CHECK(place.registered() == kSize);
  // All of it counts, although the store no longer holds the value.
  CHECK(place.kv.buffer_bytes >= kSize);
  REQUIRE((testing::receive(place.loop, *client, replies.size()) == replies));
  RUN_UNTIL(place.loop, place.registered() == 0);
  CHECK(place.kv.buffer_bytes < kSize);
  CHECK(place.kv.used_memory() == place.kv.store.memory() + place.kv.buffer_bytes);
}

TEST_CASE("simulation: registered values on their way to a client that goes, or whose device does",
          "[simulation][kv][in-place]") {
  const std::string end =
      GENERATE("the client goes", "it is closed", "our device goes", "its device goes");
  CAPTURE(end);
  KvPlace place;
  conn::ConnectionPtr client = place.client();
  const std::string value = pattern_of(1, kSize);
  place.often(*client, value);
  for (int i = 0; i < 8; ++i) testing::send(place.loop, *client, request({"GET", "k"}));
  place.run_for(100ms);
  REQUIRE(place.entry()->users() > 2);
  REQUIRE(place.kv.sessions.size() == 1);
  if (end == "the client goes") client.reset();
  if (end == "our device goes") place.world.remove_device(*place.near);
  if (end == "its device goes") place.world.remove_device(*place.far);
  if (end == "it is closed") {
    const std::size_t held = place.kv.buffer_bytes;
    place.kv.sessions.begin()->second->kill();
    RUN_UNTIL(place.loop, place.kv.sessions.empty());
    // Bytes for which the closed connection lingers have no session, but count.
    CHECK(place.kv.left_behind() >= kSize);
    CHECK(place.kv.left_behind() <= held);
    CHECK(place.kv.used_memory() ==
          place.kv.store.memory() + place.kv.buffer_bytes + place.kv.left_behind());
  }
  RUN_UNTIL(place.loop, place.kv.sessions.empty() && place.entry()->users() == 2);
  CHECK(place.kv.left_behind() == 0);
  CHECK(place.kv.buffer_bytes < kSize);
  CHECK(place.registered() == kSize);  // its key still exists
  CHECK(place.entry()->value() == value);
  if (end == "our device goes") {
    place.run_for(2s);
    CHECK(place.near->handles.empty());  // the registration does not keep it open
    return;
  }
  if (end != "its device goes") {
    client = place.client();
    const std::uint64_t copied = place.counter("bytes_copied_out");
    place.expect(*client, request({"GET", "k"}), bulk(value));
    CHECK(place.counter("bytes_copied_out") - copied < 1000);
  }
}
