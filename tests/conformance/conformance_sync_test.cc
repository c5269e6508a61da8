// SPDX-License-Identifier: BSD-3-Clause
// The blocking operations, over each transport.

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conn/kit/interruption.h"
#include "tests/support/catch.h"
#include "tests/support/names.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::await_readable;
using testing::Pair;
using testing::Site;
using namespace std::chrono_literals;

namespace {

/// An echo server that works while this thread blocks: on a thread of its own if the transport
/// allows that, otherwise on this loop.
struct FarEcho {
  explicit FarEcho(Site& site) {
    if (site.transport.reaches_far) {
      thread = std::make_unique<testing::EchoThread>(site.transport);
      address = thread->address();
    } else {
      listener = site.listen(echo.handler());
      address = testing::address_of(*listener);
    }
  }
  testing::EchoServer echo;
  conn::ListenerPtr listener;
  std::unique_ptr<testing::EchoThread> thread;
  conn::Endpoint address;
};

/// While it exists, this thread receives signals, each of which ends its blocking calls.
class EndingSignals {
 public:
  /// They come while `when` is true.
  explicit EndingSignals(std::function<bool()> when = [] { return true; }) {
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGUSR1, &action, &before_);
    conn::Interruption::ask([](void*) { return 1; }, nullptr);
    sender_ = std::thread([this, when = std::move(when), target = pthread_self()] {
      for (; !over_; std::this_thread::sleep_for(1ms))
        if (when()) pthread_kill(target, SIGUSR1);
    });
  }
  ~EndingSignals() {
    over_ = true;
    sender_.join();
    conn::Interruption::ask(nullptr, nullptr);
    sigaction(SIGUSR1, &before_, nullptr);
  }
  EndingSignals(const EndingSignals&) = delete;
  EndingSignals& operator=(const EndingSignals&) = delete;

 private:
  struct sigaction before_ {};
  std::atomic<bool> over_{false};
  std::thread sender_;
};

std::string sync_read(Connection& connection, std::size_t size, ae::Duration timeout = 5s) {
  std::string bytes(size, '\0');
  const ssize_t n = connection.sync_read(bytes.data(), size, timeout);
  INFO("sync_read: " << std::strerror(errno));
  REQUIRE(n >= 0);
  bytes.resize(static_cast<std::size_t>(n));
  return bytes;
}

/// Sends `bytes` to the end that reads and waits for their arrival.
void deliver(Pair& pair, std::string_view bytes) {
  testing::send(pair.loop, *pair.server, bytes);
  await_readable(pair.loop, *pair.client);
}

/// Closes the other end completely: it shares the loop, so it must not linger while this thread
/// blocks.
void close_server(Pair& pair) {
  pair.server.reset();
  RUN_UNTIL(pair.loop, testing::counters(pair).open == 1);
}

}  // namespace

TEST_CASE("sync_read: it reads exactly what it is asked for", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    deliver(pair, "abcdef");
    REQUIRE(sync_read(*pair.client, 4) == "abcd");
    REQUIRE(sync_read(*pair.client, 2) == "ef");
    char byte;
    REQUIRE(pair.client->sync_read(&byte, 0, 0s) == 0);
  }
}

TEST_CASE("sync_read: with no time it takes what is there", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    deliver(pair, "abc");
    REQUIRE(sync_read(*pair.client, 3, 0s) == "abc");
    char byte;
    errno = 0;
    REQUIRE(pair.client->sync_read(&byte, 1, 0s) == -1);
    REQUIRE(errno == ETIMEDOUT);
  }
}

TEST_CASE("sync_read: it times out when too little comes, and the connection lives on",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    deliver(pair, "abc");
    char buffer[4];
    const auto before = std::chrono::steady_clock::now();
    errno = 0;
    REQUIRE(pair.client->sync_read(buffer, 4, 50ms) == -1);
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(std::chrono::steady_clock::now() - before >= 50ms);
    REQUIRE(pair.client->state() == State::kConnected);
    deliver(pair, "next");
    REQUIRE(sync_read(*pair.client, 4) == "next");
  }
}

TEST_CASE("sync_read: at the end of the stream it returns what there was", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    deliver(pair, "abc");
    pair.server.reset();
    testing::Collector nobody(*pair.client, 1);  // waits for the end of stream
    RUN_UNTIL(pair.loop, nobody.over());
    REQUIRE(nobody.bytes == "abc");
    REQUIRE(sync_read(*pair.client, 10) == "");
  }
}

