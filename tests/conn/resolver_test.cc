// SPDX-License-Identifier: BSD-3-Clause
// Resolver: resolves names to addresses, blocking or in the background.

#include "conn/kit/resolver.h"

#include <netinet/in.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "conn/tcp/socket.h"
#include "tests/support/catch.h"
#include "tests/support/names.h"
#include "tests/support/testing.h"

using conn::Resolved;
using conn::SocketAddress;
using namespace std::chrono_literals;

namespace {

SocketAddress address(const char* host, std::uint16_t port = 1) {
  SocketAddress out;
  REQUIRE(conn::numeric_address(host, port, out));
  return out;
}

}  // namespace

TEST_CASE("resolver: numeric addresses need no lookup", "[conn][resolver]") {
  const Resolved four = conn::resolve("10.1.2.3", 6379, false);
  REQUIRE(four.addresses.size() == 1);
  REQUIRE(four.addresses[0].to_string() == "10.1.2.3:6379");
  REQUIRE_FALSE(four.failure);
  const Resolved six = conn::resolve("fd00::1", 80, true);
  REQUIRE(six.addresses.at(0).to_string() == "[fd00::1]:80");
  REQUIRE(six.addresses[0].host() == "fd00::1");
  REQUIRE(six.addresses[0].port() == 80);
}

TEST_CASE("resolver: wildcards are addresses to listen on", "[conn][resolver]") {
  REQUIRE(conn::resolve("*", 5, true).addresses.at(0).to_string() == "0.0.0.0:5");
  REQUIRE(conn::resolve("::", 5, true).addresses.at(0).to_string() == "[::]:5");
  const Resolved refused = conn::resolve("*", 5, false);
  REQUIRE(refused.addresses.empty());
  REQUIRE(refused.failure);
}

TEST_CASE("resolver: an unknown name fails in words", "[conn][resolver]") {
  const Resolved failed = conn::resolve("no-such-host.invalid", 80, false);
  REQUIRE(failed.addresses.empty());
  REQUIRE_THAT(failed.failure.text, Catch::Matchers::StartsWith("resolve no-such-host.invalid: "));
  REQUIRE(conn::resolve("", 80, false).failure);
}

TEST_CASE("resolver: localhost is a loopback address, listed once", "[conn][resolver]") {
  const Resolved found = conn::resolve("localhost", 80, false);
  REQUIRE_FALSE(found.addresses.empty());
  for (const SocketAddress& one : found.addresses) {
    REQUIRE(conn::is_loopback(one));
    REQUIRE(std::count_if(found.addresses.begin(), found.addresses.end(), [&](const auto& other) {
              return other.to_string() == one.to_string();
            }) == 1);
  }
}

TEST_CASE("resolver: an IPv4 address in IPv6 clothes is the same host", "[conn][resolver]") {
  REQUIRE(address("127.0.0.1", 1).same_host(address("127.0.0.1", 2)));
  REQUIRE(address("127.0.0.1").same_host(address("::ffff:127.0.0.1")));
  REQUIRE(address("::ffff:10.0.0.1").same_host(address("10.0.0.1")));
  REQUIRE_FALSE(address("127.0.0.1").same_host(address("127.0.0.2")));
  REQUIRE_FALSE(address("127.0.0.1").same_host(address("::1")));
  REQUIRE_FALSE(address("::1").same_host(address("fd00::1")));
  REQUIRE_FALSE(SocketAddress{}.same_host(SocketAddress{}));
  REQUIRE(conn::is_loopback(address("127.9.9.9")));
  REQUIRE(conn::is_loopback(address("::1")));
  REQUIRE(conn::is_loopback(address("::ffff:127.0.0.1")));
  REQUIRE_FALSE(conn::is_loopback(address("10.0.0.1")));
}

