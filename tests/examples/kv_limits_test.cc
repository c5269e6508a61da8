// SPDX-License-Identifier: BSD-3-Clause
// Sessions of clients that exceed limits: each limit of docs/limits.md, its counter, and that other
// clients are not affected.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "examples/kv_server/session.h"
#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"

using kv::Server;
using kv::Session;
using Progress = kv::Session::Progress;
using kv_kit::bulk;
using kv_kit::call;
using kv_kit::request;
using kv_kit::take;

namespace {

std::int64_t clock_us = 1'700'000'000'000'000;
std::int64_t test_clock() { return clock_us; }

kv::SessionInfo info() { return {"tcp", "10.0.0.1:1", "10.0.0.9:6379", 7}; }

/// The value of `name` in INFO.
std::string counter(Session& session, const std::string& name) {
  const std::string all = call(session, {"INFO", "everything"});
  const std::size_t at = all.find("\r\n" + name + ":");
  if (at == std::string::npos) return "(none)";
  const std::size_t begin = at + name.size() + 3;
  return all.substr(begin, all.find('\r', begin) - begin);
}

struct Bench {
  Bench() {
    server.together.log = [this](std::string_view text) { logged += std::string(text) + '\n'; };
  }
  Server server{test_clock};
  std::string logged;
  Session other{server, info()};  // a well-behaved client
};

}  // namespace

