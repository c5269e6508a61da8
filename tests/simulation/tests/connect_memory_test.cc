// SPDX-License-Identifier: BSD-3-Clause
// Connecting and accepting while the loop has no memory: either the connection is established, or
// its connect handler reports the failure. No exception may leave the loop, and the listener must
// serve the next client.

#include <fmt/format.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "conn/transports/transports.h"
#include "tests/simulation/child.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"
#include "tests/support/certificates.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using namespace simulation;

namespace {

struct Bed {
  explicit Bed(const std::string& scheme, const conn::Options& options = {}) {
    for (const auto& each : registry.types())
      if (each->name().starts_with("tls")) each->configure(testing::test_tls_options("localhost"));
    const bool is_path = scheme.ends_with("unix") || scheme.ends_with("shm");
    to = conn::Endpoint::parse(scheme + "://" + (is_path ? folder.path() + "/s" : "127.0.0.1:0"));
    conn::Endpoint at = to;
    at.options = options;
    listener = registry.listen(loop, at,
                               [this](ConnectionPtr next) { accepted.push_back(std::move(next)); });
    to.port = listener->endpoints().front().port;
    to.no_port = false;
    accepted.reserve(1000);
    tick = loop.add_time_event(5ms, [] { return ae::Duration(5ms); });
  }

  /// Runs the loop until the condition holds. Returns "" if that happened in time and no exception
  /// left the loop, else the complaint.
  std::string until(const std::function<bool()>& condition, Nanoseconds span = 30s) {
    const Nanoseconds limit = world.now() + span;
    while (!condition()) {
      if (world.now() >= limit) return "it came to no end";
      try {
        (void)loop.process_events(ae::kFullIteration);
      } catch (const std::exception& error) {
        fail_allocation(Allocator::kNew, 0);
        return std::string("left the loop: ") + error.what();
      }
    }
    return {};
  }
  std::string run_for(Nanoseconds span) {
    const Nanoseconds limit = world.now() + span;
    return until([&] { return world.now() >= limit; });
  }

  /// Checks that a new client is served.
  std::string serves() {
    accepted.clear();
    ConnectionPtr client = registry.create(loop, to);
    bool over = false;
    client->connect(to, [&](Connection&) { over = true; });
    const std::string complaint =
        until([&] { return over && (!accepted.empty() || client->state() == State::kError); });
    if (complaint.empty() && client->state() != State::kConnected)
      return "the next one fails: " + client->last_error();
    return complaint.empty() ? complaint : "the next one: " + complaint;
  }

  World world;
  testing::TempFolder folder;
  conn::Registry registry = conn::all_transports();
  testing::AnyLoop loop;
  ae::TimerId tick = 0;
  conn::ListenerPtr listener;
  conn::Endpoint to;
  std::vector<ConnectionPtr> accepted;
};

/// Calls `run` with each allocation of a Stride failing in turn, together with `count` - 1 after
/// it, until a run has no failing allocation.
template <class Run>
void each_allocation(std::uint64_t count, Run run) {
  bool failed = true;
  const Stride which;
  for (std::uint64_t number = which.first; failed; number += which.each) {
    CAPTURE(number);
    REQUIRE(number < 1000);
    REQUIRE(run([&] { fail_allocation(Allocator::kNew, number, count); },
                [&] {
                  failed = allocation_failed();
                  fail_allocation(Allocator::kNew, 0);
                }) == "");
  }
}

}  // namespace

TEST_CASE("connect: a blocking one without memory has failed when it returns or throws",
          "[torture]") {
  testing::test_identity();
  const std::string scheme =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "rdma|tcp");
  const std::string option = GENERATE("", "colour");
  CAPTURE(scheme, option);
  each_allocation(1, [&](auto begin, auto end) -> std::string {
    Bed bed(scheme);
    ConnectionPtr client = bed.registry.create(bed.loop, bed.to);
    conn::Endpoint to = bed.to;
    if (!option.empty()) to.options.set(option, "red");
    begin();
    try {
      (void)client->connect_blocking(to, 20ms);
    } catch (const std::bad_alloc&) {
    }
    end();
    if (client->state() != State::kConnected && client->state() != State::kError)
      return "it is under way for ever";
    return bed.serves();
  });
}

