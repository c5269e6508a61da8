// SPDX-License-Identifier: BSD-3-Clause
// conn-perf's client and server on one loop, each of them also with a faulty peer.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "conn/transports/transports.h"
#include "programs/conn_perf/load.h"
#include "programs/conn_perf/plot.h"
#include "programs/conn_perf/report.h"
#include "programs/conn_perf/server.h"
#include "programs/conn_perf/wire.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/memory_transport.h"

using namespace std::chrono_literals;
using perf::Kind;
using perf::Mode;

namespace {

struct Kit {
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  perf::ClientShared shared{loop, registry};

  perf::Plan plan(const std::string& url, Mode mode = Mode::kRequestResponse) {
    perf::Plan plan;
    plan.mode = mode;
    plan.endpoint = conn::Endpoint::parse(url);
    plan.patience = 10s;
    return plan;
  }
};

/// Echoes, through a function that may change the bytes.
class WrongEcho {
 public:
  WrongEcho(Kit& kit, std::function<void(std::string&)> change)
      : listener_(kit.registry.listen(
            kit.loop, "tcp://127.0.0.1:0", [this, change](conn::ConnectionPtr peer) {
              peers_.push_back(std::move(peer));
              peers_.back()->set_read_handler([change](conn::Connection& connection) {
                std::string bytes(100000, '\0');
                const ssize_t size = connection.read(bytes.data(), bytes.size());
                if (size <= 0) return connection.set_read_handler(nullptr);
                bytes.resize(static_cast<std::size_t>(size));
                change(bytes);
                if (!bytes.empty()) connection.write(bytes.data(), bytes.size());
              });
            })) {}
  std::string url() const { return listener_->endpoints().front().to_string(); }

 private:
  std::vector<conn::ConnectionPtr> peers_;
  conn::ListenerPtr listener_;
};

/// The client's error if an echo changes the bytes from its `nth` answer on.
std::string failure_with(std::function<void(std::string&)> change, bool verify = true,
                         int nth = 5) {
  Kit kit;
  int answers = 0;
  const WrongEcho echo(kit, [&](std::string& bytes) {
    if (++answers >= nth) change(bytes);
  });
  perf::Plan plan = kit.plan(echo.url());
  plan.echo = true;
  plan.verify = verify;
  plan.patience = 1s;
  perf::Load load(kit.shared, plan);
  try {
    load.open();
    load.run(20, 0s);
  } catch (const perf::Failed& error) {
    return error.what();
  }
  return "";
}

/// A perf::Server, and a connection to it on which a test writes arbitrary bytes.
struct RawClient {
  Kit kit;
  perf::Server server{kit.loop, kit.registry, false, "test"};
  conn::ConnectionPtr connection;

