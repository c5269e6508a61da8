// SPDX-License-Identifier: BSD-3-Clause
// conn/tcp: accepting, also when descriptors run out and connections flood in.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::RawSocket;
using testing::Site;
using namespace std::chrono_literals;

namespace {

const testing::Transport kTcp{.name = "tcp"};

/// Until destroyed, this process cannot open more descriptors.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(0);
    rlimit tight = before_;
    tight.rlim_cur = static_cast<rlim_t>(next);  // the lowest free one, if there are no gaps
    ::close(next);
    setrlimit(RLIMIT_NOFILE, &tight);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("tcp: connections are accepted ready for data", "[tcp]") {
  Site site(kTcp);
  ConnectionPtr server;
  State state = State::kNone;
  const auto listener = site.listen([&](ConnectionPtr c) {
    state = c->state();
    server = std::move(c);
  });
  const RawSocket client = RawSocket::connect(testing::address_of(*listener));
  client.send("early");
  RUN_UNTIL(site.loop, server != nullptr);
  REQUIRE(state == State::kConnected);
  REQUIRE(server->fd() >= 0);
  REQUIRE(&server->type() == &site.type);
  REQUIRE(testing::receive(site.loop, *server, 5) == "early");
  REQUIRE(site.type.counters(site.loop).accepted == 1);
}

TEST_CASE("tcp: a flood of arrivals is accepted in batches", "[tcp]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  auto where = conn::Endpoint::parse("tcp://127.0.0.1:0?accept-batch=10");
  const auto listener = site.type.listen(
      site.loop, where, [&](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  std::vector<RawSocket> clients;
  for (int i = 0; i < 35; ++i) {
    clients.push_back(RawSocket::connect(testing::address_of(*listener)));
  }
  std::size_t before = 0, largest = 0;
  while (accepted.size() < clients.size()) {
    site.loop.process_events(ae::kFullIteration);
    largest = std::max(largest, accepted.size() - before);
    before = accepted.size();
  }
  REQUIRE(largest == 10);
}

TEST_CASE("tcp: the accept handler may destroy its listener", "[tcp]") {
  Site site(kTcp);
  conn::ListenerPtr listener;
  int accepted = 0;
  const auto token = std::make_shared<int>(0);
  listener = site.listen([&, token](ConnectionPtr c) {
    ++accepted;
    listener.reset();
    REQUIRE(c->state() == State::kConnected);
    REQUIRE(token.use_count() >= 2);  // the handler's captures live while it runs
  });
  const conn::Endpoint where = testing::address_of(*listener);
  const RawSocket first = RawSocket::connect(where);
  const RawSocket second = RawSocket::connect(where);
  RUN_UNTIL(site.loop, accepted == 1);
  testing::turns(site.loop, 5);
  REQUIRE(accepted == 1);
  REQUIRE(token.use_count() == 1);
  REQUIRE_THROWS_AS(RawSocket::connect(where), std::system_error);
}

TEST_CASE("tcp: a handler that throws loses its connection and nothing else", "[tcp]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  bool first = true;
  const auto listener = site.listen([&](ConnectionPtr c) {
    if (std::exchange(first, false)) throw std::runtime_error("host");
    accepted.push_back(std::move(c));
  });
  const RawSocket one = RawSocket::connect(testing::address_of(*listener));
  const RawSocket two = RawSocket::connect(testing::address_of(*listener));
  REQUIRE_THROWS_WITH([&] { RUN_UNTIL(site.loop, accepted.size() == 1); }(), "host");
  RUN_UNTIL(site.loop, accepted.size() == 1);
  REQUIRE(one.receive(1).empty());
}

TEST_CASE("tcp: a paused listener leaves arrivals in the backlog", "[tcp]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  conn::ListenerPtr listener;
  listener = site.listen([&](ConnectionPtr c) {
    accepted.push_back(std::move(c));
    listener->pause();
    listener->pause();
  });
  const RawSocket one = RawSocket::connect(testing::address_of(*listener));
  const RawSocket two = RawSocket::connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, accepted.size() == 1);
  testing::IterationCounter iterations(site.loop);
  REQUIRE(iterations.during(30ms) <= 2);
  REQUIRE(accepted.size() == 1);
  listener->resume();
  listener->resume();
  RUN_UNTIL(site.loop, accepted.size() == 2);
}

TEST_CASE("tcp: out of descriptors, accepting waits without spinning and recovers", "[tcp]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  const auto listener = site.listen([&](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  const RawSocket first = RawSocket::connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, accepted.size() == 1);
  testing::Collector served(*accepted[0]);

  std::vector<RawSocket> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(RawSocket::connect(testing::address_of(*listener)));
  {
    const NoMoreDescriptors limit;
    testing::IterationCounter iterations(site.loop);
    REQUIRE(iterations.during(250ms) <= 8);
    REQUIRE(accepted.size() == 1);
    REQUIRE(site.type.counters(site.loop).accept_errors >= 1);
    REQUIRE(site.type.counters(site.loop).accept_errors <= 5);
    first.send("still served");
    RUN_UNTIL(site.loop, served.bytes == "still served");
  }
  RUN_UNTIL(site.loop, accepted.size() == 4);
  bool shown = false;
  for (const auto& [name, value] : site.type.statistics(site.loop)) {
    if (name == "accept_errors") shown = value >= 1;
  }
  REQUIRE(shown);
}

TEST_CASE("tcp: a listener that waits for descriptors may be paused, resumed and destroyed",
          "[tcp]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  auto listener = site.listen([&](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  const RawSocket client = RawSocket::connect(testing::address_of(*listener));
  {
    const NoMoreDescriptors limit;
    RUN_UNTIL(site.loop, site.type.counters(site.loop).accept_errors == 1);
    listener->pause();
  }
  testing::IterationCounter iterations(site.loop);
  REQUIRE(iterations.during(150ms) <= 3);
  REQUIRE(accepted.empty());
  listener->resume();
  RUN_UNTIL(site.loop, accepted.size() == 1);

  const RawSocket another = RawSocket::connect(testing::address_of(*listener));
  const NoMoreDescriptors limit;
  const auto errors = site.type.counters(site.loop).accept_errors;
  RUN_UNTIL(site.loop, site.type.counters(site.loop).accept_errors > errors);
  listener.reset();
  testing::turns(site.loop, 3);
}

TEST_CASE("tcp: arrivals that are reset before they are accepted disturb nobody", "[tcp]") {
  Site site(kTcp);
  std::vector<ConnectionPtr> accepted;
  const auto listener = site.listen([&](ConnectionPtr c) { accepted.push_back(std::move(c)); });
  for (int i = 0; i < 20; ++i) {
    RawSocket gone = RawSocket::connect(testing::address_of(*listener));
    gone.reset();
  }
  const RawSocket good = RawSocket::connect(testing::address_of(*listener));
  good.send("here");
  std::string got;
  // Linux also returns connections that were reset; reading them gives ECONNRESET.
  RUN_UNTIL(site.loop, !accepted.empty() && accepted.back()->peer_address() ==
                                                good.endpoint().hosts[0].name + ":" +
                                                    std::to_string(good.endpoint().port));
  REQUIRE(testing::receive(site.loop, *accepted.back(), 4) == "here");
  for (std::size_t i = 0; i + 1 < accepted.size(); ++i) {
    char byte;
    REQUIRE(accepted[i]->read(&byte, 1) <= 0);
    REQUIRE(accepted[i]->last_error().find("read from 127.0.0.1:") == 0);
  }
}

TEST_CASE("tcp: descriptors 0, 1 and 2 are as good as others", "[tcp]") {
  const pid_t child = fork();  // since the test's output uses them
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(20);
    conn::Registry registry = testing::test_registry();
    testing::AnyLoop loop;
    for (int fd = 0; fd < 3; ++fd) ::close(fd);
    const conn::ConnectionType& type = registry.require("tcp");
    ConnectionPtr server;
    const auto listener = type.listen(loop, conn::Endpoint::parse("tcp://127.0.0.1:0"),
                                      [&](ConnectionPtr c) { server = std::move(c); });
    bool connected = false;
    const ConnectionPtr client = type.create(loop);
    client->connect(testing::address_of(*listener), [&](Connection&) { connected = true; });
    while (!connected || !server) loop.process_events(ae::kFullIteration);
    bool good = client->fd() + server->fd() == 1 + 2;  // the listener has 0
    good = good && client->sync_write("x", 1, 5s) == 1;
    char byte = 0;
    good = good && server->sync_read(&byte, 1, 5s) == 1 && byte == 'x';
    _exit(good ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
}

TEST_CASE("tcp: a forked child that ends leaves the parent's connections alone", "[tcp]") {
  testing::Pair pair(kTcp);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(0);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  testing::send(pair.loop, *pair.client, "after the fork");
  REQUIRE(testing::receive(pair.loop, *pair.server, 14) == "after the fork");
  const RawSocket another = RawSocket::connect(testing::address_of(*pair.listener));
}
