// SPDX-License-Identifier: BSD-3-Clause
// kv-server's sessions on three loops on one thread: requests that concern all loops, and a
// session's behaviour while it waits for the other loops.

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"
#include "tests/support/testing.h"

using kv::Session;
using kv_kit::bulk;
using kv_kit::call;
using kv_kit::request;
using kv_kit::take;
using kv_kit::ThreeLoops;
using Progress = Session::Progress;

namespace {

std::int64_t clock_us = 1'700'000'000'000'000;
std::int64_t test_clock() { return clock_us; }

kv::SessionInfo info(int number) {
  return {"tcp", "10.0.0.1:" + std::to_string(number), "10.0.0.9:6379", number};
}

/// One client on each of three loops.
struct Bench : ThreeLoops {
  explicit Bench(kv::Config config = {}) : ThreeLoops(test_clock, std::move(config)) {}
  /// From now on requests between loops are kept in `posts`.
  void put_off() {
    together.post = [this](std::size_t loop, std::function<void()> fn) {
      if (gone.count(loop) != 0) return false;
      posts.push_back(std::move(fn));
      return true;
    };
  }
  void deliver() {
    while (!posts.empty()) {
      const std::function<void()> next = std::move(posts.front());
      posts.pop_front();
      next();
    }
  }
  void tick() {
    for (kv::Server* each : {&first, &server, &third}) each->tick();
  }
  /// The value of `name` in INFO, asked on the first loop.
  std::string counter(const std::string& name) {
    const std::string all = call(a, {"INFO", "everything"});
    const std::size_t at = all.find("\r\n" + name + ":");
    if (at == std::string::npos) return "(none)";
    const std::size_t begin = at + name.size() + 3;
    return all.substr(begin, all.find('\r', begin) - begin);
  }
  std::deque<std::function<void()>> posts;
  std::set<std::size_t> gone;
  Session a{first, info(1)}, b{server, info(2)}, c{third, info(3)};
};

std::string key(int number) { return "key:" + std::to_string(number); }

}  // namespace

TEST_CASE("kv divided: what one loop stores every loop has", "[kv][loops]") {
  Bench bench;
  for (int i = 0; i < 300; ++i) {
    REQUIRE(call(bench.a, {"SET", key(i), std::to_string(i)}) == "+OK\r\n");
  }
  for (int i = 0; i < 300; ++i) {
    REQUIRE(call(bench.b, {"GET", key(i)}) == bulk(std::to_string(i)));
  }
  REQUIRE(call(bench.c, {"DBSIZE"}) == ":300\r\n");
  REQUIRE(call(bench.c, {"MSET", "x", "1", "y", "2", "x", "3"}) == "+OK\r\n");
  REQUIRE(call(bench.c, {"MGET", "x", "y", "none", "x"}) ==
          "*4\r\n$1\r\n3\r\n$1\r\n2\r\n$-1\r\n$1\r\n3\r\n");
  REQUIRE(bench.counter("db0") == "keys=302,expires=0,avg_ttl=0");
  REQUIRE(call(bench.b, {"FLUSHALL", "ASYNC"}) == "+OK\r\n");
  REQUIRE(call(bench.a, {"DBSIZE"}) == ":0\r\n");
  REQUIRE(call(bench.c, {"DBSIZE"}) == ":0\r\n");
  REQUIRE(bench.counter("used_memory_dataset") == "0");
  REQUIRE(bench.first.data_bytes + bench.server.data_bytes + bench.third.data_bytes == 0);
}

