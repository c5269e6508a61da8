// SPDX-License-Identifier: BSD-3-Clause
// One port, several loops: with real threads, over each transport that connects threads.

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ae/loop_group.h"
#include "conn/core/transport.h"
#include "conn/listener_group.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/group_kit.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::Spread;
using conn::State;
using testing::Site;
using namespace std::chrono_literals;

namespace {

using Server = testing::GroupServer;
using testing::across_threads;

void echo(Site& site, Connection& client) { testing::echo(site.loop, client); }

std::vector<ConnectionPtr> clients_of(Site& site, const conn::Endpoint& at, std::size_t count) {
  std::vector<ConnectionPtr> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(site.connect(at));
  RUN_UNTIL(site.loop, std::none_of(all.begin(), all.end(), [](const ConnectionPtr& each) {
              return each->state() == State::kConnecting;
            }));
  for (const ConnectionPtr& each : all) {
    INFO(each->last_error());
    REQUIRE(each->state() == State::kConnected);
  }
  return all;
}

#define WAIT_UNTIL(site, ...) \
  testing::watch_until((site).loop, [&] { return (__VA_ARGS__); }, #__VA_ARGS__)

}  // namespace

TEST_CASE("listener group: connections are served by all loops, each where it began",
          "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    Server server(site.registry, site.fresh(), 3);
    const auto clients = clients_of(site, server.address(), 10);
    for (const ConnectionPtr& each : clients) echo(site, *each);
    // Each goes to the loop with the fewest, so without closes their numbers differ by at most one.
    std::vector<std::uint64_t> open = server.open();
    std::sort(open.begin(), open.end());
    CHECK(open == std::vector<std::uint64_t>{3, 3, 4});
    CHECK(server.accepted() == 10);
    CHECK_FALSE(server.wrong_thread());
  }
}

TEST_CASE("listener group: what ends is not counted any more, and its loop is the next",
          "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    Server server(site.registry, site.fresh(), 2);
    auto clients = clients_of(site, server.address(), 4);
    for (const ConnectionPtr& each : clients) echo(site, *each);
    clients.clear();
    WAIT_UNTIL(site, server.open() == std::vector<std::uint64_t>{0, 0});
    clients = clients_of(site, server.address(), 2);
    for (const ConnectionPtr& each : clients) echo(site, *each);
    CHECK(server.open() == std::vector<std::uint64_t>{1, 1});
  }
}

TEST_CASE("listener group: in turn, and by a function of the program's own", "[group]") {
  Site site({.name = "tcp"});
  {
    Server server(site.registry, site.fresh(), 3, Spread::round_robin());
    auto clients = clients_of(site, server.address(), 4);
    for (const ConnectionPtr& each : clients) echo(site, *each);
    CHECK(server.open() == std::vector<std::uint64_t>{2, 1, 1});
    clients.erase(clients.begin() + 1);  // the second loop has none, but has to wait for its turn
    WAIT_UNTIL(site, server.open() == std::vector<std::uint64_t>{2, 0, 1});
    clients.push_back(site.connect(server.address()));
    WAIT_UNTIL(site, server.open() == std::vector<std::uint64_t>{2, 1, 1});
    clients.push_back(site.connect(server.address()));
    WAIT_UNTIL(site, server.open() == std::vector<std::uint64_t>{2, 1, 2});
  }
  std::vector<std::string> peers;
  std::vector<std::uint64_t> seen;
  std::size_t answer = 2;
  Server server(site.registry, site.fresh(), 3, Spread::by([&](const conn::Arriving& arriving) {
                  peers.emplace_back(arriving.peer);
                  seen.assign(arriving.connections.begin(), arriving.connections.end());
                  return answer;
                }));
  std::vector<ConnectionPtr> clients = clients_of(site, server.address(), 2);
  for (const ConnectionPtr& each : clients) echo(site, *each);
  CHECK(server.open() == std::vector<std::uint64_t>{0, 0, 2});
  CHECK(peers == std::vector{clients[0]->local_address(), clients[1]->local_address()});
  CHECK(seen == std::vector<std::uint64_t>{0, 0, 1});
  answer = 3;  // no such loop: takes the one with the fewest
  clients.push_back(site.connect(server.address()));
  WAIT_UNTIL(site, server.open() != std::vector<std::uint64_t>{0, 0, 2});
  CHECK(server.open()[2] == 2);
}

