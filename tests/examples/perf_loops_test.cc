// SPDX-License-Identifier: BSD-3-Clause
// conn-perf on several loops: which loop counts what, and how a measurement ends after a failure on
// one loop. Servers and loads run on threads of a LoopGroup, the test waits on a loop of its own.

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ae/loop_group.h"
#include "conn/transports/transports.h"
#include "programs/conn_perf/control.h"
#include "programs/conn_perf/load_loops.h"
#include "programs/conn_perf/loop_counts.h"
#include "programs/conn_perf/report.h"
#include "programs/conn_perf/server_loops.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"

using namespace std::chrono_literals;
using perf::LoopFacts;
using perf::LoopShare;
using perf::Mode;

namespace {

/// A client with `count` loops.
struct Kit {
  explicit Kit(std::size_t count = 3) : loops(home, registry, count) {}
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop home;
  perf::ClientLoops loops;

  perf::Plan plan(const std::string& url, Mode mode = Mode::kRequestResponse) {
    perf::Plan plan;
    plan.mode = mode;
    plan.endpoint = conn::Endpoint::parse(url);
    plan.patience = 10s;
    return plan;
  }
};

/// With a server of two loops.
struct Both : Kit {
  explicit Both(const std::string& url, std::size_t count = 3) : Kit(count) { server.listen(url); }
  ae::LoopGroup served{{.loops = 2}};
  perf::ServerOnLoops server{served, registry, false, "test"};
  perf::ClientShared shared{home, registry};  // for the control connection
};

std::vector<std::uint64_t> connections_of(const std::vector<LoopShare>& all) {
  std::vector<std::uint64_t> connections;
  for (const LoopShare& each : all) connections.push_back(each.connections);
  return connections;
}

std::uint64_t requests_of(const std::vector<LoopShare>& all) {
  std::uint64_t sum = 0;
  for (const LoopShare& each : all) sum += each.requests;
  return sum;
}

perf::Result result_of(const perf::Phases& load) {
  perf::Result result;
  result.plan = load.plan();
  load.store(result);
  return result;
}

/// What the server's loops did between two queries, and the open connections at the second one.
std::vector<LoopShare> since(const std::vector<LoopFacts>& before,
                             const std::vector<LoopFacts>& after) {
  std::vector<LoopShare> all;
  REQUIRE(before.size() == after.size());
  for (std::size_t i = 0; i < after.size(); ++i)
    all.push_back({after[i].open, after[i].requests - before[i].requests});
  return all;
}

/// A listener on the client's first loop, which passes its connections to a function.
class Peer {
 public:
  Peer(Kit& kit, std::function<void(conn::Connection&)> readable) : kit_(kit) {
    kit.loops.group().on_each([&](ae::EventLoop& loop, std::size_t index) {
      if (index != 0) return;
      listener_ = kit.registry.listen(loop, "tcp://127.0.0.1:0",
                                      [this, readable](conn::ConnectionPtr connection) {
                                        connection->set_read_handler(readable);
                                        connections_.push_back(std::move(connection));
                                      });
      url_ = listener_->endpoints().front().to_string();
    });
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;
  ~Peer() {
    try {
      kit_.loops.group().on_each([this](ae::EventLoop&, std::size_t index) {
        if (index != 0) return;
        connections_.clear();
        listener_.reset();
      });
    } catch (const ae::LoopError&) {  // destroyed with their loop
    }
  }
  const std::string& url() const { return url_; }

 private:
  Kit& kit_;
  std::string url_;
  std::vector<conn::ConnectionPtr> connections_;
  conn::ListenerPtr listener_;
};

template <class F>
std::string failure_of(F f) {
  try {
    f();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("perf loops: client and server count the same, in each mode", "[perf][loops]") {
  const std::string path = "/tmp/perf-loops-" + std::to_string(getpid()) + ".sock";
  const std::string url = GENERATE_COPY(std::string("tcp://127.0.0.1:0"), "unix://" + path);
  Both both(url);
  perf::Plan plan = both.plan(both.server.urls().front());
  plan.connections = 8;
  perf::Control control(both.shared, plan.endpoint, 10s);
  const auto before = [&] { return control.loops(); };
  SECTION("requests") {
    plan.depth = 4;
    plan.reply_size = 50;
    perf::LoadOnLoops load(both.loops, plan);
    load.open();
    load.run(0, 20ms);
    perf::Result result = result_of(load);
    REQUIRE(result.requests > 0);
    REQUIRE(result.elapsed >= 20ms);
    const auto then = before();
    load.run(1001, 0s);
    const std::vector<LoopShare> served = since(then, control.loops());
    result = result_of(load);
    REQUIRE(result.requests == 1001);
    REQUIRE(result.latency.count() == 1001);
    REQUIRE(result.bytes == 1001 * (plan.size + 50));
    REQUIRE(result.latency.max() <= static_cast<std::uint64_t>(result.elapsed.count()));
    REQUIRE(connections_of(result.client_loops) == std::vector<std::uint64_t>{3, 3, 2});
    REQUIRE(result.client_loops[0].requests == 376);  // 3 of 8, and the remainder
    REQUIRE(result.client_loops[1].requests == 375);
    REQUIRE(requests_of(result.client_loops) == 1001);
    // The querying connection is on one of the loops and does not count.
    REQUIRE(connections_of(served) == std::vector<std::uint64_t>{4, 4});
    REQUIRE(requests_of(served) == 1001);
  }
  SECTION("a stream") {
    plan.mode = Mode::kStream;
    plan.both_ways = GENERATE(false, true);
    perf::LoadOnLoops load(both.loops, plan);
    load.open();
    const auto then = before();
    load.run(200, 0s);
    const perf::Result result = result_of(load);
    if (plan.both_ways)
      REQUIRE(result.requests >= 400);
    else
      REQUIRE(result.requests == 200);
    REQUIRE(result.bytes == result.requests * plan.size);
    REQUIRE(requests_of(since(then, control.loops())) == result.requests);
  }
  SECTION("new connections") {
    plan.mode = Mode::kConnect;
    perf::LoadOnLoops load(both.loops, plan);
    const auto then = before();
    load.run(77, 0s);
    const auto now = control.loops();
    const perf::Result result = result_of(load);
    REQUIRE(result.requests == 77);
    REQUIRE(connections_of(result.client_loops) == std::vector<std::uint64_t>{30, 29, 18});
    REQUIRE(now[0].begun - then[0].begun + now[1].begun - then[1].begun == 77);
    REQUIRE(requests_of(since(then, now)) == 77);
  }
  SECTION("idle ones") {
    plan.mode = Mode::kIdle;
    perf::LoadOnLoops load(both.loops, plan);
    const auto then = before();
    load.open();
    const bool over = false;
    load.pass(1ms, over);
    REQUIRE(connections_of(result_of(load).client_loops) == std::vector<std::uint64_t>{3, 3, 2});
    REQUIRE(connections_of(since(then, control.loops())) == std::vector<std::uint64_t>{4, 4});
  }
}

TEST_CASE("perf loops: who asks for costs does not count where a load is spread", "[perf][loops]") {
  Both both("tcp://127.0.0.1:0");
  perf::Plan plan = both.plan(both.server.urls().front());
  perf::Control first(both.shared, plan.endpoint, 10s);
  std::optional<perf::Load> between(std::in_place, both.shared, plan);
  between->open();
  perf::Control second(both.shared, plan.endpoint, 10s);
  between.reset();
  std::vector<LoopFacts> now;
  for (int i = 0; i < 10000 && (i == 0 || now[0].open + now[1].open != 0); ++i)
    now = second.loops();  // now both are on one loop, and the other has none
  plan.connections = 8;
  perf::LoadOnLoops load(both.loops, plan);
  load.open();
  REQUIRE(connections_of(since(now, second.loops())) == std::vector<std::uint64_t>{4, 4});
}

TEST_CASE("perf loops: the whole load is the same with more loops than connections",
          "[perf][loops]") {
  Both both("tcp://127.0.0.1:0", 4);
  perf::Plan plan = both.plan(both.server.urls().front());
  plan.connections = 3;
  perf::LoadOnLoops load(both.loops, plan);
  load.open();
  load.run(0, 5ms);
  load.run(2, 0s);  // more loops than requests, too
  perf::Result result = result_of(load);
  REQUIRE(result.requests == 2);
  REQUIRE(result.latency.count() == 2);
  REQUIRE(connections_of(result.client_loops) == std::vector<std::uint64_t>{1, 1, 1, 0});
  REQUIRE(result.elapsed > 0ns);
  REQUIRE(result.elapsed < 10s);  // from these two requests, not from the warm-up of idle loops
  bool sampled = false;
  load.with_sample(
      [&](const conn::Connection& sample) { sampled = sample.state() == conn::State::kConnected; });
  REQUIRE(sampled);
}

TEST_CASE("perf loops: a failure on one loop ends all, and names the connection", "[perf][loops]") {
  Kit kit;
  int answers = 0;
  const Peer peer(kit, [&answers](conn::Connection& connection) {
    char bytes[64];
    const ssize_t size = connection.read(bytes, sizeof bytes);
    if (size <= 0) return connection.set_read_handler(nullptr);
    if (perf::Header::decode(bytes).sequence() >> 32 == 5 && ++answers > 3) bytes[40] ^= 1;
    connection.write(bytes, static_cast<std::size_t>(size));
  });
  perf::Plan plan = kit.plan(peer.url());
  plan.echo = true;
  plan.connections = 6;
  perf::LoadOnLoops load(kit.loops, plan);
  load.open();
  // The fifth one, on the last loop; the others would go on for an hour.
  REQUIRE(failure_of([&] { load.run(0, 1h); }).starts_with("connection 4: request 21474836483 "));
  REQUIRE(failure_of([&] { load.run(1, 0s); }).starts_with("connection 4: "));
}

TEST_CASE("perf loops: a server that closes idle connections ends the wait", "[perf][loops]") {
  Kit kit;
  const Peer peer(kit, [](conn::Connection& connection) { connection.set_read_handler(nullptr); });
  perf::Plan plan = kit.plan(peer.url(), Mode::kIdle);
  plan.echo = true;
  plan.connections = 3;
  bool over = false;
  {
    perf::LoadOnLoops load(kit.loops, plan);
    load.open();
    load.pass(1ms, over);
    const ae::TimerId timer = kit.home.add_time_event(1ms, [&] {
      over = true;
      kit.home.stop();
      return ae::kNoMore;
    });
    load.pass(1h, over);  // ends when asked
    kit.home.remove_time_event(timer);
  }
  over = false;
  const auto closing = kit.registry.listen(
      kit.home, "tcp://127.0.0.1:0", [](conn::ConnectionPtr connection) { connection.reset(); });
  plan.endpoint = closing->endpoints().front();
  perf::LoadOnLoops load(kit.loops, plan);
  const std::string reason = failure_of([&] {
    load.open();
    load.pass(1h, over);
  });
  REQUIRE(reason.find(": the server closed it") != std::string::npos);
}

TEST_CASE("perf loops: nothing arrives on any loop", "[perf][loops]") {
  Kit kit;
  const Peer peer(kit, [](conn::Connection& connection) { connection.set_read_handler(nullptr); });
  perf::Plan plan = kit.plan(peer.url());
  plan.echo = true;
  plan.connections = 3;
  plan.patience = 1s;
  perf::LoadOnLoops load(kit.loops, plan);
  load.open();
  REQUIRE(failure_of([&] { load.run(3, 0s); }) ==
          "nothing arrived for 1 s; 1 of 1 connections are open, 0 requests were answered");
}

TEST_CASE("perf loops: what ends a loop ends the measurement, and is told", "[perf][loops]") {
  Kit kit;
  const Peer peer(kit, [](conn::Connection& connection) { connection.set_read_handler(nullptr); });
  perf::Plan plan = kit.plan(peer.url());
  plan.echo = true;
  plan.connections = 3;
  const bool during = GENERATE(false, true);
  perf::LoadOnLoops load(kit.loops, plan);
  load.open();
  const auto fall = [&] {
    REQUIRE(kit.loops.group().poster(1).post([] { throw std::runtime_error("no room"); }));
    return ae::kNoMore;
  };
  if (during)
    kit.home.add_time_event(1ms, fall);
  else
    fall();
  REQUIRE(failure_of([&] { load.run(0, 1h); }) == "no room");
}

TEST_CASE("perf loops: how far it is becomes known", "[perf][loops]") {
  Both both("tcp://127.0.0.1:0");
  perf::Plan plan = both.plan(both.server.urls().front());
  plan.connections = 5;
  perf::LoadOnLoops load(both.loops, plan);
  load.open();
  load.run(50, 0s);
  perf::Phases::Standing now;
  const bool over = false;
  for (int i = 0; i < 1000 && now.begun != 50; ++i) {
    now = load.standing();
    load.pass(1ms, over);
  }
  REQUIRE(now.begun == 50);
  REQUIRE(now.opened == 5);
}

TEST_CASE("perf loops: system calls of all loops' threads count", "[perf][loops]") {
  ae::LoopGroup loops({.loops = 3});
  const perf::Meter meter(loops);
  const perf::Usage before = meter.work();
  if (!meter.why_no_calls().empty()) {  // without the tracepoint no number, not a part
    REQUIRE_FALSE(before.system_calls);
    return;
  }
  loops.on_each([](ae::EventLoop&, std::size_t) {
    for (int i = 0; i < 1000; ++i) (void)getppid();
  });
  REQUIRE(*meter.work().since(before).system_calls >= 3000);
}

TEST_CASE("perf loops: the counts of the most loops there can be arrive", "[perf][loops]") {
  std::vector<perf::LoopCounts> counts(perf::kMostLoops);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i].open.add(UINT64_MAX);
    counts[i].begun.add(UINT64_MAX - i);
    counts[i].requests.add(UINT64_MAX);
  }
  std::vector<LoopFacts> all;
  std::size_t queries = 0, told = 0;
  do {
    perf::Fields answer;
    LoopFacts::store(counts, all.size(), answer);
    REQUIRE(answer.to_string().size() <= perf::kMostText);
    told = LoopFacts::load(perf::Fields::parse(answer.to_string()), all);
  } while (all.size() < told && ++queries < 100);
  REQUIRE(all.size() == perf::kMostLoops);
  REQUIRE(all.back().begun == UINT64_MAX - (perf::kMostLoops - 1));
  all.clear();
  REQUIRE(LoopFacts::load(perf::Fields(), all) == 0);  // a server that does not report
  REQUIRE(all.empty());
}

TEST_CASE("perf loops: a number of loops", "[perf][loops]") {
  REQUIRE(perf::loops_of("1") == 1);
  REQUIRE(perf::loops_of("256") == 256);
  REQUIRE(perf::loops_of("0") == ae::LoopGroup().size());
  for (const char* text : {"", "x", "-1", "2x", "257", "99999999999999999999"}) {
    REQUIRE(failure_of([&] { (void)perf::loops_of(text); }) ==
            "--loops " + std::string(text) +
                ": a number from 0 to 256 is wanted, 0 for one on each processor");
  }
}

TEST_CASE("perf report: loops are named where there are several", "[perf][loops]") {
  perf::Result result;
  result.client_loops = {{8, 100}};
  const auto table = [&] {
    std::string out;
    const auto report = perf::make_table([&out](std::string_view text) { out += text; });
    report->begin({}, result.plan);
    report->result(result);
    return out;
  };
  REQUIRE_FALSE(perf::on_several_loops(result));
  REQUIRE(table().find("by loop") == std::string::npos);
  result.server_loops = {{5, 60}, {3, 40}};
  REQUIRE(perf::on_several_loops(result));
  REQUIRE(
      table().ends_with("  client, by loop: connections 8, requests 100\n"
                        "  server, by loop: connections 5 3, requests 60 40\n"));
  result.plan.mode = Mode::kIdle;
  REQUIRE(table().ends_with("  server, by loop: connections 5 3\n"));
  result.server_loops.clear();
  result.client_loops.push_back({1, 0});
  REQUIRE(table().ends_with("  client, by loop: connections 8 1\n"));
}

TEST_CASE("perf loops: a server with endless loops is not asked on", "[perf][loops][hostile]") {
  perf::Fields answer;
  answer.set("loops", UINT64_MAX);
  for (int i = 0; i < 3; ++i)
    for (const char* name : {"open", "begun", "requests"})
      answer.set(name + ("-" + std::to_string(i)), std::uint64_t{1});
  std::vector<LoopFacts> all;
  REQUIRE(LoopFacts::load(answer, all) == 0);
  REQUIRE(all.empty());
}

TEST_CASE("perf report: a server's note writes no control characters", "[perf][hostile]") {
  std::string text;
  const auto table = perf::make_table([&](std::string_view more) { text += more; });
  perf::Sides sides;
  sides.notes.emplace_back("server: \x1b[2J\r gone\x9b");
  table->begin(sides, perf::Plan());
  REQUIRE(text.find("note: server: ") != std::string::npos);
  REQUIRE(std::none_of(text.begin(), text.end(),
                       [](unsigned char c) { return (c < ' ' && c != '\n') || c > '~'; }));
}