TEST_CASE("kv divided: INFO and CLIENT LIST tell of all loops, and which serves whom",
          "[kv][loops]") {
  Bench bench;
  REQUIRE(call(bench.a, {"CONFIG", "GET", "loops"}) == "*2\r\n" + bulk("loops") + bulk("3"));
  REQUIRE(call(bench.a, {"CONFIG", "SET", "loops", "4"}) ==
          "-ERR CONFIG SET failed (possibly related to argument 'loops') - can't set immutable "
          "config\r\n");
  call(bench.b, {"GET", "none"});
  call(bench.c, {"GET"});
  const std::string list = call(bench.b, {"CLIENT", "LIST"});
  for (const int number : {1, 2, 3}) {
    const std::string line = "id=" + std::to_string(number) + " addr=10.0.0.1:";
    CHECK(list.find(line) != std::string::npos);
    CHECK(list.find("transport=tcp loop=" + std::to_string(number - 1) + "\n") !=
          std::string::npos);
  }
  REQUIRE(list.find("id=1 ") < list.find("id=2 "));
  REQUIRE(list.find("id=2 ") < list.find("id=3 "));
  REQUIRE(call(bench.c, {"CLIENT", "INFO"}).find(" loop=2\n") != std::string::npos);
  REQUIRE(bench.counter("loops") == "3");
  REQUIRE(bench.counter("connected_clients") == "3");
  REQUIRE(bench.counter("connected_clients_tcp") == "3");
  REQUIRE(bench.counter("keyspace_misses") == "1");
  REQUIRE(bench.counter("total_error_replies") == "2");
  REQUIRE(bench.counter("cmdstat_get") == "calls=1,rejected_calls=1,failed_calls=0");
  REQUIRE(bench.counter("loop2") == "connected_clients=1,commands_processed=1");
  kv_kit::OneLoop one(test_clock);
  kv::Session alone(one.server, info(1));
  REQUIRE(call(alone, {"CONFIG", "GET", "loops"}) == "*2\r\n" + bulk("loops") + bulk("1"));
  REQUIRE(call(alone, {"CLIENT", "LIST"}).find("transport=tcp\n") != std::string::npos);
  REQUIRE(call(alone, {"INFO"}).find("loops:1\r\n") != std::string::npos);
}

TEST_CASE("kv divided: INFO adds what transports count, but not what they have once for all",
          "[kv][loops]") {
  Bench bench;
  for (kv::Server* each : {&bench.first, &bench.server, &bench.third}) {
    each->transports = [] {
      return std::vector<conn::SchemeStatistics>{
          {"tls", {{"accepted", 2}, {"sessions", 5}, {"certificates_end", 7}}}};
    };
  }
  REQUIRE(call(bench.a, {"INFO"})
              .find("# Transport_tls\r\naccepted:6\r\nsessions:5\r\ncertificates_end:7\r\n") !=
          std::string::npos);
}

TEST_CASE("kv divided: CONFIG SET holds on every loop, or on none", "[kv][loops]") {
  Bench bench;
  REQUIRE(call(bench.a, {"CONFIG", "SET", "timeout", "x"}).starts_with("-ERR"));
  REQUIRE(bench.first.config.timeout_seconds == 0);
  REQUIRE(call(bench.a, {"CONFIG", "SET", "timeout", "7"}) == "+OK\r\n");
  REQUIRE(call(bench.b, {"CONFIG", "SET", "requirepass", "secret"}) == "+OK\r\n");
  for (const kv::Server* each : {&bench.first, &bench.server, &bench.third}) {
    REQUIRE(each->config.timeout_seconds == 7);
    REQUIRE(each->config.requirepass == "secret");
  }
  Session late(bench.third, info(4));
  REQUIRE(call(late, {"GET", "a"}).starts_with("-NOAUTH"));
  REQUIRE(call(bench.b, {"CONFIG", "SET", "requirepass", ""}) == "+OK\r\n");
  REQUIRE(call(late, {"GET", "a"}) == "$-1\r\n");
  // Idle clients are closed by their own loop.
  clock_us += 8'000'000;
  bench.tick();
  REQUIRE(bench.a.killed());
  REQUIRE(bench.b.killed());
}

TEST_CASE("kv divided: CLIENT KILL ends a client of any loop", "[kv][loops]") {
  Bench bench;
  REQUIRE(call(bench.a, {"CLIENT", "KILL", "ID", "9"}) == ":0\r\n");
  REQUIRE(call(bench.a, {"CLIENT", "KILL", "ID", "3"}) == ":1\r\n");
  REQUIRE(bench.c.killed());
  REQUIRE(call(bench.a, {"CLIENT", "KILL", "ID", "1"}) == ":0\r\n");
  REQUIRE_FALSE(bench.a.killed());
}

