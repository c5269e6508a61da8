// SPDX-License-Identifier: BSD-3-Clause
// How the handlers learn of the failure of a connection whose socket is no longer watched: the
// timer by itself, with a carrier that runs no handler on its own.

#include <stdexcept>
#include <string>
#include <utility>

#include "conn/connection.h"
#include "conn/tcp/failure_timer.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/stuck_transport.h"

using conn::tcp::FailureTimer;

namespace {

/// A connection that was established, and the timer that a test starts for its carrier.
struct Bed {
  Bed() {
    connection->connect(conn::Endpoint::parse("stuck://x"), [](conn::Connection&) {});
    type.connect_all();
    REQUIRE(connection->state() == conn::State::kConnected);
    carrier = *type.established.begin();
  }
  ~Bed() { timer.stop(loop); }
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  /// Runs what the timers have for this iteration of the loop; returns the handlers that ran.
  std::string turn() {
    loop.process_events(ae::kTimeEvents | ae::kDontWait);
    return std::exchange(calls, {});
  }
  void on_read(std::function<void()> more = [] {}) {
    connection->set_read_handler([this, more](conn::Connection&) {
      calls += 'r';
      more();
    });
  }
  void on_write(std::function<void()> more = [] {}) {
    connection->set_write_handler([this, more](conn::Connection&) {
      calls += 'w';
      more();
    });
  }
  void collect_read() {
    char byte;
    CHECK(connection->read(&byte, 1) == -1);
  }
  void collect_write() { CHECK(connection->write("x", 1) == -1); }

  testing::StuckType type;
  testing::AnyLoop loop;
  conn::ConnectionPtr connection = type.create(loop);
  const conn::Carrier* carrier = nullptr;
  FailureTimer timer;
  std::string calls;
};

}  // namespace

TEST_CASE("tcp failure timer: each handler runs until it has collected the error", "[tcp]") {
  Bed bed;
  int reads = 0;
  bed.on_read([&] {
    if (++reads == 2) bed.collect_read();
  });
  bed.type.lose_all();
  bed.timer.start(*bed.carrier);
  CHECK(bed.calls.empty());  // handlers run from the loop
  CHECK(bed.turn() == "r");
  CHECK(bed.turn() == "r");
  CHECK(bed.turn().empty());
  // The write handler, which is set later, is due as well, and the read handler no more.
  bed.on_write([&] { bed.collect_write(); });
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn() == "w");
  CHECK(bed.turn().empty());
}

TEST_CASE("tcp failure timer: the read handler runs before the write handler", "[tcp]") {
  Bed bed;
  bed.type.lose_all();
  bed.on_read([&] { bed.collect_read(); });
  bed.on_write([&] { bed.collect_write(); });
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn() == "rw");
  CHECK(bed.turn().empty());
}

TEST_CASE("tcp failure timer: the handler that has collected the error runs no more", "[tcp]") {
  Bed bed;
  const bool reads = GENERATE(true, false);
  CAPTURE(reads);
  bed.type.lose_all();
  bed.on_read([&] {
    if (reads) bed.collect_read();
  });
  bed.on_write([&] {
    if (!reads) bed.collect_write();
  });
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn() == "rw");
  CHECK(bed.turn() == (reads ? "w" : "r"));
}

TEST_CASE("tcp failure timer: without a failure, or a handler for it, it does not start", "[tcp]") {
  Bed bed;
  bed.on_read();
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn().empty());
  bed.connection->set_read_handler(nullptr);
  bed.type.lose_all();
  bed.timer.start(*bed.carrier);
  // A timer that had started without a handler would run this one.
  bed.on_read([&] { bed.collect_read(); });
  CHECK(bed.turn().empty());
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn() == "r");
}

TEST_CASE("tcp failure timer: a second start has no effect", "[tcp]") {
  Bed bed;
  bed.on_read();
  bed.type.lose_all();
  bed.timer.start(*bed.carrier);
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn() == "r");
}

TEST_CASE("tcp failure timer: it can be stopped, and started again", "[tcp]") {
  Bed bed;
  bed.on_read();
  bed.type.lose_all();
  bed.timer.start(*bed.carrier);
  bed.timer.stop(bed.loop);
  CHECK(bed.turn().empty());
  bed.timer.stop(bed.loop);  // no effect
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn() == "r");
}

TEST_CASE("tcp failure timer: no handler runs after the one that closes the connection", "[tcp]") {
  Bed bed;
  const bool in_read = GENERATE(true, false);
  CAPTURE(in_read);
  const auto close = [&] { bed.connection.reset(); };
  bed.type.lose_all();
  if (in_read) bed.on_read(close);
  bed.on_write(close);
  bed.timer.start(*bed.carrier);
  CHECK(bed.turn() == (in_read ? "r" : "w"));
  CHECK(bed.turn().empty());
}

TEST_CASE("tcp failure timer: it goes on after a handler has thrown", "[tcp]") {
  Bed bed;
  int reads = 0;
  bed.on_read([&] {
    if (++reads == 1) throw std::runtime_error("of the program");
    bed.collect_read();
  });
  bed.type.lose_all();
  bed.timer.start(*bed.carrier);
  CHECK_THROWS_AS(bed.loop.process_events(ae::kTimeEvents | ae::kDontWait), std::runtime_error);
  bed.calls.clear();
  CHECK(bed.turn() == "r");
}
