// SPDX-License-Identifier: BSD-3-Clause
// kv-server on a LoopGroup of several threads: concurrent clients of different loops, and the
// guarantees between them.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ae/loop_group.h"
#include "conn/transports/transports.h"
#include "examples/kv_server/resp_reply.h"
#include "examples/kv_server/server.h"
#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"
#include "tests/support/kv_recorded.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using kv_kit::bulk;
using kv_kit::request;
using testing::RawSocket;
using namespace std::chrono_literals;

namespace {

std::int64_t fixed_clock() { return 1'700'000'000'000'000; }

class LoopsServer {
 public:
  explicit LoopsServer(std::size_t count, kv::Config config = {},
                       const std::string& url = "tcp://127.0.0.1:0",
                       kv::Server::Clock clock = nullptr)
      : together(std::move(config), count, clock), group({.loops = count, .name = "kv"}) {
    together.request_shutdown = [this] {
      group.stop();
      shut_down = true;
    };
    stop = std::make_unique<conn::Stop>(group, conn::Stop::Settings{.signals = {}});
    server = std::make_unique<kv::ServerOnLoops>(group, registry, together, *stop);
    server->on_loop_left([this] { ++left; });
    server->listen(url);
    address = conn::Endpoint::parse(server->urls().front());
  }
  ~LoopsServer() { close(); }
  /// Stops listening and closes all clients.
  void close() {
    server.reset();
    stop.reset();
  }

  const conn::Registry registry = testing::test_registry();
  kv::Together together;
  std::atomic<bool> shut_down{false};
  std::atomic<std::size_t> left{0};
  ae::LoopGroup group;
  std::unique_ptr<conn::Stop> stop;
  std::unique_ptr<kv::ServerOnLoops> server;
  conn::Endpoint address;
};

/// Blocking client; false and empty replies after the server has closed the connection.
class Client {
 public:
  explicit Client(const conn::Endpoint& to) : socket_(RawSocket::connect(to)) {}

  void send(const std::string& bytes) const { socket_.send(bytes); }
  /// The bytes of one reply.
  std::string receive() {
    std::string bytes;
    kv::ReplyParser parser;
    while (take(parser, bytes)) {
      char buffer[16384];
      const ssize_t n = ::recv(socket_.fd(), buffer, sizeof buffer, 0);
      if (n <= 0) return {};
      unread_.append(buffer, static_cast<std::size_t>(n));
    }
    reply = std::move(parser.reply());
    return bytes;
  }
  std::string call(const std::vector<std::string>& arguments) {
    try {
      send(request(arguments));
    } catch (const std::system_error&) {
      return {};
    }
    return receive();
  }
  bool ended() const { return socket_.receive(1).empty(); }
  kv::Reply reply;  ///< the last one

 private:
  /// True while the reply needs more bytes.
  bool take(kv::ReplyParser& parser, std::string& bytes) {
    std::size_t used = 0;
    const auto result = parser.next(unread_, used);
    bytes += unread_.substr(0, used);
    unread_.erase(0, used);
    return result == kv::ReplyParser::Result::kNeedMore;
  }
  RawSocket socket_;
  std::string unread_;
};

std::string key(int number) { return "key:" + std::to_string(number); }

/// The loop that serves the client, from CLIENT INFO.
std::string loop_of(Client& client) {
  const std::string info = client.call({"CLIENT", "INFO"});
  const std::size_t at = info.find(" loop=");
  return at == std::string::npos ? info
                                 : info.substr(at + 6, info.find_first_of(" \n", at + 6) - at - 6);
}

/// Catch2's assertions are not thread-safe: other threads record their first failure here.
class Complaints {
 public:
  void expect(bool right, const std::string& what) {
    if (right) return;
    const std::lock_guard lock(mutex_);
    if (first_.empty()) first_ = what;
  }
  std::string first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  mutable std::mutex mutex_;
  std::string first_;
};

/// The loops that have served a client.
class Loops {
 public:
  void note(Client& client) {
    const std::string loop = loop_of(client);
    const std::lock_guard lock(mutex_);
    seen_.insert(loop);
  }
  std::set<std::string> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  mutable std::mutex mutex_;
  std::set<std::string> seen_;
};
const std::set<std::string> kAllThree{"0", "1", "2"};

/// A number in CLIENT ID's reply.
std::string id_of(Client& client) {
  client.call({"CLIENT", "ID"});
  return std::to_string(client.reply.integer);
}

/// Those that several threads can use, that reach a listener elsewhere, and whose ports serve
/// groups.
std::vector<testing::Transport> far_transports() {
  std::vector<testing::Transport> all = testing::transports();
  std::erase_if(
      all, [](const auto& each) { return !each.threads || !each.reaches_far || !each.groups; });
  return all;
}

}  // namespace

TEST_CASE("kv loops: replies are those of one loop, byte for byte", "[kv][loops]") {
  LoopsServer server(3, {}, "tcp://127.0.0.1:0", fixed_clock);
  // Each connection goes to the next loop, so all three do everything.
  Loops loops;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(std::make_unique<Client>(server.address));
  for (const auto& client : clients) {
    REQUIRE(client->call({"FLUSHALL"}) == "+OK\r\n");
    REQUIRE(client->call({"CONFIG", "SET", "maxmemory", "0"}) == "+OK\r\n");
    Client fresh(server.address);
    loops.note(fresh);
    for (const kv_kit::Exchange& exchange : kv_kit::recorded()) {
      INFO(exchange.command);
      fresh.send(exchange.request);
      const std::string reply = fresh.receive();
      REQUIRE_FALSE(reply.empty());
      if (!exchange.reply.empty()) REQUIRE(reply == exchange.reply);
    }
  }
  CHECK(loops.seen() == kAllThree);
}

TEST_CASE("kv loops: clients of several loops at once, and every promise holds", "[kv][loops]") {
  LoopsServer server(3);
  Complaints complaints;
  Loops loops;
  std::atomic<bool> over{false};
  constexpr int kRounds = 150;
  Client on_first(server.address), on_second(server.address), on_third(server.address);
  const auto work = [&](const std::function<void(Client&, int)>& step) {
    return [&complaints, &loops, &server, step] {
      try {
        Client client(server.address);
        loops.note(client);
        for (int round = 0; round < kRounds; ++round) step(client, round);
      } catch (const std::exception& error) {
        complaints.expect(false, error.what());
      }
    };
  };
  std::vector<std::function<void()>> jobs;
  // Sums must be exact.
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(work([&](Client& client, int) {
      client.call({"INCR", "sum"});
      complaints.expect(client.reply.type == kv::Reply::Type::kInteger, "INCR");
      client.call({"INCRBY", "sum:two", "2"});
    }));
  }
  // The keys stored by one MSET are seen together.
  jobs.push_back(work([&](Client& client, int round) {
    std::vector<std::string> all = {"MSET"};
    for (int i = 0; i < 10; ++i) {
      all.push_back("together:" + std::to_string(i));
      all.push_back(std::to_string(round));
    }
    complaints.expect(client.call(all) == "+OK\r\n", "MSET");
  }));
  for (int i = 0; i < 2; ++i) {
    jobs.push_back(work([&](Client& client, int) {
      std::vector<std::string> all = {"MGET"};
      for (int k = 9; k >= 0; --k) all.push_back("together:" + std::to_string(k));
      client.call(all);
      for (const kv::Reply& each : client.reply.elements)
        complaints.expect(each.text == client.reply.elements.front().text, "MGET saw half an MSET");
    }));
  }
  jobs.push_back(work([&](Client& client, int round) {  // tables grow and shrink meanwhile
    std::vector<std::string> all = {round % 2 == 0 ? "MSET" : "DEL"};
    for (int i = 0; i < 100; ++i) {
      all.push_back(key(i));
      if (round % 2 == 0) all.emplace_back("v");
    }
    client.call(all);
  }));
  // Commands that ask all loops.
  for (int i = 0; i < 2; ++i) {
    jobs.push_back(work([&, i](Client& client, int round) {
      const std::string value = std::to_string(1000 + 2 * round + i);
      complaints.expect(client.call({"CONFIG", "SET", "timeout", value}) == "+OK\r\n",
                        "CONFIG SET");
      client.call({"CONFIG", "GET", "timeout"});
      complaints.expect(client.reply.elements.size() == 2, "CONFIG GET");
      complaints.expect(client.call({"INFO"}).find("\r\nloops:3\r\n") != std::string::npos, "INFO");
    }));
    jobs.push_back(work([&](Client& client, int) {
      const std::string list = client.call({"CLIENT", "LIST"});
      complaints.expect(list.find(" loop=0\n") != std::string::npos &&
                            list.find(" loop=2\n") != std::string::npos,
                        "CLIENT LIST");
      complaints.expect(client.call({"CLIENT", "INFO"}).find(" loop=") != std::string::npos,
                        "CLIENT INFO");
    }));
  }
  jobs.push_back(work([&](Client& client, int) {
    Client victim(server.address);
    victim.call({"CLIENT", "ID"});
    const std::string id = std::to_string(victim.reply.integer);
    complaints.expect(client.call({"CLIENT", "KILL", "ID", id}) == ":1\r\n", "CLIENT KILL");
    complaints.expect(victim.ended(), "a client that was killed");
  }));

