// SPDX-License-Identifier: BSD-3-Clause
// Option mptcp of tcp: on a kernel that has Multipath TCP, and on one where it is switched off.

#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

#include "conn/error.h"
#include "conn/tcp/socket.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Endpoint;
using conn::State;
using testing::RawSocket;
using testing::Site;
using namespace std::chrono_literals;

namespace {

const testing::Transport kTcp{.name = "tcp"};

bool kernel_has_it() { return static_cast<bool>(conn::tcp::open_socket(AF_INET, true)); }

std::string fact(const Connection& connection, const std::string& key) {
  for (const auto& [name, value] : connection.info())
    if (name == key) return value;
  return {};
}

ConnectionPtr connect_to(Site& site, const Endpoint& to) {
  bool done = false;
  ConnectionPtr connection = site.connect(to, [&](Connection&) { done = true; });
  RUN_UNTIL(site.loop, done);
  return connection;
}

}  // namespace

TEST_CASE("tcp: mptcp=yes at both ends is Multipath TCP, at one end plain TCP", "[tcp]") {
  if (!kernel_has_it()) {
    WARN("skipped: the kernel offers no Multipath TCP");
    return;
  }
  Site site(kTcp);
  const bool listens = GENERATE(false, true), connects = GENERATE(false, true);
  ConnectionPtr server;
  const auto listener =
      site.type.listen(site.loop,
                       Endpoint::parse(std::string("tcp://127.0.0.1:0?keepalive=60s&mptcp=") +
                                       (listens ? "yes" : "no")),
                       [&](ConnectionPtr c) { server = std::move(c); });
  Endpoint to = testing::address_of(*listener);
  to.options.set("mptcp", connects ? "yes" : "no");
  ConnectionPtr client = connect_to(site, to);
  INFO(client->last_error());
  RUN_UNTIL(site.loop, server != nullptr);
  REQUIRE(client->state() == State::kConnected);

  const std::string all(3 << 20, 'm');
  testing::Collector got(*server);
  std::size_t sent = 0;
  client->set_write_handler([&](Connection& c) {
    const ssize_t n = c.write(all.data() + sent, all.size() - sent);
    if (n > 0) sent += static_cast<std::size_t>(n);
    if (sent == all.size()) c.set_write_handler(nullptr);
  });
  RUN_UNTIL(site.loop, got.bytes.size() == all.size());
  REQUIRE(got.bytes == all);

  const std::string expected = listens && connects ? "yes" : "plain TCP";
  CHECK(fact(*client, "mptcp") == (connects ? expected : ""));
  CHECK(fact(*server, "mptcp") == (listens ? expected : ""));
  CHECK(fact(*client, "nodelay") == "yes");
  CHECK(conn::tcp::speaks_mptcp(client->fd()) == (listens && connects));
  CHECK(client->path().starts_with("tcp 127.0.0.1:"));
  REQUIRE(client->shutdown() == 0);
  RUN_UNTIL(site.loop, got.ended);
  client.reset();
  server.reset();
  RUN_UNTIL(site.loop, site.type.counters(site.loop).open == 0);
}

TEST_CASE("tcp: mptcp=yes without Multipath TCP in the kernel says what to do", "[tcp]") {
  std::string skipped, listening, connecting, blocking;
  std::thread([&] {  // in a network namespace of its own, where it is switched off
    if (kernel_has_it()) {
      if (::unshare(CLONE_NEWNET) != 0) {
        skipped = "no namespace";
        return;
      }
      std::ofstream("/proc/sys/net/mptcp/enabled") << "0\n";
      if (kernel_has_it()) {
        skipped = "it cannot be switched off";
        return;
      }
    }
    const conn::Registry registry = testing::test_registry();
    const conn::ConnectionType& tcp = registry.require("tcp");
    testing::AnyLoop loop;
    const Endpoint place = Endpoint::parse("tcp://127.0.0.1:1?mptcp=yes");
    try {
      (void)tcp.listen(loop, place, [](ConnectionPtr) {});
    } catch (const conn::Error& error) {
      listening = error.what();
    }
    const ConnectionPtr waits = tcp.create(loop);
    (void)waits->connect_blocking(place, 5s);
    blocking = waits->last_error();
    const ConnectionPtr client = tcp.create(loop);
    client->connect(place, [&](Connection& c) {
      connecting = c.last_error();
      loop.stop();
    });
    loop.run();
  })
      .join();
  if (!skipped.empty()) {
    WARN("skipped: " << skipped);
    return;
  }
  const std::string why =
      "option mptcp=yes: this kernel offers no Multipath TCP; set the sysctl net.mptcp.enabled to "
      "1, or leave the option out";
  CHECK(connecting == "connect to 127.0.0.1:1: " + why);
  CHECK(blocking == connecting);
  CHECK(listening == "tcp://127.0.0.1:1?mptcp=yes: listen on 127.0.0.1:1: " + why);
}
