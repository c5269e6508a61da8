// SPDX-License-Identifier: BSD-3-Clause
// fork(): whatever a child destroys, in any order, the parent's connections and listeners continue,
// over each transport. (Access to devices is tested in tests/simulation/tests/fork_test.cc.)

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "conn/co.h"
#include "conn/redial.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using testing::Pair;
using testing::Site;
using namespace std::chrono_literals;

namespace {

/// Runs `body` in a child for at most ten seconds; returns its exit status, or minus the signal.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(10 * testing::slower());
    int status = 99;
    try {
      status = body();
    } catch (...) {
    }
    _exit(status);
  }
  int status = 0;
  pid_t got;
  do {
    got = waitpid(child, &status, 0);
  } while (got < 0 && errno == EINTR);
  REQUIRE(got == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// In a child: calls `each` for each loop of the site, the one that runs the others last.
/// The Site itself is not destroyed.
template <class Each>
void for_loops(Site& site, const Each& each) {
  for (std::size_t i = site.loops ? site.loops->size() : 1; --i > 0;) each((*site.loops)[i]);
  each(site.loop);
}
void after_fork(Site& site) {
  for_loops(site, [](testing::AnyLoop& loop) { loop.after_fork(); });
}
void destroy_loops(Site& site) {
  for_loops(site, [](testing::AnyLoop& loop) { std::destroy_at(&loop); });
}

/// Connections in each state that a child may destroy.
struct Scene : Pair {
  explicit Scene(const testing::Transport& kind) : Pair(kind) {
    // One with bytes under way and bytes waiting, one that is closing, one that is not accepted
    // yet.
    full = another();
    while (full->write(much.data(), much.size()) > 0) {
    }
    full_peer = std::move(peer);
    sends = another();
    sends_peer = std::move(peer);
    (void)sends->send(
        {std::as_bytes(std::span<const char>(much)).first(4 << 20), nullptr, nullptr});
    closing = another();
    closing_peer = std::move(peer);
    (void)closing->write(much.data(), much.size());
    closing.reset();
    testing::turns(loop, 3);
    connecting = connect(testing::address_of(*second));
    redial = std::make_unique<conn::Redial>(registry, loop, testing::address_of(*second),
                                            conn::Redial::Handlers{});
    client->set_read_handler([](Connection&) {});
    client->set_close_handler([](Connection&) {});
    loop.post([this] {
      if (client) (void)client->write("posted", 6);
    });
  }
  ConnectionPtr another() {
    if (!second) second = listen([this](ConnectionPtr next) { peer = std::move(next); });
    ConnectionPtr made = connect(testing::address_of(*second));
    RUN_UNTIL(loop, peer && made->state() == conn::State::kConnected);
    return made;
  }
  void drop_connections() {
    redial.reset();
    connecting.reset();
    full.reset();
    full_peer.reset();
    sends.reset();
    sends_peer.reset();
    closing_peer.reset();
    client.reset();
    server.reset();
    peer.reset();
  }
  void drop_listeners() {
    listener.reset();
    second.reset();
  }
  const std::string much = std::string(8 << 20, 'm');
  conn::ListenerPtr second;
  ConnectionPtr peer, full, full_peer, sends, sends_peer, closing, closing_peer, connecting;
  std::unique_ptr<conn::Redial> redial;
};

void drop(Scene& scene, const std::string& what) {
  if (what == "the loop") {
    destroy_loops(scene);
  } else if (what == "connections") {
    scene.drop_connections();
  } else if (what == "all, the loop last") {
    scene.drop_connections();
    scene.drop_listeners();
    destroy_loops(scene);
  } else if (what == "all, the loop first") {
    scene.redial.reset();  // must not outlive the loop
    destroy_loops(scene);
    scene.drop_connections();
    scene.drop_listeners();
  } else if (what == "all, inside a handler") {
    after_fork(scene);
    bool ran = false;
    scene.loop.add_time_event(0ms, [&] {
      scene.drop_connections();
      scene.drop_listeners();
      ran = true;
      return ae::kNoMore;
    });
    while (!ran) scene.loop.process_events(ae::kTimeEvents | ae::kDontWait);
    scene.loop.process_events(ae::kTimeEvents | ae::kDontWait);
    destroy_loops(scene);
  }
}

}  // namespace

