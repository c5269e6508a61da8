// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: option handshake-threads. Other tests of TLS run with it, too, if
// AECONN_HANDSHAKE_THREADS is set (tests/support/certificates.cc).
#if AECONN_TLS

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"
#include "tests/support/tls_kit.h"

using conn::State;
using conn::tls::Errc;
using testing::Engine;
using testing::Engines;
using testing::TlsPair;
using testing::TlsSite;

namespace {

using namespace std::chrono_literals;

/// Runs one step of the handshake as Handshake does, on another thread if the engine allows that.
Engine::Step step_aside(Engine& engine, int& lent) {
  if (!engine.begin_lent_step()) return engine.handshake();
  ++lent;
  std::thread([&] { engine.run_step(); }).join();
  return engine.end_step();
}

/// Returns how many threads of this process help with handshakes.
std::size_t helpers() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "aeconn-tls") ++count;
  }
  return count;
}

std::uint64_t statistic(TlsSite& site, conn::tls::TlsType& type, std::string_view wanted) {
  for (const auto& [name, value] : type.statistics(site.loop))
    if (name == wanted) return value;
  FAIL("there is no statistic " << wanted);
  return 0;
}

}  // namespace

TEST_CASE("tls threads: lent steps complete a handshake over any wire and lose no byte after it",
          "[tls][handshake][thread]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  const std::size_t step = GENERATE(as<std::size_t>{}, 1, 7, 1000, SIZE_MAX);
  const std::size_t room = GENERATE(as<std::size_t>{}, 1, 500, SIZE_MAX);
  CAPTURE(version, step, room);
  const auto context = Engines::context_of({{"min-version", version}, {"max-version", version}});
  Engines both(context);
  both.server.hold_last_flight();
  both.up.step = both.down.step = step;
  both.up.room = both.down.room = room;
  int lent = 0;
  Engine::Step a = Engine::Step::kWantRead, b = a;
  bool early = false;
  for (int turn = 0; turn < 100'000; ++turn) {
    if (a != Engine::Step::kDone) a = step_aside(both.client, lent);
    // The client's first data, which the server may read with the end of the handshake.
    if (a == Engine::Step::kDone && !early) early = both.client.write("early", 5) == 5;
    both.client.flush();
    if (b != Engine::Step::kDone) b = step_aside(both.server, lent);
    both.server.flush();
    REQUIRE(a != Engine::Step::kFailed);
    REQUIRE(b != Engine::Step::kFailed);
    if (b == Engine::Step::kDone && early) break;
  }
  REQUIRE(b == Engine::Step::kDone);
  CHECK(lent >= 2);
  // The wire's events do not announce what the engine has read ahead: look() finds it.
  std::string got;
  for (int turn = 0; turn < 1000 && got.size() < 5; ++turn) {
    both.client.flush();
    if (both.up.bytes.empty())
      REQUIRE((both.server.look(false) || both.client.output().unsent() != 0));
    char buffer[2];
    if (const ssize_t n = both.server.read(buffer, sizeof buffer); n > 0)
      got.append(buffer, static_cast<std::size_t>(n));
  }
  CHECK(got == "early");
  const std::string more(100'000, 'm');
  CHECK(Engines::carry(both.client, both.server, more) == more);
  CHECK(Engines::carry(both.server, both.client, more) == more);
}

TEST_CASE("tls threads: data that was read ahead of a step is announced though no event comes",
          "[tls][handshake][thread]") {
  // OpenSSL's buffer has room for a record and its overhead. It holds a part of the client's
  // certificate when a step reads 16 KiB more, so it cannot take all of them at once.
  constexpr std::size_t kPart = 500, kAhead = 16384, kOverhead = 22;
  Engines both(Engines::context_of({{"min-version", "1.3"}, {"auth-clients", "yes"}}));
  int lent = 0;
  (void)both.client.handshake();
  REQUIRE(step_aside(both.server, lent) == Engine::Step::kWantRead);
  REQUIRE(step_aside(both.client, lent) == Engine::Step::kDone);
  REQUIRE(both.up.bytes.size() > kPart);
  const std::string early(kPart + kAhead - both.up.bytes.size() - kOverhead, 'e');
  REQUIRE(both.client.write(early.data(), early.size()) == static_cast<ssize_t>(early.size()));
  REQUIRE(both.up.bytes.size() == kPart + kAhead);
  both.up.step = kPart;
  REQUIRE(step_aside(both.server, lent) == Engine::Step::kWantRead);
  both.up.step = SIZE_MAX;
  REQUIRE(step_aside(both.server, lent) == Engine::Step::kDone);
  REQUIRE(both.up.bytes.empty());
  std::string got;
  while (both.server.look(false) && both.server.look(true)) {
    std::vector<char> buffer(5000);
    const ssize_t n = both.server.read(buffer.data(), buffer.size());
    if (n <= 0) break;
    got.append(buffer.data(), static_cast<std::size_t>(n));
  }
  CHECK(got.size() == early.size());
  CHECK((got == early));
  CHECK(Engines::carry(both.client, both.server, "more") == "more");
}

TEST_CASE("tls threads: a lent step finds the failures that a step of the loop finds",
          "[tls][handshake][thread]") {
  const bool plain = GENERATE(true, false);
  int lent = 0;
  if (plain) {
    Engines both;
    for (const char byte : std::string("GET / HTTP/1.1\r\n\r\n")) both.up.bytes.push_back(byte);
    REQUIRE(step_aside(both.server, lent) == Engine::Step::kFailed);
    CHECK(both.server.failure().code == Errc::kHandshake);
    CHECK(both.down.bytes.size() == 7);  // the alert for a client that speaks no TLS
  } else {
    Engines both(Engines::context_of({{"server-name", "other.example"}}));
    both.context->prepare_client(both.client, "other.example", "memory");
    Engine::Step a = Engine::Step::kWantRead;
    for (int turn = 0; turn < 100 && a == Engine::Step::kWantRead; ++turn) {
      a = step_aside(both.client, lent);
      (void)step_aside(both.server, lent);
    }
    REQUIRE(a == Engine::Step::kFailed);
    CHECK(both.client.failure().code == Errc::kVerification);
    REQUIRE(step_aside(both.server, lent) == Engine::Step::kFailed);  // it has the client's alert
  }
  CHECK(lent >= 1);
}

TEST_CASE("tls threads: each loop has the threads that its URLs ask for until it ends",
          "[tls][handshake][thread]") {
  const std::size_t before = helpers();
  {
    TlsPair pair({{"handshake-threads", "2"}}, {{"handshake-threads", "3"}});
    pair.require_echo(*pair.a, *pair.b);
    // The two types of this site have threads of their own.
    CHECK(helpers() == before + 5);
    CHECK(statistic(pair, pair.server, "handshake_thread_steps") >= 2);
    CHECK(statistic(pair, pair.client, "handshake_thread_steps") >= 1);
  }
  RUN_UNTIL(*std::make_unique<testing::AnyLoop>(), helpers() == before);
  TlsPair pair;
  if (std::getenv("AECONN_HANDSHAKE_THREADS") == nullptr) {
    CHECK(helpers() == before);
    CHECK(statistic(pair, pair.server, "handshake_thread_steps") == 0);
  }
}

TEST_CASE("tls threads: many handshakes end as they do without threads",
          "[tls][handshake][thread]") {
  const std::string threads = GENERATE(as<std::string>{}, "1", "4");
  TlsSite site({{"handshake-threads", threads}}, {{"handshake-threads", threads}});
  testing::Held held(site);
  {
    const conn::ListenerPtr listener = site.listen();
    std::vector<conn::ConnectionPtr> clients;
    for (int i = 0; i < 60; ++i) clients.push_back(site.start(testing::address_of(*listener)));
    // Some end while a thread may be at work on them.
    for (std::size_t i = 0; i < clients.size(); i += 5) {
      testing::turns(site.loop, static_cast<int>(i % 4));
      clients[i].reset();
    }
    RUN_UNTIL(site.loop, std::none_of(clients.begin(), clients.end(), [](const auto& client) {
                return client && client->state() == State::kConnecting;
              }));
    for (std::size_t i = 0; i < clients.size(); ++i)
      if (i % 5 != 0) REQUIRE(clients[i]->state() == State::kConnected);
    clients.clear();
    site.accepted.clear();
    RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 0);
    site.accepted.clear();
  }
  held.require_same();
}