TEST_CASE("kv divided: maxmemory is of all shards and all clients together", "[kv][loops]") {
  kv::Config config;
  config.maxmemory = 600'000;
  Bench bench(config);
  const std::string oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
  int stored = 0;
  std::string reply;
  while ((reply = call(stored % 2 == 0 ? bench.a : bench.b,
                       {"SET", key(stored), std::string(1000, 'x')})) == "+OK\r\n") {
    bench.first.publish_memory();
    bench.server.publish_memory();
    REQUIRE(++stored < 1000);
  }
  REQUIRE(reply == oom);
  REQUIRE(stored > 300);
  bench.tick();
  for (Session* each : {&bench.a, &bench.b, &bench.c}) {
    REQUIRE(call(*each, {"MSET", "a", "1", "b", "2"}) == oom);
    REQUIRE(call(*each, {"GET", key(0)}) == bulk(std::string(1000, 'x')));
  }
  REQUIRE(std::stoull(bench.counter("used_memory")) > 600'000);
  REQUIRE(bench.counter("rejected_commands") == "4");
  for (int i = 0; i < 200; ++i) call(bench.c, {"DEL", key(i)});
  bench.tick();
  REQUIRE(call(bench.a, {"SET", "again", "x"}) == "+OK\r\n");
}

TEST_CASE("kv divided: each loop has its part of maxmemory-clients", "[kv][loops][limits]") {
  kv::Config config;
  config.clients_memory_limit = 6 << 20;
  Bench bench(config);
  std::vector<std::unique_ptr<Session>> sessions;
  const auto add = [&](kv::Server& server, std::size_t bytes) {
    sessions.push_back(std::make_unique<Session>(server, info(9)));
    sessions.back()->feed("*2\r\n$3\r\nGET\r\n$100000000\r\n" + std::string(bytes, 'x'));
    sessions.back()->execute();
    server.limit_clients_memory();
    return sessions.back().get();
  };
  const Session* large = add(bench.first, 900'000);
  const Session* small = add(bench.first, 1000);
  const Session* other = add(bench.server, 900'000);
  while (!large->killed()) {
    REQUIRE(bench.first.buffer_bytes <= (2 << 20));
    add(bench.first, 40'000);
  }
  REQUIRE_FALSE(small->killed());
  REQUIRE_FALSE(other->killed());
  REQUIRE(bench.first.buffer_bytes <= (2 << 20));
  REQUIRE(bench.counter("evicted_clients") == "1");
}

// --- while other loops are asked -----------------------------------------------------------------

TEST_CASE("kv divided: a session that asks others waits, and replies stay in their order",
          "[kv][loops]") {
  Bench bench;
  bench.put_off();
  std::vector<const kv::Session*> ready;
  bench.first.session_ready = [&](kv::Session& session) { ready.push_back(&session); };
  bench.a.feed(request({"SET", "a", "1"}) + request({"INFO", "keyspace"}) + request({"GET", "a"}) +
               request({"CONFIG", "SET", "timeout", "9"}) + request({"PING"}));
  REQUIRE(bench.a.execute() == Progress::kWaits);
  REQUIRE(take(bench.a) == "+OK\r\n");
  REQUIRE(bench.a.execute() == Progress::kWaits);  // no command runs meanwhile
  REQUIRE(call(bench.b, {"GET", "a"}) == "$1\r\n1\r\n");
  bench.deliver();
  REQUIRE(ready.size() == 1);
  REQUIRE(bench.a.execute() == Progress::kWaits);
  REQUIRE(take(bench.a) ==
          bulk("# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n") + "$1\r\n1\r\n");
  bench.deliver();
  REQUIRE(bench.third.config.timeout_seconds == 9);
  REQUIRE(bench.a.execute() == Progress::kIdle);
  REQUIRE(take(bench.a) == "+OK\r\n+PONG\r\n");
  REQUIRE(bench.first.statistics.commands_processed == 5);
}

TEST_CASE("kv divided: two that ask each other at once both get their answer", "[kv][loops]") {
  Bench bench;
  bench.put_off();
  bench.a.feed(request({"CONFIG", "SET", "timeout", "1"}));
  bench.b.feed(request({"CONFIG", "SET", "timeout", "2"}));
  REQUIRE(bench.a.execute() == Progress::kWaits);
  REQUIRE(bench.b.execute() == Progress::kWaits);
  std::reverse(bench.posts.begin(), bench.posts.end());
  bench.deliver();
  REQUIRE(take(bench.a) == "+OK\r\n");
  REQUIRE(take(bench.b) == "+OK\r\n");
  for (const kv::Server* each : {&bench.first, &bench.server, &bench.third}) {
    REQUIRE(each->config.timeout_seconds == 2);
  }
}

TEST_CASE("kv divided: who ends while it waits is not answered, and a loop that left has no say",
          "[kv][loops][lifetime]") {
  Bench bench;
  bench.put_off();
  {
    Session gone(bench.first, info(4));
    gone.feed(request({"CLIENT", "LIST"}));
    REQUIRE(gone.execute() == Progress::kWaits);
  }
  bench.deliver();
  Session killed(bench.first, info(5));
  killed.feed(request({"INFO"}));
  REQUIRE(killed.execute() == Progress::kWaits);
  killed.kill();
  killed.drop_buffers();
  bench.deliver();
  REQUIRE(killed.pending_output().empty());
  REQUIRE(killed.execute() == Progress::kDone);
  // A loop that ends before it is asked, and one that ends between question and answer.
  bench.gone = {2};
  bench.a.feed(request({"CLIENT", "LIST"}));
  REQUIRE(bench.a.execute() == Progress::kWaits);
  {
    kv::Together other({}, 3, test_clock);
    auto asking = std::make_unique<kv::Server>(other, 0);
    auto asked = std::make_unique<kv::Server>(other, 1);
    Session session(*asking, info(1));
    std::vector<std::function<void()>> kept;
    other.post = [&](std::size_t, std::function<void()> fn) {
      kept.push_back(std::move(fn));
      return true;
    };
    session.feed(request({"INFO", "loops"}));
    REQUIRE(session.execute() == Progress::kWaits);
    asked.reset();
    for (std::size_t i = 0; i < kept.size(); ++i) std::exchange(kept[i], nullptr)();
    REQUIRE(take(session).find("loop1:connected_clients=0,commands_processed=0\r\n") !=
            std::string::npos);
  }
  bench.deliver();
  const std::string list = take(bench.a);
  REQUIRE(list.find(" loop=1\n") != std::string::npos);
  REQUIRE(list.find(" loop=2\n") == std::string::npos);
}

TEST_CASE("kv divided: a session takes along what it holds, and its memory is counted there",
          "[kv][loops][move]") {
  Bench bench;
  const auto memory = [&] { return bench.first.buffer_bytes + bench.third.buffer_bytes; };
  const std::string large = request({"SET", "large", std::string(100'000, 'l')});
  auto traveller = std::make_unique<Session>(bench.first, info(4));
  traveller->feed(request({"ECHO", "unsent"}) + large.substr(0, 50'000));
  (void)traveller->execute();
  const std::size_t before = bench.first.buffer_bytes, all = memory();
  REQUIRE(traveller->can_leave());
  traveller->leave();
  bench.first.sessions.erase(traveller->id());
  CHECK(bench.first.buffer_bytes + 50'000 < before);
  CHECK(memory() + 50'000 < all);
  traveller->join(bench.third);
  bench.third.sessions.emplace(traveller->id(), traveller.get());
  CHECK(memory() == all);
  traveller->feed(large.substr(50'000));
  (void)traveller->execute();
  CHECK(take(*traveller) == bulk("unsent") + "+OK\r\n");
  CHECK(call(bench.b, {"STRLEN", "large"}) == ":100000\r\n");
  CHECK(call(*traveller, {"CLIENT", "INFO"}).find(" loop=2\n") != std::string::npos);
  traveller.reset();
  CHECK(bench.third.sessions.size() == 1);
  // One that ends between two loops, with a part of a large request.
  traveller = std::make_unique<Session>(bench.first, info(5));
  traveller->feed(large.substr(0, 50'000));
  (void)traveller->execute();
  traveller->leave();
  bench.first.sessions.erase(traveller->id());
  traveller.reset();
  CHECK(bench.first.sessions.size() == 1);
  // One that waits for other loops stays: its reply is written by its loop.
  bench.put_off();
  bench.a.feed(request({"CLIENT", "LIST"}));
  (void)bench.a.execute();
  CHECK_FALSE(bench.a.can_leave());
  bench.deliver();
  CHECK(bench.a.can_leave());
}

TEST_CASE("kv divided: CLIENT MOVE asks the client's loop, and says what that says",
          "[kv][loops][move]") {
  Bench bench;
  const std::string id = std::to_string(bench.b.id());
  std::vector<std::size_t> asked;
  std::string answer;
  bench.server.move_session = [&](Session& session, std::size_t to) {
    REQUIRE(&session == &bench.b);
    asked.push_back(to);
    return answer;
  };
  CHECK(call(bench.a, {"CLIENT", "MOVE", id, "2"}) == "+OK\r\n");
  CHECK(call(bench.a, {"CLIENT", "MOVE", id, "1"}) == "+OK\r\n");  // it is there
  answer = "ERR not now";
  CHECK(call(bench.a, {"client", "move", id, "0"}) == "-ERR not now\r\n");
  CHECK(asked == std::vector<std::size_t>{2, 0});
  bench.b.kill();
  CHECK(call(bench.a, {"CLIENT", "MOVE", id, "0"}) == "-ERR No such client\r\n");
}
