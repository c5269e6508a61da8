// SPDX-License-Identifier: BSD-3-Clause
// What is peculiar to shm: options, facts, refusals, hot and cold connections. The conformance
// suite has what every transport does.

#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <thread>

#include "ae/epoll_loop.h"
#include "ae/loop_group.h"
#include "conn/capacity.h"
#include "conn/listener_group.h"
#include "conn/shm/loop_state.h"
#include "conn/shm/type.h"
#include "conn/transports/transports.h"
#include "tests/shm/shm_kit.h"
#include "tests/support/allocations.h"
#include "tests/support/forked.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using testing::Contains;
using testing::Pair;
using testing::Site;
using namespace std::chrono_literals;

namespace {

const testing::Transport kShm{.name = "shm", .lingers = false};

std::uint64_t count(const Site& site, ae::EventLoop& loop, const std::string& name) {
  for (const auto& [each, value] : site.type.statistics(loop))
    if (each == name) return value;
  FAIL("nothing counts " << name);
  return 0;
}

std::string refusal(const Site& site, const std::string& options) {
  try {
    site.type.check(conn::Endpoint::parse("shm:///run/x?" + options));
  } catch (const conn::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("shm: options that are wrong are one sentence", "[shm]") {
  const Site site(kShm);
  CHECK_THAT(refusal(site, "ring=100000"), Contains("power of two"));
  CHECK_THAT(refusal(site, "ring=32k"), Contains("64k"));
  CHECK_THAT(refusal(site, "nodelay=yes"), Contains("shm has no option nodelay"));
  CHECK_THAT(refusal(site, "mode=9"), Contains("octal"));
  CHECK(refusal(site, "ring=1m&max-ring=1m&backlog=7&mode=700&spin=auto").empty());
  CHECK_THROWS_AS(site.type.check(conn::Endpoint::parse("shm:/")), conn::Error);
  CHECK(conn::carries_path("tls+shm"));
  CHECK_FALSE(conn::carries_path("tcp"));
}

TEST_CASE("shm: options of the type apply to the socket, too", "[shm]") {
  Site site(kShm);
  site.type.configure(conn::Options::parse("mode=600&ring=128k"));
  conn::ListenerPtr listener = site.type.listen(site.loop, site.fresh(), [](ConnectionPtr) {});
  const conn::Endpoint at = testing::address_of(*listener);
  CHECK(at.scheme == "shm");
  CHECK((std::filesystem::status(at.path).permissions() & std::filesystem::perms::all) ==
        std::filesystem::perms(0600));
  ConnectionPtr client = site.connect(at);
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  for (const auto& [name, value] : client->info())
    if (name == "ring-out") CHECK(value == "131072");
}

TEST_CASE("shm: facts of a connection", "[shm]") {
  Pair pair(kShm);
  for (const ConnectionPtr* each : {&pair.client, &pair.server}) {
    CHECK((*each)->path() == "shm " + testing::address_of(*pair.listener).path);
    CHECK((*each)->fd() == -1);
    CHECK((*each)->is_local() == true);
    std::string facts;
    for (const auto& [name, value] : (*each)->info()) facts += name + "=" + value + " ";
    CHECK_THAT(facts, Contains("peer-pid=" + std::to_string(getpid())));
    CHECK_THAT(facts, Contains("ring-in=262144 ring-out=262144 unsent=0 unread=0 room=262144"));
  }
}

TEST_CASE("shm: capacity() tells of descriptors and of mappings", "[shm]") {
  const Site site(kShm);
  const auto limits = site.type.capacity(conn::Endpoint::parse("shm:///run/x"), 1000);
  REQUIRE(limits.size() == 2);
  CHECK(limits[0].needed >= 1000);
  CHECK_THAT(limits[1].name, Contains("max_map_count"));
  CHECK(limits[1].needed == 2000);
  CHECK(limits[1].connections > 0);
}

TEST_CASE("shm: a client beyond max-connections learns why, and when to try again", "[shm]") {
  Site site(kShm);
  conn::Endpoint at = site.fresh();
  at.options.set("max-connections", "1");
  std::vector<ConnectionPtr> accepted;
  const conn::ListenerPtr listener = site.type.listen(
      site.loop, at, [&](ConnectionPtr one) { accepted.push_back(std::move(one)); });
  const ConnectionPtr first = site.connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, accepted.size() == 1);
  const ConnectionPtr second = site.connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, second->state() == conn::State::kError);
  CHECK(second->error_code() == std::errc::connection_refused);
  CHECK_THAT(second->last_error(), Contains("max-connections"));
  CHECK(second->retry_after() == 1s);
}

TEST_CASE("shm: a client hears why it is refused, also before it has sent its hello", "[shm]") {
  Site site(kShm);
  const std::string path = site.folder.path() + "/full";
  const conn::tcp::Fd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const conn::SocketAddress address = conn::tcp::unix_address(path);
  REQUIRE(::bind(listening.get(), address.get(), address.size) == 0);
  REQUIRE(::listen(listening.get(), 4) == 0);
  constexpr int kTimes = 30;
  const std::string full = conn::shm::encode({conn::shm::Answer::kFull, "no place; try in 1 s"});
  std::thread server([&] {
    for (int i = 0; i < kTimes; ++i) {
      const conn::tcp::Fd client(::accept(listening.get(), nullptr, nullptr));
      (void)conn::shm::send_message(client.get(), full);
    }
  });
  std::vector<std::string> errors;
  for (int i = 0; i < kTimes; ++i) {
    const ConnectionPtr client = site.connect(conn::Endpoint::parse("shm://" + path + "?ring=4m"));
    RUN_UNTIL(site.loop, client->state() == conn::State::kError);
    errors.push_back(client->last_error());
  }
  server.join();
  for (const std::string& error : errors) CHECK_THAT(error, Contains("refused: no place"));
}

TEST_CASE("shm: a group's listener says why it refuses", "[shm]") {
  Site site(kShm);
  ae::LoopGroup loops({.loops = 2});
  conn::Endpoint at = site.fresh();
  at.options.set("max-connections", "1");
  const conn::Registry registry = conn::all_transports();
  std::vector<std::vector<ConnectionPtr>> served(2);
  const auto group = conn::listen(
      registry, loops, at, [&](ae::EventLoop&, std::size_t index) -> conn::AcceptHandler {
        return [&served, index](ConnectionPtr each) { served[index].push_back(std::move(each)); };
      });
  const conn::Endpoint to = group->endpoints().front();
  const ConnectionPtr first = site.connect(to);
  RUN_UNTIL(site.loop, first->state() == conn::State::kConnected);
  const ConnectionPtr second = site.connect(to);
  RUN_UNTIL(site.loop, second->state() == conn::State::kError);
  CHECK(second->error_code() == std::errc::connection_refused);
  CHECK_THAT(second->last_error(), Contains("max-connections"));
  loops.on_each([&](ae::EventLoop&, std::size_t index) { served[index].clear(); });
}

TEST_CASE("shm: a listening socket of another process can be adopted", "[shm]") {
  Site site(kShm);
  const std::string path = site.folder.path() + "/given";
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const conn::SocketAddress address = conn::tcp::unix_address(path);
  REQUIRE(::bind(fd, address.get(), address.size) == 0);
  REQUIRE(::listen(fd, 4) == 0);
  testing::EchoServer echo;
  const conn::ListenerPtr listener = site.type.adopt_listener(site.loop, fd, echo.handler());
  const ConnectionPtr client = site.connect(conn::Endpoint::parse("shm://" + path));
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  testing::send(site.loop, *client, "hello");
  CHECK(testing::receive(site.loop, *client, 5) == "hello");
}

TEST_CASE("shm: while both ends spin, nobody rings", "[shm]") {
  Site site(kShm);
  site.type.configure(conn::Options::parse("spin=always"));
  conn::ConnectionType& type = site.type;
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> rung{~std::uint64_t{0}};
  std::atomic<const conn::Endpoint*> at{nullptr};
  std::thread server([&] {
    testing::AnyLoop loop;
    testing::EchoServer echo;
    const conn::ListenerPtr listener = type.listen(loop, site.fresh(), echo.handler());
    const conn::Endpoint address = testing::address_of(*listener);
    at = &address;
    loop.add_time_event(5ms, [] { return ae::Duration(5ms); });  // notices the end
    while (!over) loop.process_events(ae::kFullIteration);
    rung = count(site, loop, "bells_sent");
  });
  while (at.load() == nullptr) std::this_thread::yield();
  const ConnectionPtr client = site.connect(*at.load());
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  int echoes = 0;
  client->set_read_handler([&](Connection& c) {
    if (testing::read_some(c, 100).empty()) return;
    if (++echoes < 200) REQUIRE(c.write("ping", 4) == 4);
  });
  REQUIRE(client->write("ping", 4) == 4);
  RUN_UNTIL(site.loop, echoes == 200);
  over = true;
  server.join();
  CHECK(rung == 0);
  CHECK(count(site, site.loop, "bells_sent") == 0);
}

TEST_CASE("shm: an end that sleeps is rung, once for each sleep", "[shm]") {
  Site site(kShm);
  const testing::EchoThread echo(kShm);
  const ConnectionPtr client = site.connect(echo.address());
  RUN_UNTIL(site.loop, client->state() == conn::State::kConnected);
  // On a busy machine the answers may all be there before this end sleeps: then more are needed.
  std::uint64_t had = 0, echoes = 0;
  while (echoes < 100 || (had == 0 && echoes < 100'000)) {
    testing::send(site.loop, *client, "ping");
    REQUIRE(testing::receive(site.loop, *client, 4) == "ping");
    ++echoes;
    had = count(site, site.loop, "bells_had");
  }
  CHECK(had > 0);
  CHECK(had <= echoes + 1);
}

TEST_CASE("shm: more connections than one iteration looks at are all served", "[shm]") {
  Site site(kShm);
  site.type.configure(conn::Options::parse("ring=64k"));
  testing::EchoServer echo;
  const conn::ListenerPtr listener = site.listen(echo.handler());
  std::vector<ConnectionPtr> clients;
  std::size_t echoes = 0;
  constexpr std::size_t kCount = 150, kRounds = 20;
  for (std::size_t i = 0; i < kCount; ++i) {
    clients.push_back(site.connect(testing::address_of(*listener),
                                   [](Connection& c) { REQUIRE(c.write("ping", 4) == 4); }));
    clients.back()->set_read_handler([&, rounds = std::size_t{0}](Connection& c) mutable {
      if (testing::read_some(c, 100).empty()) return;
      ++echoes;
      if (++rounds < kRounds) REQUIRE(c.write("ping", 4) == 4);
    });
  }
  RUN_UNTIL(site.loop, echoes == kCount * kRounds);
  // Then nothing wakes the loop.
  testing::turns(site.loop, 5);
  testing::IterationCounter iterations(site.loop);
  CHECK(iterations.during(50ms) < 10);
}

TEST_CASE("shm: read-budget ends a read in one iteration, not the stream", "[shm]") {
  Site site(kShm);
  site.type.configure(conn::Options::parse("read-budget=4k"));
  ConnectionPtr server;
  const conn::ListenerPtr listener =
      site.listen([&](ConnectionPtr one) { server = std::move(one); });
  const ConnectionPtr client = site.connect(testing::address_of(*listener));
  RUN_UNTIL(site.loop, server && client->state() == conn::State::kConnected);
  REQUIRE(client->write(std::string(20000, 'x').data(), 20000) == 20000);
  std::size_t most = 0, all = 0;
  server->set_read_handler([&](Connection& c) {
    std::size_t now = 0;
    for (std::string bytes; !(bytes = testing::read_some(c, 3000)).empty(); now += bytes.size()) {
    }
    most = std::max(most, now);
    all += now;
  });
  RUN_UNTIL(site.loop, all == 20000);
  CHECK(most == 4096);
}

TEST_CASE("shm: a server without descriptors refuses a client, and keeps none of its own",
          "[shm]") {
  Site site(kShm);
  std::vector<std::string> refused;
  bool accepted = false;
  const conn::ListenerPtr listener = site.listen([&](ConnectionPtr) { accepted = true; });
  listener->on_refused([&](const conn::Failure& why) { refused.push_back(why.text); });
  testing::RawClient client(testing::address_of(*listener));
  const std::size_t before = testing::count_descriptors();
  testing::turns(site.loop, 5);  // the listener has accepted the socket, and waits for the hello
  REQUIRE(testing::count_descriptors() == before + 1);
  client.greet();
  {
    const testing::NoNewDescriptors none;
    testing::turns(site.loop, 5);
  }
  CHECK(refused.size() == 1);
  CHECK_FALSE(accepted);
  CHECK(testing::open_descriptors_become(before));  // another thread closes the socket
}

TEST_CASE("shm: a child of fork() cannot use its parent's connection, and does it no harm",
          "[shm]") {
  Pair pair(kShm);
  testing::send(pair.loop, *pair.client, "unread");
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char bytes[10];
    const bool none = pair.server->read(bytes, 10) == -1 && pair.client->write("x", 1) == -1 &&
                      pair.client->sync_write("x", 1, 1ms) == -1;
    _exit(none ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(testing::receive(pair.loop, *pair.server, 6) == "unread");
}

TEST_CASE("shm: in a child of fork() handlers of its parent's connections do not run without end",
          "[shm]") {
  Pair pair(kShm);
  std::size_t read = 0, written = 0;
  pair.server->set_read_handler([&](Connection& c) {
    ++read;
    char byte;
    (void)c.read(&byte, 1);
  });
  testing::send(pair.loop, *pair.client, "unread bytes");
  RUN_UNTIL(pair.loop, read == 1);  // the others are known, and wait
  pair.client->set_write_handler([&](Connection& c) {
    ++written;
    (void)c.write("", 0);
  });
  const int status = testing::forked([&] {
    read = written = 0;
    pair.loop.after_fork();
    testing::turns(pair.loop, 20);
    if (read > 2 || written > 2) return 1;
    // A call that blocks says so at once, instead of trying again until its time is over.
    char bytes[10];
    errno = 0;
    if (pair.server->sync_read(bytes, 10, 1h) != -1 || errno != ECANCELED) return 2;
    errno = 0;
    if (pair.client->sync_write("x", 1, 1h) != -1 || errno != ECANCELED) return 3;
    return 0;
  });
  CHECK(status == 0);
  RUN_UNTIL(pair.loop, read == 12);
}

TEST_CASE("shm: while an accept handler runs the loop, few of the next clients are accepted",
          "[shm]") {
  Site site(kShm);
  ae::EpollLoop loop;  // its dispatch() may be called inside a handler
  const auto until = [&](const std::function<bool()>& condition) {
    const auto limit = std::chrono::steady_clock::now() + testing::patience();
    while (!condition() && std::chrono::steady_clock::now() < limit) loop.dispatch();
    REQUIRE(condition());
  };
  constexpr std::size_t kClients = 200, kBatch = 4, kMost = 10;
  conn::Endpoint at = site.fresh();
  at.options = conn::Options::parse("max-connections=10&accept-batch=4&backlog=250");
  std::vector<ConnectionPtr> accepted;
  std::vector<testing::RawSocket> clients;
  std::size_t taken = 0, refused = 0;
  conn::ListenerPtr listener;
  const bool resumes = GENERATE(false, true);  // whether the handler calls resume() meanwhile
  listener = site.type.listen(loop, at, [&](ConnectionPtr one) {
    accepted.push_back(std::move(one));
    if (accepted.size() != 1) return;
    for (std::size_t i = 0; i < kClients; ++i)
      clients.push_back(testing::RawSocket::connect(testing::address_of(*listener)));
    const std::size_t before = testing::count_descriptors();
    for (std::size_t i = 0; i < kClients; ++i) {
      loop.dispatch();
      if (resumes) listener->pause();
      if (resumes) listener->resume();
    }
    taken = testing::count_descriptors() - before;
  });
  listener->on_refused([&](const conn::Failure&) { ++refused; });
  const ConnectionPtr first = site.type.create(loop);
  first->connect(testing::address_of(*listener), [](Connection&) {});
  until([&] { return accepted.size() == 1; });
  CHECK(taken > 0);
  CHECK(taken <= 4 * kBatch);
  // Then each of them gets a place or is refused.
  until([&] { return refused == kClients - (kMost - 1); });
  clients.clear();
  until([&] { return refused == kClients; });  // those with a place have left without their hello
  const ConnectionPtr next = site.type.create(loop);
  next->connect(testing::address_of(*listener), [](Connection&) {});
  until([&] { return accepted.size() == 2 && next->state() == conn::State::kConnected; });
}

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("shm: room for connections is not made for each anew", "[shm][allocation]") {
  testing::AnyLoop loop;
  const conn::shm::ShmType type;
  conn::shm::LoopState state(type, loop);
  const std::size_t before = testing::watch_allocations(false).by_others;
  for (int i = 0; i < 1000; ++i) state.enter();
  CHECK(testing::watch_allocations(false).by_others - before < 20);
}
#endif