TEST_CASE("tls threads: a handshake that times out is over though threads are busy",
          "[tls][handshake][thread]") {
  // With 1 ms most steps are on a thread, or wait for one, when the time is over.
  TlsSite site({{"handshake-threads", "1"}, {"handshake-timeout", "1ms"}},
               {{"handshake-threads", "1"}});
  const conn::ListenerPtr listener = site.listen();
  std::vector<conn::ConnectionPtr> clients;
  std::size_t over = 0;
  for (int i = 0; i < 60; ++i)
    clients.push_back(site.start(testing::address_of(*listener), {}, [&](auto&) { ++over; }));
  RUN_UNTIL(site.loop, over == clients.size());
  RUN_UNTIL(site.loop, statistic(site, site.server, "handshaking") == 0);
  RUN_UNTIL(site.loop, site.accepted.size() + site.refused.size() == clients.size());
}

TEST_CASE("tls threads: a loop may end while threads are at work for it",
          "[tls][handshake][thread]") {
  for (int turns = 0; turns < 12; ++turns) {
    TlsSite site({{"handshake-threads", "2"}}, {{"handshake-threads", "2"}});
    const conn::ListenerPtr listener = site.listen();
    std::vector<conn::ConnectionPtr> clients;
    for (int i = 0; i < 10; ++i) clients.push_back(site.start(testing::address_of(*listener)));
    testing::turns(site.loop, turns);
    if (turns % 2 == 0) clients.clear();
  }
}

TEST_CASE("tls threads: a child of fork starts threads of its own and leaves its parent's steps",
          "[tls][handshake][thread][fork]") {
  TlsSite site({{"handshake-threads", "2"}}, {{"handshake-threads", "2"}});
  const conn::ListenerPtr listener = site.listen();
  std::vector<conn::ConnectionPtr> clients;
  std::size_t over = 0;
  for (int i = 0; i < 20; ++i)
    clients.push_back(site.start(testing::address_of(*listener), {}, [&](auto&) { ++over; }));
  testing::turns(site.loop, 3);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20 * testing::slower());
    clients.clear();
    site.accepted.clear();
    // On a new loop, since that of the parent may wait for the parent's descriptors.
    TlsPair own({{"handshake-threads", "1"}}, {{"handshake-threads", "1"}});
    if (own.b->state() != State::kConnected || helpers() != 2) _exit(1);
    // It may fork again, without delay, and use the library there.
    const auto began = std::chrono::steady_clock::now();
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      { TlsPair next({{"handshake-threads", "1"}}); }
      _exit(0);
    }
    if (std::chrono::steady_clock::now() - began > 2s * testing::slower()) _exit(2);
    int its_status = -1;
    _exit(waitpid(grandchild, &its_status, 0) == grandchild && its_status == 0 ? 0 : 3);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  RUN_UNTIL(site.loop, over == clients.size());
  for (const conn::ConnectionPtr& client : clients) REQUIRE(client->state() == State::kConnected);
}

#endif  // AECONN_TLS
