// SPDX-License-Identifier: BSD-3-Clause
// Failures and ends in a listener group: lists of schemes, port listeners that fail, rules that
// throw, memory shortage, and a listener destroyed while a loop ends.

#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ae/loop_group.h"
#include "conn/core/pending_connection.h"
#include "conn/core/transport.h"
#include "conn/groups/spreading.h"
#include "conn/listener_group.h"
#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/group_kit.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using conn::ConnectionPtr;
using conn::Spread;
using testing::Site;
using namespace std::chrono_literals;

namespace {

conn::MakeAcceptHandler nothing() {
  return [](ae::EventLoop&, std::size_t) -> conn::AcceptHandler { return [](ConnectionPtr) {}; };
}

void until(const std::function<bool()>& condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  REQUIRE(condition());
}

void end_loop(ae::LoopGroup& loops, std::size_t which) {
  loops.on_each([which](ae::EventLoop& loop, std::size_t i) {
    if (i == which) loop.stop();
  });
  until([&] { return !loops.poster(which).open(); });
}

/// The loops of a group, of which the second ends when on_each() is called for the second time.
class Shrinking final : public ae::Loops {
 public:
  std::size_t size() const noexcept override { return group.size(); }
  ae::Poster poster(std::size_t index) const override { return group.poster(index); }
  ae::EventLoop* loop(std::size_t index) const noexcept override { return group.loop(index); }
  void on_each(const std::function<void(ae::EventLoop&, std::size_t)>& fn) override {
    if (++calls == 2) end_loop(group, 1);
    group.on_each(fn);
  }
  ae::LoopGroup group{{.loops = 2}};
  int calls = 0;
};

/// Faults of a Troubled transport's port listener, with their numbers.
struct Troubles {
  std::atomic<int> arrivals_that_throw{0}, pauses_without_memory{0}, arrived{0};
};

/// tcp with faults in its port listener.
class Troubled final : public conn::Transport {
 public:
  explicit Troubled(Troubles& troubles) : troubles_(troubles) {}
  std::string_view name() const noexcept override { return "troubled"; }
  conn::Capabilities capabilities() const noexcept override { return tcp_.capabilities(); }
  void configure(const conn::Options& options) override { tcp_.configure(options); }
  void check(const conn::Endpoint& endpoint) const override { tcp_.check(below(endpoint)); }
  conn::ListenerPtr listen(ae::EventLoop& loop, const conn::Endpoint& endpoint,
                           conn::AcceptHandler accepted) const override {
    return tcp_.listen(loop, below(endpoint), std::move(accepted));
  }
  ConnectionPtr create(ae::EventLoop& loop) const override { return tcp_.create(loop); }
  conn::LoopAcceptorPtr open_acceptor(ae::EventLoop& loop, const conn::Endpoint& endpoint,
                                      conn::AcceptHandler accepted) const override {
    return tcp_.open_acceptor(loop, below(endpoint), std::move(accepted));
  }
  conn::PortListenerPtr open_port(ae::EventLoop& loop, const conn::Endpoint& endpoint,
                                  conn::PendingHandler arrived) const override {
    return std::make_unique<PortListener>(tcp_.open_port(loop, below(endpoint), std::move(arrived)),
                                          troubles_);
  }

 private:
  class PortListener final : public conn::PortListener {
   public:
    PortListener(conn::PortListenerPtr gate, Troubles& troubles)
        : gate_(std::move(gate)), troubles_(troubles) {}
    const conn::ConnectionType& type() const noexcept override { return gate_->type(); }
    std::vector<conn::Endpoint> endpoints() const override { return gate_->endpoints(); }
    void pause() override {
      if (troubles_.pauses_without_memory.fetch_sub(1) > 0) throw std::bad_alloc();
      gate_->pause();
    }
    void resume() override { gate_->resume(); }
    std::uint64_t max_connections() const override { return gate_->max_connections(); }
    bool leave(const conn::Handoff* to) noexcept override { return gate_->leave(to); }
    void arrive(ae::EventLoop& loop) override {
      if (troubles_.arrivals_that_throw.fetch_sub(1) > 0) throw std::bad_alloc();
      ++troubles_.arrived;
      gate_->arrive(loop);
    }

