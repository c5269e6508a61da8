// SPDX-License-Identifier: BSD-3-Clause
// kv-server's network part and its clients on one loop, over each transport: floods, slow readers
// and slow writers, with a well-behaved client that must not be affected.

#include "examples/kv_server/server.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/kv_kit.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using kv_kit::bulk;
using kv_kit::request;
using testing::Site;
using namespace std::chrono_literals;

namespace {

struct KvSite : Site {
  explicit KvSite(const testing::Transport& its_transport) : Site(its_transport) {
    conn::Endpoint where = fresh();
    if (has_sockets()) where.options.set("send-buffer", "16k");
    network.listen(where.to_string());
    address = conn::Endpoint::parse(network.urls().front());
    if (type.find_option("receive-buffer") != nullptr) address.options.set("receive-buffer", "16k");
    watch = loop.add_before_sleep([this] { peak = std::max(peak, server.buffer_bytes); });
  }
  ~KvSite() { loop.remove_hook(watch); }
  KvSite(const KvSite&) = delete;
  KvSite& operator=(const KvSite&) = delete;

  /// Tests with sockets need not fill megabytes of kernel buffers.
  bool has_sockets() const {
    return transport.name.ends_with("tcp") || transport.name.ends_with("unix") ||
           transport.name == "tls";
  }
  ConnectionPtr client() {
    ConnectionPtr made = connect(address);
    RUN_UNTIL(loop, made->state() != State::kConnecting);
    INFO(made->last_error());
    REQUIRE(made->state() == State::kConnected);
    return made;
  }
  std::string call(Connection& connection, const std::vector<std::string>& arguments,
                   std::size_t size) {
    testing::send(loop, connection, request(arguments));
    return testing::receive(loop, connection, size);
  }

  kv::Server server;
  kv::NetworkServer network{loop, registry, server};
  conn::Endpoint address;
  std::size_t peak = 0;  // of all sessions' buffers together
  ae::HookId watch;
};

/// Writes continuously, as much as the buffers take, and never reads.
void pour(Connection& connection, std::string bytes) {
  connection.set_write_handler([bytes = std::move(bytes)](Connection& c) {
    if (c.write(bytes.data(), bytes.size()) < 0 && errno != EAGAIN) c.set_write_handler(nullptr);
  });
}

/// A well-behaved client: sends one request after the other and checks the answers.
class Counting {
 public:
  explicit Counting(ConnectionPtr connection) : connection_(std::move(connection)) {
    connection_->set_read_handler([this](Connection& c) {
      char buffer[100];
      const ssize_t n = c.read(buffer, sizeof buffer);
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        c.set_read_handler(nullptr);
        lost = true;
        return;
      }
      answer_.append(buffer, static_cast<std::size_t>(n));
      if (!answer_.ends_with("\r\n")) return;
      wrong = wrong || answer_ != ":" + std::to_string(rounds + 1) + "\r\n";
      ++rounds;
      ask();
    });
    ask();
  }
  int rounds = 0;
  bool wrong = false, lost = false;

 private:
  void ask() {
    answer_.clear();
    static const std::string kRequest = request({"INCR", "n"});
    if (connection_->write(kRequest.data(), kRequest.size()) !=
        static_cast<ssize_t>(kRequest.size())) {
      lost = true;
    }
  }
  ConnectionPtr connection_;
  std::string answer_;
};

/// Runs until `condition` holds and the well-behaved client has made another hundred rounds.
void require_goes_on(KvSite& site, Counting& honest, const std::function<bool()>& condition) {
  RUN_UNTIL(site.loop, honest.lost || honest.wrong || condition());
  const int wanted = honest.rounds + 100;
  RUN_UNTIL(site.loop, honest.lost || honest.wrong || honest.rounds >= wanted);
  REQUIRE_FALSE(honest.lost);
  REQUIRE_FALSE(honest.wrong);
}

constexpr std::size_t kMany = 300;
constexpr std::size_t kOneTurn = 4 << 20;  // what one client may add between two checks

}  // namespace

TEST_CASE("server: CLIENT INFO shows what info() says of the connection", "[kv]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const ConnectionPtr client = site.client();
    testing::send(site.loop, *client, request({"CLIENT", "INFO"}));
    testing::Collector reply(*client);
    RUN_UNTIL(site.loop, reply.bytes.ends_with("\n\r\n"));
    // With a list, the server's end is the carrier's.
    const std::string carrier = transport.name.substr(transport.name.rfind('|') + 1);
    REQUIRE(reply.bytes.find(" transport=" + carrier) != std::string::npos);
    for (const auto& [key, value] : client->info()) {  // both ends have nearly the same keys
      // The server here asks for no certificate.
      if (key == "server-name" || key == "alpn" || key == "verified" ||
          key == "peer-certificate-ends")
        continue;
      if (key == "carrier" || key.starts_with("not-")) continue;
      CHECK(reply.bytes.find(" " + key + "=") != std::string::npos);
    }
  }
}

