// SPDX-License-Identifier: BSD-3-Clause
// The graceful stop of a server on several loops, in a child of fork(), and of kernel sockets.

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "conn/co.h"
#include "conn/core/connection_set.h"
#include "conn/listener_group.h"
#include "conn/stop.h"
#include "tests/support/catch.h"
#include "tests/support/group_kit.h"
#include "tests/support/raw_socket.h"
#include "tests/support/signal_mask.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using conn::ConnectionPtr;
using conn::Stop;
using testing::RawSocket;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kLoops = 3;

/// Answers each line; "wait" is answered when `open` is true.
co::Task<> serve(co::Stream peer, const std::atomic<bool>& open, std::atomic<int>& taken) {
  std::array<char, 256> line;
  ae::EventLoop& loop = *peer->loop();
  while (co_await peer.next_request()) {
    const co::Result got = co_await peer.read_line(line);
    if (!got) co_return;
    ++taken;
    const bool waits = std::string_view(line.data(), got.size) == "wait";
    while (waits && !open) co_await co::sleep(loop, 1ms);
    line[got.size] = '\n';
    if (!co_await peer.write({line.data(), got.size + 1})) co_return;
  }
}

struct Service {
  explicit Service(Stop::Settings settings = {}) : stop(loops, std::move(settings)) { listen(); }
  Service(ae::EventLoop& control, Stop::Settings settings)
      : stop(control, loops, std::move(settings)) {
    listen();
  }
  void listen() {
    auto listener =
        conn::listen(registry, loops, "tcp://127.0.0.1:0",
                     stop.keep([this](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                       return [this, sessions = std::make_shared<co::Scope>()](ConnectionPtr peer) {
                         sessions->spawn(serve(std::move(peer), open, taken));
                       };
                     }));
    at = listener->endpoints().front();
    group = listener.get();
    stop.add(std::move(listener));
  }
  /// Clients on all loops, each with one answer.
  std::vector<RawSocket> clients(std::size_t count = 2 * kLoops) const {
    std::vector<RawSocket> all;
    for (std::size_t i = 0; i < count; ++i) {
      all.push_back(RawSocket::connect(at));
      all.back().send("hello\n");
      REQUIRE(all.back().receive(6) == "hello\n");
    }
    return all;
  }
  void await_taken(int count) const {
    while (taken < count) std::this_thread::sleep_for(1ms);
  }

  testing::SignalMask signals;  // restored last
  conn::Registry registry = testing::test_registry();
  std::atomic<bool> open{false};
  std::atomic<int> taken{0};
  ae::LoopGroup loops{{.loops = kLoops}};
  Stop stop;
  conn::Endpoint at;
  conn::ListenerGroup* group = nullptr;  // until the stop begins
};

/// How the stream ends: 0, or the error.
int end_of(const RawSocket& client) {
  try {
    return client.receive(1).empty() ? 0 : -1;
  } catch (const std::system_error& error) {
    return error.code().value();
  }
}

bool refused(const conn::Endpoint& at) {
  try {
    (void)RawSocket::connect(at);
    return false;
  } catch (const std::system_error& error) {
    return error.code().value() == ECONNREFUSED;
  }
}

}  // namespace

TEST_CASE("stop of several loops: a signal ends idle sessions of all, then the group", "[stop]") {
  Service service;
  const std::vector<RawSocket> clients = service.clients();
  REQUIRE(kill(getpid(), SIGTERM) == 0);
  service.loops.run();
  REQUIRE(service.stop.phase() == Stop::Phase::kEnded);
  REQUIRE(service.stop.status() == 0);
  for (const RawSocket& each : clients) REQUIRE(each.receive(1).empty());
  REQUIRE(refused(service.at));
}

TEST_CASE("stop of several loops: a request under way on each is answered", "[stop]") {
  Service service({.limit = ae::Duration::max()});
  const std::vector<RawSocket> clients = service.clients();
  const int before = service.taken;
  for (const RawSocket& each : clients) each.send("wait\n");
  service.await_taken(before + static_cast<int>(clients.size()));
  service.stop.request();
  while (service.stop.phase() == Stop::Phase::kServing) std::this_thread::sleep_for(1ms);
  while (!refused(service.at)) std::this_thread::sleep_for(1ms);
  REQUIRE(service.stop.phase() == Stop::Phase::kDraining);
  service.open = true;
  service.loops.run();
  for (const RawSocket& each : clients) {
    REQUIRE(each.receive(5) == "wait\n");
    REQUIRE(each.receive(1).empty());
  }
  REQUIRE(service.stop.status() == 0);
}