  RawClient() {
    server.listen("tcp://127.0.0.1:0");
    connection = kit.registry.connect(kit.loop, server.urls().front(), nullptr);
    turn();
  }
  void turn() {
    for (int i = 0; i < 20; ++i) {
      const ae::TimerId timer = kit.loop.add_time_event(2ms, [] { return ae::kNoMore; });
      kit.loop.process_events(ae::kFullIteration);
      kit.loop.remove_time_event(timer);
    }
  }
  void greet(const std::string& more = "") {
    std::string bytes;
    perf::append_text(bytes, Kind::kHello, 0, "protocol=1\nreply-size=64\n" + more);
    send(bytes);
    REQUIRE(answer().kind() == Kind::kHelloReply);
  }
  void send(const std::string& bytes) {
    REQUIRE(connection->write(bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    turn();
  }
  perf::Header answer() {
    text.assign(4096, '\0');
    char header[perf::kHeaderSize];
    REQUIRE(connection->read(header, sizeof header) == perf::kHeaderSize);
    const perf::Header decoded = perf::Header::decode(header);
    const ssize_t size = connection->read(text.data(), decoded.length - perf::kHeaderSize);
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return decoded;
  }
  bool closed() {
    char byte;
    return connection->read(&byte, 1) == 0;
  }
  std::string text;
};

std::string data(Kind kind, std::uint64_t sequence, std::size_t size) {
  perf::Payload payload;
  payload.reserve(size);
  perf::Outbox outbox;
  outbox.set_data(kind, size, true, sequence);
  outbox.add_data(1);
  perf::Batch batch;
  outbox.gather(payload, batch);
  std::string bytes;
  for (const iovec& part : batch.vectors())
    bytes.append(static_cast<char*>(part.iov_base), part.iov_len);
  return bytes;
}

}  // namespace

TEST_CASE("perf client: an honest echo passes", "[perf]") {
  REQUIRE(failure_with([](std::string&) {}) == "");
}

TEST_CASE("perf client: a changed byte ends it, with the connection and the message",
          "[perf][hostile]") {
  const std::string text = failure_with([](std::string& bytes) { bytes[40] ^= 1; });
  REQUIRE(text.starts_with("connection 0: request 4294967300 of 64 bytes: the checksum is "));
}

TEST_CASE("perf client: without verification a changed payload passes, a changed number does not",
          "[perf][hostile]") {
  REQUIRE(failure_with([](std::string& bytes) { bytes[40] ^= 1; }, false) == "");
  REQUIRE(failure_with([](std::string& bytes) { bytes[8] ^= 1; }, false) ==
          "connection 0: request 4294967301 instead of 4294967300");
}

TEST_CASE("perf client: messages that are empty, doubled, cut or missing end it",
          "[perf][hostile]") {
  // The shortest valid message: a tool that only counts replies would accept it.
  const auto empty = [](std::string& bytes) { bytes = data(Kind::kRequest, 4294967300, 16); };
  REQUIRE(failure_with(empty) == "connection 0: request 4294967300 has 16 bytes, not 64");
  const auto doubled = [](std::string& bytes) { bytes += bytes; };
  REQUIRE(failure_with(doubled) == "connection 0: unexpected request");
  const auto zeros = [](std::string& bytes) { bytes = std::string(64, '\0'); };
  REQUIRE(failure_with(zeros) == "connection 0: a message of the unknown kind 0");
  const auto cut = [](std::string& bytes) { bytes.resize(30); };
  REQUIRE(failure_with(cut).starts_with("nothing arrived for 1 s;"));
  const auto missing = [](std::string& bytes) { bytes.clear(); };
  REQUIRE(failure_with(missing).starts_with("nothing arrived for 1 s;"));
}

TEST_CASE("perf client: a peer that closes ends it", "[perf]") {
  Kit kit;
  std::vector<conn::ConnectionPtr> peers;
  const auto listener =
      kit.registry.listen(kit.loop, "tcp://127.0.0.1:0", [&](conn::ConnectionPtr peer) {
        peers.push_back(std::move(peer));
        peers.back()->set_read_handler([&](conn::Connection& connection) {
          char bytes[20];
          if (connection.read(bytes, sizeof bytes) != 20) return;
          connection.write(bytes, sizeof bytes);
          peers.clear();
        });
      });
  perf::Plan plan = kit.plan(listener->endpoints().front().to_string());
  plan.echo = true;
  plan.size = 20;
  const int cut = GENERATE(0, 1);
  if (cut == 1) plan.size = 24;
  plan.reply_size = plan.size;
  perf::Load load(kit.shared, plan);
  load.open();
  std::string reason;
  try {
    load.run(3, 0s);
  } catch (const perf::Failed& error) {
    reason = error.what();
  }
  REQUIRE(reason == (cut == 1 ? "connection 0: the server closed it within a message"
                              : "connection 0: the server closed it"));
}

TEST_CASE("perf: client and server count the same, in each mode", "[perf]") {
  Kit kit;
  perf::Server server(kit.loop, kit.registry, false, "");
  server.listen("tcp://127.0.0.1:0");
  perf::Plan plan = kit.plan(server.urls().front());
  plan.connections = 5;
  SECTION("requests") {
    plan.depth = GENERATE(1u, 7u);
    plan.size = GENERATE(16u, 100u, 300000u);
    plan.reply_size = 50;
    perf::Load load(kit.shared, plan);
    load.open();
    load.run(0, 30ms);
    REQUIRE(load.requests() > 0);
    REQUIRE(load.latency().count() == load.requests());
    load.run(123, 0s);
    REQUIRE(load.requests() == 123);
    REQUIRE(load.latency().count() == 123);
    REQUIRE(load.bytes() == 123 * (plan.size + 50));
    REQUIRE(load.latency().max() <= static_cast<std::uint64_t>(load.elapsed().count()));
  }
  SECTION("a stream") {
    plan.mode = Mode::kStream;
    const bool both = GENERATE(false, true), in_place = GENERATE(false, true);
    if (both && in_place) return;
    plan.both_ways = both;
    plan.in_place = in_place;
    plan.size = GENERATE(16u, 300000u);
    plan.reply_size = 1000;
    perf::Load load(kit.shared, plan);
    load.open();
    load.run(0, 30ms);
    REQUIRE(load.requests() > 0);
    load.run(200, 0s);
    if (plan.both_ways) {
      REQUIRE(load.requests() >= 400);
      REQUIRE(load.bytes() == 200 * plan.size + (load.requests() - 200) * 1000);
    } else {
      REQUIRE(load.requests() == 200);
      REQUIRE(load.bytes() == 200 * plan.size);
    }
  }
  SECTION("new connections") {
    plan.mode = Mode::kConnect;
    perf::Load load(kit.shared, plan);
    load.run(77, 0s);
    REQUIRE(load.requests() == 77);
    REQUIRE(kit.registry.require("tcp").counters(kit.loop).accepted == 77);
  }
}

TEST_CASE("perf server: a stream's end is acknowledged when its last write takes everything",
          "[perf]") {
  Kit kit;
  kit.registry.add(
      std::make_unique<conn::memory::MemoryType>(conn::memory::Config{.pipe_size = 8 << 20}));
  perf::Server server(kit.loop, kit.registry, false, "");
  server.listen("memory://perf");
  perf::Plan plan = kit.plan(server.urls().front(), Mode::kStream);
  plan.patience = 1s;
  plan.both_ways = true;
  plan.reply_size = GENERATE(16u, 250u << 10, 512u << 10, 1u << 20, 2u << 20);
  perf::Load load(kit.shared, plan);
  load.open();
  for (const std::uint64_t count : {1, 2, 3, 4, 7}) {
    load.run(count, 0s);
    REQUIRE(load.requests() >= 2 * count);
  }
  load.run(0, 5ms);
}

TEST_CASE("perf client: a server that closes idle connections ends the wait", "[perf]") {
  Kit kit;
  std::vector<conn::ConnectionPtr> peers;
  const auto listener =
      kit.registry.listen(kit.loop, "tcp://127.0.0.1:0",
                          [&](conn::ConnectionPtr peer) { peers.push_back(std::move(peer)); });
  perf::Plan plan = kit.plan(listener->endpoints().front().to_string(), Mode::kIdle);
  plan.echo = true;
  perf::Load load(kit.shared, plan);
  load.open();
  bool over = false;
  load.pass(20ms, over);
  const ae::TimerId timer = kit.loop.add_time_event(10ms, [&] {
    peers.clear();
    return ae::kNoMore;
  });
  std::string reason;
  try {
    load.pass(20s, over);
  } catch (const perf::Failed& error) {
    reason = error.what();
  }
  kit.loop.remove_time_event(timer);
  REQUIRE(reason == "connection 0: the server closed it");
}

TEST_CASE("perf plot: files of the same name are lines of their own", "[perf]") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("perf-plot-" + std::to_string(getpid()));
  std::vector<std::string> files;
  for (const char* name : {"a/before/tcp.json", "a/after/tcp.json", "a/after/unix.json"}) {
    const std::filesystem::path file = folder / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << R"({"tool":"conn-perf","results":[{"mode":"request-response",
        "transport":"tcp","connections":1,"size":64,"depth":1,"requests_per_s":5,
        "latency_us":{"p50":1,"p99":2},"histogram":[[1,1]]}]})";
    files.push_back(file.string());
  }
  const auto names = [&] {
    std::vector<std::string> all;
    for (const perf::Series& line : perf::load_series(files)) {
      REQUIRE(line.points.size() == 1);
      all.push_back(line.name);
    }
    return all;
  };
  REQUIRE(names() == std::vector<std::string>{"tcp before/tcp", "tcp after/tcp", "tcp unix"});
  std::filesystem::create_directories(folder / "b");
  std::filesystem::copy(folder / "a/before", folder / "b/before");
  files = {files[0], (folder / "b/before/tcp.json").string()};
  REQUIRE(names() == std::vector<std::string>{"tcp " + files[0], "tcp " + files[1]});
  std::filesystem::remove_all(folder);
}

