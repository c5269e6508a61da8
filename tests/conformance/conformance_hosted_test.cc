// SPDX-License-Identifier: BSD-3-Clause
// Connections on a loop that a host program polls by its descriptor: ae/epoll_loop.h.

#include <poll.h>

#include <chrono>
#include <string>
#include <utility>

#include "ae/epoll_loop.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using namespace std::chrono_literals;
using std::chrono::steady_clock;

namespace {

/// A host that sleeps in poll(2).
class Host {
 public:
  Host(ae::EpollLoop& loop, bool prepares) : loop_(loop), prepares_(prepares) {}
  /// Iterates until the loop is idle; false if that does not happen.
  bool rests() {
    for (int i = 0; i < 1000; ++i) {
      if (prepares_) loop_.prepare();
      pollfd fd{loop_.descriptor(), POLLIN, 0};
      if (::poll(&fd, 1, 0) == 0) return true;
      loop_.dispatch();
    }
    return false;
  }
  template <class Condition>
  bool until(Condition condition) {
    const auto deadline = steady_clock::now() + testing::patience();
    while (!condition() && steady_clock::now() < deadline) {
      if (prepares_) loop_.prepare();
      pollfd fd{loop_.descriptor(), POLLIN, 0};
      (void)::poll(&fd, 1, 1000);
      loop_.dispatch();
    }
    return condition();
  }

 private:
  ae::EpollLoop& loop_;
  const bool prepares_;
};

/// Two ends on a hosted loop; collects the bytes that the server receives.
struct HostedPair {
  HostedPair(const testing::Transport& transport, bool prepares)
      : site(transport), host(loop, prepares) {
    listener = site.type.listen(loop, site.fresh(),
                                [this](conn::ConnectionPtr c) { server = std::move(c); });
    client = site.type.create(loop);
    client->connect(testing::address_of(*listener), {});
    REQUIRE(host.until([&] { return server && client->state() == conn::State::kConnected; }));
    server->set_read_handler([this](conn::Connection& c) {
      char bytes[100];
      const ssize_t size = c.read(bytes, sizeof bytes);
      if (size > 0) got.append(bytes, static_cast<std::size_t>(size));
    });
    REQUIRE(host.rests());
  }

  testing::Site site;  // for its type and addresses
  ae::EpollLoop loop;
  Host host;
  conn::ListenerPtr listener;
  conn::ConnectionPtr server, client;
  std::string got;
};

}  // namespace

TEST_CASE("hosted: what is written outside handlers leaves at once", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    HostedPair pair(transport, GENERATE(false, true));
    // Waiting twenty times for a timer would take longer than this.
    const auto begun = steady_clock::now();
    for (int i = 0; i < 20; ++i) {
      pair.got.clear();
      REQUIRE(pair.client->write("hello", 5) == 5);
      REQUIRE(pair.host.until([&] { return pair.got == "hello"; }));
    }
    CHECK(steady_clock::now() - begun < 5s * testing::slower());
  }
}

TEST_CASE("hosted: what is written after prepare() leaves at once, though it is not called again",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    HostedPair pair(transport, true);
    const auto sleeps = [&] {
      pollfd fd{pair.loop.descriptor(), POLLIN, 0};
      return ::poll(&fd, 1, static_cast<int>(testing::patience() / 1ms)) == 1;
    };
    // Waiting twenty times for a timer would take longer than this.
    const auto begun = steady_clock::now();
    for (int i = 0; i < 20; ++i) {
      pair.got.clear();
      (void)pair.loop.prepare();
      REQUIRE(pair.client->write("hello", 5) == 5);
      do {
        REQUIRE(sleeps());
        pair.loop.dispatch();
        (void)pair.loop.prepare();
      } while (pair.got != "hello");
    }
    CHECK(steady_clock::now() - begun < 5s * testing::slower());
  }
}

TEST_CASE("hosted: a connection that is closed outside handlers tells its peer at once",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    HostedPair pair(transport, GENERATE(false, true));
    bool ended = false;
    pair.server->set_read_handler([&](conn::Connection& c) {
      char byte = 0;
      ended = c.read(&byte, 1) == 0;
      c.set_read_handler(nullptr);
    });
    REQUIRE(pair.host.rests());
    const auto begun = steady_clock::now();
    pair.client.reset();
    REQUIRE(pair.host.until([&] { return ended; }));
    CHECK(steady_clock::now() - begun < 5s * testing::slower());
  }
}

TEST_CASE("hosted: a handler may let the host serve the other connections meanwhile",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    HostedPair pair(transport, GENERATE(false, true));
    conn::ConnectionPtr second;
    auto first = std::move(pair.server);
    conn::ConnectionPtr other = pair.site.type.create(pair.loop);
    other->connect(testing::address_of(*pair.listener), {});
    REQUIRE(
        pair.host.until([&] { return pair.server && other->state() == conn::State::kConnected; }));
    second = std::move(pair.server);
    int inside = 0, calls = 0;
    std::string answer;
    second->set_read_handler([&](conn::Connection& c) {
      char bytes[10];
      const ssize_t size = c.read(bytes, sizeof bytes);
      if (size > 0) (void)c.write(bytes, static_cast<std::size_t>(size));
      if (inside != 0) ++calls;
    });
    other->set_read_handler([&](conn::Connection& c) {
      char bytes[10];
      const ssize_t size = c.read(bytes, sizeof bytes);
      if (size > 0) answer.append(bytes, static_cast<std::size_t>(size));
    });
    first->set_read_handler([&](conn::Connection& c) {
      char byte = 0;
      REQUIRE(c.read(&byte, 1) == 1);
      ++inside;
      REQUIRE(other->write("ping", 4) == 4);
      pair.loop.dispatch();
      REQUIRE(pair.host.until([&] { return answer == "ping"; }));
      --inside;
    });
    REQUIRE(pair.client->write("x", 1) == 1);
    REQUIRE(pair.host.until([&] { return answer == "ping" && inside == 0; }));
    CHECK(calls == 1);
  }
}