TEST_CASE("listener group: the kernel spreads tcp, and what is over it", "[group]") {
  Site site({.name = "tcp"});
  Server server(site.registry, site.fresh(), 3, Spread::kernel());
  std::vector<ConnectionPtr> clients = clients_of(site, server.address(), 60);
  for (const ConnectionPtr& each : clients) echo(site, *each);
  const std::vector<std::uint64_t> open = server.open();
  CHECK(open[0] + open[1] + open[2] == 60);
  // Assigned by a hash: the probability that one of three loops gets none of 60 is 1e-10.
  CHECK(*std::min_element(open.begin(), open.end()) > 0);
  CHECK_FALSE(server.wrong_thread());
  CHECK_THROWS_WITH(
      Server(site.registry, conn::Endpoint::parse("unix://" + site.folder.path() + "/s"), 2,
             Spread::kernel()),
      testing::Contains("the kernel does not spread connections of unix"));
}

TEST_CASE("listener group: a pause holds for all loops, and nobody is lost by it",
          "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    Server server(site.registry, site.fresh(), 2);
    const auto before = clients_of(site, server.address(), 2);
    for (const ConnectionPtr& each : before) echo(site, *each);
    server.listener->pause();
    server.group.on_each([](ae::EventLoop&, std::size_t) {});  // waits until all loops know it
    std::vector<ConnectionPtr> waiting;
    for (int i = 0; i < 4; ++i) waiting.push_back(site.connect(server.address()));
    echo(site, *before[0]);
    CHECK(server.accepted() == 2);
    server.listener->resume();
    WAIT_UNTIL(site, server.accepted() == 6);
    for (const ConnectionPtr& each : waiting) {
      RUN_UNTIL(site.loop, each->state() == State::kConnected);
      echo(site, *each);
    }
    CHECK(server.open() == std::vector<std::uint64_t>{3, 3});
  }
}

TEST_CASE("listener group: max-connections is of the whole group", "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    conn::Endpoint at = site.fresh();
    at.options.set("max-connections", "3");
    Server server(site.registry, at, 2);
    std::mutex mutex;
    std::vector<std::string> told;
    server.listener->on_refused([&](const conn::Failure& why) {
      const std::lock_guard lock(mutex);
      told.push_back(why.text);
    });
    auto clients = clients_of(site, server.address(), 3);
    for (const ConnectionPtr& each : clients) echo(site, *each);
    const ConnectionPtr refused = site.connect(server.address());
    WAIT_UNTIL(site, [&] {
      const std::lock_guard lock(mutex);
      return told.size() == 1;
    }());
    CHECK_THAT(told.front(), testing::Contains("3 connections are open (max-connections)"));
    CHECK(server.accepted() == 3);
    std::uint64_t counted = 0;
    for (const conn::Statistics& of_loop : conn::statistics(site.carrier, server.group))
      for (const auto& [name, value] : of_loop)
        if (name == "refused") counted += value;
    CHECK(counted == 1);
    // One connection less makes room for the next.
    clients.pop_back();
    WAIT_UNTIL(site, server.open()[0] + server.open()[1] == 2);
    const ConnectionPtr next = site.connect(server.address());
    WAIT_UNTIL(site, server.accepted() == 4);
  }
}

TEST_CASE("listener group: what cannot be is one sentence, and nothing listens", "[group]") {
  Site site({.name = "tcp"});
  ae::LoopGroup loops({.loops = 2});
  const auto nobody = [](ae::EventLoop&, std::size_t) { return [](ConnectionPtr) {}; };
  CHECK_THROWS_AS((void)conn::listen(site.registry, loops, "nonsense://1:1", nobody), conn::Error);
  const auto taken = conn::listen(site.registry, loops, "tcp://127.0.0.1:0", nobody);
  const std::string url = taken->endpoints().front().to_string();
  CHECK_THROWS_WITH((void)conn::listen(site.registry, loops, url, nobody),
                    testing::Contains("Address already in use"));
  CHECK_THROWS_WITH(
      (void)conn::listen(site.registry, loops, "tcp://127.0.0.1:0",
                         [](ae::EventLoop&, std::size_t index) -> conn::AcceptHandler {
                           if (index == 1) throw std::runtime_error("no second worker");
                           return [](ConnectionPtr) {};
                         }),
      "no second worker");
}

