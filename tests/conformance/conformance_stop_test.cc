// SPDX-License-Identifier: BSD-3-Clause
// The graceful stop of a server (conn/stop.h) on one loop, over each transport: signals, sessions
// of coroutines and of handlers, the limit.

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "conn/core/connection_set.h"
#include "conn/stop.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/signal_mask.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using conn::Stop;
using testing::Collector;
using testing::Site;
using namespace std::chrono_literals;

namespace {

void signal_us(int number = SIGTERM) { REQUIRE(pthread_kill(pthread_self(), number) == 0); }
bool is_blocked(int number) {
  sigset_t now;
  REQUIRE(pthread_sigmask(SIG_SETMASK, nullptr, &now) == 0);
  return sigismember(&now, number) == 1;
}

/// Answers each line by the same line, once `may_answer` is set.
struct Server {
  explicit Server(const testing::Transport& transport, Stop::Settings settings = {})
      : site(transport), may_answer(site.loop), stop(site.loop, with_end(std::move(settings))) {
    may_answer.set();
    const conn::Endpoint at = site.fresh();
    acceptor = std::make_unique<co::Acceptor>(site.registry, site.loop, at);
    address = acceptor->listener().endpoints().front();
    sessions.spawn(accept(*this));
  }
  Stop::Settings with_end(Stop::Settings settings) {
    settings.ends = [this] { ended = true; };
    return settings;
  }
  static co::Task<> accept(Server& self) {
    while (co::Stream peer = co_await self.acceptor->next())
      self.sessions.spawn(serve(self, std::move(peer)));
    self.accepting = false;
  }
  static co::Task<> serve(Server& self, co::Stream peer) {
    std::array<char, 256> line;
    while (co_await peer.next_request()) {
      const co::Result got = co_await peer.read_line(line);
      if (!got) co_return;
      ++self.taken;
      (void)co_await self.may_answer.wait();
      const std::string answer = std::string(line.data(), got.size) + '\n';
      if (!co_await peer.write(answer)) co_return;
    }
  }
  ConnectionPtr connect() {
    ConnectionPtr client = site.connect(address);
    testing::send(site.loop, *client, "hello\n");
    REQUIRE(testing::receive(site.loop, *client, 6) == "hello\n");
    return client;
  }

  testing::SignalMask signals;  // restored last
  Site site;
  co::Event may_answer;
  bool ended = false, accepting = true;
  int taken = 0;  // requests that sessions have read
  Stop stop;
  std::unique_ptr<co::Acceptor> acceptor;
  conn::Endpoint address;
  co::Scope sessions;
};

/// Whether a peer sees an abort, and not an end of stream.
bool shows_resets(Server& server) { return server.site.carrier.capabilities().reset; }

}  // namespace

TEST_CASE("stop: at a signal idle sessions end and nobody is accepted", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const int number = GENERATE(SIGINT, SIGTERM);
    CAPTURE(number);
    bool began = false;
    Server server(transport, {.begins = [&] { began = true; }});
    std::vector<ConnectionPtr> clients;
    std::list<Collector> seen;
    for (int i = 0; i < 3; ++i) {
      clients.push_back(server.connect());
      seen.emplace_back(*clients.back());
    }
    testing::turns(server.site.loop, 3);
    REQUIRE(server.stop.phase() == Stop::Phase::kServing);
    REQUIRE_FALSE(began);
    signal_us(number);
    RUN_UNTIL(server.site.loop, server.ended);
    REQUIRE(began);
    for (const Collector& each : seen) {
      RUN_UNTIL(server.site.loop, each.over());
      REQUIRE(each.ended);
      REQUIRE(each.bytes.empty());
    }
    RUN_UNTIL(server.site.loop, !server.accepting);
    REQUIRE(server.sessions.empty());
    REQUIRE(server.stop.phase() == Stop::Phase::kEnded);
    REQUIRE(server.stop.status() == 0);
    REQUIRE(server.stop.left().connections == 0);
    bool answered = false;
    ConnectionPtr late = server.site.connect(server.address, [&](Connection&) { answered = true; });
    RUN_UNTIL(server.site.loop, answered);
    REQUIRE(late->state() == State::kError);
  }
}

TEST_CASE("stop: without a session it ends at once", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Server server(transport, {.limit = ae::Duration::max()});
    server.stop.request();
    RUN_UNTIL(server.site.loop, server.ended);
    REQUIRE(server.stop.status() == 0);
  }
}