   private:
    const conn::PortListenerPtr gate_;
    Troubles& troubles_;
  };
  static conn::Endpoint below(conn::Endpoint endpoint) {
    endpoint.scheme = "tcp";
    return endpoint;
  }
  conn::tcp::TcpType tcp_;
  Troubles& troubles_;
};

/// Records whether it was destroyed on the thread that created it.
struct Held {
  explicit Held(std::atomic<int>& on_others) : elsewhere(on_others) {}
  ~Held() {
    if (std::this_thread::get_id() != made) ++elsewhere;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  const std::thread::id made = std::this_thread::get_id();
  std::atomic<int>& elsewhere;
};

}  // namespace

TEST_CASE("listener group: a list of schemes where a loop has ended, and on a loop's thread",
          "[group]") {
  Site site({.name = "tcp"});
  std::atomic<int> elsewhere{0}, made{0};
  const conn::MakeAcceptHandler make = [&](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
    ++made;
    return [held = std::make_shared<Held>(elsewhere)](ConnectionPtr) {};
  };
  {
    ae::LoopGroup loops({.loops = 3});
    {
      const auto both = conn::listen(site.registry, loops, "absent|tcp://127.0.0.1:0", make);
      CHECK(both->not_served().size() == 1);
      CHECK(made == 3);  // once per loop, for any number of schemes
    }
    CHECK(elsewhere == 0);
    std::atomic<int> wrong{0}, done{0};
    REQUIRE(loops.poster(0).post([&] {
      try {
        (void)conn::listen(site.registry, loops, "absent|tcp://127.0.0.1:0", make);
      } catch (const ae::LoopError&) {
        ++wrong;
      }
      ++done;
    }));
    until([&] { return done == 1; });
    CHECK(wrong == 1);
    end_loop(loops, 1);
    CHECK_THROWS_AS(conn::listen(site.registry, loops, "absent|tcp://127.0.0.1:0", make),
                    ae::LoopError);
    CHECK(elsewhere == 0);
  }
  CHECK(elsewhere == 0);
}

TEST_CASE("listener group: it may end inside a handler while another loop ends", "[group]") {
  Site site({.name = "tcp"});
  std::atomic<int> elsewhere{0};
  {
    ae::LoopGroup loops({.loops = 2});
    conn::ListenerGroupPtr group =
        conn::listen(site.registry, loops, "tcp://127.0.0.1:0",
                     [&](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                       return [held = std::make_shared<Held>(elsewhere)](ConnectionPtr) {};
                     });
    const ae::Poster ending = loops.poster(1);
    std::atomic<bool> dropped{false};
    loops.on_each([&](ae::EventLoop& loop, std::size_t i) {
      if (i != 1) return;
      loop.stop();
      // Runs while its loop is being destroyed, when nothing can be posted any more.
      REQUIRE(ending.post([&] {
        while (!dropped) std::this_thread::yield();
      }));
    });
    REQUIRE(loops.poster(0).post([&] {
      while (ending.open()) std::this_thread::yield();
      group.reset();
      dropped = true;
    }));
    until([&] { return dropped.load(); });
    loops.stop();
    loops.run();
  }
  CHECK(elsewhere == 0);
}

TEST_CASE("listener group: a rule that throws means the loop with the fewest connections",
          "[group]") {
  Site site({.name = "tcp"});
  ae::LoopGroup loops({.loops = 2});
  const auto held = std::make_shared<int>();
  std::vector<std::vector<ConnectionPtr>> served(2);
  auto group = conn::listen(
      site.registry, loops, "tcp://127.0.0.1:0",
      [&](ae::EventLoop&, std::size_t i) -> conn::AcceptHandler {
        return [&, i](ConnectionPtr next) { served[i].push_back(std::move(next)); };
      },
      Spread::by([held](const conn::Arriving&) -> std::size_t { throw std::runtime_error("no"); }));
  const conn::Endpoint at = group->endpoints().front();
  std::vector<ConnectionPtr> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(site.connect(at));
    RUN_UNTIL(site.loop, clients.back()->state() == conn::State::kConnected);
  }
  until([&] { return group->shares()[0].open == 2 && group->shares()[1].open == 2; });
  loops.on_each([&](ae::EventLoop&, std::size_t i) { served[i].clear(); });
  group.reset();
  CHECK(held.use_count() == 1);  // the rule was destroyed with the group
}

TEST_CASE("listener group: a gate that a loop cannot take goes on to the next", "[group]") {
  Troubles troubles;
  Site site({.name = "tcp"});
  site.registry.add(std::make_unique<Troubled>(troubles));
  ae::LoopGroup loops({.loops = 3});
  std::atomic<int> accepted{0}, told{0};
  auto group = conn::listen(site.registry, loops, "troubled://127.0.0.1:0",
                            [&](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                              return [&](ConnectionPtr) { ++accepted; };
                            });
  group->on_refused([&](const conn::Failure& why) {
    if (why.text.find("nobody listens any more") != std::string::npos) ++told;
  });
  conn::Endpoint at = group->endpoints().front();
  at.scheme = "tcp";
  SECTION("once") {
    troubles.arrivals_that_throw = 1;
    end_loop(loops, 0);
    until([&] { return troubles.arrived == 1; });
    const ConnectionPtr client = site.connect(at);
    RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
    until([&] { return accepted == 1; });
    CHECK(told == 0);
  }
  SECTION("never: somebody hears of it, once, and nothing hangs") {
    troubles.arrivals_that_throw = 1000;
    end_loop(loops, 0);
    until([&] { return told == 1; });
    const ConnectionPtr client = site.connect(at);
    RUN_UNTIL(site.loop, client->state() == conn::State::kError);
  }
  group.reset();
}