TEST_CASE("fork: whatever a child destroys, its parent's connections go on",
          "[conformance][fork]") {
  FOR_EVERY_TRANSPORT(transport) {
    Scene scene(transport);
    for (const char* what : {"the loop", "connections", "all, the loop last", "all, the loop first",
                             "all, inside a handler"}) {
      CAPTURE(what);
      REQUIRE(in_child([&] {
                drop(scene, what);
                return 0;
              }) == 0);
    }
    // "posted" arrives once.
    testing::turns(scene.loop, 3);
    testing::send(scene.loop, *scene.client, " on it goes");
    REQUIRE(testing::receive(scene.loop, *scene.server, 17) == "posted on it goes");
    testing::send(scene.loop, *scene.server, "and back");
    REQUIRE(testing::receive(scene.loop, *scene.client, 8) == "and back");
    // Bytes that were under way arrive once.
    const std::string much = testing::receive(scene.loop, *scene.sends_peer, 4 << 20);
    CHECK((much == std::string(4 << 20, 'm')));
    // Listeners still accept.
    scene.redial.reset();
    scene.connecting.reset();
    scene.peer.reset();
    const ConnectionPtr late = scene.another();
    testing::send(scene.loop, *late, "late");
    REQUIRE(testing::receive(scene.loop, *scene.peer, 4) == "late");
    scene.drop_connections();
    scene.closing_peer.reset();
  }
}

TEST_CASE("fork: a child that goes on with the loop has connections of its own there",
          "[conformance][fork]") {
  FOR_EVERY_TRANSPORT(transport) {
    // rdma needs a loop that was made in the child, and other processes are not part of a simulated
    // world.
    if (testing::simulated() || transport.name.find("rdma") != std::string::npos) return;
    Pair pair(transport);
    REQUIRE(in_child([&] {
              after_fork(pair);
              ConnectionPtr own_server;
              const auto own =
                  pair.listen([&](ConnectionPtr next) { own_server = std::move(next); });
              ConnectionPtr own_client = pair.connect(testing::address_of(*own));
              // Events served by other loops of this thread before the sleep do not end an
              // iteration.
              RUN_UNTIL(pair.loop, own_server && own_client->state() == conn::State::kConnected);
              // The child's own connection works as usual, also at the loop's end.
              const std::string bytes(1000, 'o');
              if (own_client->sync_write(bytes.data(), bytes.size(), 5s) < 0) return 1;
              own_client.reset();
              std::string got;
              testing::Collector collector(*own_server);
              RUN_UNTIL(pair.loop, collector.over());
              if (!collector.ended || collector.bytes != bytes) return 2;
              pair.client.reset();
              pair.server.reset();
              return 0;
            }) == 0);
    testing::send(pair.loop, *pair.client, "after all that");
    REQUIRE(testing::receive(pair.loop, *pair.server, 14) == "after all that");
  }
}

TEST_CASE("fork: a child is told that it sends nothing in place over what it inherited",
          "[conformance][fork]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(in_child([&] {
              after_fork(pair);
              errno = 0;
              if (!pair.client->reserve(100).empty() || errno != ECANCELED) return 1;
              const std::string bytes(1000, 'o');
              errno = 0;
              const conn::Outgoing sent{std::as_bytes(std::span(bytes))};
              if (pair.client->send(sent) >= 0 || errno != ECANCELED) return 2;
              return 0;
            }) == 0);
    testing::send(pair.loop, *pair.client, "after all that");
    REQUIRE(testing::receive(pair.loop, *pair.server, 14) == "after all that");
  }
}

TEST_CASE("fork: coroutines that a child drops leave their connections to the parent",
          "[conformance][fork]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    auto stream = std::make_unique<conn::co::Stream>(std::move(pair.client));
    auto scope = std::make_unique<conn::co::Scope>();
    std::string got;
    scope->spawn([](conn::co::Stream& from, std::string& into) -> conn::co::Task<> {
      std::array<char, 64> bytes;
      for (;;) {
        const conn::co::Result n = co_await from.read(bytes);
        if (!n || n.size == 0) co_return;
        into.append(bytes.data(), n.size);
      }
    }(*stream, got));
    testing::turns(pair.loop, 3);
    REQUIRE(in_child([&] {
              scope.reset();
              stream.reset();
              pair.server.reset();
              destroy_loops(pair);
              return 0;
            }) == 0);
    testing::send(pair.loop, *pair.server, "to a coroutine");
    RUN_UNTIL(pair.loop, got == "to a coroutine");
    scope.reset();
  }
}

