// SPDX-License-Identifier: BSD-3-Clause
// kv-server makes no allocations per request, once its buffers have reached their size.

#include <cstdlib>

#include "tests/support/allocations.h"

#if AECONN_COUNTS_ALLOCATIONS
#include <array>
#include <cstdint>
#include <string>

#include "conn/transports/transports.h"
#include "examples/kv_server/server.h"
#include "tests/support/catch.h"
#include "tests/support/loop_thread.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using testing::LoopThread;

namespace {

/// A clock that stands still: no client becomes idle, whose buffers would be freed.
std::int64_t clock_that_stands() { return 1'700'000'000'000'000; }

void serve(const std::string& url, const LoopThread::Run& run) {
  const conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  kv::Server server(clock_that_stands);
  kv::NetworkServer network(loop, registry, server);
  network.listen(url);
  run(loop, conn::Endpoint::parse(network.urls().front()));
}

std::string repeat(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}
std::string bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}
std::string get(const std::string& key) { return "*2\r\n" + bulk("GET") + bulk(key); }
std::string set(const std::string& key, const std::string& value) {
  return "*3\r\n" + bulk("SET") + bulk(key) + bulk(value);
}

struct Exchange {
  std::string name, requests, replies;
};

void require_exchange(const testing::RawSocket& socket, const Exchange& one, int times) {
  for (int i = 0; i < times; ++i) {
    socket.send(one.requests);
    REQUIRE(socket.receive(one.replies.size()) == one.replies);
  }
}

/// Sends a request in two pieces, of which the first arrives alone: when `other` has its second
/// answer, the iteration that served its first one has ended, and everything sent earlier was read.
void require_split(const testing::RawSocket& socket, const testing::RawSocket& other,
                   const Exchange& one) {
  const std::size_t half = one.requests.size() / 2;
  socket.send(std::string_view(one.requests).substr(0, half));
  require_exchange(other, {"", "*1\r\n" + bulk("PING"), "+PONG\r\n"}, 2);
  socket.send(std::string_view(one.requests).substr(half));
  REQUIRE(socket.receive(one.replies.size()) == one.replies);
}

}  // namespace

TEST_CASE("kv-server: GET and SET of existing keys allocate nothing, whatever their size",
          "[kv][allocation]") {
  const testing::TempFolder folder;
  const std::string url = GENERATE(as<std::string>(), "tcp://127.0.0.1:0", "unix://");
  const LoopThread server([at = url == "unix://" ? url + folder.path() + "/kv" : url](
                              const LoopThread::Run& run) { serve(at, run); });
  const auto socket = testing::RawSocket::connect(server.address);

  const std::string value(64, 'v'), shorter(40, 's');
  const std::string same = set("same", value), changing = set("changing", value);
  const std::string both = changing + set("changing", shorter);
  const std::string value_reply = bulk(value), ok = "+OK\r\n";
  const std::string large(20'000, 'l'), set_large = set("large", large), get_large = get("large");
  const std::array<Exchange, 10> exchanges{{
      {"GET", get("same"), value_reply},
      {"SET, the same size", same, ok},
      {"SET, sizes that change within the room there is", both, ok + ok},
      {"SET with XX", "*4\r\n" + bulk("SET") + bulk("same") + bulk(value) + bulk("XX"), ok},
      {"16 GETs in one write", repeat(get("same"), 16), repeat(value_reply, 16)},
      {"16 SETs in one write", repeat(both, 8), repeat(ok, 16)},
      {"SET of a large value", set_large, ok},
      {"16 of them in one write", repeat(set_large, 16), repeat(ok, 16)},
      {"GET of a large value", get_large, bulk(large)},
      {"16 of them in one write", repeat(get_large, 16), repeat(bulk(large), 16)},
  }};
  require_exchange(socket, {"", same + changing + set_large, ok + ok + ok}, 1);
  for (const Exchange& one : exchanges) require_exchange(socket, one, 10);
  // As on a loaded machine: a request that arrives in pieces takes a buffer, which its session
  // keeps.
  {
    const auto other = testing::RawSocket::connect(server.address);
    for (const Exchange& one : exchanges) require_split(socket, other, one);
  }
  for (const Exchange& one : exchanges) {
    INFO(one.name << ", " << url);
    // Allocations per request would occur in each round; on a loaded machine, requests that arrive
    // in pieces of new sizes can enlarge a buffer once.
    std::size_t allocations = 1;
    for (int round = 0; round < 5 && allocations != 0; ++round) {
      const auto before = server.watch(true);
      require_exchange(socket, one, 100);
      allocations = server.watch(false).by_others - before.by_others;
    }
    CHECK(allocations == 0);
  }
}

TEST_CASE("kv-server: a client that comes and goes takes a bounded number of allocations",
          "[kv][allocation]") {
  const LoopThread server([](const LoopThread::Run& run) { serve("tcp://127.0.0.1:0", run); });
  const auto one_client = [&] {
    const auto socket = testing::RawSocket::connect(server.address);
    require_exchange(socket, {"", set("key", "value"), "+OK\r\n"}, 1);
  };
  const auto come_and_go = [&](int times) {
    for (int i = 0; i < times; ++i) one_client();
    // The last connection is gone when the next but one is served.
    one_client();
    one_client();
  };
  come_and_go(3);
  const auto before = server.watch(true);
  come_and_go(50);
  // The connection, the client with its session, their table entries, and two buffers.
  CHECK(server.watch(false).by_others - before.by_others < 52 * 17);
}
#endif  // AECONN_COUNTS_ALLOCATIONS