TEST_CASE("sync_read: fewer bytes than asked for mean that the stream ended", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.server, "abc");
    close_server(pair);
    await_readable(pair.loop, *pair.client);
    REQUIRE(sync_read(*pair.client, 10) == "abc");
    REQUIRE(sync_read(*pair.client, 10) == "");
  }
}

TEST_CASE("sync_readline: it takes one line at a time, without its end", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    deliver(pair, "first\r\n\nsecond\n\r\n\rthird\nrest");
    char line[32];
    for (const std::string expected : {"first", "", "second", "", "\rthird"}) {
      REQUIRE(pair.client->sync_readline(line, sizeof line, 5s) ==
              static_cast<ssize_t>(expected.size()));
      REQUIRE(std::string(line) == expected);
    }
    REQUIRE(sync_read(*pair.client, 4) == "rest");
  }
}

TEST_CASE("sync_readline: a line that is too long, late or cut off is an error", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    char line[8];
    deliver(pair, "1234567890");
    REQUIRE(pair.client->sync_readline(line, sizeof line, 5s) == -1);
    REQUIRE(errno == EMSGSIZE);
    REQUIRE(std::string(line) == "1234567");
    REQUIRE(pair.client->sync_readline(line, sizeof line, 30ms) == -1);
    REQUIRE(errno == ETIMEDOUT);
    deliver(pair, "fit in\n");  // six bytes and the line end fit exactly into eight bytes
    errno = EINTR;              // as left by an earlier call
    REQUIRE(pair.client->sync_readline(line, sizeof line, 5s) == 6);
    testing::send(pair.loop, *pair.server, "cut");
    close_server(pair);
    await_readable(pair.loop, *pair.client);
    errno = EINTR;
    REQUIRE(pair.client->sync_readline(line, sizeof line, 5s) == -1);
    REQUIRE(errno == ECONNRESET);
  }
}

TEST_CASE("sync_write: it times out when the peer does not read", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string much(64 << 20, 'x');
    errno = 0;
    REQUIRE(pair.client->sync_write(much.data(), much.size(), 200ms) == -1);
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(pair.client->state() == State::kConnected);
    REQUIRE(pair.client->sync_write("", 0, 0s) == 0);
  }
}

TEST_CASE("sync_write: an error ends it", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    pair.server.reset();
    testing::Collector end(*pair.client);
    RUN_UNTIL(pair.loop, end.over());
    const std::string much(64 << 20, 'x');
    // The other end may be lingering on this loop; it is gone only after that.
    bool failed = false;
    RUN_UNTIL(pair.loop,
              failed || (failed = pair.client->sync_write(much.data(), much.size(), 50ms) == -1 &&
                                  errno != ETIMEDOUT));
    // Without half-close the end of stream has ended both directions. Over rdma it has, too, if it
    // was read only after the peer had disconnected.
    const bool half_close = pair.client->type().capabilities().half_close;
    const State state = pair.client->state();
    REQUIRE((state == State::kClosed || (half_close && state == State::kError)));
    if (!transport.name.ends_with("rdma"))
      REQUIRE(state == (half_close ? State::kError : State::kClosed));
  }
}

TEST_CASE("sync operations: a request and its reply, both larger than any buffer",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (!transport.reaches_far) return;  // the peer has to read meanwhile
    Site site(transport);
    FarEcho far(site);
    const ConnectionPtr client = site.type.create(site.loop);
    REQUIRE(client->connect_blocking(far.address, 5s));
    const testing::Pattern pattern(31);
    constexpr std::size_t kSize = 8 << 20;
    std::string request;
    while (request.size() < kSize) request += pattern.at(request.size());
    REQUIRE(client->sync_write(request.data(), request.size(), testing::patience()) ==
            static_cast<ssize_t>(request.size()));
    REQUIRE(sync_read(*client, request.size(), testing::patience()) == request);
  }
}

