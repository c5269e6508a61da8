// SPDX-License-Identifier: BSD-3-Clause
// Pool: tasks lease connections, and lost ones are dialled again; and what it stands on,
// Redial::take() and give_back().

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "conn/tcp/tcp_type.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using conn::Redial;
using Phase = conn::Redial::Phase;
using testing::Contains;
using namespace std::chrono_literals;

namespace {

/// An echo server that may go and come back, and settings of clients with short pauses.
struct Place {
  Place() {
    registry.add(std::make_unique<conn::tcp::TcpType>());
    settings.most = 2;
    settings.redial.first_pause = 1ms;
    settings.redial.most_pause = 4ms;
    settings.redial.attempt = settings.redial.proof = testing::patience();
    settings.redial.seed = 7;
    listen(0);
  }
  void listen(std::uint16_t at) {
    listener = registry.listen(loop, "tcp://127.0.0.1:" + std::to_string(at),
                               [this](conn::ConnectionPtr next) { serve(std::move(next)); });
    port = listener->endpoints().front().port;
  }
  void serve(conn::ConnectionPtr next) {
    ++accepted;
    next->set_read_handler([this](conn::Connection& peer) {
      std::array<char, 256> buffer;
      const ssize_t n = peer.read(buffer.data(), buffer.size());
      if (n > 0) {
        if (answers) (void)peer.write(buffer.data(), static_cast<std::size_t>(n));
      } else if (n == 0 || errno != EAGAIN) {
        std::erase_if(servers, [&](const auto& each) { return each.get() == &peer; });
      }
    });
    servers.push_back(std::move(next));
  }
  conn::Endpoint at() const {
    return conn::Endpoint::parse("tcp://127.0.0.1:" + std::to_string(port));
  }
  co::Pool& make() { return pool.emplace(registry, loop, at(), settings); }

  conn::Registry registry;
  testing::AnyLoop loop;
  conn::ListenerPtr listener;
  std::uint16_t port = 0;
  std::vector<conn::ConnectionPtr> servers;
  int accepted = 0;
  bool answers = true;
  co::Pool::Settings settings;
  std::optional<co::Pool> pool;
  co::Scope scope;
};

/// Leases a connection, asks for an echo of `what`, and waits for `until` before it gives it back.
co::Task<> ask(co::Pool& pool, std::string what, std::string& log, co::Event* until = nullptr,
               ae::Duration limit = co::kNoLimit) {
  co::Pool::Lease peer = co_await pool.acquire(limit);
  if (!peer) {
    log += "(" + peer.failure().text + ")";
    co_return;
  }
  std::string answer(what.size(), '\0');
  const co::Result sent = co_await peer->write(what);
  const co::Result got = co_await peer->read_exactly(answer);
  log += sent && got ? answer : "!";
  if (until != nullptr) co_await until->wait();
  peer.give_back();  // one that has ended is not used again
}

}  // namespace

TEST_CASE("pool: connections are shared, and no more are opened than tasks need", "[co][redial]") {
  Place place;
  co::Pool& pool = place.make();
  std::string log;
  RUN_UNTIL(place.loop, pool.available() == 1);
  REQUIRE(pool.size() == 1);
  for (const char* what : {"a", "b", "c"}) {
    place.scope.spawn(ask(pool, what, log));
    RUN_UNTIL(place.loop, place.scope.empty());
  }
  REQUIRE(log == "abc");
  REQUIRE(place.accepted == 1);
  // Four at once: two wait until the first ones give back, and are served in their order.
  co::Event end(place.loop);
  for (const char* what : {"d", "e", "f", "g"}) place.scope.spawn(ask(pool, what, log = "", &end));
  RUN_UNTIL(place.loop, log.size() == 2);
  REQUIRE(pool.size() == 2);
  testing::turns(place.loop, 5);
  REQUIRE(log == "de");
  place.scope.spawn(ask(pool, "h", log, &end, 1ns));
  RUN_UNTIL(place.loop, log.size() > 2);
  REQUIRE(log == "de(no connection within the time-out: all 2 are in use)");
  log.clear();
  end.set();
  RUN_UNTIL(place.loop, place.scope.empty());
  REQUIRE(log.size() == 2);
  REQUIRE(std::is_permutation(log.begin(), log.end(), "fg"));
  REQUIRE(place.accepted == 2);
  REQUIRE(pool.available() == 2);
}