TEST_CASE("listener group: a loop that ends takes its connections along and nothing else",
          "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    // The loop with the port listener, or another one.
    for (const std::size_t ends : {std::size_t{0}, std::size_t{1}}) {
      Site site(transport);
      Server server(site.registry, site.fresh(), 3);
      const auto clients = clients_of(site, server.address(), 3);
      for (const ConnectionPtr& each : clients) echo(site, *each);
      server.group.on_each([&](ae::EventLoop& loop, std::size_t index) {
        if (index == ends) loop.stop();
      });
      const auto ended = [&](const ConnectionPtr& each) {
        char byte;
        return each->read(&byte, 1) == 0 || each->state() != State::kConnected;
      };
      WAIT_UNTIL(site, std::count_if(clients.begin(), clients.end(), ended) == 1);
      for (const ConnectionPtr& each : clients)
        if (!ended(each)) echo(site, *each);
      // New clients are served by the other loops.
      const auto others = clients_of(site, server.address(), 4);
      for (const ConnectionPtr& each : others) echo(site, *each);
      CHECK(server.accepted() == 7);
      std::vector<std::uint64_t> open = server.open();
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(ends));
      CHECK(open == std::vector<std::uint64_t>{3, 3});
    }
  }
}

TEST_CASE("listener group: the loop that takes the port over knows what the first one knew",
          "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    conn::Endpoint at = site.fresh();
    at.options.set("max-connections", "2");
    Server server(site.registry, at, 3);
    std::atomic<int> told{0};
    server.listener->on_refused([&](const conn::Failure&) { ++told; });
    // Paused when it moved to another loop.
    server.listener->pause();
    server.group.on_each([&](ae::EventLoop& loop, std::size_t index) {
      if (index == 0) loop.stop();
    });
    while (server.group.poster(0).open()) std::this_thread::yield();
    server.listener->resume();
    std::vector<ConnectionPtr> clients;
    // Over rdma there is no listener for a moment.
    while (clients.size() < 2) {
      ConnectionPtr client = site.connect(server.address());
      RUN_UNTIL(site.loop, client->state() != State::kConnecting);
      if (client->state() == State::kConnected) clients.push_back(std::move(client));
    }
    for (const ConnectionPtr& each : clients) echo(site, *each);
    CHECK(server.open() == std::vector<std::uint64_t>{0, 1, 1});
    const ConnectionPtr refused = site.connect(server.address());
    WAIT_UNTIL(site, told == 1);
    // And once more.
    try {
      server.group.on_each([&](ae::EventLoop& loop, std::size_t index) {
        if (index == 1) loop.stop();
      });
    } catch (const ae::LoopError&) {  // the first has ended
    }
    while (server.group.poster(1).open()) std::this_thread::yield();
    clients.clear();
    WAIT_UNTIL(site, server.open()[2] == 0);
    for (ConnectionPtr client; !client || client->state() != State::kConnected;) {
      client = site.connect(server.address());
      RUN_UNTIL(site.loop, client->state() != State::kConnecting);
      if (client->state() == State::kConnected) echo(site, *client);
    }
  }
}

