// SPDX-License-Identifier: BSD-3-Clause
// The graceful stop and connections that have arrived, but were not accepted before it: real
// sockets, whose requests wait in the backlog.

#include <atomic>
#include <cerrno>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "conn/listener_group.h"
#include "conn/stop.h"
#include "conn/stopping.h"
#include "tests/support/catch.h"
#include "tests/support/group_kit.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/raw_socket.h"
#include "tests/support/signal_mask.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using conn::ConnectionPtr;
using conn::Stop;
using testing::RawSocket;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kClients = 200;  // more than an iteration accepts

co::Task<> serve(co::Stream peer) {
  std::array<char, 256> line;
  while (co_await peer.next_request()) {
    const co::Result got = co_await peer.read_line(line);
    if (!got) co_return;
    line[got.size] = '\n';
    if (!co_await peer.write({line.data(), got.size + 1})) co_return;
  }
}

std::vector<RawSocket> clients_of(const conn::Endpoint& at, std::size_t count = kClients) {
  std::vector<RawSocket> all;
  for (std::size_t i = 0; i < count; ++i) {
    all.push_back(RawSocket::connect(at));
    all.back().send("hello\n");
  }
  return all;
}

/// Whether the client had its answer, and then the end of the stream.
bool is_answered(const RawSocket& client) {
  try {
    return client.receive(6) == "hello\n" && client.receive(1).empty();
  } catch (const std::system_error&) {
    return false;
  }
}

std::size_t answered(const std::vector<RawSocket>& clients) {
  std::size_t count = 0;
  for (const RawSocket& each : clients) count += is_answered(each) ? 1U : 0U;
  return count;
}

/// A server on one loop, which does not run while clients connect.
struct Service {
  explicit Service(Stop::Settings settings = {})
      : stop(loop, {.limit = settings.limit, .signals = {}, .ends = [this] { ended = true; }}) {}
  conn::AcceptHandler handler() {
    return [this](ConnectionPtr peer) {
      ++taken;
      sessions.spawn(serve(std::move(peer)));
    };
  }
  std::uint64_t counter(std::string_view name, std::string_view of = "tcp") {
    for (const auto& [key, value] : registry.require(of).statistics(loop))
      if (key == name) return value;
    return 0;
  }

  testing::AnyLoop loop;
  conn::Registry registry = testing::test_registry();
  bool ended = false;
  std::size_t taken = 0;
  Stop stop;
  co::Scope sessions;
};

std::string some_url(const testing::TempFolder& folder) {
  return GENERATE(true, false) ? "tcp://127.0.0.1:0?backlog=1000"
                               : "unix:" + folder.path() + "/s?backlog=1000";
}

}  // namespace

TEST_CASE("stop: connections in the backlog are accepted before a listener closes", "[stop]") {
  const testing::TempFolder folder;
  const std::string url = some_url(folder);
  CAPTURE(url);
  Service service;
  SECTION("a listener of the Stop") {
    conn::ListenerPtr listener = service.registry.listen(service.loop, url, service.handler());
    const auto clients = clients_of(listener->endpoints().front());
    service.stop.add(std::move(listener));
    service.stop.request();
    RUN_UNTIL(service.loop, service.ended);
    CHECK(answered(clients) == kClients);
  }
  SECTION("a listener that a hook closes") {
    conn::ListenerPtr listener = service.registry.listen(service.loop, url, service.handler());
    const conn::StopHook hook(service.loop, [&] { listener.reset(); });
    const auto clients = clients_of(listener->endpoints().front());
    service.stop.request();
    RUN_UNTIL(service.loop, service.ended);
    CHECK(answered(clients) == kClients);
  }
  SECTION("an acceptor of coroutines, which pauses its listener meanwhile") {
    co::Acceptor acceptor(service.registry, service.loop, url, 2);
    const auto accept = [](co::Acceptor& from, co::Scope& sessions) -> co::Task<> {
      while (co::Stream peer = co_await from.next()) sessions.spawn(serve(std::move(peer)));
    };
    const auto clients = clients_of(acceptor.listener().endpoints().front());
    service.sessions.spawn(accept(acceptor, service.sessions));
    service.stop.request();
    RUN_UNTIL(service.loop, service.ended);
    CHECK(answered(clients) == kClients);
  }
  CHECK(service.stop.status() == 0);
}

TEST_CASE("stop: an acceptor of coroutines whose queue is full takes what is in the backlog",
          "[stop]") {
  Service service;
  co::Acceptor acceptor(service.registry, service.loop, "tcp://127.0.0.1:0?backlog=1000", 2);
  const auto clients = clients_of(acceptor.listener().endpoints().front());
  RUN_UNTIL(service.loop, acceptor.waiting() == 2);
  testing::turns(service.loop, 3);
  const auto accept = [](co::Acceptor& from, co::Scope& sessions) -> co::Task<> {
    while (co::Stream peer = co_await from.next()) sessions.spawn(serve(std::move(peer)));
  };
  service.stop.request();
  SECTION("with a task that takes them") {
    service.sessions.spawn(accept(acceptor, service.sessions));
    RUN_UNTIL(service.loop, service.ended);
  }
  SECTION("with one that takes them when the server has begun to stop") {
    const conn::StopHook hook(service.loop,
                              [&] { service.sessions.spawn(accept(acceptor, service.sessions)); });
    RUN_UNTIL(service.loop, service.ended);
  }
  CHECK(answered(clients) == kClients);
}