TEST_CASE("pool: on every transport", "[co][redial]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    co::Scope sessions, clients;
    const auto echo = [](co::Stream peer) -> co::Task<> {
      std::array<char, 64> buffer;
      while (const co::Result got = co_await peer.read(buffer))
        if (!co_await peer.write({buffer.data(), got.size})) co_return;
    };
    std::optional<co::Acceptor> acceptor(std::in_place, site.registry, site.loop, site.fresh());
    const auto accept = [&](co::Acceptor& from) -> co::Task<> {
      while (co::Stream peer = co_await from.next()) sessions.spawn(echo(std::move(peer)));
    };
    clients.spawn(accept(*acceptor));
    co::Pool pool(site.registry, site.loop, acceptor->listener().endpoints().front());
    std::string log;
    co::Scope scope;
    for (int i = 0; i < 20; ++i) scope.spawn(ask(pool, "a", log));
    RUN_UNTIL(site.loop, scope.empty());
    REQUIRE(log == std::string(20, 'a'));
    REQUIRE(pool.size() <= 8);
    sessions.cancel();
    RUN_UNTIL(site.loop, pool.available() == 0 || sessions.size() == pool.size());
    for (int i = 0; i < 20; ++i) scope.spawn(ask(pool, "b", log = ""));
    RUN_UNTIL(site.loop, scope.empty());
    RUN_UNTIL(site.loop, sessions.size() == pool.size());
  }
}

TEST_CASE("pool: within first() and when_all()", "[co][redial]") {
  Place place;
  co::Pool& pool = place.make();
  std::string log;
  const auto run = [](ae::EventLoop& loop, co::Pool& from, std::string& seen) -> co::Task<> {
    auto [one, two] = co_await co::when_all(from.acquire(), from.acquire());
    seen += one && two ? "both " : "?";
    const auto which = co_await co::first(from.acquire(), co::sleep(loop, 1ms));
    seen += std::to_string(which.index());
    one.give_back();
    const auto other = co_await co::first(from.acquire(), co::sleep(loop, 1h));
    seen += std::to_string(other.index());
    two = std::move(one);  // ends its lease
  };
  place.scope.spawn(run(place.loop, pool, log));
  RUN_UNTIL(place.loop, place.scope.empty());
  REQUIRE(log == "both 10");
  RUN_UNTIL(place.loop, pool.available() == 2);
}

TEST_CASE("pool: what is not given back is closed, and another one is dialled", "[co][redial]") {
  Place place;
  co::Pool& pool = place.make();
  std::string log;
  place.answers = false;
  co::Scope gone;
  gone.spawn(ask(pool, "half", log));
  gone.spawn(ask(pool, "half", log));
  place.scope.spawn(ask(pool, "a", log));
  RUN_UNTIL(place.loop, pool.size() == 2 && place.servers.size() == 2 && pool.available() == 0);
  testing::turns(place.loop, 5);
  gone.cancel();  // in the middle of a dialogue
  place.answers = true;
  RUN_UNTIL(place.loop, place.scope.empty());
  REQUIRE(log == "a");
  RUN_UNTIL(place.loop, pool.available() == 2 && place.servers.size() == 2);
  REQUIRE(pool.size() == 2);
}