TEST_CASE("stop of several loops: the limit aborts what is left on each", "[stop]") {
  const bool own_control = GENERATE(false, true);
  ae::LibevLoop control;
  const auto service = own_control
                           ? std::make_unique<Service>(control, Stop::Settings{.limit = 50ms})
                           : std::make_unique<Service>(Stop::Settings{.limit = 50ms});
  const std::vector<RawSocket> clients = service->clients();
  const int before = service->taken;
  for (std::size_t i = 0; i < kLoops; ++i) clients[i].send("wait\n");
  service->await_taken(before + static_cast<int>(kLoops));
  service->stop.request();
  if (own_control) {
    control.run();
    REQUIRE(service->stop.phase() == Stop::Phase::kEnded);
    service->loops.stop();
  }
  service->loops.run();
  REQUIRE(service->stop.left().connections == kLoops);
  REQUIRE(service->stop.status() == 1);
  for (std::size_t i = 0; i < clients.size(); ++i)
    REQUIRE(end_of(clients[i]) == (i < kLoops ? ECONNRESET : 0));
}

TEST_CASE("stop of several loops: one that has ended is not waited for", "[stop]") {
  Service service({.limit = ae::Duration::max()});
  const std::vector<RawSocket> clients = service.clients();
  service.loops.poster(kLoops - 1).post([loop = service.loops.loop(kLoops - 1)] { loop->stop(); });
  while (service.loops.poster(kLoops - 1).open()) std::this_thread::sleep_for(1ms);
  service.stop.request();
  service.loops.run();
  REQUIRE(service.stop.status() == 0);
}

TEST_CASE("stop of several loops: one that ends while it drains is not waited for", "[stop]") {
  ae::LibevLoop control;
  Service service(control, {.limit = ae::Duration::max()});
  const std::vector<RawSocket> clients = service.clients();
  const int before = service.taken;
  for (const RawSocket& each : clients) each.send("wait\n");
  service.await_taken(before + static_cast<int>(clients.size()));
  service.stop.request();
  ae::EventLoop& last = *service.loops.loop(kLoops - 1);
  const ae::Poster poster = service.loops.poster(kLoops - 1);
  std::atomic<bool> begun{false};
  while (!begun) {
    control.process_events(ae::kAllEvents | ae::kDontWait);
    poster.post([&] { begun = conn::Stopping::of(last).begun(); });
  }
  poster.post([&] { last.stop(); });
  while (poster.open()) std::this_thread::sleep_for(1ms);
  service.open = true;
  RUN_UNTIL(control, service.stop.phase() == Stop::Phase::kEnded);
  REQUIRE(service.stop.status() == 0);
}

TEST_CASE("stop of several loops: connections on their way to a loop are answered", "[stop]") {
  Service service({.limit = ae::Duration::max()});
  std::atomic<bool> go{false};
  for (std::size_t i = 1; i < kLoops; ++i)
    service.loops.poster(i).post([&] {
      while (!go) std::this_thread::sleep_for(1ms);
    });
  std::vector<RawSocket> clients;
  for (std::size_t i = 0; i < 2 * kLoops; ++i) {
    clients.push_back(RawSocket::connect(service.at));
    clients.back().send("hello\n");
  }
  const auto assigned = [&] {
    std::uint64_t all = 0;
    for (const auto& share : service.group->shares()) all += share.assigned;
    return all;
  };
  while (assigned() < clients.size()) std::this_thread::sleep_for(1ms);
  REQUIRE(service.group->shares()[1].assigned > 0);
  service.stop.request();
  while (!refused(service.at)) std::this_thread::sleep_for(1ms);
  go = true;
  service.loops.run();
  for (const RawSocket& each : clients) {
    REQUIRE(each.receive(6) == "hello\n");
    REQUIRE(each.receive(1).empty());
  }
  REQUIRE(service.stop.status() == 0);
}