TEST_CASE("stop: a request under way is answered before its session ends", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Server server(transport, {.limit = ae::Duration::max()});
    const ConnectionPtr client = server.connect(), idle = server.connect();
    Collector idles(*idle);
    server.may_answer.reset();
    testing::send(server.site.loop, *client, "slow\n");
    RUN_UNTIL(server.site.loop, server.taken == 3);
    server.stop.request();
    RUN_UNTIL(server.site.loop, idles.ended);
    testing::turns(server.site.loop, 10);
    REQUIRE(server.stop.phase() == Stop::Phase::kDraining);
    REQUIRE_FALSE(server.ended);
    Collector answer(*client);
    server.may_answer.set();
    RUN_UNTIL(server.site.loop, server.ended && answer.over());
    REQUIRE(answer.bytes == "slow\n");
    REQUIRE(answer.ended);
    REQUIRE(server.stop.status() == 0);
  }
}

TEST_CASE("stop: requests that have arrived are answered", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Server server(transport, {.limit = ae::Duration::max()});
    const ConnectionPtr client = server.connect();
    server.may_answer.reset();
    testing::send(server.site.loop, *client, "one\ntwo\nthree\n");
    RUN_UNTIL(server.site.loop, server.taken == 2);
    Collector answers(*client);
    server.stop.request();
    testing::turns(server.site.loop, 10);
    server.may_answer.set();
    RUN_UNTIL(server.site.loop, server.ended && answers.over());
    REQUIRE(answers.bytes == "one\ntwo\nthree\n");
    REQUIRE(answers.ended);
  }
}

TEST_CASE("stop: a peer that never stops sending is ended between two requests", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Server server(transport, {.limit = 1s * testing::slower()});
    const ConnectionPtr client = server.connect();
    std::string got;
    bool over = false;
    client->set_read_handler([&](Connection& peer) {
      char some[256];
      const ssize_t size = peer.read(some, sizeof some);
      if (size < 0 && errno == EAGAIN) return;
      over = size <= 0;
      if (over) return peer.set_read_handler(nullptr);
      got.append(some, static_cast<std::size_t>(size));
      (void)peer.write("more\nmore\n", 10);
    });
    testing::send(server.site.loop, *client, "more\nmore\n");
    server.stop.request();
    RUN_UNTIL(server.site.loop, server.ended && over);
    REQUIRE(server.stop.status() == 0);
    REQUIRE(got.size() % 5 == 0);
  }
}

TEST_CASE("stop: what is left when the limit is over is aborted", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const auto limit = GENERATE(ae::Duration(0), ae::Duration(20ms));
    Server server(transport, {.limit = limit});
    const ConnectionPtr busy = server.connect();
    server.may_answer.reset();
    testing::send(server.site.loop, *busy, "never\n");
    RUN_UNTIL(server.site.loop, server.taken == 2);
    Collector seen(*busy);
    server.stop.request();
    RUN_UNTIL(server.site.loop, server.ended);
    REQUIRE(server.stop.phase() == Stop::Phase::kEnded);
    REQUIRE(server.stop.left().connections == 1);
    REQUIRE(server.stop.status() == 1);
    // The session learns of it as of a failure; its end is what the peer sees.
    server.may_answer.set();
    RUN_UNTIL(server.site.loop, seen.over() && server.sessions.empty());
    REQUIRE(seen.bytes.empty());
    if (shows_resets(server)) REQUIRE(seen.error == ECONNRESET);
  }
}

TEST_CASE("stop: a second signal aborts; two close together are one", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool close_together = GENERATE(false, true);
    CAPTURE(close_together);
    Server server(transport, {.limit = ae::Duration::max()});
    const ConnectionPtr busy = server.connect();
    server.may_answer.reset();
    testing::send(server.site.loop, *busy, "never\n");
    RUN_UNTIL(server.site.loop, server.taken == 2);
    signal_us(SIGTERM);
    if (close_together) signal_us(SIGINT);
    RUN_UNTIL(server.site.loop, server.stop.phase() == Stop::Phase::kDraining);
    bool waited = false;
    server.site.loop.add_time_event(150ms, [&] {
      waited = true;
      return ae::kNoMore;
    });
    RUN_UNTIL(server.site.loop, waited);
    REQUIRE(server.stop.phase() == Stop::Phase::kDraining);
    if (!close_together) {
      signal_us(SIGTERM);
      RUN_UNTIL(server.site.loop, server.ended);
      REQUIRE(server.stop.left().connections == 1);
    }
    server.may_answer.set();
    RUN_UNTIL(server.site.loop, server.ended);
    REQUIRE(server.stop.status() == (close_together ? 0 : 1));
  }
}