TEST_CASE("resolver: addresses of Unix sockets print their path", "[conn][resolver]") {
  REQUIRE(conn::tcp::unix_address("/run/kv.sock").to_string() == "/run/kv.sock");
  REQUIRE(conn::tcp::unix_address("/run/kv.sock").port() == 0);
  REQUIRE(SocketAddress{}.to_string().empty());
  SocketAddress unnamed;
  unnamed.storage.ss_family = AF_UNIX;
  unnamed.size = sizeof(sa_family_t);
  REQUIRE(unnamed.to_string().empty());
}

TEST_CASE("resolver: answers come from the loop, never before the call returns",
          "[conn][resolver]") {
  const std::string host = GENERATE("127.0.0.1", "localhost", "no-such-host.invalid", "*");
  CAPTURE(host);
  testing::AnyLoop loop;
  bool answered = false;
  Resolved result;
  const auto resolution = conn::resolve_async(loop, host, 80, [&](Resolved r) {
    result = std::move(r);
    answered = true;
  });
  REQUIRE_FALSE(answered);
  RUN_UNTIL(loop, answered);
  REQUIRE(result.addresses.empty() == static_cast<bool>(result.failure));
  if (host == "127.0.0.1") REQUIRE(result.addresses.at(0).to_string() == "127.0.0.1:80");
}

TEST_CASE("resolver: the callback may drop its own resolution", "[conn][resolver]") {
  const std::string host = GENERATE("127.0.0.1", "localhost");
  testing::AnyLoop loop;
  std::unique_ptr<conn::Resolution> resolution;
  bool answered = false;
  resolution = conn::resolve_async(loop, host, 80, [&](Resolved) {
    resolution.reset();
    answered = true;
  });
  RUN_UNTIL(loop, answered);
}

TEST_CASE("resolver: a dropped resolution calls nobody", "[conn][resolver]") {
  testing::AnyLoop loop;
  int calls = 0;
  for (int i = 0; i < 50; ++i) {
    for (const char* host : {"127.0.0.1", "localhost"}) {
      const auto dropped = conn::resolve_async(loop, host, 80, [&](Resolved) { ++calls; });
      if (i % 2 == 0) testing::turns(loop, 1);  // some are dropped while the answer is under way
      calls = 0;
    }
    calls = 0;
  }
  bool last = false;
  const auto kept = conn::resolve_async(loop, "localhost", 80, [&](Resolved) { last = true; });
  RUN_UNTIL(loop, last);
  REQUIRE(calls == 0);
}

TEST_CASE("resolver: more names than threads are all answered", "[conn][resolver]") {
  testing::AnyLoop loop;
  std::vector<std::unique_ptr<conn::Resolution>> lookups;
  int answers = 0;
  for (int i = 0; i < 100; ++i) {
    lookups.push_back(conn::resolve_async(loop, "localhost", 80, [&](Resolved) { ++answers; }));
  }
  RUN_UNTIL(loop, answers == 100);
}