TEST_CASE("listener group: a handler that throws loses no arrival but its own", "[group]") {
  Site site({.name = "tcp"});
  testing::AnyLoop workers[2];
  std::atomic<bool> over{false};
  std::atomic<int> thrown{0}, accepted{0};
  const auto work = [&](testing::AnyLoop& loop) {
    while (!over) {
      try {
        loop.run();
      } catch (const std::runtime_error&) {
        ++thrown;
      }
    }
  };
  std::thread first([&] { work(workers[0]); }), second([&] { work(workers[1]); });
  ae::LoopList loops({&workers[0], &workers[1]});
  {
    std::vector<std::vector<ConnectionPtr>> served(2);
    const auto group = conn::listen(site.registry, loops, "tcp://127.0.0.1:0",
                                    [&](ae::EventLoop&, std::size_t index) -> conn::AcceptHandler {
                                      return [&, index, count = 0](ConnectionPtr each) mutable {
                                        if (++count == 1)
                                          throw std::runtime_error("the first of each loop");
                                        served[index].push_back(std::move(each));
                                        ++accepted;
                                      };
                                    });
    group->pause();
    loops.on_each([](ae::EventLoop&, std::size_t) {});
    std::vector<ConnectionPtr> clients;
    for (int i = 0; i < 8; ++i) clients.push_back(site.connect(group->endpoints().front()));
    RUN_UNTIL(site.loop, std::all_of(clients.begin(), clients.end(), [](const auto& each) {
                return each->state() == State::kConnected;
              }));
    group->resume();
    WAIT_UNTIL(site, thrown == 2 && accepted == 6);
    // Threads of the list must not wait for themselves.
    std::atomic<bool> refused{false};
    REQUIRE(loops.poster(0).post([&] {
      try {
        loops.on_each([](ae::EventLoop&, std::size_t) {});
      } catch (const ae::LoopError&) {
        refused = true;
      }
    }));
    WAIT_UNTIL(site, refused.load());
    loops.on_each([&](ae::EventLoop&, std::size_t index) { served[index].clear(); });
  }
  over = true;
  loops.on_each([](ae::EventLoop& loop, std::size_t) { loop.stop(); });
  first.join();
  second.join();
}

TEST_CASE("listener group: it may end inside an accept handler, and outlive its loops",
          "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    {
      ae::LoopGroup loops({.loops = 2});
      std::atomic<int> accepted{0}, handlers{0};
      struct Counted {
        explicit Counted(std::atomic<int>& its_count) : count(its_count) { ++count; }
        ~Counted() { --count; }
        Counted(const Counted&) = delete;
        Counted& operator=(const Counted&) = delete;
        std::atomic<int>& count;
      };
      std::mutex mutex;  // its end must not come before its creation is complete
      conn::ListenerGroupPtr group;
      std::unique_lock lock(mutex);
      group = conn::listen(site.registry, loops, site.fresh(),
                           [&](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                             return [&, held = std::make_shared<Counted>(handlers)](ConnectionPtr) {
                               ++accepted;
                               const std::lock_guard guard(mutex);
                               group.reset();
                             };
                           });
      const conn::Endpoint at = group->endpoints().front();
      lock.unlock();
      const ConnectionPtr client = site.connect(at);
      WAIT_UNTIL(site, accepted == 1 && handlers == 0);
      const ConnectionPtr late = site.connect(at);
      WAIT_UNTIL(site, late->state() == State::kError);
    }
    conn::ListenerGroupPtr orphan;
    {
      ae::LoopGroup loops({.loops = 2});
      orphan = conn::listen(site.registry, loops, site.fresh(),
                            [](ae::EventLoop&, std::size_t) { return [](ConnectionPtr) {}; });
      loops.stop();
      loops.run();
      CHECK(orphan->shares().size() == 2);
      orphan->pause();
      orphan->resume();
      orphan.reset();
    }
  }
}

TEST_CASE("listener group: when it has ended, what its handlers held is gone on every loop",
          "[group]") {
  Site site({.name = "tcp"});
  ae::LoopGroup loops({.loops = 2});
  const auto held = std::make_shared<int>();
  auto group = conn::listen(
      site.registry, loops, "tcp://127.0.0.1:0",
      [&](ae::EventLoop&, std::size_t) -> conn::AcceptHandler { return [held](ConnectionPtr) {}; });
  // One of the loops is busy until after the group's end has begun.
  std::atomic<bool> busy{false}, ending{false};
  REQUIRE(loops.poster(1).post([&] {
    busy = true;
    while (!ending) std::this_thread::yield();
    std::this_thread::sleep_for(50ms);
  }));
  while (!busy) std::this_thread::yield();
  ending = true;
  group.reset();
  CHECK(held.use_count() == 1);
}

