// SPDX-License-Identifier: BSD-3-Clause
// The C++ examples of the pages about threads, porting and lifetimes, unchanged: compiled and run.
// Each block of a page must be found in this file, except for spaces and line ends. Other pages
// quote programs and sources that other tests run.

#include <ev.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "adapters/descriptor.h"
#include "ae/loop_group.h"
#include "conn/co.h"
#include "conn/listener_group.h"
#include "conn/move.h"
#include "conn/transports/transports.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using namespace std::chrono_literals;

namespace {

const std::filesystem::path kTree =
    std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();

std::string without_spaces(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isspace(c) != 0; });
  return text;
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The blocks between ```cpp and ``` of a page.
std::vector<std::string> examples(const std::string& page, const std::string& language = "cpp") {
  std::istringstream lines(contents(kTree / "docs" / page));
  std::vector<std::string> all;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "```" + language) {
      inside = true;
      all.emplace_back();
    } else if (line == "```") {
      inside = false;
    } else if (inside) {
      all.back() += line + "\n";
    }
  }
  return all;
}

/// Greets its clients, and owns its loop's connections.
class Worker {
 public:
  explicit Worker(std::size_t index) : index_(index) {}
  conn::AcceptHandler accept_handler() {
    return [this](conn::ConnectionPtr next) {
      const std::string greeting = std::to_string(index_);
      (void)next->write(greeting.data(), greeting.size());
      open_.push_back(std::move(next));
    };
  }
  void take(conn::ConnectionPtr next) { open_.push_back(std::move(next)); }
  std::size_t open() const noexcept { return open_.size(); }

 private:
  std::size_t index_;
  std::vector<conn::ConnectionPtr> open_;
};

/// The byte that a client of `to` is greeted with.
std::string greeting_of(const conn::Endpoint& to) {
  conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  const conn::ConnectionPtr client = registry.require(to.scheme).create(loop);
  if (!client->connect_blocking(to, testing::patience())) return client->last_error();
  std::string byte(1, '\0');
  return client->sync_read(byte.data(), 1, testing::patience()) == 1 ? byte : client->last_error();
}

// ---- coroutines.md ------------------------------------------------------------------------------
namespace co = conn::co;

co::Task<> either(ae::EventLoop& loop, co::Stream peer, std::size_t& read) {
  std::array<char, 16> buffer;
  const auto which = co_await co::first(peer.read(buffer), co::sleep(loop, 30s));
  if (which.index() == 1) co_return;
  const co::Result got = std::get<0>(which);
  read = got.size;
}

co::Task<> lines(co::Stream peer) {
  std::array<char, 1024> line;
  while (co_await peer.next_request(60s)) {
    const co::Result got = co_await peer.read_line(line, 10s);
    if (!got || !co_await peer.write({line.data(), got.size})) co_return;
  }
}

co::Task<> echo(co::Stream peer) {
  std::array<char, 64> buffer;
  while (const co::Result got = co_await peer.read(buffer)) {
    if (!co_await peer.write({buffer.data(), got.size})) co_return;
  }
}

std::size_t length_of(const conn::View& head) {
  return static_cast<std::size_t>(head.first().front() - '0');
}

co::Task<> parse(co::Stream peer, std::string& seen) {
  const auto handle = [&](std::string_view message) { seen += message; };
  while (const co::Peeked head = co_await peer.peek(4, 10s)) {
    const std::size_t size = length_of(head);
    const co::Peeked whole = co_await peer.peek(4 + size, 10s);
    if (!whole) co_return;  // incomplete message
    handle(whole.first().substr(4, size));
    peer.consume(4 + size);
  }
}

co::Task<> work(co::Queue<std::string>& jobs, co::WaitGroup::Member, std::string& done) {
  while (const std::optional<std::string> job = co_await jobs.pop()) done += *job;
}

co::Task<> run(ae::EventLoop& loop, co::Scope& workers, std::string& done) {
  co::Queue<std::string> jobs(loop, 16);
  co::WaitGroup group(loop);
  for (int i = 0; i < 4; ++i) workers.spawn(work(jobs, group.join(), done));
  for (const char* job : {"a", "b", "c"})
    if (!co_await jobs.push(job, 10s)) co_return;  // all workers are busy
  jobs.close();                                    // remaining jobs are still popped
  co_await group.wait();
}

co::Task<> both(co::Stream peer, std::string request, std::string& answer) {
  std::array<char, 16> buffer;
  const auto [sent, got] = co_await co::when_all(peer.write(request), peer.read(buffer, 30s));
  if (!sent || !got) co_return;
  answer.assign(buffer.data(), got.size);
}