TEST_CASE("kv-server: hundreds that never read their replies hold no more than the limits say",
          "[kv][hostile][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    const bool together = GENERATE(false, true);
    if (together) {
      site.server.config.clients_memory_limit = 4 << 20;
    } else {
      site.server.config.client_output_limit = 64 << 10;
    }
    CAPTURE(together);
    const ConnectionPtr first = site.client();
    REQUIRE(site.call(*first, {"SET", "big", std::string(8000, 'x')}, 5) == "+OK\r\n");
    Counting honest(site.client());
    std::vector<ConnectionPtr> slow;
    while (slow.size() < kMany) slow.push_back(site.client());
    std::string wishes;
    for (int i = 0; i < 20; ++i) wishes += request({"GET", "big"});
    for (const ConnectionPtr& one : slow) pour(*one, wishes);
    const kv::Statistics& counted = site.server.statistics;
    require_goes_on(site, honest,
                    [&] { return counted.output_limit_closed + counted.clients_evicted >= kMany; });
    REQUIRE((together ? counted.clients_evicted : counted.output_limit_closed) == kMany);
    if (together) {
      REQUIRE(site.peak <= (4 << 20) + kOneTurn);
    } else {
      REQUIRE(site.peak <= kMany * 4 * (64 << 10) + kOneTurn);
    }
    REQUIRE(site.server.sessions.size() == 2);
    REQUIRE(site.server.buffer_bytes < (1 << 20));
  }
}

TEST_CASE("kv-server: hundreds that send a byte now and then hold what they sent, not more",
          "[kv][hostile][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    Counting honest(site.client());
    std::vector<ConnectionPtr> slow;
    while (slow.size() < kMany) slow.push_back(site.client());
    // Half a request that announces much, then one byte per timer tick.
    const std::string halves[] = {"*1000000\r\n$3\r\nSET\r\n", "*2\r\n$3\r\nGET\r\n$500000000\r\n",
                                  "SET key ", ""};
    for (std::size_t i = 0; i < kMany; ++i) {
      const std::string& half = halves[i % 4];
      REQUIRE(slow[i]->write(half.data(), half.size()) == static_cast<ssize_t>(half.size()));
    }
    const char drips[] = {'$', 'x', 'x', '*'};
    const ae::TimerId dripping = site.loop.add_time_event(20ms, [&]() -> ae::Duration {
      for (std::size_t i = 0; i < kMany; ++i) (void)slow[i]->write(&drips[i % 4], i % 4 == 1);
      return 20ms;
    });
    require_goes_on(site, honest, [&] { return honest.rounds > 100; });
    REQUIRE(site.peak <= (kMany + 1) * (32 << 10));
    // None of them counts as an active client.
    site.server.config.timeout_seconds = 1;
    require_goes_on(site, honest, [&] { return site.server.statistics.timed_out == kMany; });
    site.loop.remove_time_event(dripping);
    REQUIRE(site.server.sessions.size() == 1);
  }
}

TEST_CASE("kv-server: who reads a long reply slowly is not idle, who does not read is",
          "[kv][limits]") {
  KvSite site(testing::Transport{.name = "tcp"});
  const ConnectionPtr slow = site.client(), silent = site.client();
  REQUIRE(site.call(*slow, {"SET", "key", std::string(4000, 'x')}, 5) == "+OK\r\n");
  std::vector<std::string> many(301, "key");
  many[0] = "MGET";
  testing::send(site.loop, *silent, request(many));
  testing::send(site.loop, *slow, request(many));
  site.server.config.timeout_seconds = 1;
  std::size_t got = 0;
  bool over = false;
  const ae::TimerId reading = site.loop.add_time_event(10ms, [&]() -> ae::Duration {
    char bytes[4096];
    const ssize_t size = slow->read(bytes, sizeof bytes);
    if (size > 0) got += static_cast<std::size_t>(size);
    over = size == 0 || (size < 0 && errno != EAGAIN) ||
           got == 6 + 300 * bulk(std::string(4000, 'x')).size();
    return over ? ae::kNoMore : 10ms;
  });
  RUN_UNTIL(site.loop, over && site.server.statistics.timed_out != 0);
  if (!over) site.loop.remove_time_event(reading);
  REQUIRE(got == 6 + 300 * bulk(std::string(4000, 'x')).size());
  REQUIRE(site.server.statistics.timed_out == 1);
}

