// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of Redial: a server that can go and come back, and its client. Pauses are a few
// milliseconds, and what must not happen soon is set to hours, so that the tests do not wait for
// time to pass.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conn/redial.h"
#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

namespace testing {

/// A tcp server that can be removed and restored, and a client that stays.
struct RedialBed {
  RedialBed() {
    registry.add(std::make_unique<conn::tcp::TcpType>());
    stuck = &static_cast<StuckType&>(registry.add(std::make_unique<StuckType>("stuck")));
    listen(0);
    settings.first_pause = std::chrono::milliseconds(1);
    settings.most_pause = std::chrono::milliseconds(8);
    settings.prefer_again = std::chrono::milliseconds(0);
    settings.limit = &limit;
    settings.attempt = settings.proof = patience();
    settings.seed = 7;
  }
  void listen(std::uint16_t at) {
    listener =
        registry.listen(loop, "tcp://127.0.0.1:" + std::to_string(at),
                        [this](conn::ConnectionPtr next) { servers.push_back(std::move(next)); });
    port = listener->endpoints().front().port;
  }
  void start(const std::string& schemes = "tcp") {
    handlers.up = [this](conn::Connection& connection) {
      REQUIRE(redial->connection() == &connection);
      REQUIRE(redial->phase() == conn::Redial::Phase::kUp);
      ++ups;
      if (on_up) on_up(connection);
    };
    handlers.down = [this](conn::Connection& connection, const conn::Redial::Loss& loss) {
      ++downs;
      last = loss;
      if (on_down) on_down(connection);
    };
    handlers.changed = [this] {
      phases.push_back(redial->phase());
      if (on_changed) on_changed();
    };
    redial.emplace(registry, loop,
                   conn::Endpoint::parse(schemes + "://127.0.0.1:" + std::to_string(port)),
                   handlers, settings);
  }

  conn::DialLimit limit{4};
  conn::Registry registry;  // outlives what the loop destroys last
  AnyLoop loop;
  StuckType* stuck;
  conn::ListenerPtr listener;
  std::uint16_t port = 0;
  std::vector<conn::ConnectionPtr> servers;
  conn::Redial::Settings settings;
  conn::Redial::Handlers handlers;
  std::function<void(conn::Connection&)> on_up, on_down;
  std::function<void()> on_changed;
  std::optional<conn::Redial> redial;
  std::vector<conn::Redial::Phase> phases;
  int ups = 0, downs = 0;
  conn::Redial::Loss last;
};

}  // namespace testing