co::Task<> get(co::Pool& pool, std::string request, std::string& answer) {
  co::Pool::Lease db = co_await pool.acquire(1s);
  if (!db) {
    answer = db.failure().text;
    co_return;
  }
  std::array<char, 1024> line;
  if (!co_await db->write(request)) co_return;
  const co::Result got = co_await db->read_line(line, 1s);
  if (!got) co_return;
  answer.assign(line.data(), got.size);
  db.give_back();
}

co::Pool::Settings authenticated() {
  co::Pool::Settings settings;
  settings.prepare = [](co::Stream& peer) -> co::Task<bool> {
    std::array<char, 64> line;
    const co::Result sent = co_await peer.write("AUTH secret\r\n");
    const co::Result got = co_await peer.read_line(line);
    co_return sent&& got&& std::string_view(line.data(), got.size) == "+OK";
  };
  return settings;
}

co::Task<> serve_password(co::Stream peer) {
  std::array<char, 64> line;
  while (const co::Result got = co_await peer.read_line(line)) {
    const bool login = std::string_view(line.data(), got.size) == "AUTH secret";
    const co::Result sent = co_await peer.write(login ? "+OK\r\n" : "+1\r\n");
    if (!sent) co_return;
  }
}

}  // namespace

TEST_CASE("docs: the examples of the pages are those that run here", "[docs]") {
  const std::string here = without_spaces(contents(__FILE__));
  for (const std::string page : {"threads.md", "porting.md", "lifetime.md"}) {
    const std::vector<std::string> found = examples(page);
    CAPTURE(page);
    REQUIRE_FALSE(found.empty());
    for (const std::string& each : found) {
      INFO(each);
      CHECK(here.find(without_spaces(each)) != std::string::npos);
    }
  }
}

TEST_CASE("docs: threads.md, a connection moves", "[docs]") {
  const auto one = testing::make_loop(), other = testing::make_loop();
  ae::LoopList loops({one.get(), other.get()});
  std::array workers{Worker(0), Worker(1)};
  conn::Registry registry = conn::all_transports();
  const conn::ListenerPtr listener = registry.require("tcp").listen(
      *one, conn::Endpoint::parse("tcp://127.0.0.1:0"), workers[0].accept_handler());
  conn::ConnectionPtr client = registry.require("tcp").create(*one);
  REQUIRE(client->connect_blocking(listener->endpoints().front(), testing::patience()));
  const std::size_t i = 1;
  std::string logged;
  const auto log = [&](const char* text) { logged = text; };
  // On the thread of the connection's loop, but not inside one of its own handlers:
  const bool moved = conn::move(client, loops, i, [&](conn::ConnectionPtr here) {
    workers[i].take(std::move(here));  // on the thread of loop i
  });
  if (!moved) log(std::strerror(errno));  // it stays where it is
  CHECK(logged == "");
  RUN_UNTIL(*other, workers[1].open() == 1);
}

// Its server is compiled and run by tests/clients/readme.sh.
TEST_CASE("docs: coroutines.md, its server, first() and its parser", "[docs][co]") {
  const std::string here =
      without_spaces(contents(__FILE__) + contents(kTree / "docs" / "echo_server_co.cc"));
  const std::vector<std::string> found = examples("coroutines.md");
  REQUIRE(found.size() == 9);
  for (const std::string& each : found) {
    INFO(each);
    CHECK(here.find(without_spaces(each)) != std::string::npos);
  }
  testing::Pair one({.name = "unix"}), other({.name = "unix"});
  std::size_t read = 0;
  std::string seen;
  co::Scope scope;
  scope.spawn(either(one.loop, std::move(one.server), read));
  REQUIRE(one.client->write("abc", 3) == 3);
  RUN_UNTIL(one.loop, read == 3);
  scope.spawn(parse(std::move(other.server), seen));
  REQUIRE(other.client->write("2...ab0...3...cd", 16) == 16);
  RUN_UNTIL(other.loop, seen == "ab");
  std::string done;
  co::Scope workers;
  scope.spawn(run(other.loop, workers, done));
  RUN_UNTIL(other.loop, workers.empty());
  REQUIRE(done == "abc");
  REQUIRE(other.client->write("e", 1) == 1);
  RUN_UNTIL(other.loop, seen == "abcde");
  other.client.reset();
  RUN_UNTIL(other.loop, scope.empty());
  testing::Pair third({.name = "unix"});
  scope.spawn(lines(std::move(third.server)));
  testing::send(third.loop, *third.client, "f\n");
  REQUIRE(testing::receive(third.loop, *third.client, 1) == "f");
  conn::Stopping::of(third.loop).begin(ae::TimePoint::max(), [] {});
  RUN_UNTIL(third.loop, scope.empty());
}