TEST_CASE("stop of several loops: its end waits for the function that it calls", "[stop]") {
  ae::LoopGroup loops({.loops = kLoops});
  std::atomic<bool> called{false}, go{false}, returned{false};
  auto stop = std::make_unique<Stop>(loops, Stop::Settings{.signals = {}, .begins = [&] {
                                                             called = true;
                                                             while (!go)
                                                               std::this_thread::sleep_for(1ms);
                                                             returned = true;
                                                           }});
  stop->request();
  while (!called) std::this_thread::sleep_for(1ms);
  std::thread other([&] {
    std::this_thread::sleep_for(20ms);
    go = true;
  });
  stop.reset();
  const bool waited = returned;
  other.join();
  REQUIRE(waited);
  // The group goes on, without a stop.
  std::atomic<bool> begun{true};
  while (begun)
    loops.on_each([&](ae::EventLoop& loop, std::size_t index) {
      if (index == 0) begun = conn::Stopping::of(loop).begun();
    });
}

TEST_CASE("stop: what is asked again while it begins does not abort", "[stop]") {
  // As timeout(1) does; the begin waits for other loops, or as here for the program.
  testing::AnyLoop loop;
  conn::Registry registry = testing::test_registry();
  bool ended = false;
  Stop stop(loop, {.limit = ae::Duration::max(),
                   .signals = {},
                   .begins = [] { std::this_thread::sleep_for(150ms); },
                   .ends = [&] { ended = true; }});
  ConnectionPtr session;
  const auto listener = registry.listen(loop, "tcp://127.0.0.1:0",
                                        [&](ConnectionPtr next) { session = std::move(next); });
  const RawSocket client = RawSocket::connect(listener->endpoints().front());
  RUN_UNTIL(loop, session != nullptr);
  stop.request();
  stop.request();
  RUN_UNTIL(loop, conn::Stopping::of(loop).begun());
  testing::turns(loop, 5);
  REQUIRE(stop.phase() == Stop::Phase::kDraining);
  session.reset();
  RUN_UNTIL(loop, ended);
  REQUIRE(stop.status() == 0);
}

TEST_CASE("stop: a request that is awaited after the stop began ends", "[stop]") {
  testing::AnyLoop loop;
  conn::Registry registry = testing::test_registry();
  ConnectionPtr session;
  const auto listener = registry.listen(loop, "tcp://127.0.0.1:0",
                                        [&](ConnectionPtr next) { session = std::move(next); });
  const RawSocket client = RawSocket::connect(listener->endpoints().front());
  RUN_UNTIL(loop, session != nullptr);
  co::Event never(loop);
  std::errc error{};
  // first() makes all its operations before it starts one.
  const auto begin = [](ae::EventLoop& on, co::Event& then) -> co::Task<> {
    conn::Stopping::of(on).begin(ae::TimePoint::max(), [] {});
    co_await then.wait();
  };
  const auto serve = [&](co::Stream peer) -> co::Task<> {
    const auto got = co_await co::first(begin(loop, never), peer.next_request());
    error = std::get<1>(got).error;
  };
  co::Scope scope;
  scope.spawn(serve(std::move(session)));
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(error == std::errc::operation_canceled);
}

TEST_CASE("stop: all hooks are told though some throw; the first exception leaves run()",
          "[stop]") {
  testing::AnyLoop loop;
  bool ended = false;
  Stop stop(loop, {.signals = {}, .ends = [&] { ended = true; }});
  const bool late = GENERATE(false, true);  // whether the stop has begun when they are added
  const conn::StopHook early(loop, [] {});
  if (late) {
    stop.request();
    RUN_UNTIL(loop, ended);
  }
  int told = 0;
  const auto count = [&] { ++told; };
  const auto fail = [&] { throw ++told; };
  const conn::StopHook a(loop, count), b(loop, fail), c(loop, count), d(loop, fail), e(loop, count);
  if (!late) stop.request();
  int thrown = 0;
  for (int i = 0; i < 10 && thrown == 0; ++i) {
    try {
      testing::turns(loop, 1);
    } catch (const int what) {
      thrown = what;
    }
  }
  CHECK(told == 5);
  CHECK(thrown == 2);  // the last one is told first
  RUN_UNTIL(loop, ended);
  testing::turns(loop, 3);
  CHECK(told == 5);
}