TEST_CASE("kv-server: who takes one large value after another is not idle", "[kv][limits]") {
  KvSite site(testing::Transport{.name = "tcp"});
  const ConnectionPtr slow = site.client();
  const std::string value(100'000, 'x');
  REQUIRE(site.call(*slow, {"SET", "key", value}, 5) == "+OK\r\n");
  std::vector<std::string> many(61, "key");
  many[0] = "MGET";
  const std::size_t all = 5 + 60 * bulk(value).size();
  testing::send(site.loop, *slow, request(many));
  site.server.config.timeout_seconds = 1;
  std::size_t got = 0;
  bool over = false;
  std::vector<char> bytes(16'384);
  const ae::TimerId reading = site.loop.add_time_event(10ms, [&]() -> ae::Duration {
    const ssize_t size = slow->read(bytes.data(), bytes.size());
    if (size > 0) got += static_cast<std::size_t>(size);
    over = size == 0 || (size < 0 && errno != EAGAIN) || got == all;
    return over ? ae::kNoMore : 10ms;
  });
  RUN_UNTIL(site.loop, over);
  if (!over) site.loop.remove_time_event(reading);
  REQUIRE(got == all);
}

TEST_CASE("kv-server: beyond maxclients arrivals are told so, and those inside go on",
          "[kv][hostile][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    site.server.config.maxclients = 10;
    Counting honest(site.client());
    std::vector<ConnectionPtr> inside;
    while (inside.size() < 9) inside.push_back(site.client());
    RUN_UNTIL(site.loop, site.server.sessions.size() == 10);
    for (int i = 0; i < 100; ++i) {
      const ConnectionPtr late = site.client();
      testing::Collector words(*late);
      RUN_UNTIL(site.loop, words.over());
      REQUIRE(words.bytes == "-ERR max number of clients reached\r\n");
    }
    REQUIRE(site.server.statistics.connections_rejected == 100);
    require_goes_on(site, honest, [] { return true; });
    inside.pop_back();
    RUN_UNTIL(site.loop, site.server.sessions.size() == 9);
    const ConnectionPtr next = site.client();
    REQUIRE(site.call(*next, {"PING"}, 7) == "+PONG\r\n");
  }
}

TEST_CASE("kv-server: a million pipelined PINGs are answered, and nobody waits for them",
          "[kv][hostile][limits]") {
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    Counting honest(site.client());
    const ConnectionPtr busy = site.client();
    constexpr std::size_t kPings = 1'000'000;
    std::string batch;
    for (int i = 0; i < 1000; ++i) batch += "PING\r\n";
    std::size_t sent = 0, got = 0;
    bool intact = true;
    busy->set_write_handler([&](Connection& c) {
      const std::size_t at = sent % batch.size();
      const ssize_t n = c.write(batch.data() + at, std::min(batch.size() - at, kPings * 6 - sent));
      if (n > 0) sent += static_cast<std::size_t>(n);
      if (sent == kPings * 6) c.set_write_handler(nullptr);
    });
    std::vector<char> buffer(64 << 10);
    busy->set_read_handler([&](Connection& c) {
      const ssize_t n = c.read(buffer.data(), buffer.size());
      if (n <= 0) return;
      for (ssize_t i = 0; i < n; ++i) {
        intact = intact && buffer[static_cast<std::size_t>(i)] ==
                               "+PONG\r\n"[(got + static_cast<std::size_t>(i)) % 7];
      }
      got += static_cast<std::size_t>(n);
    });
    require_goes_on(site, honest, [&] { return got == kPings * 7; });
    REQUIRE(intact);
    REQUIRE(honest.rounds > 200);  // these continued meanwhile
    REQUIRE(site.peak < (1 << 20));
  }
}

TEST_CASE("kv-server: who breaks the protocol is told why and closed, and nobody else",
          "[kv][hostile]") {
  struct Abuse {
    std::string bytes, answer;
  };
  const std::string error = "-ERR Protocol error: ";
  const std::vector<Abuse> all = {
      {"*1\r\n$-1\r\n", error + "invalid bulk length\r\n"},
      {"*1\r\n$-2\r\n", error + "invalid bulk length\r\n"},
      {"*1\r\n$536870913\r\n", error + "invalid bulk length\r\n"},
      {"*1048577\r\n", error + "invalid multibulk length\r\n"},
      {"*+5\r\n", error + "invalid multibulk length\r\n"},
      {"*99999999999999999999999\r\n", error + "invalid multibulk length\r\n"},
      {"*1\r\n$007\r\n", error + "invalid bulk length\r\n"},
      {"*1\r\n$4\r\nPINGxx", error + "expected CR LF after the bulk data\r\n"},
      {"*2\r\n$1\r\na\r\n:1\r\n", error + "expected '$', got ':'\r\n"},
      {std::string(65537, 'a'), error + "too big inline request\r\n"},
      {"*" + std::string(65537, '1'), error + "too big mbulk count string\r\n"},
      {"set \"k\n", error + "unbalanced quotes in request\r\n"},
      {"POST / HTTP/1.1\r\n", ""},
      {"Host: localhost\r\n", ""},
      {"\x16\x03\x01\x02\x00", ""},
  };
  FOR_EVERY_TRANSPORT(transport) {
    KvSite site(transport);
    int lines = 0;
    site.server.together.log = [&](std::string_view) { ++lines; };
    Counting honest(site.client());
    for (int round = 0; round < 3; ++round) {
      for (const Abuse& abuse : all) {
        CAPTURE(abuse.bytes.substr(0, 40));
        const ConnectionPtr hostile = site.client();
        testing::Collector words(*hostile);
        testing::send(site.loop, *hostile, abuse.bytes);
        RUN_UNTIL(site.loop, words.over());
        REQUIRE(words.bytes == abuse.answer);
      }
    }
    require_goes_on(site, honest, [&] { return site.server.sessions.size() == 1; });
    REQUIRE(site.server.statistics.protocol_errors == 3 * (all.size() - 2));  // HTTP is not counted
    REQUIRE(lines > 0);
  }
}