TEST_CASE("stop: sessions of handlers are told by a hook, and live in a kept handler",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const testing::SignalMask signals;
    Site site(transport);
    bool ended = false;
    Stop stop(site.loop, {.ends = [&] { ended = true; }});
    const auto sessions = std::make_shared<std::vector<ConnectionPtr>>();
    const std::weak_ptr<std::vector<ConnectionPtr>> watched = sessions;
    conn::ListenerPtr listener = site.registry.listen(
        site.loop, site.fresh(),
        stop.keep([sessions](ConnectionPtr next) { sessions->push_back(std::move(next)); }));
    const conn::Endpoint at = testing::address_of(*listener);
    stop.add(std::move(listener));
    const ConnectionPtr client = site.connect(at);
    RUN_UNTIL(site.loop, sessions->size() == 1 && client->state() == State::kConnected);
    int told = 0;
    const conn::StopHook hook(site.loop, [&] { ++told; });
    {
      const conn::StopHook gone(site.loop, [&] { told += 100; });
    }
    testing::turns(site.loop, 3);
    REQUIRE(told == 0);
    REQUIRE_FALSE(conn::Stopping::of(site.loop).begun());
    stop.request();
    RUN_UNTIL(site.loop, told == 1);
    REQUIRE(conn::Stopping::of(site.loop).begun());
    testing::turns(site.loop, 10);
    REQUIRE_FALSE(ended);  // the session is there, although its listener is gone
    REQUIRE(client->state() == State::kConnected);
    bool late = false;  // one that comes after the stop has begun is told, too
    const conn::StopHook second(site.loop, [&] { late = true; });
    RUN_UNTIL(site.loop, late);
    Collector seen(*client);
    testing::send(site.loop, *sessions->front(), "bye");
    sessions->clear();
    RUN_UNTIL(site.loop, ended && seen.over());
    REQUIRE(seen.bytes == "bye");
    REQUIRE(seen.ended);
    REQUIRE(stop.status() == 0);
    REQUIRE(told == 1);
  }
}

TEST_CASE("stop: signals that the host blocks or handles are its own again afterwards",
          "[conformance]") {
  const testing::SignalMask signals;
  static int handled = 0;
  handled = 0;
  struct sigaction before {
  }, ours{};
  ours.sa_handler = [](int) { ++handled; };
  REQUIRE(sigaction(SIGTERM, &ours, &before) == 0);
  testing::AnyLoop loop;
  bool ended = false;
  {
    const Stop stop(loop, {.signals = {}, .ends = [&] { ended = true; }});
    REQUIRE_FALSE(is_blocked(SIGTERM));
    signal_us();  // not the library's
    testing::turns(loop, 3);
    REQUIRE(handled == 1);
    REQUIRE(stop.phase() == Stop::Phase::kServing);
  }
  {
    const Stop stop(loop, {.signals = {SIGTERM}, .ends = [&] { ended = true; }});
    REQUIRE(is_blocked(SIGTERM));
    REQUIRE_FALSE(is_blocked(SIGINT));
  }
  REQUIRE_FALSE(is_blocked(SIGTERM));
  signal_us();
  REQUIRE(handled == 2);
  REQUIRE_FALSE(ended);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  {
    REQUIRE(pthread_sigmask(SIG_BLOCK, &term, nullptr) == 0);
    const Stop stop(loop, {.ends = [&] { ended = true; }});
    signal_us();
    RUN_UNTIL(loop, ended);
    REQUIRE(handled == 2);
  }
  REQUIRE(is_blocked(SIGINT));  // one more, and the program would not end by itself
  REQUIRE(sigaction(SIGTERM, &before, nullptr) == 0);
}

TEST_CASE("stop: destroyed while it drains it lets the sessions go on", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    const testing::SignalMask signals;
    Site site(transport);
    bool ended = false;
    ConnectionPtr session;
    auto stop = std::make_unique<Stop>(site.loop,
                                       Stop::Settings{.limit = 1ms, .ends = [&] { ended = true; }});
    conn::ListenerPtr listener = site.registry.listen(
        site.loop, site.fresh(), [&](ConnectionPtr next) { session = std::move(next); });
    const conn::Endpoint at = testing::address_of(*listener);
    stop->add(std::move(listener));
    const ConnectionPtr client = site.connect(at);
    RUN_UNTIL(site.loop, session != nullptr && client->state() == State::kConnected);
    stop->request();
    bool began = false;
    const conn::StopHook hook(site.loop, [&] {
      stop.reset();  // within the stop itself
      began = true;
    });
    RUN_UNTIL(site.loop, began);
    bool later = false;
    site.loop.add_time_event(10ms, [&] {
      later = true;
      return ae::kNoMore;
    });
    RUN_UNTIL(site.loop, later);
    testing::send(site.loop, *session, "here");
    REQUIRE(testing::receive(site.loop, *client, 4) == "here");
    REQUIRE_FALSE(ended);
  }
}