TEST_CASE("stop: a closed connection that lingers is reset", "[stop]") {
  testing::AnyLoop loop;
  conn::Registry registry = testing::test_registry();
  bool ended = false;
  Stop stop(loop, {.limit = 1ms, .signals = {}, .ends = [&] { ended = true; }});
  ConnectionPtr session;
  auto listener = registry.listen(loop, "tcp://127.0.0.1:0?send-buffer=64k&linger=1h",
                                  [&](ConnectionPtr next) { session = std::move(next); });
  const RawSocket client = RawSocket::connect(listener->endpoints().front());
  RUN_UNTIL(loop, session != nullptr);
  const std::string much(1 << 20, 'x');
  while (session->write(much.data(), much.size()) > 0) continue;
  session.reset();
  stop.add(std::move(listener));
  stop.request();
  RUN_UNTIL(loop, ended && conn::ConnectionSet::of(loop).served() == 0);
  REQUIRE(stop.left().connections == 1);
  REQUIRE(stop.left().bytes > 0);
  int end = -1;
  while (end == -1) end = end_of(client);
  REQUIRE(end == ECONNRESET);
}

TEST_CASE("stop of several loops: it and its handlers may go first", "[stop]") {
  conn::Registry registry = testing::test_registry();
  ae::LoopGroup loops({.loops = kLoops});
  std::atomic<int> alive{0};
  struct Counted {
    explicit Counted(std::atomic<int>& count) : alive(count) { ++alive; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { --alive; }
    std::atomic<int>& alive;
  };
  {
    Stop stop(loops);
    stop.add(conn::listen(registry, loops, "tcp://127.0.0.1:0",
                          stop.keep([&](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
                            return [counted = std::make_shared<Counted>(alive)](ConnectionPtr) {};
                          })));
    REQUIRE(alive == kLoops);
    REQUIRE_THROWS_AS(stop.keep([](ConnectionPtr) {}), ae::LoopError);
  }
  REQUIRE(alive == 0);
}

TEST_CASE("stop: its output that had not left this machine is counted", "[stop]") {
  testing::AnyLoop loop;
  conn::Registry registry = testing::test_registry();
  bool ended = false;
  Stop stop(loop, {.limit = 1ms, .signals = {}, .ends = [&] { ended = true; }});
  ConnectionPtr session;
  auto listener = registry.listen(loop, "tcp://127.0.0.1:0?send-buffer=64k",
                                  [&](ConnectionPtr next) { session = std::move(next); });
  const RawSocket client = RawSocket::connect(listener->endpoints().front());
  RUN_UNTIL(loop, session != nullptr);
  const std::string much(1 << 20, 'x');
  std::size_t accepted = 0;
  for (ssize_t size = 1; size > 0;) {  // until the peer, which does not read, has no room
    size = session->write(much.data(), much.size());
    if (size > 0) accepted += static_cast<std::size_t>(size);
  }
  stop.add(std::move(listener));
  stop.request();
  RUN_UNTIL(loop, ended);
  REQUIRE(stop.left().connections == 1);
  REQUIRE(stop.left().bytes > 0);
  REQUIRE(stop.left().bytes <= accepted);
  REQUIRE(session->state() == conn::State::kError);
  char byte;
  REQUIRE(session->read(&byte, 1) == -1);
  REQUIRE(errno == ECANCELED);
  REQUIRE(session->last_error() == "the server was stopped before the connection ended");
}

TEST_CASE("stop: a child of fork() that drops it changes nothing", "[stop]") {
  const testing::SignalMask signals;
  testing::AnyLoop loop;
  bool ended = false;
  auto stop = std::make_unique<Stop>(
      loop, Stop::Settings{.limit = ae::Duration::max(), .ends = [&] { ended = true; }});
  testing::turns(loop, 2);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    stop.reset();
    loop.after_fork();
    testing::turns(loop, 2);
    _exit(0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  REQUIRE(status == 0);
  REQUIRE(pthread_kill(pthread_self(), SIGTERM) == 0);
  RUN_UNTIL(loop, ended);
}