TEST_CASE("stop: a socket that the program has made is emptied", "[stop]") {
  Service service;
  const RawSocket listening = RawSocket::listening(1000);
  conn::ListenerPtr listener = service.registry.require("tcp").adopt_listener(
      service.loop, ::dup(listening.fd()), service.handler());
  const auto clients = clients_of(listener->endpoints().front(), 900);
  service.stop.add(std::move(listener));
  service.stop.request();
  RUN_UNTIL(service.loop, service.ended);
  CHECK(answered(clients) == clients.size());
}

TEST_CASE("stop: an accept handler that throws once costs one client", "[stop]") {
  Service service;
  bool thrown = false;
  conn::ListenerPtr listener = service.registry.listen(
      service.loop, "tcp://127.0.0.1:0?backlog=1000&accept-batch=4&linger=10ms",
      [&, handler = service.handler()](ConnectionPtr peer) {
        if (service.taken == 10 && !std::exchange(thrown, true)) throw std::runtime_error("no");
        handler(std::move(peer));
      });
  const auto clients = clients_of(listener->endpoints().front());
  service.stop.add(std::move(listener));
  service.stop.request();
  CHECK_THROWS_AS(testing::run_until(
                      service.loop, [&] { return service.ended; }, "the end"),
                  std::runtime_error);
  RUN_UNTIL(service.loop, service.ended);
  CHECK(answered(clients) == kClients - 1);
}

TEST_CASE("stop: an accept handler that throws costs no client of another listener", "[stop]") {
  Service service;
  bool thrown = false;
  const std::string url = "tcp://127.0.0.1:0?backlog=1000&accept-batch=4&linger=10ms";
  // The one that was made last is asked first.
  conn::ListenerPtr other = service.registry.listen(service.loop, url, service.handler());
  conn::ListenerPtr throws = service.registry.listen(
      service.loop, url, [&, handler = service.handler()](ConnectionPtr peer) {
        if (conn::Stopping::of(service.loop).accepting() && !std::exchange(thrown, true))
          throw std::runtime_error("no");
        handler(std::move(peer));
      });
  const auto some = clients_of(throws->endpoints().front(), 50);
  const auto clients = clients_of(other->endpoints().front());
  service.stop.add(std::move(other));
  service.stop.add(std::move(throws));
  service.stop.request();
  CHECK_THROWS_AS(testing::run_until(
                      service.loop, [&] { return service.ended; }, "the end"),
                  std::runtime_error);
  RUN_UNTIL(service.loop, service.ended);
  CHECK(answered(clients) == kClients);
  CHECK(answered(some) == some.size() - 1);
}

TEST_CASE("stop: without free descriptors an empty backlog ends at once", "[stop]") {
  Service service;
  conn::ListenerPtr listener =
      service.registry.listen(service.loop, "tcp://127.0.0.1:0", service.handler());
  int told = 0;
  listener->on_refused([&](const conn::Failure&) { ++told; });
  service.stop.add(std::move(listener));
  service.stop.request();
  {
    const testing::NoNewDescriptors limit;
    testing::turns(service.loop, 50);
    CHECK(service.ended);
  }
  CHECK(told == 0);
}

TEST_CASE("stop: no more than max-connections are accepted from the backlog", "[stop]") {
  Service service;
  conn::ListenerPtr listener = service.registry.listen(
      service.loop, "tcp://127.0.0.1:0?max-connections=3&accept-batch=2", service.handler());
  int told = 0;
  listener->on_refused([&](const conn::Failure&) { ++told; });
  const auto clients = clients_of(listener->endpoints().front(), 10);
  service.stop.add(std::move(listener));
  service.stop.request();
  RUN_UNTIL(service.loop, service.ended);
  CHECK(service.taken + static_cast<std::size_t>(told) == 10);
  CHECK(service.counter("refused") == static_cast<std::uint64_t>(told));
  CHECK(answered(clients) == service.taken);
}

TEST_CASE("stop: a paused listener accepts nothing at the stop", "[stop]") {
  Service service;
  conn::ListenerPtr listener =
      service.registry.listen(service.loop, "tcp://127.0.0.1:0", service.handler());
  listener->pause();
  const auto clients = clients_of(listener->endpoints().front(), 3);
  service.stop.add(std::move(listener));
  service.stop.request();
  RUN_UNTIL(service.loop, service.ended);
  CHECK(service.taken == 0);
}