  std::vector<std::thread> threads;
  for (const auto& job : jobs) threads.emplace_back(job);
  for (std::thread& thread : threads) thread.join();
  CHECK(complaints.first() == "");
  CHECK(loops.seen() == kAllThree);
  Client last(server.address);
  CHECK(last.call({"GET", "sum"}) == bulk(std::to_string(3 * kRounds)));
  CHECK(last.call({"GET", "sum:two"}) == bulk(std::to_string(6 * kRounds)));
  // All loops have the same configuration, whichever CONFIG SET was last.
  std::set<std::int64_t> timeouts;
  for (std::size_t i = 0; i < 3; ++i) {
    Client client(server.address);
    client.call({"CONFIG", "GET", "timeout"});
    timeouts.insert(std::stoll(client.reply.elements.at(1).text));
  }
  CHECK(timeouts.size() == 1);
}

TEST_CASE("kv loops: large values are sent by one loop while others change and free them",
          "[kv][loops]") {
  LoopsServer server(3);
  Complaints complaints;
  Loops loops;
  constexpr int kRounds = 200, kKeys = 3;
  constexpr std::size_t kSize = 100'000;
  const auto work = [&](const std::function<void(Client&, int)>& step) {
    return std::thread([&complaints, &loops, &server, step] {
      try {
        Client client(server.address);
        loops.note(client);
        for (int round = 0; round < kRounds; ++round) step(client, round);
      } catch (const std::exception& error) {
        complaints.expect(false, error.what());
      }
    });
  };
  std::vector<std::thread> threads;
  for (char letter = 'a'; letter < 'd'; ++letter) {
    threads.push_back(work([&, letter](Client& client, int round) {
      const std::string name = key(round % kKeys);
      client.send(request({"SET", name, std::string(kSize, letter)}) +
                  request({"STRLEN", key((round + 1) % kKeys)}) +
                  request({round % 5 == 0 ? "DEL" : "STRLEN", name}));
      complaints.expect(client.receive() == "+OK\r\n", "SET");
      for (int i = 0; i < 2; ++i) complaints.expect(client.receive().starts_with(":"), "integer");
    }));
    threads.push_back(work([&](Client& client, int round) {
      for (int i = 0; i < 4; ++i) client.send(request({"GET", key((round + i) % kKeys)}));
      for (int i = 0; i < 4; ++i) {
        const std::string reply = client.receive();
        const std::string& value = client.reply.text;
        complaints.expect(
            reply == "$-1\r\n" ||
                (value.size() == kSize && value.find_first_not_of(value[0]) == std::string::npos),
            "a value of two");
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(complaints.first().empty());
  CHECK(loops.seen() == kAllThree);
}

TEST_CASE("kv loops: FLUSHALL against writers leaves all of an MSET or nothing", "[kv][loops]") {
  LoopsServer server(3);
  Complaints complaints;
  Loops loops;
  const auto run = [&](const std::function<void(Client&, int)>& step) {
    return std::thread([&, step] {
      try {
        Client client(server.address);
        loops.note(client);
        for (int round = 0; round < 300; ++round) step(client, round);
      } catch (const std::exception& error) {
        complaints.expect(false, error.what());
      }
    });
  };
  std::vector<std::thread> threads;
  threads.push_back(run([](Client& client, int) { client.call({"FLUSHALL"}); }));
  threads.push_back(run([](Client& client, int) {
    client.call({"MSET", "a", "1", "b", "1", "c", "1", "d", "1", "e", "1"});
  }));
  threads.push_back(run([&](Client& client, int) {
    client.call({"EXISTS", "a", "b", "c", "d", "e"});
    complaints.expect(client.reply.integer == 0 || client.reply.integer == 5, "a part of them");
  }));
  for (std::thread& thread : threads) thread.join();
  CHECK(complaints.first() == "");
  CHECK(loops.seen() == kAllThree);
}

TEST_CASE("kv loops: maxclients holds for all loops together", "[kv][loops][limits]") {
  kv::Config config;
  config.maxclients = 5;
  LoopsServer server(3, config);
  std::vector<std::unique_ptr<Client>> inside;
  for (int i = 0; i < 5; ++i) {
    inside.push_back(std::make_unique<Client>(server.address));
    REQUIRE(inside.back()->call({"PING"}) == "+PONG\r\n");
  }
  for (int i = 0; i < 6; ++i) {
    Client late(server.address);
    REQUIRE(late.receive() == "-ERR max number of clients reached\r\n");
  }
  REQUIRE(inside[0]->call({"INFO"}).find("\r\nrejected_connections:6\r\n") != std::string::npos);
  inside.pop_back();
  // The end of the other connection may be detected a moment later.
  for (;;) {
    Client next(server.address);
    if (next.call({"PING"}) == "+PONG\r\n") break;
  }
}

TEST_CASE("kv loops: every transport is served on every loop", "[kv][loops][rdma-device]") {
  const auto transport = GENERATE(from_range(far_transports()));
  DYNAMIC_SECTION(transport.name) {
    testing::Site site(transport);
    kv::Together together({}, 2);
    ae::LoopGroup group({.loops = 2});
    conn::Stop stop(group, {.signals = {}});
    kv::ServerOnLoops server(group, site.registry, together, stop);
    server.listen(site.fresh().to_string());
    const conn::Endpoint at = conn::Endpoint::parse(server.urls().front());
    std::set<std::string> loops;
    std::vector<conn::ConnectionPtr> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(site.connect(at));
      conn::Connection& client = *clients.back();
      RUN_UNTIL(site.loop, client.state() == conn::State::kConnected);
      testing::send(site.loop, client, request({"INCR", "n"}) + request({"CLIENT", "INFO"}));
      testing::Collector reply(client);
      RUN_UNTIL(site.loop, reply.bytes.ends_with("\n\r\n"));
      REQUIRE(reply.bytes.starts_with(":" + std::to_string(i + 1) + "\r\n"));
      const std::size_t where = reply.bytes.find(" loop=");
      REQUIRE(where != std::string::npos);
      loops.insert(reply.bytes.substr(where, 7));
    }
    CHECK(loops == std::set<std::string>{" loop=0", " loop=1"});
  }
}

TEST_CASE("kv loops: SHUTDOWN and stop() end all clients, whatever they are in", "[kv][loops]") {
  const bool by_command = GENERATE(true, false);
  CAPTURE(by_command);
  auto server = std::make_unique<LoopsServer>(3);
  std::vector<std::thread> busy;
  std::atomic<int> begun{0};
  for (int i = 0; i < 6; ++i) {
    busy.emplace_back([&, i] {
      try {
        Client client(server->address);
        const std::vector<std::vector<std::string>> all = {
            {"CLIENT", "LIST"}, {"INFO"},     {"MSET", "a", "1", "b", "2"},
            {"DBSIZE"},         {"FLUSHALL"}, {"CONFIG", "SET", "timeout", "9"}};
        for (bool first = true; !client.call(all[static_cast<std::size_t>(i)]).empty();) {
          begun += std::exchange(first, false) ? 1 : 0;
        }
      } catch (const std::system_error&) {  // a reset
      }
    });
  }
  while (begun < 6) std::this_thread::yield();
  if (by_command) {
    Client last(server->address);
    last.send(request({"SHUTDOWN", "NOSAVE"}));
    CHECK(last.receive().empty());
    server->group.run();
    CHECK(server->shut_down);
  } else {
    server->group.stop();
    server->group.run();
  }
  for (std::thread& thread : busy) thread.join();
  CHECK(server->left == 3);
  server.reset();
}

TEST_CASE("kv loops: the listeners may end before the loops, and clients with them",
          "[kv][loops][lifetime]") {
  LoopsServer server(2);
  Client client(server.address);
  REQUIRE(client.call({"SET", "a", "1"}) == "+OK\r\n");
  server.close();
  CHECK(client.ended());
  CHECK(server.left == 2);
}

TEST_CASE("kv loops: CLIENT MOVE takes a client to another loop", "[kv][loops][move]") {
  LoopsServer server(3);
  Client admin(server.address), client(server.address);
  REQUIRE(loop_of(client) == "1");
  const std::string id = id_of(client);
  for (const std::string to : {"2", "2", "0", "1"}) {
    REQUIRE(admin.call({"CLIENT", "MOVE", id, to}) == "+OK\r\n");
    // Whoever was told OK finds it there.
    const std::string list = admin.call({"CLIENT", "LIST"});
    const std::size_t line = list.find("id=" + id + " ");
    REQUIRE(line != std::string::npos);
    REQUIRE(list.substr(list.find(" loop=", line), 8) == " loop=" + to + "\n");
    REQUIRE(loop_of(client) == to);
    REQUIRE(client.call({"INCR", "n"}).starts_with(":"));
  }
  CHECK(client.call({"GET", "n"}) == bulk("4"));
  // The listener counts it where it is: the next one goes to the loop with the fewest.
  REQUIRE(admin.call({"CLIENT", "MOVE", id, "0"}) == "+OK\r\n");
  REQUIRE(loop_of(client) == "0");
  Client next(server.address), last(server.address);
  CHECK(std::set<std::string>{loop_of(next), loop_of(last)} == std::set<std::string>{"1", "2"});

  CHECK(admin.call({"CLIENT", "MOVE", id}).starts_with("-ERR wrong number of arguments"));
  CHECK(admin.call({"CLIENT", "MOVE", "x", "1"}) == "-ERR client-id should be greater than 0\r\n");
  CHECK(admin.call({"CLIENT", "MOVE", id, "x"}) ==
        "-ERR value is not an integer or out of range\r\n");
  CHECK(admin.call({"CLIENT", "MOVE", id, "3"}) ==
        "-ERR there is no loop 3: the loops are 0 to 2\r\n");
  CHECK(admin.call({"CLIENT", "MOVE", id, "-1"}) ==
        "-ERR there is no loop -1: the loops are 0 to 2\r\n");
  CHECK(admin.call({"CLIENT", "MOVE", "99999", "1"}) == "-ERR No such client\r\n");
  CHECK(admin.call({"CLIENT", "MOVE", id_of(admin), "1"}) ==
        "-ERR a client cannot move itself: let another client ask\r\n");
  CHECK(loop_of(client) == "0");
  CHECK(admin.call({"CLIENT", "KILL", "ID", id}) == ":1\r\n");
  CHECK(client.ended());
}

TEST_CASE("kv loops: a client that pipelines is moved back and forth, and no reply is lost",
          "[kv][loops][move][rdma-device]") {
  const auto transport = GENERATE(from_range(far_transports()));
  DYNAMIC_SECTION(transport.name) {
    testing::Site site(transport);
    kv::Together together({}, 3);
    ae::LoopGroup group({.loops = 3});
    conn::Stop stop(group, {.signals = {}});
    kv::ServerOnLoops server(group, site.registry, together, stop);
    server.listen(site.fresh().to_string());
    const conn::Endpoint at = conn::Endpoint::parse(server.urls().front());
    const conn::ConnectionPtr admin = site.connect(at), client = site.connect(at);
    RUN_UNTIL(site.loop, admin->state() == conn::State::kConnected &&
                             client->state() == conn::State::kConnected);
    testing::Collector told(*admin), replies(*client);
    testing::send(site.loop, *client, request({"CLIENT", "ID"}));
    RUN_UNTIL(site.loop, replies.bytes.ends_with("\r\n"));
    const std::string id = replies.bytes.substr(1, replies.bytes.size() - 3);
    replies.bytes.clear();
    const bool moves = site.carrier.capabilities().rebind;
    constexpr int kMoves = 100;
    std::string unsent, expected;
    int asked = 0, answered = 0, value = 0;
    std::size_t piece = 0;
    while (answered < kMoves) {
      // Pieces of any length, so that the client is moved with a part of a request, too.
      while (unsent.size() < 4000 && expected.size() < replies.bytes.size() + 20'000) {
        unsent += request({"INCR", "n"}) + request({"ECHO", std::string(100, 'e')});
        expected += ":" + std::to_string(++value) + "\r\n" + bulk(std::string(100, 'e'));
      }
      piece = piece % 997 + 31;
      const ssize_t n = client->write(unsent.data(), std::min(unsent.size(), piece));
      if (n > 0) unsent.erase(0, static_cast<std::size_t>(n));
      if (asked == answered)
        testing::send(site.loop, *admin,
                      request({"CLIENT", "MOVE", id, std::to_string(asked++ % 3)}));
      testing::turns(site.loop, 1);
      if (told.bytes.ends_with("\r\n")) {
        if (moves) REQUIRE(told.bytes == "+OK\r\n");
        if (!moves && told.bytes != "+OK\r\n")  // OK: it was there already
          REQUIRE(told.bytes.ends_with("connection cannot move\r\n"));
        told.bytes.clear();
        ++answered;
      }
      REQUIRE_FALSE(replies.over());
    }
    testing::send(site.loop, *client, unsent);
    RUN_UNTIL(site.loop, replies.bytes.size() >= expected.size());
    CHECK(replies.bytes == expected);
  }
}

TEST_CASE("kv loops: large requests and values come along, or the client stays",
          "[kv][loops][move]") {
  LoopsServer server(2);
  Client admin(server.address), client(server.address);
  const std::string id = id_of(client);
  const std::string value(1'000'000, 'v');
  const std::string set = request({"SET", "big", value});
  client.send(set.substr(0, 300'000));
  REQUIRE(admin.call({"CLIENT", "MOVE", id, "0"}) == "+OK\r\n");
  client.send(set.substr(300'000));
  REQUIRE(client.receive() == "+OK\r\n");
  REQUIRE(loop_of(client) == "0");
  // Values that wait for a peer that does not read.
  constexpr int kValues = 30;
  for (int i = 0; i < kValues; ++i) client.send(request({"GET", "big"}));
  const ae::TimePoint limit = std::chrono::steady_clock::now() + testing::patience();
  for (std::string line; line.find(" oll=0 ") != std::string::npos || line.empty();) {
    const std::string list = admin.call({"CLIENT", "LIST"});
    line = list.substr(list.find("id=" + id + " "));
    line.erase(line.find('\n'));
    REQUIRE(std::chrono::steady_clock::now() < limit);
  }
  const std::string answer = admin.call({"CLIENT", "MOVE", id, "1"});
  if (answer != "+OK\r\n")
    CHECK(answer == "-ERR client " + id + " waits for the end of a reply: try again\r\n");
  for (int i = 0; i < kValues; ++i) REQUIRE(client.receive() == bulk(value));
  while (admin.call({"CLIENT", "MOVE", id, "1"}) != "+OK\r\n") {
    REQUIRE(std::chrono::steady_clock::now() < limit);
    std::this_thread::yield();
  }
  REQUIRE(loop_of(client) == "1");
  REQUIRE(client.call({"GET", "big"}) == bulk(value));
}

TEST_CASE("kv loops: a client is moved by another one of its loop while both have requests waiting",
          "[kv][loops][move]") {
  LoopsServer server(2);
  Client admin(server.address), other(server.address), client(server.address);
  REQUIRE(loop_of(admin) == "0");
  REQUIRE(loop_of(client) == "0");
  const std::string id = id_of(client);
  // More than a loop executes for one client before it goes on with the others.
  constexpr int kRequests = 3000;
  std::string many;
  for (int i = 0; i < kRequests; ++i) many += request({"PING"});
  const auto pongs = [](Client& from) {
    for (int i = 0; i < kRequests; ++i)
      if (from.receive() != "+PONG\r\n") return false;
    return true;
  };
  for (int round = 0; round < 20; ++round) {
    client.send(many);
    admin.send(many + request({"CLIENT", "MOVE", id, "1"}) + many);
    REQUIRE(pongs(admin));
    REQUIRE(admin.receive() == "+OK\r\n");
    REQUIRE(pongs(admin));
    REQUIRE(pongs(client));
    REQUIRE(loop_of(client) == "1");
    REQUIRE(other.call({"CLIENT", "MOVE", id, "0"}) == "+OK\r\n");
    REQUIRE(loop_of(client) == "0");
  }
}