TEST_CASE("pool: a server that goes and comes back is found again", "[co][redial]") {
  Place place;
  co::Pool& pool = place.make();
  std::string log;
  for (int round = 0; round < 5; ++round) {
    place.scope.spawn(ask(pool, "a", log));
    RUN_UNTIL(place.loop, place.scope.empty() && pool.available() == 1);
    place.listener.reset();
    place.servers.clear();
    RUN_UNTIL(place.loop, pool.available() == 0);
    // On a busy machine the first attempt may not end within 20 ms.
    for (ae::Duration limit = 20ms; log.find("refused") == std::string::npos; limit *= 2) {
      REQUIRE(limit < testing::patience());
      place.scope.spawn(ask(pool, "b", log = "a", nullptr, limit));
      RUN_UNTIL(place.loop, place.scope.empty());
      REQUIRE_THAT(log, Contains("a(no connection within the time-out: "));
    }
    place.scope.spawn(ask(pool, "c", log = ""));
    place.listen(place.port);
    RUN_UNTIL(place.loop, place.scope.empty());
    REQUIRE(log == "c");
    log.clear();
  }
}

TEST_CASE("pool: a task that is woken and then cancelled passes its connection on",
          "[co][redial]") {
  Place place;
  place.settings.most = 1;
  co::Pool& pool = place.make();
  std::string log;
  co::Event end(place.loop);
  co::Scope first, gone;
  first.spawn(ask(pool, "a", log, &end));
  RUN_UNTIL(place.loop, log == "a");
  const auto take = [](co::Pool& from, std::string& seen) -> co::Task<> {
    const co::Pool::Lease peer = co_await from.acquire();
    seen += "taken";
  };
  gone.spawn(take(pool, log));
  place.scope.spawn(ask(pool, "b", log));
  const ae::HookId hook = place.loop.add_before_sleep([&] {
    if (!first.empty() || gone.empty()) return;
    gone.cancel();
  });
  end.set();
  co::Pool::Lease held;
  RUN_UNTIL(place.loop, place.scope.empty());
  place.loop.remove_hook(hook);
  REQUIRE_THAT(log, Contains("b"));
  REQUIRE(place.accepted <= 2);
  RUN_UNTIL(place.loop, pool.available() == 1);
}

TEST_CASE("pool: a lease outlives the pool, and who waits for it goes on without", "[co][redial]") {
  Place place;
  place.settings.most = 1;
  co::Pool& pool = place.make();
  std::string log;
  co::Event end(place.loop);
  place.scope.spawn(ask(pool, "a", log, &end));
  place.scope.spawn(ask(pool, "b", log));
  RUN_UNTIL(place.loop, log == "a");
  place.pool.reset();
  RUN_UNTIL(place.loop, log.size() > 1);
  REQUIRE_THAT(log, Contains("canceled"));
  end.set();
  RUN_UNTIL(place.loop, place.scope.empty());
  RUN_UNTIL(place.loop, place.servers.empty());
}

TEST_CASE("pool: its connection may be taken out of the lease", "[co][redial]") {
  Place place;
  place.settings.most = 1;
  co::Pool& pool = place.make();
  co::Stream kept;
  const auto keep = [](co::Pool& from, co::Stream& into) -> co::Task<> {
    co::Pool::Lease peer = co_await from.acquire();
    into = std::move(*peer);
    peer.give_back();
  };
  place.scope.spawn(keep(pool, kept));
  RUN_UNTIL(place.loop, place.scope.empty() && pool.available() == 1);
  REQUIRE(kept->state() == conn::State::kConnected);
  REQUIRE(place.accepted == 2);
}

