// SPDX-License-Identifier: BSD-3-Clause
// Relays that aeconn-proxy itself ends: nobody takes a part of a stream for the whole. Relays that
// end without memory: only they end.

#include <poll.h>

#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include "conn/transports/transports.h"
#include "programs/proxy/site.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/stuck_transport.h"
#include "tests/support/testing.h"

using namespace std::chrono_literals;
using testing::RawSocket;

namespace {

/// A client and a server that are plain sockets, and a proxy between them, which ends the relay by
/// its idle time-out or because it ends itself.
struct Bed {
  explicit Bed(bool idle) {
    if (idle) settings.idle_timeout = 1s;
    settings.connect = listener.endpoint();
    site = std::make_unique<proxy::Site>(loop, registry, settings);
    proxy_listener = registry.listen(loop, "tcp://127.0.0.1:0", [this](conn::ConnectionPtr next) {
      site->accept(std::move(next));
    });
    client = RawSocket::connect(testing::address_of(*proxy_listener));
    RUN_UNTIL(loop, site->counters().joined == 1);
    server = listener.accept();
  }
  /// Waits until the proxy has taken all that it can.
  void fill(const RawSocket& from) {
    const std::string piece(64 << 10, 'x');
    for (int dry = 0; dry < 20; testing::turns(loop, 5))
      dry = from.send_what_fits(piece) == 0 ? dry + 1 : 0;
  }
  void end() {
    if (settings.idle_timeout == 0s) site.reset();
    RUN_UNTIL(loop, !site || site->open() == 0);
    testing::turns(loop, 5);
  }

  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  RawSocket listener = RawSocket::listening(), client, server;
  proxy::Settings settings;
  std::unique_ptr<proxy::Site> site;
  conn::ListenerPtr proxy_listener;
};

bool has_event(const RawSocket& socket, short event) {
  pollfd one{socket.fd(), event, 0};
  return ::poll(&one, 1, 0) == 1;
}

/// How the stream of a socket ends: 0 by the end of the stream, or the errno.
int end_of(const RawSocket& socket) {
  try {
    while (!socket.receive(1 << 20).empty()) {
    }
    return 0;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

}  // namespace

TEST_CASE("proxy: who is cut with bytes on their way sees a reset and no end", "[proxy]") {
  const bool idle = GENERATE(false, true), upward = GENERATE(false, true);
  CAPTURE(idle, upward);
  Bed bed(idle);
  bed.fill(upward ? bed.client : bed.server);
  bed.end();
  REQUIRE(end_of(upward ? bed.server : bed.client) == ECONNRESET);
  REQUIRE(end_of(upward ? bed.client : bed.server) == ECONNRESET);
}

TEST_CASE("proxy: who is cut while an answer is due sees a reset and no end", "[proxy]") {
  const bool idle = GENERATE(false, true);
  CAPTURE(idle);
  Bed bed(idle);
  bed.client.send("question");
  bed.client.half_close();
  RUN_UNTIL(bed.loop, has_event(bed.server, POLLRDHUP));
  REQUIRE(bed.server.receive(100) == "question");
  bed.end();
  REQUIRE(end_of(bed.client) == ECONNRESET);
}

TEST_CASE("proxy: who is cut between two messages sees the end of the stream", "[proxy]") {
  const bool idle = GENERATE(false, true);
  CAPTURE(idle);
  Bed bed(idle);
  bed.client.send("question");
  RUN_UNTIL(bed.loop, has_event(bed.server, POLLIN));
  REQUIRE(bed.server.receive(8) == "question");
  bed.server.send("answer");
  RUN_UNTIL(bed.loop, has_event(bed.client, POLLIN));
  bed.end();
  REQUIRE(bed.client.receive(100) == "answer");
  REQUIRE(end_of(bed.client) == 0);
  REQUIRE(end_of(bed.server) == 0);
}

// --- without memory ------------------------------------------------------------------------------

TEST_CASE("proxy: without memory for its line in the log, a relay ends all the same", "[proxy]") {
  const std::string when = GENERATE(as<std::string>(), "accepted", "not created", "not reached");
  CAPTURE(when);
  testing::AnyLoop loop;
  conn::Registry registry = conn::all_transports();
  auto& stuck =
      static_cast<testing::StuckType&>(registry.add(std::make_unique<testing::StuckType>("stuck")));
  stuck.broken = when == "not created";
  stuck.fail_at_once = when == "not reached" ? ECONNREFUSED : 0;
  proxy::Settings settings;
  settings.connect = conn::Endpoint::parse("stuck://anything");
  settings.verbose = when == "accepted";
  settings.log = [](const std::string&) { throw std::bad_alloc(); };
  proxy::Site site(loop, registry, settings);
  const conn::ListenerPtr listener = registry.listen(
      loop, "tcp://127.0.0.1:0", [&](conn::ConnectionPtr next) { site.accept(std::move(next)); });
  const RawSocket client = RawSocket::connect(testing::address_of(*listener));
  RUN_UNTIL(loop, site.counters().failed != 0);
  CHECK(site.open() == 0);
  CHECK(site.counters().failed == 1);
  CHECK(end_of(client) == ECONNRESET);
}

TEST_CASE("proxy: without memory for its line in the log, a relay is cut all the same", "[proxy]") {
  Bed bed(false);
  bed.settings.verbose = true;
  bed.settings.log = [](const std::string&) { throw std::bad_alloc(); };
  bed.client.send("question");
  RUN_UNTIL(bed.loop, bed.site->counters().upward == 8);
  bed.fill(bed.server);
  bed.server.close();  // with unread bytes: a reset
  // The client does not read, so a timer ends the relay after 3 s.
  RUN_UNTIL(bed.loop, bed.site->open() == 0);
  CHECK(end_of(bed.client) == ECONNRESET);
}

TEST_CASE("proxy: the end of the last relay is announced once there is memory", "[proxy]") {
  const bool open = GENERATE(false, true);  // whether there is still a relay when drain() is called
  CAPTURE(open);
  Bed bed(false);
  const auto end = [&] {
    bed.client.close();
    bed.server.close();
    RUN_UNTIL(bed.loop, bed.site->open() == 0);
  };
  if (!open) end();
  int calls = 0;
  bed.site->drain([&] {
    if (++calls < 3) throw std::bad_alloc();
  });
  if (open) end();
  CHECK(calls == 3);
}