TEST_CASE("resolver: several loops look names up at once", "[conn][resolver]") {
  std::vector<std::thread> threads;
  std::atomic<int> answers{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&answers] {
      testing::AnyLoop loop;
      std::vector<std::unique_ptr<conn::Resolution>> lookups;
      int mine = 0;
      for (int i = 0; i < 20; ++i) {
        lookups.push_back(conn::resolve_async(loop, "localhost", 80, [&](Resolved) { ++mine; }));
      }
      while (mine < 20) loop.process_events(ae::kFullIteration);
      answers += mine;
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(answers == 80);
}

TEST_CASE("resolver: a loop may go while lookups run for it", "[conn][resolver]") {
  for (int i = 0; i < 20; ++i) {
    int calls = 0;
    auto loop = std::make_unique<testing::AnyLoop>();
    auto lookup = conn::resolve_async(*loop, "localhost", 80, [&](Resolved) { ++calls; });
    lookup.reset();
    loop.reset();
    REQUIRE(calls == 0);
  }
}

TEST_CASE("resolver: names whose server does not answer stop no others", "[conn][resolver]") {
  testing::Names names;
  testing::AnyLoop loop;
  std::vector<std::unique_ptr<conn::Resolution>> stuck, lookups;
  const bool given_up = GENERATE(false, true);
  CAPTURE(given_up);
  for (int i = 0; i < 10; ++i) {
    const std::string host = "silent" + std::to_string(i) + ".test";
    names.hold(host);
    for (int each = 0; each < 5; ++each)
      stuck.push_back(conn::resolve_async(loop, host, 80, [](Resolved) {}));
  }
  if (given_up) stuck.clear();
  int answers = 0;
  for (int i = 0; i < 12; ++i) {
    lookups.push_back(conn::resolve_async(loop, "good" + std::to_string(i) + ".test", 80,
                                          [&](const Resolved& found) {
                                            if (!found.failure) ++answers;
                                          }));
  }
  RUN_UNTIL(loop, answers == 12);
  REQUIRE(names.held() <= 10);  // at most one lookup per name
}

TEST_CASE("resolver: requests for one name share a lookup, each has its port", "[conn][resolver]") {
  testing::Names names;
  names.hold("one.test");
  testing::AnyLoop loop;
  std::vector<std::unique_ptr<conn::Resolution>> lookups;
  int answers = 0;
  for (std::uint16_t port = 1; port <= 30; ++port) {
    lookups.push_back(conn::resolve_async(loop, "one.test", port, [&, port](const Resolved& found) {
      REQUIRE(found.addresses.at(0).to_string() == "127.0.0.1:" + std::to_string(port));
      ++answers;
    }));
    if (port % 2 == 0) lookups[port / 2].reset();  // the others still wait
  }
  const auto left =
      std::count_if(lookups.begin(), lookups.end(), [](auto& each) { return !!each; });
  while (names.held() == 0) testing::turns(loop, 1);  // the loop gets no event for it
  names.release("one.test");
  RUN_UNTIL(loop, answers == left);
  REQUIRE(names.asked("one.test") == 1);
}

TEST_CASE("resolver: who waits here waits until the deadline at most", "[conn][resolver]") {
  testing::Names names;
  const auto far = GENERATE(std::chrono::steady_clock::now() + 1h, ae::TimePoint::max());
  // A different name in each run: an earlier lookup may still be in progress and would be shared.
  const std::string name = far == ae::TimePoint::max() ? "later.test" : "late.test";
  names.hold(name);
  const Resolved late = conn::resolve_until(name, 80, std::chrono::steady_clock::now() + 50ms);
  REQUIRE(late.failure.code == std::errc::timed_out);
  REQUIRE(late.failure.text == "resolve " + name + ": Connection timed out");
  REQUIRE(conn::resolve_until("good.test", 80, far).addresses.at(0).to_string() == "127.0.0.1:80");
  REQUIRE(conn::resolve_until("10.1.2.3", 80, far).addresses.at(0).to_string() == "10.1.2.3:80");
  REQUIRE(conn::resolve_until("*", 80, far).failure);
}

#if defined(__SANITIZE_THREAD__)
#define NO_THREADS_AFTER_FORK 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK 1
#endif
#endif
#ifndef NO_THREADS_AFTER_FORK  // ThreadSanitizer ends a child that starts a thread
TEST_CASE("resolver: a forked child can look names up", "[conn][resolver]") {
  {  // so that the parent has, or had, threads
    testing::AnyLoop loop;
    bool done = false;
    const auto lookup = conn::resolve_async(loop, "localhost", 80, [&](Resolved) { done = true; });
    RUN_UNTIL(loop, done);
  }
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    bool done = false;
    testing::AnyLoop loop;
    const auto lookup = conn::resolve_async(loop, "localhost", 80, [&](Resolved) { done = true; });
    while (!done) loop.process_events(ae::kFullIteration);
    _exit(0);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}
#endif