TEST_CASE("listener group: a socket that somebody else opened", "[group]") {
  Site site({.name = "tcp"});
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0);
  ae::LoopGroup loops({.loops = 2});
  std::atomic<int> accepted{0};
  std::vector<std::vector<ConnectionPtr>> served(2);
  const auto make = [&](ae::EventLoop&, std::size_t index) {
    return [&, index](ConnectionPtr each) {
      served[index].push_back(std::move(each));
      ++accepted;
    };
  };
  const auto adopt = [&](const Spread& spread, const conn::Options& options) {
    return conn::adopt_listener(site.type, loops, fd, make, spread, options);
  };
  // A descriptor that was not adopted still belongs to the caller.
  CHECK_THROWS_WITH(adopt(Spread::fewest(), {}), testing::Contains("it does not listen"));
  REQUIRE(::listen(fd, 16) == 0);
  CHECK_THROWS_WITH(adopt(Spread::kernel(), {}), testing::Contains("made for it"));
  CHECK_THROWS_WITH(adopt(Spread::fewest(), {{"nonsense", "1"}}), testing::Contains("nonsense"));
  auto group = adopt(Spread::fewest(), {{"max-connections", "4"}});
  const conn::Endpoint at = group->endpoints().front();
  {
    const auto clients = clients_of(site, at, 4);
    WAIT_UNTIL(site, accepted == 4);
    const ConnectionPtr one_more = site.connect(at);
    WAIT_UNTIL(site, [&] {
      char byte;
      const ssize_t n = one_more->state() == State::kConnected ? one_more->read(&byte, 1) : 0;
      return one_more->state() != State::kConnecting && (n == 0 || errno != EAGAIN);
    }());
    CHECK(accepted == 4);
    CHECK(group->shares()[0].open == 2);
    CHECK(group->shares()[1].open == 2);
  }
  group.reset();
  CHECK(fcntl(fd, F_GETFD) == -1);
  loops.on_each([&](ae::EventLoop&, std::size_t index) { served[index].clear(); });
}

