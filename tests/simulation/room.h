// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Two simulated machines on one loop: an echo server at 10.77.0.1, and clients that connect from
// 10.77.0.2. The destructor checks that all simulated objects have been freed.

#include <string>
#include <vector>

#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"
#include "conn/transports/transports.h"
#include "tests/simulation/freed.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/run_for.h"
#include "tests/simulation/world.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace simulation {

/// Accepts connections, echoes, and records how each of them ended.
struct EndLog {
  conn::AcceptHandler handler() {
    return [this](conn::ConnectionPtr next) {
      conn::Connection* key = next.get();
      clients.push_back(std::move(next));
      key->set_read_handler([this](conn::Connection& here) { on_readable(here); });
    };
  }
  void on_readable(conn::Connection& here) {
    std::array<char, 4096> bytes;
    for (;;) {
      const ssize_t n = here.read(bytes.data(), bytes.size());
      if (n > 0) {
        (void)here.write(bytes.data(), static_cast<std::size_t>(n));
        continue;
      }
      if (n < 0 && errno == EAGAIN) return;
      endings.push_back(n == 0 ? "end of stream" : here.last_error());
      std::erase_if(clients, [&](const conn::ConnectionPtr& each) { return each.get() == &here; });
      return;
    }
  }
  std::vector<conn::ConnectionPtr> clients;
  std::vector<std::string> endings;
};

struct Room {
  explicit Room(Config config = {}, const std::string& options = {},
                const Profile& near_profile = chosen_profile(),
                const Profile& far_profile = chosen_profile())
      : world(config) {
    near = &world.add_device("sim0", "10.77.0.1", near_profile);
    far = &world.add_device("sim1", "10.77.0.2", far_profile);
    listener =
        type.listen(loop, conn::Endpoint::parse("rdma://10.77.0.1:0" + options), log.handler());
    address = listener->endpoints().front();
    address.options = address.options.merged_with(conn::Options::parse("source=10.77.0.2"));
  }
  ~Room() {
    log.clients.clear();
    listener.reset();
    if (loop_holder) run_for(110s);  // until the kernel's time-outs are over
    loop_holder.reset();
    check_all_freed(world);
    for (const std::string& each : world.violations()) {
      UNSCOPED_INFO(each);
      CHECK(false);
    }
    CHECK(conn::rdma::registered_bytes() == 0);
  }

  conn::ConnectionPtr dial(const std::string& more = {}) {
    conn::ConnectionPtr client = type.create(loop);
    conn::Endpoint to = address;
    to.options = to.options.merged_with(conn::Options::parse(more));
    client->connect(to, [](conn::Connection&) {});
    return client;
  }
  conn::ConnectionPtr connected(const std::string& more = {}) {
    conn::ConnectionPtr client = dial(more);
    RUN_UNTIL(loop, client->state() != conn::State::kConnecting);
    INFO(client->last_error());
    REQUIRE(client->state() == conn::State::kConnected);
    echoes(*client);
    return client;
  }
  void echoes(conn::Connection& client, std::size_t size = 1000) {
    const std::string bytes(size, 'e');
    testing::send(loop, client, bytes);
    REQUIRE(testing::receive(loop, client, size) == bytes);
  }
  void run_for(Nanoseconds span) { simulation::run_for(loop, span); }
  /// Runs until this end has failed; returns how long that took.
  Nanoseconds until_failed(conn::Connection& client) {
    const Nanoseconds begin = world.now();
    bool ended = false;  // by the end of the peer's stream
    client.set_read_handler([&ended](conn::Connection& here) {
      char byte = 0;
      errno = 0;
      const ssize_t n = here.read(&byte, 1);
      ended = n == 0;
      if (n <= 0 && errno != EAGAIN) here.set_read_handler(nullptr);
    });
    testing::run_until(
        loop,
        [&] {
          return ended || (client.state() != conn::State::kConnected &&
                           client.state() != conn::State::kConnecting);
        },
        "the connection to fail", 200s);
    return world.now() - begin;
  }

  World world;
  conn::Registry registry = conn::all_transports();
  conn::ConnectionType& type = registry.require("rdma");
  std::unique_ptr<ae::EventLoop> loop_holder = testing::make_loop();
  ae::EventLoop& loop = *loop_holder;
  EndLog log;
  Device *near = nullptr, *far = nullptr;
  conn::ListenerPtr listener;
  conn::Endpoint address;
};

}  // namespace simulation