TEST_CASE("docs: coroutines.md, both directions at once, and a pool of connections", "[docs][co]") {
  testing::Pair pair({.name = "unix"});
  std::string answer;
  co::Scope scope;
  scope.spawn(both(std::move(pair.server), "request", answer));
  REQUIRE(pair.client->write("answer", 6) == 6);
  RUN_UNTIL(pair.loop, answer == "answer");
  const conn::ListenerPtr listener = pair.registry.listen(
      pair.loop, "tcp://127.0.0.1:0",
      [&](conn::ConnectionPtr peer) { scope.spawn(serve_password(std::move(peer))); });
  co::Pool pool(pair.registry, pair.loop, listener->endpoints().front(), authenticated());
  co::Scope client;
  client.spawn(get(pool, "GET\r\n", answer));
  RUN_UNTIL(pair.loop, client.empty());
  REQUIRE(answer == "+1");
  REQUIRE(pool.available() == 1);
}

TEST_CASE("docs: coroutines.md, sessions on several loops", "[docs][co][group]") {
  const conn::Registry registry = conn::all_transports();
  const std::string url = "tcp://127.0.0.1:0";
  ae::LoopGroup loops({.loops = 2});
  ae::LibevLoop here;
  const auto visit = [&](const conn::Endpoint& at) {
    conn::ConnectionPtr client = registry.require("tcp").create(here);
    REQUIRE(client->connect_blocking(at, testing::patience()));
    REQUIRE(client->sync_write("hello", 5, testing::patience()) == 5);
    std::string got(5, '\0');
    REQUIRE(client->sync_read(got.data(), 5, testing::patience()) == 5);
    CHECK(got == "hello");
    return client;
  };
  std::vector<conn::ConnectionPtr> clients;
  {
    const auto listener =
        conn::listen(registry, loops, url, [](ae::EventLoop&, std::size_t) -> conn::AcceptHandler {
          return [sessions = std::make_shared<co::Scope>()](conn::ConnectionPtr peer) {
            sessions->spawn(echo(std::move(peer)));
          };
        });
    for (int i = 0; i < 4; ++i) clients.push_back(visit(listener->endpoints().front()));
    CHECK(listener->shares()[0].open == 2);
    CHECK(listener->shares()[1].open == 2);
  }
  // Destroying the listener ends scopes and thereby sessions.
  for (const conn::ConnectionPtr& each : clients) {
    char byte;
    CHECK(each->sync_read(&byte, 1, testing::patience()) == 0);
  }
}

// The conformance suite runs over it.
TEST_CASE("docs: add-a-transport.md has all of the transport local, in at most 250 lines",
          "[docs]") {
  const auto support = kTree / "tests" / "support";
  const std::string sources =
      contents(support / "local_transport.h") + contents(support / "local_transport.cc");
  std::istringstream lines(sources);
  int code = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string bare = without_spaces(line);
    if (!bare.empty() && !bare.starts_with("//")) ++code;
  }
  CHECK(code <= 250);
  std::string rest = without_spaces(sources);
  for (const std::string& each : examples("add-a-transport.md")) {
    INFO(each);
    const std::string block = without_spaces(each);
    const std::size_t at = rest.find(block);
    REQUIRE(at != std::string::npos);
    rest.erase(at, block.size());
  }
  CHECK(rest.find('{') == std::string::npos);  // only the comments at the top are left
  CHECK(rest.find(';') == std::string::npos);
}

// tests/clients/c_interface.sh compiles and runs them.
// Compiled and run by tests/clients/examples.sh.
TEST_CASE("docs: rpc.md shows three files of examples/, whole", "[docs]") {
  const std::vector<std::string> found = examples("rpc.md");
  const std::array<std::string, 3> names{"rpc.h", "rpc_server.cc", "rpc_client.cc"};
  REQUIRE(found.size() == names.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::string file = contents(kTree / "examples" / names[i]);
    CHECK(found[i] == file.substr(file.find('\n') + 1));  // without the line of the licence
  }
}