TEST_CASE("connect: one that has thrown for lack of memory has failed, and nothing follows",
          "[torture]") {
  testing::test_identity();
  const std::string scheme =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "rdma|tcp");
  const std::string host = GENERATE("", "localhost");  // "": the address, which needs no lookup
  CAPTURE(scheme, host);
  each_allocation(1, [&](auto begin, auto end) -> std::string {
    Bed bed(scheme);
    conn::Endpoint to = bed.to;
    if (!host.empty())
      for (conn::Endpoint::Host& each : to.hosts) each.name = host;
    ConnectionPtr client = bed.registry.create(bed.loop, to);
    int done = 0;
    bool threw = false;
    begin();
    try {
      client->connect(to, [&](Connection&) { ++done; });
    } catch (const std::bad_alloc&) {
      threw = true;
    }
    end();
    if (threw && client->state() != State::kError) return "it is under way for ever";
    const std::string complaint = bed.run_for(6s);  // past option connect-timeout
    if (!complaint.empty()) return complaint;
    if (done != (threw ? 0 : 1)) return fmt::format("the connect handler ran {} times", done);
    return bed.serves();
  });
}

TEST_CASE("connect: without memory the connect handler tells what became of it", "[torture]") {
  testing::test_identity();
  const std::string scheme =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "rdma|tcp");
  const std::uint64_t count = GENERATE(1, 3, 20);
  CAPTURE(scheme, count);
  each_allocation(count, [&](auto begin, auto end) -> std::string {
    Bed bed(scheme);
    ConnectionPtr client = bed.registry.create(bed.loop, bed.to);
    std::string got;
    got.reserve(100);
    int done = 0, closed = 0;
    State at_done = State::kNone;
    client->set_read_handler([&](Connection& here) {
      char bytes[8];
      const ssize_t n = here.read(bytes, sizeof bytes);
      if (n > 0) got.append(bytes, static_cast<std::size_t>(n));
      if (n == 0 || (n < 0 && errno != EAGAIN)) here.set_read_handler(nullptr);
    });
    client->set_write_handler([&](Connection& here) { here.set_write_handler(nullptr); });
    client->set_close_handler([&](Connection&) { ++closed; });
    client->connect(bed.to, [&](Connection& here) {
      ++done;
      at_done = here.state();
    });
    begin();
    std::string complaint = bed.until([&] { return done != 0; });
    if (complaint.empty()) complaint = bed.run_for(20ms);
    end();
    if (complaint.empty()) complaint = bed.run_for(5s);
    if (!complaint.empty()) return complaint;
    if (done != 1) return "the connect handler ran twice";
    // The server may have lacked memory: then the connection fails later, reported by the close
    // handler.
    if (client->state() == State::kConnected && !bed.accepted.empty()) {
      if (bed.accepted.front()->write("hello", 5) != 5) return "the server cannot write";
      complaint = bed.until([&] { return got == "hello"; });
      if (!complaint.empty()) return "the read handler: " + complaint;
    }
    if (at_done == State::kConnected && client->state() != State::kConnected && closed == 0)
      return "it failed, and nobody was told";
    return bed.serves();
  });
}

TEST_CASE("accept: without memory no client is both refused and handed out", "[torture]") {
  testing::test_identity();
  const std::string scheme =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "rdma|tcp");
  const std::uint64_t count = GENERATE(1, 3);
  CAPTURE(scheme, count);
  each_allocation(count, [&](auto begin, auto end) -> std::string {
    Bed bed(scheme);
    std::size_t refused = 0;
    bed.listener->on_refused([&](const conn::Failure&) { ++refused; });
    ConnectionPtr client = bed.registry.create(bed.loop, bed.to);
    client->connect(bed.to, [](Connection&) {});
    begin();
    std::string complaint = bed.run_for(50ms);
    end();
    if (complaint.empty()) complaint = bed.run_for(1s);
    if (!complaint.empty()) return complaint;
    if (refused + bed.accepted.size() > 1)
      return fmt::format("refused {} times, handed out {} times", refused, bed.accepted.size());
    return bed.serves();
  });
}