TEST_CASE("sync operations: handlers do not run meanwhile, and afterwards nothing is lost",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    FarEcho far(site);
    bool inside = false;
    std::string got_by_other, got_by_own;
    int timers = 0;
    const ConnectionPtr other = site.connect(far.address), own = site.connect(far.address);
    RUN_UNTIL(site.loop, other->state() == State::kConnected && own->state() == State::kConnected);
    other->set_read_handler([&](Connection& c) {
      REQUIRE_FALSE(inside);
      got_by_other += testing::read_some(c, 100);
    });
    own->set_read_handler([&](Connection& c) {
      REQUIRE_FALSE(inside);
      got_by_own += testing::read_some(c, 100);
    });
    site.loop.add_time_event(0s, [&] {
      REQUIRE_FALSE(inside);
      ++timers;
      return ae::kNoMore;
    });
    testing::send(site.loop, *other, "for the other");
    testing::send(site.loop, *own, "for this one");
    if (!transport.reaches_far) RUN_UNTIL(site.loop, far.echo.open() == 2);
    // While this connection waits for bytes that never come, the other's bytes arrive.
    got_by_own.clear();
    inside = true;
    char buffer[1000];
    REQUIRE(own->sync_read(buffer, sizeof buffer, 200ms) == -1);
    REQUIRE(errno == ETIMEDOUT);
    inside = false;
    testing::send(site.loop, *own, "more");
    RUN_UNTIL(site.loop,
              got_by_other == "for the other" && got_by_own.ends_with("more") && timers == 1);
  }
}

TEST_CASE("sync operations: they work inside a handler", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string got;
    pair.client->set_read_handler([&](Connection& c) {
      char line[32];
      REQUIRE(c.sync_readline(line, sizeof line, 5s) == 5);
      got = std::string(line) + "+" + sync_read(c, 4);
      REQUIRE(c.sync_write("done", 4, 5s) == 4);
      c.set_read_handler(nullptr);
    });
    testing::send(pair.loop, *pair.server, "hello\nabcd");
    RUN_UNTIL(pair.loop, !got.empty());
    REQUIRE(got == "hello+abcd");
    REQUIRE(testing::receive(pair.loop, *pair.server, 4) == "done");
  }
}

TEST_CASE("connect_blocking: it returns with a connection that works", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    // A handshake needs a peer that answers while this thread waits.
    if (!transport.reaches_far && site.type.capabilities().integrity) return;
    FarEcho far(site);
    const ConnectionPtr client = site.type.create(site.loop);
    REQUIRE(client->connect_blocking(far.address, 5s));
    REQUIRE(client->state() == State::kConnected);
    testing::send(site.loop, *client, "hello");
    REQUIRE(testing::receive(site.loop, *client, 5) == "hello");
    errno = 0;
    REQUIRE_FALSE(client->connect_blocking(far.address, 5s));
    REQUIRE(errno == EISCONN);
    REQUIRE(client->state() == State::kConnected);
  }
}

TEST_CASE("connect_blocking: where nobody listens it says so at once", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    const ConnectionPtr client = site.type.create(site.loop);
    const auto before = std::chrono::steady_clock::now();
    REQUIRE_FALSE(client->connect_blocking(site.deserted(), 5s));
    REQUIRE(std::chrono::steady_clock::now() - before < 4s);
    REQUIRE(client->state() == State::kError);
    REQUIRE(client->last_error().find(' ') != std::string::npos);
  }
}

TEST_CASE("connect_blocking: a listener that does not answer costs the time-out, no more",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.name.ends_with("vsock"))
      return;  // the kernel resets what its backlog has no room for
    if (!transport.reaches_far) return;
    Site site(transport);
    testing::AnyLoop stopped;  // its listener never answers; only a kernel's backlog does
    conn::Endpoint at = site.fresh();
    at.options.set("backlog", "1");
    const conn::ListenerPtr listener = site.type.listen(stopped, at, [](ConnectionPtr) {});
    std::vector<ConnectionPtr> clients;
    bool connected = true;
    while (connected && clients.size() < 10) {
      clients.push_back(site.type.create(site.loop));
      const auto before = std::chrono::steady_clock::now();
      connected = clients.back()->connect_blocking(testing::address_of(*listener), 200ms);
      const auto took = std::chrono::steady_clock::now() - before;
      REQUIRE((connected || took >= 200ms));
      REQUIRE(took < 3s);
    }
    REQUIRE_FALSE(connected);
    REQUIRE(clients.back()->error_code() == std::errc::timed_out);
    REQUIRE(clients.back()->last_error().find(' ') != std::string::npos);

    // The same without blocking, by the endpoint's option.
    conn::Endpoint to = testing::address_of(*listener);
    to.options.set("connect-timeout", "200ms");
    int calls = 0;
    const ConnectionPtr late = site.connect(to, [&](Connection&) { ++calls; });
    RUN_UNTIL(site.loop, calls > 0);
    REQUIRE(late->state() == State::kError);
    REQUIRE(late->error_code() == std::errc::timed_out);
    REQUIRE(calls == 1);

    // And blocking, with an option that is shorter than the time-out.
    const auto before = std::chrono::steady_clock::now();
    const ConnectionPtr bounded = site.type.create(site.loop);
    REQUIRE_FALSE(bounded->connect_blocking(to, 1min));
    REQUIRE(std::chrono::steady_clock::now() - before < 30s);
    REQUIRE(bounded->error_code() == std::errc::timed_out);
  }
}