TEST_CASE("perf server: who sends on while it is refused still reads why", "[perf][hostile]") {
  RawClient client;
  const std::string junk(4 << 20, 'x');
  std::size_t sent = 0;
  for (int i = 0; i < 5; ++i) {
    const ssize_t size = client.connection->write(junk.data(), junk.size());
    REQUIRE((size > 0 || errno == EAGAIN));  // not ECONNRESET
    if (size > 0) sent += static_cast<std::size_t>(size);
    client.turn();
  }
  REQUIRE(sent > client.kit.shared.room.size());
  REQUIRE(client.answer().kind() == Kind::kError);
  REQUIRE(client.text.find("a message of") != std::string::npos);
  REQUIRE(client.closed());
}

TEST_CASE("perf server: what is wrong is answered with an error, and that connection closes",
          "[perf][hostile]") {
  RawClient client;
  const auto refused = [&](const std::string& bytes, const std::string& reason) {
    client.send(bytes);
    REQUIRE(client.answer().kind() == Kind::kError);
    REQUIRE(client.text.find(reason) != std::string::npos);
    client.turn();
    REQUIRE(client.closed());
  };
  std::string damaged = data(Kind::kRequest, 0, 64);
  damaged[50] ^= 1;
  SECTION("no hello") { refused(data(Kind::kRequest, 0, 64), "request before a hello"); }
  SECTION("nonsense") { refused("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a message of"); }
  SECTION("another protocol") {
    std::string bytes;
    perf::append_text(bytes, Kind::kHello, 0, "protocol=2\nreply-size=64\n");
    refused(bytes, "the client speaks protocol 2, this server 1");
  }
  SECTION("a reply that is too large") {
    std::string bytes;
    perf::append_text(bytes, Kind::kHello, 0, "protocol=1\nreply-size=67108865\n");
    refused(bytes, "a reply of 67108865 bytes");
  }
  SECTION("a damaged message") {
    client.greet();
    refused(damaged, "request 0 of 64 bytes: the checksum is");
  }
  SECTION("a number out of order") {
    client.greet();
    refused(data(Kind::kRequest, 1, 64), "request 1 instead of 0");
  }
  SECTION("a stream where there is none") {
    client.greet();
    refused(data(Kind::kData, 0, 64), "data instead of request");
  }
  std::string end;
  perf::append_text(end, Kind::kEnd, 0, "");
  SECTION("an end without a stream") {
    client.greet(GENERATE("", "mode=control\n"));
    refused(end, "an end without a stream");
  }
  SECTION("an end after the end") {
    client.greet("mode=stream\n");
    refused(end + end, "an end after the end");
  }
  // The other connections continue.
  client.connection =
      client.kit.registry.connect(client.kit.loop, client.server.urls().front(), nullptr);
  client.turn();
  client.greet();
  client.send(data(Kind::kRequest, 0, 64));
  REQUIRE(client.answer().kind() == Kind::kReply);
}

TEST_CASE("perf report: rates, and none where nothing is known", "[perf]") {
  perf::Result result;
  result.requests = 500'000;
  result.elapsed = 2s;
  result.client.cpu_ns = 1'000'000'000;
  result.client.system_calls = 1'000'000;
  REQUIRE(perf::per_second(result, result.requests) == 250'000);
  REQUIRE(perf::cpu_per_million(result, false) == 2.0);
  REQUIRE(perf::calls_per_request(result, false) == 2.0);
  REQUIRE_FALSE(perf::cpu_per_million(result, true));
  REQUIRE_FALSE(perf::calls_per_request(result, true));
  result.plan.mode = Mode::kIdle;
  result.plan.connections = 10;
  result.client.resident = 12345;
  REQUIRE(perf::per_connection(result, &perf::Usage::resident, false) == 1234u);
  REQUIRE_FALSE(perf::per_connection(result, &perf::Usage::pinned, false));
  result.requests = 0;
  REQUIRE_FALSE(perf::cpu_per_million(result, false));
}