TEST_CASE("pool: each new connection is prepared before a task gets it", "[co][redial]") {
  Place place;
  enum How { kGood, kRefuses, kThrows, kHangs, kLacksMemory };
  const How how = GENERATE(kGood, kRefuses, kThrows, kHangs, kLacksMemory);
  CAPTURE(how);
  if (how == kHangs) place.settings.redial.proof = 5ms;
  int prepared = 0;
  const auto prepare = [&prepared, how](co::Stream& peer) -> co::Task<bool> {
    std::array<char, 4> buffer;
    const co::Result sent = co_await peer.write("AUTH");
    const co::Result got = co_await peer.read_exactly(buffer);
    if (++prepared == 1 && how == kRefuses) co_return false;
    if (prepared == 1 && how == kThrows) throw std::runtime_error("thrown by prepare()");
    if (prepared == 1 && how == kHangs) (void)co_await peer.read(buffer);
    co_return sent&& got;
  };
  place.settings.prepare = [&prepared, prepare, how](co::Stream& peer) {
    co::Task<bool> task = prepare(peer);
    // without memory for the frame, a call of a coroutine returns an empty task
    if (how == kLacksMemory && prepared == 0) {
      ++prepared;
      const co::Task<bool> dropped = std::move(task);
    }
    return task;
  };
  co::Pool& pool = place.make();
  std::string log, why, thrown;
  place.scope.spawn(ask(pool, "a", log));
  while (!place.scope.empty()) {
    try {
      place.loop.process_events(ae::kFullIteration);
    } catch (const std::exception& error) {
      thrown = error.what();
    }
  }
  REQUIRE(log == "a");
  REQUIRE(prepared == (how == kGood ? 1 : 2));
  REQUIRE(thrown == (how == kThrows ? "thrown by prepare()" : ""));
  REQUIRE(place.accepted == prepared);
  // A pool may end while it prepares one.
  place.answers = false;
  place.servers.clear();
  RUN_UNTIL(place.loop, pool.available() == 0 && !place.servers.empty());
  testing::turns(place.loop, 3);
  place.pool.reset();
  RUN_UNTIL(place.loop, place.servers.empty());
}

TEST_CASE("pool: its end within prepare()", "[co][redial]") {
  Place place;
  const bool waits = GENERATE(true, false);
  bool after = false;
  place.settings.prepare = [&place, &after, waits](co::Stream&) -> co::Task<bool> {
    ae::EventLoop& loop = place.loop;
    place.pool.reset();
    if (waits) co_await co::sleep(loop, 0s);
    after = true;
    co_return true;
  };
  place.make();
  std::string log;
  place.scope.spawn(ask(*place.pool, "a", log));
  RUN_UNTIL(place.loop, place.scope.empty());
  REQUIRE_THAT(log, Contains("canceled"));
  REQUIRE(after != waits);
}

// Goal: whatever tasks, servers and cancellations do, a connection serves one task at a time, no
// half answer reaches another task, and the pool has all its connections again in the end.
// Method: random steps from one seed; each task asks for the echo of its own number.
TEST_CASE("pool: random tasks cancellations and losses", "[co][redial][random]") {
  const auto seed = GENERATE(take(10, random(0U, 0xffffffffU)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  Place place;
  place.settings.most = 3;
  co::Pool& pool = place.make();
  std::vector<std::unique_ptr<co::Scope>> scopes;
  int wrong = 0, right = 0, began = 0, leased = 0, most = 0;
  struct Leased {
    explicit Leased(int& its) : count(its) { ++count; }
    Leased(const Leased&) = delete;
    Leased& operator=(const Leased&) = delete;
    ~Leased() { --count; }
    int& count;
  };
  const auto dialogue = [&](co::Pool& from, int number, bool gives_back) -> co::Task<> {
    co::Pool::Lease peer = co_await from.acquire();
    const Leased now(leased);
    most = std::max(most, leased);
    for (int i = 0; i < 3; ++i) {
      const std::string what = std::to_string(1'000'000 + number);
      std::array<char, 7> answer{};
      const co::Result sent = co_await peer->write(what);
      const co::Result got = co_await peer->read_exactly(answer);
      if (!sent || !got) {  // lost
        peer.give_back();
        co_return;
      }
      ++(std::string_view(answer.data(), answer.size()) == what ? right : wrong);
    }
    if (gives_back) peer.give_back();
  };
  for (int step = 0; step < 600; ++step) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        scopes.push_back(std::make_unique<co::Scope>());
        scopes.back()->spawn(dialogue(pool, began++, random() % 4 != 0));
        break;
      case 3:
        if (!scopes.empty())
          scopes.erase(scopes.begin() + static_cast<long>(random() % scopes.size()));
        break;
      case 4:
        if (!place.servers.empty() && random() % 4 == 0) place.servers.erase(place.servers.begin());
        break;
      default:
        testing::turns(place.loop, 1);
    }
    std::erase_if(scopes, [](const auto& each) { return each->empty(); });
    REQUIRE(wrong == 0);
    REQUIRE(pool.size() <= 3);
  }
  RUN_UNTIL(place.loop, std::all_of(scopes.begin(), scopes.end(),
                                    [](const auto& each) { return each->empty(); }));
  RUN_UNTIL(place.loop, pool.available() == pool.size() && place.servers.size() == pool.size());
  REQUIRE(wrong == 0);
  REQUIRE(right > 0);
  REQUIRE(leased == 0);
  REQUIRE(most <= 3);
}