TEST_CASE("connect_blocking: a signal that ends it has failed the connection for good",
          "[conformance][signals]") {
  if (testing::simulated()) return;  // simulated time passes only while nothing else happens
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.name.ends_with("vsock"))
      return;  // the kernel resets what its backlog has no room for
    if (!transport.reaches_far) return;
    Site site(transport);
    // The listener answers only while site.loop runs.
    testing::AnyLoop stopped(site.loop);
    conn::Endpoint at = site.fresh();
    at.options.set("backlog", "1");
    std::vector<ConnectionPtr> accepted;
    const conn::ListenerPtr listener = site.type.listen(
        stopped, at, [&](ConnectionPtr next) { accepted.push_back(std::move(next)); });
    conn::Endpoint to = testing::address_of(*listener);
    to.options.set("connect-timeout", "60s");
    std::vector<ConnectionPtr> clients;
    bool connected = true;
    {
      const EndingSignals signals;
      while (connected && clients.size() < 10) {
        clients.push_back(site.type.create(site.loop));
        errno = 0;
        connected = clients.back()->connect_blocking(to, 1min);
      }
      CHECK(errno == EINTR);
    }
    REQUIRE_FALSE(connected);
    const Connection& ended = *clients.back();
    CHECK(ended.state() == State::kError);
    CHECK(ended.error_code() == std::errc::interrupted);
    CHECK(ended.last_error().find(' ') != std::string::npos);
    // The listener answers now, which must change nothing.
    testing::turns(site.loop, 20);
    CHECK(ended.state() == State::kError);
    CHECK(ended.error_code() == std::errc::interrupted);
    clients.clear();
    accepted.clear();
    // The loop and the listener serve others as before.
    const ConnectionPtr next = site.connect(to);
    RUN_UNTIL(site.loop, next->state() != State::kConnecting && !accepted.empty());
    CHECK(next->state() == State::kConnected);
  }
}

TEST_CASE("connect_blocking: the time-out holds where a name is looked up in vain",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    conn::Endpoint to = site.deserted();
    // no names to resolve
    if (to.hosts.empty() || to.no_port || transport.name.ends_with("vsock")) return;
    testing::Names names;
    static int lookups = 0;  // a released name may still have a lookup in progress
    to.hosts.front().name = "silent" + std::to_string(++lookups) + ".test";
    names.hold(to.hosts.front().name);
    const ConnectionPtr client = site.type.create(site.loop);
    REQUIRE_FALSE(client->connect_blocking(to, 50ms));  // must return all the same
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(client->error_code() == std::errc::timed_out);
    to.options.set("connect-timeout", "50ms");
    const ConnectionPtr bounded = site.type.create(site.loop);
    REQUIRE_FALSE(bounded->connect_blocking(to, 1h));
    REQUIRE(errno == ETIMEDOUT);
  }
}

TEST_CASE("connect_blocking: a signal ends the lookup of a name, and no other one begins",
          "[conformance][signals]") {
  if (testing::simulated()) return;  // simulated time passes only while nothing else happens
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    conn::Endpoint to = site.deserted();
    if (to.hosts.empty() || to.no_port || transport.name.ends_with("vsock")) return;
    testing::Names names;
    static int lookups = 0;
    const std::string name = "mute" + std::to_string(++lookups) + ".test";
    to.hosts.front().name = name;
    to.hosts.push_back({"other-" + name, false});
    for (const conn::Endpoint::Host& host : to.hosts) names.hold(host.name);
    to.options.set("connect-timeout", "60s");
    const ConnectionPtr client = site.type.create(site.loop);
    bool connected = true;
    {
      const EndingSignals signals([&] { return names.asked("other-" + name) == 0; });
      errno = 0;
      connected = client->connect_blocking(to, 10s);
      CHECK(errno == EINTR);
    }
    CHECK_FALSE(connected);
    CHECK(names.asked("other-" + name) == 0);
    CHECK(client->error_code() == std::errc::interrupted);
    CHECK(client->last_error().find("timed out") == std::string::npos);
  }
}
