// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A client that is not aeconn, which has a session of a server, for tests of what such a client may
// ask for.

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conn/rdma/protocol/resume_message.h"
#include "conn/rdma/protocol/wire.h"
#include "tests/simulation/room.h"
#include "tests/support/raw_peer.h"

namespace simulation {

inline const std::string kStrangers = "resume=yes&resume-time=10s&keepalive=3s";

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string first_request() {
  const conn::rdma::Hello hello{.flags = conn::rdma::Hello::kFinishes | conn::rdma::Hello::kResumes,
                                .resume_ms = 10000};
  const auto bytes = encode(hello, conn::rdma::HelloKind::kRequest);
  return text_of({bytes.data(), bytes.size()});
}

// 10.77.0.2, in the form of an IPv6 address, and the port.
inline conn::rdma::BoundAddress bound_to(const testing::RawPeer& peer) {
  const auto byte = [](int value) { return static_cast<std::byte>(value & 0xff); };
  conn::rdma::BoundAddress bound{};
  bound[10] = bound[11] = byte(0xff);
  bound[12] = byte(10), bound[13] = byte(77), bound[15] = byte(2);
  bound[16] = byte(peer.port() >> 8), bound[17] = byte(peer.port());
  return bound;
}

inline conn::rdma::Grant grant_in(const testing::RawPeer& peer) {
  const auto hello =
      decode_hello(std::as_bytes(std::span(peer.private_data)), conn::rdma::HelloKind::kAnswer);
  REQUIRE(hello);
  REQUIRE(hello->grant.session != 0);
  return hello->grant;
}

/// A client that is not aeconn, with a session of an echo server.
struct Stranger {
  explicit Stranger(const std::string& options = kStrangers)
      : room({.strangers = true}, "?" + options), net(room.loop) {}
  ~Stranger() {
    peers.clear();
    room.run_for(20ms);
    room.log.clients.clear();
    room.run_for(15s);
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  testing::RawPeer& connect(testing::RawOptions options) {
    options.source = "10.77.0.2";
    peers.push_back(net.connect(room.address, std::move(options)));
    return *peers.back();
  }
  testing::RawPeer& begin() {
    testing::RawOptions options;
    options.private_data = first_request();
    testing::RawPeer& peer = connect(options);
    RUN_UNTIL(room.loop, peer.established && !peer.offers.empty());
    grant = grant_in(peer);
    return peer;
  }
  /// Asks for a new path, with the key or another.
  testing::RawPeer& ask(const conn::rdma::ResumeMessage& message, bool forged = false,
                        bool completes = true) {
    testing::RawOptions options;
    options.completes = completes;
    options.at_request = [this, message, forged](testing::RawPeer& peer) {
      conn::rdma::SipKey key = grant.key;
      if (forged) key[3] ^= std::byte{1};
      last = text_of(seal_request(message, key, bound_to(peer)));
      return last;
    };
    return connect(options);
  }
  conn::rdma::ResumeMessage message(std::uint32_t generation, std::uint64_t received) const {
    return {.hello = {.flags = conn::rdma::Hello::kFinishes},
            .generation = generation,
            .session = grant.session,
            .received = received};
  }
  std::string refusal(testing::RawPeer& peer) {
    RUN_UNTIL(room.loop, peer.failed);
    return peer.private_data;
  }
  void echo(testing::RawPeer& peer, const std::string& bytes) {
    const std::size_t before = peer.received.size();
    peer.stream(bytes);
    RUN_UNTIL(room.loop, peer.received.size() == before + bytes.size());
    CHECK(peer.received.substr(before) == bytes);
  }
  std::uint64_t counted(const std::string& name) {
    for (const auto& [key, value] : room.type.statistics(room.loop))
      if (key == name) return value;
    return ~std::uint64_t{0};
  }
  std::string ending() {
    RUN_UNTIL(room.loop, !room.log.endings.empty());
    return room.log.endings.front();
  }

  Room room;
  testing::RawNet net;
  std::vector<std::unique_ptr<testing::RawPeer>> peers;
  conn::rdma::Grant grant;
  std::string last;  ///< the bytes of the last request
};

}  // namespace simulation
