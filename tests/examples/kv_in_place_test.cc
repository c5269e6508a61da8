// SPDX-License-Identifier: BSD-3-Clause
// kv-server's large values: they are received into the memory where they are stored, and sent from
// there while other clients change them.

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "examples/kv_server/server.h"
#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"
#include "tests/support/testing.h"

using kv::Entry;
using kv::Session;
using kv_kit::bulk;
using kv_kit::request;
using kv_kit::take;
using testing::Site;
using namespace std::chrono_literals;

namespace {

std::int64_t fixed_clock() { return 1'700'000'000'000'000; }
kv::SessionInfo info() { return {"tcp", "10.0.0.1:1", "10.0.0.9:6379", 7}; }

/// Bytes whose origin can be recognised, and that look like requests.
std::string text(std::size_t size, unsigned number) {
  std::string out;
  while (out.size() < size) out += "\r\n$5\r\n" + std::to_string(number++) + "*3";
  out.resize(size);
  return out;
}

/// Like the network part: bytes go into the session's buffer first; the rest is passed by
/// reference.
void deliver(Session& session, std::string_view bytes) {
  const std::span<char> room = session.room();
  const std::size_t there = std::min(room.size(), bytes.size());
  std::copy_n(bytes.data(), there, room.data());
  if (there != 0) session.arrived(there);
  const std::string elsewhere(bytes.substr(there));  // gone after this call
  session.show(elsewhere);
  while (session.execute(7) == Session::Progress::kMore) {
  }
}

std::string converse(const std::string& input, const std::function<std::size_t()>& cut, bool feed) {
  kv::Server server(fixed_clock);
  std::string output;
  {
    Session session(server, info());
    for (std::size_t at = 0; at < input.size();) {
      const std::size_t size = std::min(cut(), input.size() - at);
      if (feed) {
        session.feed(std::string_view(input).substr(at, size));
        while (session.execute() == Session::Progress::kMore) {
        }
      } else {
        deliver(session, std::string_view(input).substr(at, size));
      }
      at += size;
      output += take(session);
    }
    session.shrink();
  }
  REQUIRE(server.buffer_bytes == 0);
  return output;
}

struct KvSite : Site {
  explicit KvSite(const testing::Transport& its_transport) : Site(its_transport) {
    network.listen(fresh().to_string());
    address = conn::Endpoint::parse(network.urls().front());
  }
  conn::ConnectionPtr client() {
    conn::ConnectionPtr made = connect(address);
    RUN_UNTIL(loop, made->state() != conn::State::kConnecting);
    INFO(made->last_error());
    REQUIRE(made->state() == conn::State::kConnected);
    return made;
  }
  void expect(conn::Connection& connection, const std::string& requests,
              const std::string& replies) {
    testing::send(loop, connection, requests);
    const std::string got = testing::receive(loop, connection, replies.size());
    const auto differ = std::mismatch(got.begin(), got.end(), replies.begin(), replies.end());
    const auto at = static_cast<std::size_t>(differ.first - got.begin());
    CAPTURE(at, got.substr(at, 20), replies.substr(at, 20));  // not all of it: megabytes
    REQUIRE((got == replies));
  }
  Entry* entry(const std::string& name) {
    const kv::Key key = server.store.key(name);
    return server.store.of(key).find(key);
  }
  kv::Server server;
  kv::NetworkServer network{loop, registry, server};
  conn::Endpoint address;
};

}  // namespace

TEST_CASE("session: large values are what was sent, however they come", "[kv][random]") {
  // Goal: an argument in memory of its own changes no reply. Method: conversations with values
  // around all limits, cut at random, compared with the path for small values (in one piece).
  const auto seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  static constexpr std::size_t kSizes[] = {4095, 4096, 16383, 16384, 40'000, 70'000, 300'000};
  for (int round = 0; round < 40; ++round) {
    std::string input;
    unsigned number = 0;
    const auto value = [&] { return text(kSizes[random() % std::size(kSizes)], number += 1000); };
    for (int i = 0; i < 12; ++i) {
      switch (random() % 12) {
        case 0:
          input += request({"SET", "a", value(), "XX"});
          break;
        case 1:
          input += request({"SET", "b", value(), "GET"});
          break;
        case 2:
          input += request({"SET", "a", value()});
          break;
        case 3:
          input += request({"MSET", "a", value(), "b", value(), "c", value()});
          break;
        case 4:
          input += request({"APPEND", "a", value()});
          break;
        case 5:
          input += request({"APPEND", "b", value()});
          break;
        case 6:
          input += request({"SET", "a", value(), "GET"});
          break;
        case 7:
          input += request({"ECHO", value()});
          break;
        case 8:
          input += request({"SET", "a", value(), "NX"}) + request({"SET", "d", value(), "NX"});
          break;
        case 9:
          input += request({"SET", value(), "a key of many bytes"}) + request({value()});
          break;
        case 10:
          input += request({"GET", "a"}) + request({"DEL", "a"}) + "PING\r\n";
          break;
        default:
          input += request({"SET", "c", value()});
      }
      input += request({"MGET", "a", "b", "c", "d"}) + request({"STRLEN", "a"});
    }
    const std::string whole = converse(
        input, [&] { return input.size(); }, true);
    for (const bool feed : {false, true}) {
      REQUIRE((converse(
                   input, [&] { return 1 + random() % 70'000; }, feed) == whole));
      REQUIRE((converse(
                   input, [&] { return 65536u; }, feed) == whole));
      if (round == 0)
        REQUIRE((converse(
                     input, [&] { return 1 + random() % 300; }, feed) == whole));
    }
  }
}

TEST_CASE("session: a large value that does not end as it should is an error", "[kv][hostile]") {
  kv::Server server(fixed_clock);
  Session session(server, info());
  const std::string value(20'000, 'x');
  const std::string good = request({"SET", "k", value});
  deliver(session, good.substr(0, 10'000));
  deliver(session, good.substr(10'000, good.size() - 2 - 10'000));
  deliver(session, "xx");
  REQUIRE(take(session) == "-ERR Protocol error: expected CR LF after the bulk data\r\n");
  REQUIRE(session.wants_close());
  REQUIRE(server.store.size() == 0);
}

TEST_CASE("session: what is arriving counts, and ends with the session", "[kv][limits]") {
  kv::Server server(fixed_clock);
  {
    Session session(server, info());
    deliver(session, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$400000000\r\n" + std::string(60'000, 'x'));
    REQUIRE(server.buffer_bytes >= 60'000);
    REQUIRE(server.buffer_bytes <= 4 * 60'000);  // not the announced size
    REQUIRE(session.memory() >= 60'000);
    REQUIRE(session.describe().find(" qbuf=600") != std::string::npos);
    server.config.client_query_limit = 100'000;
    deliver(session, std::string(50'000, 'x'));
    REQUIRE(session.killed());
    REQUIRE(server.statistics.query_limit_closed == 1);
  }
  REQUIRE(server.buffer_bytes == 0);
}

TEST_CASE("store: who changes a value that somebody uses makes a new one", "[kv]") {
  kv::Store store;
  const kv::Key key = store.key("k");
  kv::Shard& shard = store.of(key);
  const std::string old(20'000, 'o');
  const auto users = [](Entry* entry) { return entry->users(); };
  Entry* entry = shard.set(nullptr, key, old);
  REQUIRE(users(entry) == 1);
  const std::size_t memory = store.memory();
  const int change = GENERATE(0, 1, 2, 3, 4);
  CAPTURE(change);
  entry->add_user();
  Entry* const used = entry;
  std::string expected;
  switch (change) {
    case 0:
      expected = std::string(20'000, 'n');
      entry = shard.set(entry, key, expected);
      break;
    case 1:
      expected = "n";
      entry = shard.set(entry, key, expected);
      break;
    case 2:
      entry = shard.lengthen(entry, old.size() + 3);
      std::fill_n(entry->value_bytes() + old.size(), 3, 'n');
      expected = old + "nnn";
      break;
    case 3:
      shard.erase(entry);
      entry = nullptr;
      break;
    default: {
      Entry* block = kv::make_entry("k", 30'000);
      expected = std::string(30'000, 'n');
      std::copy_n(expected.data(), expected.size(), block->value_bytes());
      block->value_size = 30'000;
      entry = shard.adopt(entry, key, block);
      REQUIRE(block == used);
      kv::drop_entry(block);
    }
  }
  REQUIRE(users(used) == 1);
  REQUIRE(used->value() == old);
  kv::drop_entry(used);
  REQUIRE(shard.find(key) == entry);
  if (entry != nullptr) {
    REQUIRE(entry->value() == expected);
    shard.erase(entry);
  }
  REQUIRE(store.size() == 0);
  REQUIRE(store.memory() < memory - 20'000);
}

TEST_CASE("kv-server: what is being sent is what it was when it was asked for", "[kv]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const conn::ConnectionPtr client = site.client(), other = site.client();
    const std::string ok = "+OK\r\n", a = text(100'000, 1), b = text(100'000, 9000);
    std::string all, replies;
    const auto add = [&](const std::vector<std::string>& arguments, const std::string& reply) {
      all += request(arguments);
      replies += reply;
    };
    add({"SET", "k", a}, ok);
    add({"GET", "k"}, bulk(a));
    add({"SET", "k", b}, ok);
    add({"MGET", "k", "none", "k"}, "*3\r\n" + bulk(b) + "$-1\r\n" + bulk(b));
    add({"APPEND", "k", "!"}, ":100001\r\n");
    add({"GET", "k"}, bulk(b + "!"));
    add({"SET", "k", "1"}, ok);
    add({"INCR", "k"}, ":2\r\n");
    add({"SET", "k", a}, ok);
    add({"SET", "k", b, "GET"}, bulk(a));
    add({"SET", "k", a, "GET"}, bulk(b));
    add({"GET", "k"}, bulk(a));
    add({"DEL", "k"}, ":1\r\n");
    add({"SET", "k", b}, ok);
    add({"GET", "k"}, bulk(b));
    add({"FLUSHALL"}, ok);
    add({"GET", "k"}, "$-1\r\n");
    site.expect(*client, all, replies);
    // More requests than a connection has in flight, while another client deletes the value.
    site.expect(*client, request({"SET", "k", a}), ok);
    const std::uint64_t hits = site.server.statistics.keyspace_hits;
    std::string many, expected;
    for (int i = 0; i < 200; ++i) {
      many += request({"GET", "k"}) + request({"PING"});
      expected += bulk(a) + "+PONG\r\n";
    }
    testing::send(site.loop, *client, many);
    RUN_UNTIL(site.loop, site.server.statistics.keyspace_hits == hits + 200);  // all were executed
    site.expect(*other, request({"DEL", "k"}) + request({"SET", "k", "x"}), ":1\r\n" + ok);
    REQUIRE((testing::receive(site.loop, *client, expected.size()) == expected));
    REQUIRE(site.server.store.memory() < 100'000);
  }
}

TEST_CASE("kv-server: a client that goes in the middle of large values leaves nothing", "[kv]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const conn::ConnectionPtr other = site.client();
    const std::string value = text(200'000, 1);
    site.expect(*other, request({"SET", "k", value}), "+OK\r\n");
    {
      const conn::ConnectionPtr leaver = site.client();
      for (int i = 0; i < 60; ++i) testing::send(site.loop, *leaver, request({"GET", "k"}));
      (void)testing::receive(site.loop, *leaver, 300'000);
      const std::string half = request({"SET", "half", value}).substr(0, 150'000);
      (void)leaver->write(half.data(), half.size());
    }
    RUN_UNTIL(site.loop, site.server.sessions.size() == 1);
    Entry* const entry = site.entry("k");
    REQUIRE(entry != nullptr);
    RUN_UNTIL(site.loop, !entry->shared());  // each reference was released, exactly once
    site.expect(*other, request({"EXISTS", "half"}) + request({"GET", "k"}),
                ":0\r\n" + bulk(value));
    RUN_UNTIL(site.loop, !entry->shared());
    REQUIRE(site.server.buffer_bytes < 100'000);
  }
}

TEST_CASE("kv-server: values on their way to a client that was closed are used memory",
          "[kv][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const conn::ConnectionPtr other = site.client();
    const std::string value = text(4'000'000, 1);
    site.expect(*other, request({"SET", "k", value}), "+OK\r\n");
    Entry* const entry = site.entry("k");
    REQUIRE(entry != nullptr);
    const conn::ConnectionPtr slow = site.client();  // does not read
    testing::send(site.loop, *slow, request({"GET", "k"}));
    RUN_UNTIL(site.loop, site.server.buffer_bytes >= value.size() || !entry->shared());
    std::size_t most = 0;
    const auto counted = [&] {
      const std::size_t behind = site.server.left_behind();
      REQUIRE((behind == 0 || behind == value.size()));
      if (behind != 0) REQUIRE(entry->shared());
      REQUIRE(site.server.used_memory() ==
              site.server.store.memory() + site.server.buffer_bytes + behind);
      most = std::max(most, behind);
    };
    const bool under_way = entry->shared();
    const ae::HookId watch = site.loop.add_before_sleep(counted);
    for (const auto& [id, session] : site.server.sessions)
      if (session->memory() >= value.size()) session->drop_buffers();
    // The value moves from one counter to the other in the same moment.
    if (under_way) REQUIRE(site.server.left_behind() == value.size());
    testing::send(site.loop, *other, request({"PING"}));
    (void)testing::receive(site.loop, *other, 7);
    slow->set_read_handler([](conn::Connection& here) {
      static std::array<char, 65536> bytes;
      while (here.read(bytes.data(), bytes.size()) > 0) {
      }
    });
    RUN_UNTIL(site.loop, !entry->shared());
    site.loop.remove_hook(watch);
    REQUIRE((!under_way || most == value.size()));
    REQUIRE(site.server.left_behind() == 0);
  }
}

TEST_CASE("kv-server: QUIT comes after the large values before it", "[kv]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const conn::ConnectionPtr client = site.client();
    const std::string value = text(500'000, 1);
    site.expect(*client, request({"SET", "k", value}), "+OK\r\n");
    std::string requests, replies;
    for (int i = 0; i < 10; ++i) {
      requests += request({"GET", "k"});
      replies += bulk(value);
    }
    site.expect(*client, requests + request({"QUIT"}), replies + "+OK\r\n");
    RUN_UNTIL(site.loop, site.server.sessions.empty());
    REQUIRE(site.server.buffer_bytes == 0);
  }
}

TEST_CASE("kv-server: values on their way count for who asked for them", "[kv][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const conn::ConnectionPtr other = site.client();
    const conn::ConnectionPtr slow = site.client();
    const std::string value = text(1'000'000, 1);
    site.expect(*other, request({"SET", "k", value}), "+OK\r\n");
    site.server.config.client_output_limit = 10 << 20;
    std::size_t peak = 0;
    const ae::HookId watch =
        site.loop.add_before_sleep([&] { peak = std::max(peak, site.server.buffer_bytes); });
    std::string requests;
    for (int i = 0; i < 100; ++i) requests += request({"GET", "k"});
    testing::send(site.loop, *slow, requests);
    RUN_UNTIL(site.loop, site.server.statistics.output_limit_closed == 1);
    RUN_UNTIL(site.loop, site.server.sessions.size() == 1);
    site.loop.remove_hook(watch);
    REQUIRE(peak >= (8u << 20));
    REQUIRE(peak <= (14u << 20));
    site.expect(*other, request({"GET", "k"}), bulk(value));
  }
}