TEST_CASE("docs: the C of its page stands in the programs", "[docs]") {
  std::string programs;
  for (const std::string name : {"echo_server.c", "echo_client.c", "epoll_server.c"})
    programs += without_spaces(contents(kTree / "examples" / "c" / name));
  const std::vector<std::string> found = examples("c.md", "c");
  REQUIRE(found.size() == 6);
  for (const std::string& each : found) {
    INFO(each);
    CHECK(programs.find(without_spaces(each)) != std::string::npos);
  }
}

// tests/clients/c_interface.sh compiles and runs it.
TEST_CASE("docs: the C of c-threads.md stands in its program", "[docs]") {
  std::string program = without_spaces(contents(kTree / "examples" / "c" / "threaded_server.c"));
  const std::vector<std::string> found = examples("c-threads.md", "c");
  REQUIRE(found.size() == 13);
  for (const std::string& each : found) {
    INFO(each);
    CHECK(program.find(without_spaces(each)) != std::string::npos);
  }
}

// tests/adapters/loops.sh runs them, but the one of descriptors, which is here.
TEST_CASE("docs: the C++ of adapters.md stands in the programs of its tests", "[docs]") {
  std::string programs;
  for (const std::string name : {"recipes.h", "asio_streams.cc"})
    programs += without_spaces(contents(kTree / "tests" / "adapters" / name));
  programs += without_spaces(contents(__FILE__));
  const std::vector<std::string> found = examples("adapters.md");
  REQUIRE(found.size() == 9);
  for (const std::string& each : found) {
    INFO(each);
    CHECK(programs.find(without_spaces(each)) != std::string::npos);
  }
}

namespace {

void hand_over(conn::ConnectionPtr connection, std::function<void(int)> serve) {
  const int fd = adapters::to_descriptor(std::move(connection), [](const conn::Failure& why) {
    if (why) std::fprintf(stderr, "the connection was cut: %s\n", why.text.c_str());
  });
  std::thread([fd, serve = std::move(serve)] {
    serve(fd);  // with read(2) and write(2), which block; MSG_NOSIGNAL of send(2) avoids SIGPIPE
    ::close(fd);
  }).detach();
}

}  // namespace

TEST_CASE("docs: adapters.md, a connection as a descriptor", "[docs][descriptor]") {
  testing::Pair pair(testing::transports().front());
  if (!pair.transport.threads || testing::simulated()) return;
  hand_over(std::move(pair.client), [](int fd) {
    std::array<char, 8> room;
    const ssize_t n = ::read(fd, room.data(), room.size());
    if (n > 0) (void)::send(fd, room.data(), static_cast<std::size_t>(n), MSG_NOSIGNAL);
  });
  testing::send(pair.loop, *pair.server, "echo");
  testing::Collector seen(*pair.server);
  RUN_UNTIL(pair.loop, seen.over());
  CHECK(seen.bytes == "echo");
}

TEST_CASE("docs: threads.md, a group of loops", "[docs]") {
  conn::Registry registry = conn::all_transports();
  const std::string url = "tcp://127.0.0.1:0";
  std::thread client;
  std::string greeted;
  const auto in_background = [&](const conn::ListenerGroup& listener, ae::LoopGroup& loops) {
    client = std::thread([&greeted, &loops, at = listener.endpoints().front()] {
      for (int i = 0; i < 4; ++i) greeted += greeting_of(at);
      loops.stop();
    });
  };
  {
    ae::LoopGroup loops({.loops = 4});
    const auto listener = conn::listen(
        registry, loops, url, [](ae::EventLoop&, std::size_t index) -> conn::AcceptHandler {
          const auto worker = std::make_shared<Worker>(index);
          return [worker, accept = worker->accept_handler()](conn::ConnectionPtr next) {
            accept(std::move(next));
          };
        });
    in_background(*listener, loops);
    loops.run();
  }
  client.join();
  CHECK(greeted == "0123");
}

TEST_CASE("docs: threads.md and porting.md, the loops of a program's own workers", "[docs]") {
  struct OwnWorker {
    ae::LibevLoop loop;
    std::thread thread;
  };
  conn::Registry registry = conn::all_transports();
  std::vector<OwnWorker> workers(2);
  for (OwnWorker& each : workers) each.thread = std::thread([&each] { each.loop.run(); });
  const conn::MakeAcceptHandler make_handler = [](ae::EventLoop&, std::size_t index) {
    const auto worker = std::make_shared<Worker>(index);
    return [worker, accept = worker->accept_handler()](conn::ConnectionPtr next) {
      accept(std::move(next));
    };
  };
  {
    const std::string url = "tcp://127.0.0.1:0";
    ae::LoopList loops({&workers[0].loop, &workers[1].loop});
    const auto listener = conn::listen(registry, loops, url, make_handler);
    CHECK(greeting_of(listener->endpoints().front()) == "0");
    CHECK(greeting_of(listener->endpoints().front()) == "1");
  }
  for (OwnWorker& each : workers) {
    each.loop.post([&each] { each.loop.stop(); });
    each.thread.join();
  }
}

