// SPDX-License-Identifier: BSD-3-Clause
// Nested iterations (EpollLoop::dispatch() within a handler): events that must not be processed
// there are processed later.

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "ae/epoll_loop.h"
#include "conn/redial.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Site;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kClients = 6;

/// Listeners and connections on a hosted loop.
struct Nested {
  explicit Nested(const testing::Transport& transport) : site(transport) {}

  void until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + testing::patience();
    while (!condition() && std::chrono::steady_clock::now() < deadline) loop.dispatch();
    REQUIRE(condition());
  }
  /// Runs nested iterations within a handler.
  void nest() {
    for (int i = 0; i < 50; ++i) loop.dispatch();
  }
  bool all_connected() const {
    return std::all_of(clients.begin(), clients.end(),
                       [](const auto& each) { return each->state() == State::kConnected; });
  }
  void connect(const conn::Endpoint& to, const Connection::Handler& done = {}) {
    clients.push_back(site.type.create(loop));
    clients.back()->connect(
        to, done ? done : [](Connection&) {});
  }

  Site site;  // for its type and addresses
  ae::EpollLoop loop;
  std::vector<conn::ListenerPtr> listeners;
  std::vector<ConnectionPtr> clients, servers;
};

}  // namespace

TEST_CASE("nested: arrivals wait while the accept handler runs", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Nested bed(transport);
    int running = 0;
    const conn::AcceptHandler accept = [&](ConnectionPtr arrival) {
      REQUIRE(++running == 1);
      bed.servers.push_back(std::move(arrival));
      bed.nest();
      --running;
    };
    bed.listeners.push_back(bed.site.type.listen(bed.loop, bed.site.fresh(), accept));
    const conn::Endpoint at = testing::address_of(*bed.listeners.front());
    for (std::size_t i = 0; i < kClients; ++i) bed.connect(at);
    bed.until([&] { return bed.all_connected() && bed.servers.size() == kClients; });
    for (std::size_t i = 0; i < kClients; ++i) {  // all of them are kept
      REQUIRE(bed.servers[i]->state() == State::kConnected);
      REQUIRE(bed.servers[i]->write("x", 1) == 1);
    }
    std::size_t got = 0;
    for (const ConnectionPtr& client : bed.clients)
      client->set_read_handler([&](Connection& c) {
        char byte = 0;
        if (c.read(&byte, 1) == 1) ++got;
      });
    bed.until([&] { return got == kClients; });
  }
}

TEST_CASE("nested: inside connect, read, write, close handlers and releases nothing is lost",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Nested bed(transport);
    bed.listeners.push_back(bed.site.type.listen(
        bed.loop, bed.site.fresh(),
        [&](ConnectionPtr arrival) { bed.servers.push_back(std::move(arrival)); }));
    const conn::Endpoint at = testing::address_of(*bed.listeners.front());
    std::size_t connected = 0;
    for (std::size_t i = 0; i < kClients; ++i)
      bed.connect(at, [&](Connection&) {
        bed.nest();
        ++connected;
      });
    bed.until([&] { return connected == kClients && bed.servers.size() == kClients; });
    std::size_t read = 0, wrote = 0, closed = 0, released = 0;
    struct Release {
      Nested& bed;
      std::size_t& count;
    } release{bed, released};
    static const std::byte kByte{'x'};
    for (const ConnectionPtr& server : bed.servers) {
      server->set_read_handler([&](Connection& c) {
        bed.nest();
        char byte = 0;
        if (c.read(&byte, 1) != 1)
          c.set_read_handler(nullptr);
        else
          ++read;
      });
      server->set_close_handler([&](Connection&) {
        bed.nest();
        ++closed;
      });
    }
    for (const ConnectionPtr& client : bed.clients)
      client->set_write_handler([&](Connection& c) {
        bed.nest();
        c.set_write_handler(nullptr);
        ++wrote;
        REQUIRE(c.send({{&kByte, 1},
                        [](void* context, std::error_code) noexcept {
                          auto& its = *static_cast<Release*>(context);
                          its.bed.nest();
                          ++its.count;
                        },
                        &release,
                        nullptr}) == 1);
      });
    bed.until([&] { return wrote == kClients && released == kClients && read == kClients; });
    bed.clients.clear();
    bed.until([&] { return closed == kClients; });
  }
}

TEST_CASE("nested: refusals wait while the handler of refusals runs", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Nested bed(transport);
    conn::Endpoint where = bed.site.fresh();
    if (transport.name.ends_with("memory")) {  // URLs of memory take no options
      bed.site.registry.require("memory").configure({{"max-connections", "1"}});
    } else {
      where.options.set("max-connections", "1");
    }
    bed.listeners.push_back(bed.site.type.listen(bed.loop, where, [&](ConnectionPtr arrival) {
      bed.servers.push_back(std::move(arrival));
    }));
    std::size_t told = 0;
    int running = 0;
    bed.listeners.front()->on_refused([&](const conn::Failure& why) {
      REQUIRE(++running == 1);
      REQUIRE_FALSE(why.text.empty());
      bed.nest();
      ++told;
      --running;
    });
    const conn::Endpoint at = testing::address_of(*bed.listeners.front());
    bed.connect(at);
    bed.until([&] { return bed.servers.size() == 1; });
    for (std::size_t i = 0; i < kClients; ++i) bed.connect(at);
    bed.until([&] { return told == kClients; });
    REQUIRE(bed.servers.size() == 1);
  }
}

TEST_CASE("nested: inside timers and posted functions connections go on", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Nested bed(transport);
    bed.listeners.push_back(bed.site.type.listen(
        bed.loop, bed.site.fresh(),
        [&](ConnectionPtr arrival) { bed.servers.push_back(std::move(arrival)); }));
    const conn::Endpoint at = testing::address_of(*bed.listeners.front());
    int timers = 0, posts = 0;
    bed.loop.add_time_event(ae::Duration::zero(), [&]() -> ae::Duration {
      bed.connect(at);
      bed.nest();
      return ++timers < 3 ? ae::Duration(1ms) : ae::kNoMore;
    });
    const std::function<void()> post = [&] {
      bed.connect(at);
      bed.nest();
      if (++posts < 3) bed.loop.post(post);
    };
    bed.loop.post(post);
    bed.until([&] {
      return timers == 3 && posts == 3 && bed.all_connected() && bed.servers.size() == 6;
    });
  }
}

TEST_CASE("nested: inside every handler of a Redial", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Nested bed(transport);
    bed.listeners.push_back(bed.site.type.listen(
        bed.loop, bed.site.fresh(),
        [&](ConnectionPtr arrival) { bed.servers.push_back(std::move(arrival)); }));
    const conn::Endpoint at = testing::address_of(*bed.listeners.front());
    int up = 0, down = 0, proved = 0, changed = 0;
    conn::Redial redial(bed.site.registry, bed.loop, at,
                        {.up =
                             [&](Connection&) {
                               bed.nest();
                               ++up;
                             },
                         .down =
                             [&](Connection&, const conn::Redial::Loss&) {
                               bed.nest();
                               ++down;
                             },
                         .prove =
                             [&](Connection&, const conn::Redial::Proved& done) {
                               bed.nest();
                               ++proved;
                               done(true);
                             },
                         .changed =
                             [&] {
                               bed.nest();
                               ++changed;
                             }});
    for (int round = 1; round <= 3; ++round) {
      bed.until([&] { return up == round && !bed.servers.empty(); });
      bed.servers.clear();
    }
    bed.until([&] { return down == 3; });
    REQUIRE(proved >= 3);
    REQUIRE(changed > 0);
  }
}