TEST_CASE("tls: without memory a handshake that is late ends all the same", "[torture]") {
  testing::test_identity();
  const std::uint64_t count = GENERATE(1, 3, 20);
  CAPTURE(count);
  SECTION("a server that is silent") {
    each_allocation(count, [&](auto begin, auto end) -> std::string {
      Bed bed("tcp");
      conn::Endpoint to = bed.to;
      to.scheme = "tls";
      to.options = conn::Options{{"handshake-timeout", "1s"}};
      ConnectionPtr client = bed.registry.create(bed.loop, to);
      int done = 0;
      client->connect(to, [&](Connection&) { ++done; });
      std::string complaint = bed.run_for(500ms);
      begin();
      if (complaint.empty()) complaint = bed.until([&] { return done != 0; });
      end();
      if (complaint.empty() && client->state() != State::kError) return "it stands";
      return complaint;
    });
  }
  SECTION("a client that is silent") {
    each_allocation(count, [&](auto begin, auto end) -> std::string {
      Bed bed("tls", {{"handshake-timeout", "1s"}, {"max-handshakes", "1"}});
      conn::Endpoint to = bed.to;
      to.scheme = "tcp";
      std::vector<ConnectionPtr> silent;
      silent.reserve(3);
      int connected = 0;
      for (int i = 0; i < 3; ++i) {
        silent.push_back(bed.registry.create(bed.loop, to));
        silent.back()->connect(to, [&](Connection&) { ++connected; });
      }
      begin();  // accepting, and making room by closing the silent clients
      std::string complaint = bed.run_for(4s);
      end();
      if (!complaint.empty()) return complaint;
      silent.clear();
      return bed.serves();
    });
  }
}

TEST_CASE("close handler: without memory the end is told, and the failure after it", "[torture]") {
  testing::test_identity();
  const std::string scheme =
      GENERATE("tcp", "unix", "shm", "tls", "tls+unix", "tls+shm", "rdma|tcp");
  const std::uint64_t count = GENERATE(1, 3, 20);
  const conn::CloseOn when = GENERATE(conn::CloseOn::kEnd, conn::CloseOn::kFailure);
  CAPTURE(scheme, count, when == conn::CloseOn::kEnd);
  each_allocation(count, [&](auto begin, auto end) -> std::string {
    Bed bed(scheme);
    ConnectionPtr client = bed.registry.create(bed.loop, bed.to);
    client->connect(bed.to, [](Connection&) {});
    std::string complaint = bed.until([&] { return !bed.accepted.empty(); });
    if (complaint.empty()) complaint = bed.run_for(100ms);
    if (!complaint.empty()) return complaint;
    int closed = 0;
    client->set_close_handler([&](Connection&) { ++closed; }, when);
    complaint = bed.run_for(10ms);
    begin();
    (void)bed.accepted.front()->shutdown_both();
    if (complaint.empty()) complaint = bed.run_for(100ms);
    const bool by_end = closed != 0;
    (void)bed.accepted.front().release()->abort();
    bed.accepted.clear();
    if (complaint.empty()) complaint = bed.run_for(100ms);
    end();
    (void)client->write("x", 1);
    (void)client->write("x", 1);
    if (complaint.empty()) complaint = bed.run_for(100ms);
    if (!complaint.empty()) return complaint;
    if (when == conn::CloseOn::kEnd && !by_end) return "the end was not told";
    if (closed != 1) return fmt::format("the close handler ran {} times", closed);
    return {};
  });
}
