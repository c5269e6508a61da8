// SPDX-License-Identifier: BSD-3-Clause
// Redial: what it tries to connect to, with which options, and that these notice a silent path.

#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "conn/redial.h"
#include "tests/support/raw_socket.h"
#include "tests/support/redial_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Redial;
using testing::RedialBed;
using namespace std::chrono_literals;

TEST_CASE("redial: an endpoint that nothing can use is refused at once", "[redial]") {
  RedialBed bed;
  const auto make = [&](const char* url) {
    Redial(bed.registry, bed.loop, conn::Endpoint::parse(url), {}, bed.settings);
  };
  REQUIRE_THROWS_AS(make("tcp://127.0.0.1:1?no-such-option=1"), conn::Error);
  REQUIRE_THROWS_AS(make("nothing://127.0.0.1:1"), conn::Error);
}

namespace {

int tcp_option(const Connection& connection, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  REQUIRE(getsockopt(connection.fd(), IPPROTO_TCP, name, &value, &size) == 0);
  return value;
}

/// Drops everything that arrives at the socket, and at sockets accepted from now on.
void lose_all(int fd, bool lose) {
  sock_filter nothing{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &nothing};
  const int unused = 0;
  REQUIRE((lose ? setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)
                : setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused)) == 0);
}

}  // namespace

TEST_CASE("redial: over tcp it has options that notice a silent path, where the URL has none",
          "[redial]") {
  RedialBed bed;
  const std::string schemes = GENERATE("tcp", "stuck|tcp");
  bed.stuck->fail_at_once = ECONNREFUSED;
  bed.start(schemes);
  RUN_UNTIL(bed.loop, bed.ups == 1);
  REQUIRE(tcp_option(*bed.redial->connection(), TCP_USER_TIMEOUT) == 3000);
  REQUIRE(tcp_option(*bed.redial->connection(), TCP_KEEPIDLE) == 1);
  bed.redial.emplace(bed.registry, bed.loop,
                     conn::Endpoint::parse(schemes + "://127.0.0.1:" + std::to_string(bed.port) +
                                           "?user-timeout=7s&keepalive=9s"),
                     bed.handlers, bed.settings);
  RUN_UNTIL(bed.loop, bed.ups == 2);
  REQUIRE(tcp_option(*bed.redial->connection(), TCP_USER_TIMEOUT) == 7000);
  REQUIRE(tcp_option(*bed.redial->connection(), TCP_KEEPIDLE) == 9);
}

TEST_CASE("redial: a path that loses everything is noticed, and used again when it does not",
          "[redial]") {
  RedialBed bed;
  bed.settings.attempt = 300ms;
  testing::RawSocket port = testing::RawSocket::listening();
  const int listening = dup(port.fd());
  bed.listener = bed.registry.require("tcp").adopt_listener(
      bed.loop, listening, [&](ConnectionPtr next) { bed.servers.push_back(std::move(next)); });
  bed.port = bed.listener->endpoints().front().port;
  // A second client, which receives nothing although its server is reached.
  Redial::Handlers handlers;
  int deaf_ups = 0, deaf_downs = 0;
  handlers.up = [&](Connection&) { ++deaf_ups; };
  handlers.down = [&](Connection&, const Redial::Loss&) { ++deaf_downs; };
  bed.start();
  Redial deaf(bed.registry, bed.loop,
              conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(bed.port)), handlers,
              bed.settings);
  RUN_UNTIL(bed.loop, bed.ups == 1 && deaf_ups == 1 && bed.servers.size() == 2);
  lose_all(port.fd(), true);
  for (const ConnectionPtr& each : bed.servers)
    if (each->peer_address() == bed.redial->connection()->local_address())
      lose_all(each->fd(), true);
  lose_all(deaf.connection()->fd(), true);
  REQUIRE(bed.redial->connection()->write("lost", 4) == 4);
  for (const ConnectionPtr& each : bed.servers) REQUIRE(each->write("lost", 4) == 4);
  RUN_UNTIL(bed.loop, bed.downs == 1 && deaf_downs == 1);
  REQUIRE(bed.last.unconfirmed == 4);
  REQUIRE(bed.last.why);
  RUN_UNTIL(bed.loop, bed.redial->counters().failures > 0);
  lose_all(port.fd(), false);
  RUN_UNTIL(bed.loop, bed.ups == 2 && deaf_ups == 2);
}