TEST_CASE("kv limits: a request of many large arguments ends at client-query-buffer-limit",
          "[kv][hostile][limits]") {
  Bench bench;
  REQUIRE(call(bench.other, {"CONFIG", "SET", "client-query-buffer-limit", "1mb"}) == "+OK\r\n");
  Session greedy(bench.server, info());
  greedy.feed("*1000000\r\n");
  const std::string argument = bulk(std::string(1000, 'x'));
  std::size_t sent = 0;
  while (!greedy.killed()) {
    greedy.feed(argument);
    sent += argument.size();
    greedy.execute();
    REQUIRE(sent < (1 << 20) + 2 * argument.size());
    REQUIRE(bench.server.buffer_bytes < (3 << 20));
  }
  REQUIRE(sent > (1 << 20) - argument.size());
  REQUIRE(counter(bench.other, "client_query_buffer_limit_disconnections") == "1");
  REQUIRE(bench.logged.find("a request of more than 1048576 bytes") != std::string::npos);
  // Smaller requests are served, and several together do not count as one.
  Session fine(bench.server, info());
  REQUIRE(call(fine, {"SET", "k", std::string(1'000'000, 'x')}) == "+OK\r\n");
  for (int i = 0; i < 3; ++i) fine.feed(request({"SET", "k", std::string(600'000, 'x')}));
  fine.execute();
  REQUIRE(take(fine) == "+OK\r\n+OK\r\n+OK\r\n");
  REQUIRE(call(bench.other, {"PING"}) == "+PONG\r\n");
}

TEST_CASE("kv limits: what is parsed of a request counts as the client's memory",
          "[kv][hostile][limits]") {
  Bench bench;
  Session greedy(bench.server, info());
  std::string many = "*1000000\r\n";
  for (int i = 0; i < 500'000; ++i) many += "$0\r\n\r\n";
  greedy.feed(many);
  greedy.execute();
  REQUIRE(greedy.memory() > many.size() + 500'000 * 16);
  REQUIRE(bench.server.buffer_bytes >= greedy.memory());
  const std::size_t before = bench.server.buffer_bytes;
  greedy.kill();
  greedy.drop_buffers();
  REQUIRE(greedy.memory() < before);
}

TEST_CASE("kv limits: one reply that repeats a large value ends at the output limit",
          "[kv][hostile][limits]") {
  Bench bench;
  bench.server.config.client_output_limit = 1 << 20;
  call(bench.other, {"SET", "big", std::string(300'000, 'x')});
  Session greedy(bench.server, info());
  std::vector<std::string> wish(100'000, "big");  // thirty gigabytes
  wish.front() = "MGET";
  greedy.feed(request(wish));
  REQUIRE(greedy.execute() == Progress::kDone);
  REQUIRE(greedy.killed());
  REQUIRE(bench.server.buffer_bytes < (16 << 20));
  REQUIRE(counter(bench.other, "client_output_buffer_limit_disconnections") == "1");
  // As many values as fit, and a single value of any size, are allowed.
  Session fine(bench.server, info());
  REQUIRE(call(fine, {"MGET", "big", "big", "big", "big"}).size() > 1'200'000);
  REQUIRE_FALSE(fine.killed());
  // 0 means no limit.
  bench.server.config.client_output_limit = 0;
  wish.resize(100);
  REQUIRE(call(fine, wish).size() > 29'000'000);
}

TEST_CASE("kv limits: beyond maxmemory-clients those who hold the most are closed",
          "[kv][hostile][limits]") {
  Bench bench;
  REQUIRE(call(bench.other, {"CONFIG", "SET", "maxmemory-clients", "4mb"}) == "+OK\r\n");
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<const Session*> told;
  bench.server.session_killed = [&](Session& session) { told.push_back(&session); };
  for (int i = 0; i < 100; ++i) {
    sessions.push_back(std::make_unique<Session>(bench.server, info()));
    // Each request is longer than the one before; none becomes complete.
    sessions.back()->feed("*2\r\n$3\r\nGET\r\n$10000000\r\n" +
                          std::string(static_cast<std::size_t>(i) * 1000, 'x'));
    sessions.back()->execute();
    bench.server.limit_clients_memory();
    REQUIRE(bench.server.buffer_bytes <= (4 << 20));
  }
  REQUIRE(told.size() > 10);
  REQUIRE(counter(bench.other, "evicted_clients") == std::to_string(told.size()));
  REQUIRE(counter(bench.other, "maxmemory_clients") == std::to_string(4 << 20));
  REQUIRE(bench.logged.find("maxmemory-clients") != std::string::npos);
  for (int i = 0; i < 50; ++i) REQUIRE_FALSE(sessions[static_cast<std::size_t>(i)]->killed());
  REQUIRE(call(bench.other, {"PING"}) == "+PONG\r\n");
  const Session* none = &bench.other;
  REQUIRE(std::find(told.begin(), told.end(), none) == told.end());
}

TEST_CASE("kv limits: a request that comes byte by byte does not keep its client alive",
          "[kv][hostile][limits]") {
  Bench bench;
  bench.server.config.timeout_seconds = 10;
  Session slow(bench.server, info()), large(bench.server, info());
  slow.feed("*2\r\n$4\r\nECHO\r\n$1000\r\n");
  large.feed("*2\r\n$4\r\nECHO\r\n$1000000\r\n");
  for (int second = 0; second < 30; ++second) {
    clock_us += 1'000'000;
    if (!slow.killed()) slow.feed("x");
    large.feed(std::string(5000, 'x'));
    for (Session* session : {&slow, &large}) session->execute();
    REQUIRE(call(bench.other, {"PING"}) == "+PONG\r\n");
    bench.server.tick();
    REQUIRE(slow.killed() == (second >= 10));
  }
  REQUIRE_FALSE(large.killed());  // slow, but making progress
  REQUIRE(counter(bench.other, "timed_out_clients") == "1");
}

TEST_CASE("kv limits: a reply that is taken byte by byte does not keep its client alive",
          "[kv][hostile][limits]") {
  Bench bench;
  bench.server.config.timeout_seconds = 10;
  const std::string value(100'000, 'x');
  Session slow(bench.server, info()), steady(bench.server, info());
  for (Session* session : {&slow, &steady}) {
    session->feed(request({"ECHO", value}));
    session->execute();
  }
  for (int second = 0; second < 30; ++second) {
    clock_us += 1'000'000;
    if (!slow.killed()) slow.consume_output(1);
    steady.consume_output(1500);  // less than counts at once
    for (Session* session : {&slow, &steady}) session->note_sent();
    bench.server.tick();
    REQUIRE(slow.killed() == (second >= 10));
  }
  REQUIRE_FALSE(steady.killed());
}

TEST_CASE("kv limits: a flood of unknown commands with long names costs short replies",
          "[kv][hostile][limits]") {
  Bench bench;
  Session noisy(bench.server, info());
  for (int i = 0; i < 1000; ++i) {
    const std::string reply = call(
        noisy, {std::string(64 << 10, static_cast<char>('a' + i % 26)), std::string(9000, 'x')});
    REQUIRE(reply.starts_with("-ERR unknown command '"));
    REQUIRE(reply.size() < 512);
  }
  REQUIRE(bench.logged.empty());  // a flood must not fill the log
  REQUIRE(counter(bench.other, "rejected_commands") == "1000");
}

TEST_CASE("kv limits: keys of any bytes are stored as they are", "[kv][hostile][limits]") {
  Bench bench;
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::string keys[] = {
      std::string(1, '\0'), std::string(2, '\0'), "\r\n", "$1\r\n", all, ""};
  for (const std::string& key : keys) {
    REQUIRE(call(bench.other, {"SET", key, key + "!"}) == "+OK\r\n");
  }
  for (const std::string& key : keys) {
    REQUIRE(call(bench.other, {"GET", key}) == bulk(key + "!"));
  }
  REQUIRE(call(bench.other, {"DBSIZE"}) == ":6\r\n");
}

TEST_CASE("kv limits: keys chosen to share a bucket share none under a seed that nobody knows",
          "[kv][hostile][limits]") {
  constexpr std::uint64_t kMask = 1023;
  const kv::HashSeed known{1, 2};
  std::vector<std::string> keys;
  for (int i = 0; keys.size() <= kMask; ++i) {
    const std::string key = "key:" + std::to_string(i);
    if ((kv::siphash13(key, known) & kMask) == 0) keys.push_back(key);
  }
  for (int start = 0; start < 10; ++start) {
    const kv::HashSeed seed = kv::HashSeed::random();
    CAPTURE(seed.k0, seed.k1);
    std::vector<int> buckets(kMask + 1);
    for (const std::string& key : keys) ++buckets[kv::siphash13(key, seed) & kMask];
    REQUIRE(*std::max_element(buckets.begin(), buckets.end()) < 16);  // random hashes give 5 or 6
  }
}
