// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A connection that sends with MSG_ZEROCOPY, and the memory that it sends from.

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/socket_calls.h"
#include "tests/support/testing.h"

namespace testing {

/// Bytes that are sent in place. The release overwrites them, since they belong to the caller
/// again.
struct Parcel {
  Parcel(std::uint64_t seed, std::uint64_t from, std::size_t size) {
    const Pattern pattern(seed);
    while (text.size() < size)
      text.append(pattern.at(from + text.size()).substr(0, size - text.size()));
  }
  conn::Outgoing outgoing() { return {std::as_bytes(std::span(text)), &released, this}; }
  static void released(void* context, std::error_code why) noexcept {
    auto& parcel = *static_cast<Parcel*>(context);
    ++parcel.releases;
    parcel.error = why;
    std::fill(parcel.text.begin(), parcel.text.end(), '!');
  }
  std::string text;
  int releases = 0;
  std::error_code error;
};

struct Parcels {  // a base, because they have to outlive the loop
  std::vector<std::unique_ptr<Parcel>> parcels;
};

/// A connection that sends with MSG_ZEROCOPY, with a plain socket as its peer.
struct ZeroCopyHalf : Parcels, Site {
  explicit ZeroCopyHalf(const conn::Options& more = {}) : Site({.name = "tcp"}) {
    type.configure(conn::Options{{"zero-copy", "4k"}}.merged_with(more));
    calls.hide_copies = true;
    listener = listen([this](conn::ConnectionPtr c) { server = std::move(c); });
    client = RawSocket::connect(address_of(*listener));
    RUN_UNTIL(loop, server != nullptr);
  }
  void send(std::size_t size) {
    parcels.push_back(std::make_unique<Parcel>(1, sent, size));
    REQUIRE(server->send(parcels.back()->outgoing()) == static_cast<ssize_t>(size));
    sent += size;
  }
  void commit(std::size_t size) {
    const Parcel part(1, sent, size);
    const std::span<std::byte> room = server->reserve(size);
    REQUIRE(room.size() >= size);
    std::memcpy(room.data(), part.text.data(), size);
    server->commit(size);
    sent += size;
  }
  /// On a thread of its own: whether everything sent is received unchanged.
  std::future<bool> reader(ae::Duration delay = {}) {
    return std::async(std::launch::async, [this, delay, size = sent] {
      std::this_thread::sleep_for(delay);
      return intact(client.receive(size), size);
    });
  }
  static bool intact(const std::string& got, std::size_t size) {
    return got.size() == size && Pattern(1).matches(0, got);
  }
  bool all_released() const {
    return std::all_of(parcels.begin(), parcels.end(),
                       [](const auto& each) { return each->releases != 0; });
  }
  void check_releases(bool with_error = false) const {
    for (const auto& each : parcels) {
      CHECK(each->releases == 1);
      CHECK(static_cast<bool>(each->error) == with_error);
    }
  }
  std::uint64_t open() { return type.counters(loop).open; }
  std::string info() const {
    for (const auto& [key, value] : server->info())
      if (key == "zero-copy") return value;
    return "";
  }

  SocketCalls calls;
  conn::ListenerPtr listener;
  RawSocket client;
  conn::ConnectionPtr server;
  std::uint64_t sent = 0;
};

}  // namespace testing