TEST_CASE("stop: what the program has closed and still delivers is cut", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    struct Lent {
      int count = 0, back = 0;
      bool cancelled = false;
    } lent;
    const testing::SignalMask signals;
    Site site(transport);
    bool ended = false;
    ConnectionPtr session;
    Stop stop(site.loop, {.limit = ae::Duration(0), .signals = {}, .ends = [&] { ended = true; }});
    conn::ListenerPtr listener = site.registry.listen(
        site.loop, site.fresh(), [&](ConnectionPtr next) { session = std::move(next); });
    const conn::Endpoint at = testing::address_of(*listener);
    stop.add(std::move(listener));
    const ConnectionPtr client = site.connect(at);
    RUN_UNTIL(site.loop, session != nullptr && client->state() == State::kConnected);
    const std::string much(1 << 20, 'x');
    const auto release = [](void* context, std::error_code error) noexcept {
      Lent& its = *static_cast<Lent*>(context);
      ++its.back;
      if (error == std::errc::operation_canceled) its.cancelled = true;
    };
    while (session->send({std::as_bytes(std::span(much)), release, &lent, nullptr}) > 0) {
      ++lent.count;
      testing::turns(site.loop, 1);  // the client does not read
    }
    session.reset();
    REQUIRE(lent.back < lent.count);
    stop.request();
    RUN_UNTIL(site.loop, ended);
    REQUIRE(stop.left().connections == 1);
    REQUIRE(stop.status() == 1);
    RUN_UNTIL(site.loop, lent.back == lent.count);
    REQUIRE(lent.cancelled);
    RUN_UNTIL(site.loop, conn::ConnectionSet::of(site.loop).served() == 0);
    Collector seen(*client);
    RUN_UNTIL(site.loop, seen.over());
    REQUIRE(seen.bytes.size() < static_cast<std::size_t>(lent.count) * much.size());
  }
}

TEST_CASE("stop: after one that was destroyed another stops the same loop", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Site site(transport);
    ConnectionPtr session;
    const conn::ListenerPtr listener = site.registry.listen(
        site.loop, site.fresh(), [&](ConnectionPtr next) { session = std::move(next); });
    const ConnectionPtr client = site.connect(testing::address_of(*listener));
    RUN_UNTIL(site.loop, session != nullptr && client->state() == State::kConnected);
    bool ended = false;
    const auto settings = [&] {
      return Stop::Settings{
          .limit = ae::Duration::max(), .signals = {}, .ends = [&] { ended = true; }};
    };
    auto stop = std::make_unique<Stop>(site.loop, settings());
    stop->request();
    conn::Stopping& stopping = conn::Stopping::of(site.loop);
    RUN_UNTIL(site.loop, stopping.begun());
    stop.reset();
    RUN_UNTIL(site.loop, !stopping.begun());
    stop = std::make_unique<Stop>(site.loop, settings());
    bool told = false;
    const conn::StopHook hook(site.loop, [&] { told = true; });
    testing::turns(site.loop, 3);
    REQUIRE_FALSE(told);
    stop->request();
    RUN_UNTIL(site.loop, told);
    testing::turns(site.loop, 3);
    REQUIRE_FALSE(ended);
    session.reset();
    RUN_UNTIL(site.loop, ended);
    REQUIRE(stop->status() == 0);
  }
}

TEST_CASE("stop: the limit counts while listeners are destroyed", "[conformance]") {
  testing::AnyLoop loop;
  const ae::Duration limit = 400ms * testing::slower();
  bool ended = false, over = false, in_time = false;
  Stop stop(loop, {.limit = limit, .signals = {}, .ends = [&] { ended = true; }});
  conn::Registry registry = testing::test_registry();
  ConnectionPtr session;
  const conn::ListenerPtr other = registry.listen(
      loop, "tcp://127.0.0.1:0", [&](ConnectionPtr next) { session = std::move(next); });
  const auto client = testing::RawSocket::connect(testing::address_of(*other));
  RUN_UNTIL(loop, session != nullptr);
  // What the accept handler owns takes the whole limit to end.
  static const int some = 0;
  std::shared_ptr<const int> owned(&some, [&](const int*) {
    std::this_thread::sleep_for(limit);
    loop.add_time_event(limit / 2, [&] {
      over = true;
      in_time = ended;
      return ae::kNoMore;
    });
  });
  stop.add(registry.listen(loop, "tcp://127.0.0.1:0",
                           [owned = std::move(owned)](const ConnectionPtr&) {}));
  stop.request();
  RUN_UNTIL(loop, over);
  REQUIRE(in_time);
  REQUIRE(stop.left().connections == 1);
}

TEST_CASE("stop: it may outlive its loop", "[conformance]") {
  auto loop = std::make_unique<testing::AnyLoop>();
  bool ended = false;
  auto kept = std::make_shared<int>();
  Stop stop(*loop, {.signals = {}, .ends = [&] { ended = true; }});
  const conn::AcceptHandler handler = stop.keep([kept](ConnectionPtr) {});
  loop.reset();
  stop.request();
  REQUIRE_FALSE(ended);
}