TEST_CASE("listener group: while many wait for a loop, the others stay in the backlog", "[group]") {
  constexpr std::size_t kClients = 400;
  Site site({.name = "tcp"});
  conn::Endpoint at = site.fresh();
  at.options.set("backlog", "1000");
  testing::GroupServer server(site.registry, at, 2,
                              Spread::by([](const conn::Arriving&) { return std::size_t{1}; }));
  std::atomic<bool> still{false};
  struct Go {  // also if a check fails, since the group waits for its loops
    ~Go() { now = true; }
    std::atomic<bool> now{false};
  } go;
  server.group.poster(1).post([&] {
    still = true;
    while (!go.now) std::this_thread::sleep_for(1ms);
  });
  while (!still) std::this_thread::sleep_for(1ms);
  std::vector<testing::RawSocket> clients;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(testing::RawSocket::connect(server.address()));
    clients.back().send("hello");
  }
  const auto assigned = [&] { return server.assigned()[1]; };
  WATCH_UNTIL(site.loop, assigned() >= conn::Spreading::kMostWaiting);
  for (int i = 0; i < 50; ++i) {  // iterations of the loop that accepts
    std::promise<void> iteration;
    server.group.poster(0).post([&] { iteration.set_value(); });
    iteration.get_future().wait();
  }
  // It stops at once, not at the end of accept-batch.
  CHECK(assigned() == conn::Spreading::kMostWaiting);
  go.now = true;
  WATCH_UNTIL(site.loop, server.accepted() == kClients);
  for (const testing::RawSocket& each : clients) CHECK(each.receive(5) == "hello");
}

TEST_CASE("listener group: hold_back() is a pause of all loops", "[group]") {
  Site site({.name = "tcp"});
  const Spread spread = GENERATE(as<int>(), 0, 1) == 0 ? Spread::fewest() : Spread::kernel();
  testing::GroupServer server(site.registry, site.fresh(), 2, spread);
  server.listener->hold_back();
  server.group.on_each([](ae::EventLoop&, std::size_t) {});  // waits until all loops know it
  const auto client = testing::RawSocket::connect(server.address());
  client.send("hello");
  for (int i = 0; i < 5; ++i) server.group.on_each([](ae::EventLoop&, std::size_t) {});
  CHECK(server.accepted() == 0);
  server.listener->resume();
  CHECK(client.receive(5) == "hello");
}

TEST_CASE("listener group: a pause that finds no memory on its loop is made again", "[group]") {
  Troubles troubles;
  Site site({.name = "tcp"});
  site.registry.add(std::make_unique<Troubled>(troubles));
  ae::LoopGroup loops({.loops = 2});
  auto group = conn::listen(site.registry, loops, "troubled://127.0.0.1:0", nothing());
  troubles.pauses_without_memory = 3;
  group->pause();
  until([&] { return troubles.pauses_without_memory < 0; });
  CHECK(loops.poster(0).open());
  conn::Endpoint at = group->endpoints().front();
  at.scheme = "tcp";
  const ConnectionPtr client = site.connect(at);
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);  // in the backlog
  loops.on_each([](ae::EventLoop&, std::size_t) {});
  CHECK(group->shares()[0].assigned + group->shares()[1].assigned == 0);
  group->resume();
  until([&] { return group->shares()[0].assigned + group->shares()[1].assigned == 1; });
}

TEST_CASE("listener group: a socket that it has adopted is its own although a loop ends",
          "[group]") {
  Site site({.name = "tcp"});
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  REQUIRE(::listen(fd, 16) == 0);  // at any port
  Shrinking loops;
  std::atomic<int> accepted{0};
  conn::ListenerGroupPtr group;
  REQUIRE_NOTHROW(group =
                      conn::adopt_listener(site.type, loops, fd,
                                           [&](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                                             return [&](ConnectionPtr) { ++accepted; };
                                           }));
  REQUIRE(loops.calls == 2);
  conn::Endpoint at = group->endpoints().front();
  at.hosts = {{"127.0.0.1", false}};
  for (int i = 1; i <= 3; ++i) {
    const ConnectionPtr client = site.connect(at);
    until([&] {
      testing::turns(site.loop, 1);
      return accepted == i;
    });
  }
  group.reset();
  CHECK(fcntl(fd, F_GETFD) == -1);
}