TEST_CASE("redial: the connection is taken and given back", "[redial]") {
  Place place;
  int ups = 0, downs = 0;
  std::vector<Phase> phases;
  std::optional<Redial> redial;
  redial.emplace(place.registry, place.loop, place.at(),
                 Redial::Handlers{.up = [&](conn::Connection&) { ++ups; },
                                  .down = [&](conn::Connection&, const Redial::Loss&) { ++downs; },
                                  .prove = {},
                                  .changed = [&] { phases.push_back(redial->phase()); }},
                 place.settings.redial);
  REQUIRE(redial->take() == nullptr);
  redial->give_back(nullptr);  // nothing was taken
  RUN_UNTIL(place.loop, ups == 1 && place.servers.size() == 1);
  conn::ConnectionPtr mine = redial->take();
  REQUIRE(mine != nullptr);
  REQUIRE(redial->take() == nullptr);
  REQUIRE(redial->phase() == Phase::kTaken);
  REQUIRE(redial->connection() == nullptr);
  REQUIRE(redial->describe() == "taken");
  REQUIRE(to_string(redial->phase()) == "taken");
  redial->drop("no effect");
  redial->try_now();
  testing::turns(place.loop, 3);
  REQUIRE(redial->phase() == Phase::kTaken);
  REQUIRE(mine->write("x", 1) == 1);
  redial->give_back(std::move(mine));
  REQUIRE(redial->phase() == Phase::kUp);
  REQUIRE(redial->connection() != nullptr);
  REQUIRE(redial->unconfirmed() == 0);
  REQUIRE((ups == 1 && downs == 0));
  // It is watched again.
  place.servers.clear();
  RUN_UNTIL(place.loop, downs == 1);
  RUN_UNTIL(place.loop, ups == 2 && place.servers.size() == 1);
  // One that was lost meanwhile.
  mine = redial->take();
  bool closed = false;
  mine->set_close_handler([&](conn::Connection&) { closed = true; });
  place.servers.clear();
  RUN_UNTIL(place.loop, closed);
  redial->give_back(std::move(mine));
  REQUIRE(redial->phase() == Phase::kWaiting);
  REQUIRE(redial->last_failure());
  RUN_UNTIL(place.loop, ups == 3 && place.servers.size() == 1);
  REQUIRE(downs == 1);
  REQUIRE(redial->counters().lost == 2);
  // One that is not given back, with a reason and without.
  mine = redial->take();
  redial->give_back(nullptr, {std::make_error_code(std::errc::protocol_error), "a bad answer"});
  REQUIRE(redial->last_failure().text == "a bad answer");
  RUN_UNTIL(place.loop, ups == 4);
  mine = redial->take();
  redial->give_back(nullptr);
  REQUIRE(redial->last_failure().text == "the connection was not given back");
  RUN_UNTIL(place.loop, ups == 5);
  // drop() before, and stop() meanwhile.
  redial->drop("first");
  REQUIRE(redial->take() == nullptr);
  RUN_UNTIL(place.loop, downs == 2 && ups == 6);
  mine = redial->take();
  redial->stop();
  redial->give_back(std::move(mine));
  REQUIRE(redial->phase() == Phase::kStopped);
  REQUIRE(redial->connection() == nullptr);
  RUN_UNTIL(place.loop, place.servers.size() <= 1);
}