TEST_CASE("fork: what waited before it is sent by the parent alone, though a child goes on",
          "[conformance][fork]") {
  enum class How { kWrite, kBoth };
  FOR_EVERY_TRANSPORT(transport) {
    const How how = GENERATE(How::kWrite, How::kBoth);
    const std::string before = GENERATE(as<std::string>{}, "open", "shut down", "closed");
    const bool drops = GENERATE(true, false);  // whether the child destroys its copy
    CAPTURE(static_cast<int>(how), before, drops);
    // A closed connection delivers for three seconds (option linger, and not each transport has
    // it), which a slow machine may need for the child. Such an attempt shows nothing.
    constexpr auto kMost = 2500ms;
    const auto in_time = [&] {
      Pair pair(transport);
      const testing::Pattern pattern(3);
      std::string all;
      while (all.size() < (4 << 20)) all += pattern.at(all.size());
      std::size_t taken = 0;
      for (ssize_t n; taken < all.size() / 2 && (n = pair.client->write(&all[taken], 60000)) > 0;)
        taken += static_cast<std::size_t>(n);
      struct Told {
        int times = 0;
        std::error_code error;
      } told;
      if (how != How::kWrite) {
        const std::size_t rest = all.size() - taken;
        const auto release = [](void* context, std::error_code error) noexcept {
          auto& into = *static_cast<Told*>(context);
          ++into.times;
          into.error = error;
        };
        REQUIRE(pair.client->send({std::as_bytes(std::span<const char>(&all[taken], rest)), release,
                                   &told}) == static_cast<ssize_t>(rest));
        taken = all.size();
      }
      testing::turns(pair.loop, 2);
      const bool waited = told.times == 0;
      const bool ends =
          before != "open" && (before == "closed" || pair.type.capabilities().half_close);
      const auto began = std::chrono::steady_clock::now();
      if (before == "closed")
        pair.client.reset();
      else if (ends)
        REQUIRE(pair.client->shutdown() == 0);
      testing::turns(pair.loop, 2);

      // The parent makes room without its loop, and then the child runs iterations, alternately.
      std::array<int, 2> orders{};
      REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, orders.data()) == 0);
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        alarm(10 * testing::slower());
        ::close(orders[0]);
        if (!drops && pair.client) pair.client->flush();
        after_fork(pair);
        if (drops) {
          pair.client.reset();
          pair.server.reset();
          pair.listener.reset();
        }
        char order;
        while (::read(orders[1], &order, 1) == 1 && order == 'g') {
          testing::turns(pair.loop, 5);
          (void)!::write(orders[1], &order, 1);
        }
        const bool right = how == How::kWrite || !waited || (told.times == 1 && told.error);
        _exit(right ? 0 : 1);
      }
      ::close(orders[1]);
      std::string got;
      std::vector<char> room(1 << 20);
      for (int quiet = 0; quiet < 3;) {
        const std::size_t had = got.size();
        for (ssize_t n; (n = pair.server->read(room.data(), room.size())) > 0;)
          got.append(room.data(), static_cast<std::size_t>(n));
        quiet = got.size() == had ? quiet + 1 : 0;
        char order = 'g';
        REQUIRE(::write(orders[0], &order, 1) == 1);
        if (::read(orders[0], &order, 1) != 1) break;
      }
      ::close(orders[0]);
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      CHECK(status == 0);

      testing::Collector rest(*pair.server);
      RUN_UNTIL(pair.loop, ends ? rest.over() : got.size() + rest.bytes.size() >= taken);
      testing::turns(pair.loop, 5);
      got += rest.bytes;
      if (before == "closed" && std::chrono::steady_clock::now() - began > kMost) return false;
      CHECK(got.size() == taken);
      CHECK((got == all.substr(0, taken)));
      CHECK(rest.error == 0);
      CHECK(rest.ended == ends);
      if (how != How::kWrite && before != "closed") {
        RUN_UNTIL(pair.loop, told.times == 1);
        CHECK_FALSE(told.error);
      }
      return true;
    };
    int attempts = 1;
    while (!in_time()) REQUIRE(++attempts <= 10);
  }
}

TEST_CASE("fork: a child may ask for every fact of its parent's connections",
          "[conformance][fork]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool goes_on = GENERATE(false, true);
    CAPTURE(goes_on);
    const auto scene = std::make_unique<Scene>(transport);
    const int status = in_child([&] {
      if (goes_on) after_fork(*scene);
      std::size_t facts = 0;
      for (const Connection* each :
           {scene->client.get(), scene->server.get(), scene->full.get(), scene->sends.get(),
            scene->full_peer.get(), scene->closing_peer.get(), scene->connecting.get()}) {
        sockaddr_storage address;
        facts += each->info().size() + each->path().size() + each->last_error().size() +
                 each->why_ended().text.size() + each->local_address().size() +
                 each->peer_address().size() + each->local_sockaddr(address) +
                 each->peer_sockaddr(address) + each->peer_certificate().size() +
                 each->peer_user().size() + each->is_local().has_value() +
                 each->peer_credentials().has_value() + static_cast<std::size_t>(each->fd() + 1);
      }
      (void)scene->registry.require(scene->type.name()).statistics(scene->loop);
      return facts != 0 ? 0 : 1;
    });
    CHECK(status == 0);
  }
}