TEST_CASE("listener group: threads, reloads, pauses and ends at once", "[group][rdma-device]") {
  const auto transport = GENERATE(from_range(across_threads()));
  DYNAMIC_SECTION(transport.name) {
    Site site(transport);
    const bool device = transport.name.ends_with("rdma");
    const bool handshakes = transport.name.starts_with("tls");
    const char* const wanted = std::getenv("AECONN_GROUP_CONNECTIONS");
    const std::size_t count = wanted != nullptr ? std::strtoull(wanted, nullptr, 10)
                              : device          ? 60
                              : handshakes      ? 200
                                                : 1000;
    auto server = std::make_unique<Server>(site.registry, site.fresh(), 4);
    const conn::Endpoint at = server->address();
    std::atomic<bool> over{false}, leave{false}, left{false};
    [[maybe_unused]] int meddled = 0;
    std::thread meddler([&] {
      while (!over) {
        if (server->listener) {
          server->listener->pause();
          (void)server->listener->shares();
          if (leave) {  // also with connections kept by a pause
            server->listener.reset();
            left = true;
          } else {
            server->listener->resume();
          }
        }
#if AECONN_TLS
        // As for a reload of the same certificates.
        if (transport.name.starts_with("tls") && ++meddled % 8 == 0) {
          conn::Options options = testing::test_tls_options();
          options.set("connect-timeout", "60s");
          options.set("handshake-timeout", "60s");
          site.type.configure(options);
        }
#endif
        std::this_thread::sleep_for(1ms);
      }
    });
    struct Meddling {  // also after a failed assertion
      std::atomic<bool>& over;
      std::thread& meddler;
      ~Meddling() { end(); }
      void end() {
        over = true;
        if (meddler.joinable()) meddler.join();
      }
    } meddling{over, meddler};
    // Each client sends one byte, receives it and closes; 50 at a time.
    std::size_t most = count, begun = 0, done = 0, served = 0;
    std::string failed;
    std::map<Connection*, ConnectionPtr> clients;
    const std::function<void()> next = [&] {
      ++begun;
      ConnectionPtr made = site.type.create(site.loop);
      Connection& client = *made;
      clients.emplace(&client, std::move(made));
      const auto end = [&](Connection& c, bool well) {
        ++done;
        if (well)
          ++served;
        else if (failed.size() < 1000)
          failed += std::to_string(done) + ": " + c.last_error() + "; ";
        clients.erase(&c);
        if (begun < most) next();
      };
      client.connect(at, [&, end](Connection& c) {
        if (c.state() != State::kConnected || c.write("x", 1) != 1) return end(c, false);
        c.set_read_handler([&, end](Connection& reader) {
          char byte;
          const ssize_t n = reader.read(&byte, 1);
          if (n < 0 && errno == EAGAIN) return;
          end(reader, n == 1);
        });
      });
    };
    // The listener is paused for about half of the time.
    const ae::Duration enough =
        6 * testing::patience() + static_cast<int>(count) * 20ms * testing::slower();
    for (int i = 0; i < 50; ++i) next();
    testing::run_until(
        site.loop, [&] { return done == count; }, "all of them", enough);
    CHECK(failed == "");
    CHECK(server->accepted() == count);
    // The listener is destroyed while clients connect and everything else goes on: they are served,
    // refused, or find no listener, and none may wait for ever.
    most = ~std::size_t{0};
    for (int i = 0; i < 50; ++i) next();
    testing::run_until(
        site.loop, [&] { return done >= count + 50; }, "some more", enough);
    leave = true;
    testing::run_until(
        site.loop, [&] { return left && !failed.empty(); }, "nobody there", enough);
    most = 0;
    testing::run_until(
        site.loop, [&] { return done == begun; }, "an answer for all", enough);
    meddling.end();
    CHECK(clients.empty());
    CHECK(served >= count);
    CHECK(server->accepted() >= served);
    CHECK_FALSE(server->wrong_thread());
    // Served and half-open connections must be gone on all loops.
    const auto open = [&] {
      std::uint64_t all = 0;
      for (const conn::Statistics& of_loop : conn::statistics(site.carrier, server->group))
        for (const auto& [name, value] : of_loop)
          if (name == "open") all += value;
      return all;
    };
    WATCH_UNTIL(site.loop, open() == 0);
    server.reset();
  }
}

TEST_CASE("receiver: what came while it was paused begins in turns of accept-batch", "[group]") {
  const auto name = GENERATE(as<std::string>(), "tcp", "unix", "shm");
  Site site({.name = name});
  conn::Endpoint at = site.fresh();
  at.options.set("accept-batch", "2");
  std::vector<conn::PendingConnectionPtr> arrivals;
  const conn::PortListenerPtr gate = conn::Transport::of(site.type).open_port(
      site.loop, at, [&](conn::PendingConnectionPtr next) { arrivals.push_back(std::move(next)); });
  std::vector<ConnectionPtr> accepted;
  const conn::LoopAcceptorPtr receiver = conn::Transport::of(site.type).open_acceptor(
      site.loop, at, [&](ConnectionPtr next) { accepted.push_back(std::move(next)); });
  std::vector<ConnectionPtr> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(site.connect(gate->endpoints().front()));
  RUN_UNTIL(site.loop, arrivals.size() == 5);
  receiver->pause();
  for (auto& each : arrivals) receiver->arrive(std::move(each));
  // Without events no loop spins.
  testing::IterationCounter iterations(site.loop);
  CHECK(iterations.during(50ms) < 10);
  CHECK(accepted.empty());
  receiver->resume();
  std::vector<std::size_t> seen;
  while (accepted.size() < 5) {
    testing::turns(site.loop, 1);
    if (!accepted.empty() && (seen.empty() || seen.back() != accepted.size()))
      seen.push_back(accepted.size());
  }
  CHECK(seen == std::vector<std::size_t>{2, 4, 5});
}