namespace {

/// The number of sockets passed by the environment, each of which has accepted a client; or -1.
int take_activated() {
  conn::Registry registry = conn::all_transports();
  ae::LibevLoop loop;
  std::size_t accepts = 0;
  const conn::AcceptHandler accepted = [&](conn::ConnectionPtr) {
    ++accepts;
    loop.stop();
  };
  const char* pid = std::getenv("LISTEN_PID");
  const char* count = std::getenv("LISTEN_FDS");
  std::vector<conn::ListenerPtr> listeners;
  if (pid != nullptr && count != nullptr && std::atoi(pid) == getpid()) {
    const conn::ConnectionType& tcp = registry.require("tcp");
    for (int fd = 3; fd < 3 + std::atoi(count); ++fd)
      listeners.push_back(tcp.adopt_listener(loop, fd, accepted));
  }
  for (const conn::ListenerPtr& each : listeners) {
    const auto client = testing::RawSocket::connect(each->endpoints().front());
    loop.run();
  }
  return accepts == listeners.size() ? static_cast<int>(listeners.size()) : -1;
}

}  // namespace

TEST_CASE("docs: porting.md, socket activation", "[docs]") {
  // Here descriptor 3 belongs to other code: the example must do nothing.
  setenv("LISTEN_PID", "1", 1);
  setenv("LISTEN_FDS", "2", 1);
  CHECK(take_activated() == 0);
  // A child process with two listening sockets, as systemd would start it.
  std::array<testing::RawSocket, 2> sockets{testing::RawSocket::listening(),
                                            testing::RawSocket::listening()};
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(60);  // ends it if it hangs
    // Duplicates them first: their numbers may be 3 and 4.
    std::array<int, 2> high{fcntl(sockets[0].fd(), F_DUPFD, 100),
                            fcntl(sockets[1].fd(), F_DUPFD, 100)};
    for (int i = 0; i < 2; ++i)
      if (dup2(high.at(static_cast<std::size_t>(i)), 3 + i) != 3 + i) _exit(101);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    try {
      _exit(take_activated() == 2 ? 0 : 102);
    } catch (const std::exception&) {
      _exit(103);
    }
  }
  unsetenv("LISTEN_PID");
  unsetenv("LISTEN_FDS");
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  INFO("exit " << status);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("docs: porting.md, an ev_loop of the program's own", "[docs]") {
  struct ev_loop* mine = ev_loop_new(0);
  {
    ae::LibevLoop loop(mine);  // mine must outlive it
    bool ran = false;
    loop.add_time_event(ae::Duration::zero(), [&] {
      ran = true;
      return ae::kNoMore;
    });
    ev_run(mine, 0);  // as before
    CHECK(ran);
  }
  ev_loop_destroy(mine);
}

TEST_CASE("docs: porting.md, one descriptor below a loop of the program's own", "[docs]") {
  bool serving = true;
  ae::EpollLoop loop;  // listeners and connections as on any loop
  loop.add_time_event(std::chrono::milliseconds(1), [&] {
    serving = false;
    return ae::kNoMore;
  });

  pollfd ours{loop.descriptor(), POLLIN, 0};
  while (serving) {
    poll(&ours, 1, -1);  // beside the host's own descriptors
    if (ours.revents != 0) loop.dispatch();
  }
  CHECK_FALSE(serving);
}

TEST_CASE("docs: lifetime.md, the order that is right for every program", "[docs]") {
  struct Server {
    Server(ae::EventLoop& loop, conn::Registry& registry)
        : listener(registry.require("tcp").listen(loop, conn::Endpoint::parse("tcp://127.0.0.1:0"),
                                                  [](conn::ConnectionPtr) {})) {}
    conn::ListenerPtr listener;
  };
  conn::Registry registry = conn::all_transports();  // freed last
  ae::LibevLoop loop;
  Server server{loop, registry};  // listeners and connections: freed first
  CHECK(server.listener->endpoints().size() == 1);
}