TEST_CASE("stop: a listener that is closed without a stop accepts nothing more", "[stop]") {
  Service service;
  conn::ListenerPtr listener =
      service.registry.listen(service.loop, "tcp://127.0.0.1:0", service.handler());
  const auto clients = clients_of(listener->endpoints().front(), 3);
  listener.reset();
  testing::turns(service.loop, 5);
  CHECK(service.taken == 0);
  CHECK(answered(clients) == 0);
}

TEST_CASE("stop: clients that connect all the time do not keep the server from its stop",
          "[stop]") {
  Service service;
  std::vector<RawSocket> clients;
  conn::Endpoint at;
  conn::ListenerPtr listener = service.registry.listen(
      service.loop, "tcp://127.0.0.1:0?backlog=8&accept-batch=2", [&](ConnectionPtr peer) {
        ++service.taken;
        service.sessions.spawn(serve(std::move(peer)));
        for (RawSocket& each : clients_of(at, 1)) clients.push_back(std::move(each));
      });
  at = listener->endpoints().front();
  clients = clients_of(at, 4);
  service.stop.add(std::move(listener));
  service.stop.request();
  RUN_UNTIL(service.loop, service.ended);
  CHECK(service.taken < 100);
}

TEST_CASE("stop: with a limit of zero nothing in the backlog is accepted", "[stop]") {
  Service service({.limit = 0ms});
  conn::ListenerPtr listener = service.registry.listen(
      service.loop, "tcp://127.0.0.1:0?backlog=1000&accept-batch=1", service.handler());
  const auto clients = clients_of(listener->endpoints().front(), 50);
  service.stop.add(std::move(listener));
  service.stop.request();
  RUN_UNTIL(service.loop, service.ended);
  CHECK(service.taken < 10);
}

TEST_CASE("stop: an accept handler that throws does not keep the server from its stop", "[stop]") {
  Service service;
  conn::ListenerPtr listener =
      service.registry.listen(service.loop, "tcp://127.0.0.1:0?accept-batch=1",
                              [](const ConnectionPtr&) { throw std::runtime_error("no"); });
  auto clients = clients_of(listener->endpoints().front(), 3);
  service.stop.add(std::move(listener));
  service.stop.request();
  int thrown = 0;
  for (int i = 0; i < 100 && !service.ended; ++i) {
    try {
      testing::turns(service.loop, 1);
    } catch (const std::runtime_error&) {
      ++thrown;
    }
    if (i == 10) clients.clear();  // what they had sent was not read: the closed connections linger
  }
  CHECK(service.ended);
  CHECK(thrown > 0);
}

TEST_CASE("stop: a client of shm whose hello has arrived is served", "[stop]") {
  const testing::TempFolder folder;
  Service service;
  conn::ListenerPtr listener = service.registry.listen(
      service.loop, "shm:" + folder.path() + "/s?backlog=1000", service.handler());
  testing::AnyLoop other;
  std::vector<ConnectionPtr> clients;
  std::size_t open = 0;
  for (std::size_t i = 0; i < kClients; ++i) {
    clients.push_back(service.registry.create(other, listener->endpoints().front()));
    clients.back()->connect(listener->endpoints().front(), [&](conn::Connection& one) {
      if (one.state() == conn::State::kConnected) ++open;
    });
  }
  testing::turns(other, 100);
  service.stop.add(std::move(listener));
  service.stop.request();
  RUN_UNTIL(service.loop, service.ended);
  testing::turns(other, 5);
  CHECK(service.taken == kClients);
  CHECK(open == kClients);
}

TEST_CASE("stop of several loops: connections in the backlogs are accepted", "[stop]") {
  const bool by_kernel = GENERATE(false, true);
  CAPTURE(by_kernel);
  const testing::SignalMask signals;
  const conn::Registry registry = testing::test_registry();
  ae::LoopGroup loops({.loops = 3});
  Stop stop(loops, {.signals = {}});
  auto listener =
      conn::listen(registry, loops, "tcp://127.0.0.1:0?backlog=1000",
                   stop.keep([](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                     return [sessions = std::make_shared<co::Scope>()](ConnectionPtr peer) {
                       sessions->spawn(serve(std::move(peer)));
                     };
                   }),
                   by_kernel ? conn::Spread::kernel() : conn::Spread::fewest());
  const conn::Endpoint at = listener->endpoints().front();
  stop.add(std::move(listener));
  std::atomic<bool> go{false};
  std::atomic<int> still{0};
  for (std::size_t i = 0; i < 3; ++i)
    loops.poster(i).post([&] {
      ++still;
      while (!go) std::this_thread::sleep_for(1ms);
    });
  while (still < 3) std::this_thread::sleep_for(1ms);
  const auto clients = clients_of(at);
  stop.request();
  go = true;
  loops.run();
  CHECK(answered(clients) == kClients);
  CHECK(stop.status() == 0);
}
