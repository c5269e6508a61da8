// SPDX-License-Identifier: BSD-3-Clause
// first(), if one of its tasks runs nested iterations of the loop: an operation that loses
// meanwhile, or is cancelled, must not have consumed anything.

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "conn/co.h"
#include "tests/support/catch.h"
#include "tests/support/co_bed.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;
using testing::Bed;

namespace {

/// A second connection in addition to a Bed's. Both servers are streams that remain usable.
struct Two : Bed {
  explicit Two(const std::string& name) : Bed(name) {
    a = co::Stream(std::move(server));
    const conn::Endpoint at = listener->endpoints().front();
    other = registry.create(loop, at);
    other->connect(at, [](conn::Connection&) {});
    RUN_UNTIL(loop, server != nullptr && other->state() == conn::State::kConnected);
    b = co::Stream(std::move(server));
  }
  static void say(conn::Connection& to, const char* what) {
    REQUIRE(to.write(what, std::char_traits<char>::length(what)) > 0);
    to.flush();
  }
  /// Makes both streams readable, and iterates until no operation waits for them.
  void both() {
    say(*client, "a\n");
    say(*other, "b\n");
    while (a->has_read_handler() || b->has_read_handler()) loop.dispatch();
  }

  conn::ConnectionPtr other;
  co::Stream a, b;
};

/// How `b` is waited for.
enum Kind { kRead, kExactly, kLine, kPeek, kTask, kInner };

co::Task<> read_it(co::Stream& from) {
  std::array<char, 2> buffer;
  (void)co_await from.read(buffer);
}

co::Task<> turning(Two& two, bool at_once, std::function<void()> inside) {
  if (!at_once) co_await co::sleep(two.loop, 0s);
  inside();
  co_await co::sleep(two.loop, 1h);
}

/// first() of a task that runs nested iterations, and of operations on both streams.
co::Task<std::size_t> first_of_both(Two& two, Kind kind, bool at_once) {
  const auto inside = [&two] { two.both(); };
  std::array<char, 2> of_a, of_b;
  std::array<char, 8> line;
  co::Stream &a = two.a, &b = two.b;
  switch (kind) {
    case kRead:
      co_return (co_await co::first(a.read(of_a), b.read(of_b), turning(two, at_once, inside)))
          .index();
    case kExactly:
      co_return (co_await co::first(a.read_exactly(of_a), b.read_exactly(of_b),
                                    turning(two, at_once, inside)))
          .index();
    case kLine:
      co_return (
          co_await co::first(a.read_line(line), b.read_line(line), turning(two, at_once, inside)))
          .index();
    case kPeek:
      co_return (co_await co::first(a.read(of_a), b.peek(), turning(two, at_once, inside))).index();
    case kTask:
      co_return (co_await co::first(read_it(a), read_it(b), turning(two, at_once, inside))).index();
    default:
      co_return (co_await co::first(co::first(a.read(of_a), co::sleep(two.loop, 1h)),
                                    co::first(b.read(of_b), co::sleep(two.loop, 1h)),
                                    turning(two, at_once, inside)))
          .index();
  }
}

co::Task<> take_what_is_there(co::Stream& from, std::string& seen) {
  std::array<char, 3> buffer;
  const co::Result got = co_await from.read_exactly(buffer, 1s);
  seen += std::string(buffer.data(), got.size);
}

}  // namespace

TEST_CASE("first: what loses while a task is on the stack has taken nothing", "[co]") {
  const std::string name = GENERATE("memory", "unix", "tcp", "shm");
  const Kind kind = GENERATE(kRead, kExactly, kLine, kPeek, kTask, kInner);
  const bool at_once = GENERATE(true, false);
  CAPTURE(name, kind, at_once);
  Two two(name);
  std::string seen;
  co::Scope scope;
  const auto run = [](Two& of, Kind how, bool begins, std::string& log) -> co::Task<> {
    const std::size_t index = co_await first_of_both(of, how, begins);
    REQUIRE(index < 2);
    co::Stream& loser = index == 0 ? of.b : of.a;
    Two::say(index == 0 ? *of.other : *of.client, "!");
    co_await take_what_is_there(loser, log);
    if (index == 1) REQUIRE(std::exchange(log[0], 'b') == 'a');
  };
  scope.spawn(run(two, kind, at_once, seen));
  RUN_UNTIL(two.loop, scope.empty());
  REQUIRE(seen == "b\n!");
}

TEST_CASE("first: what is cancelled with a task on the stack has taken nothing", "[co]") {
  // `b` completes in the iteration in which it is cancelled: by the scope, or because another
  // first() has completed.
  const std::string name = GENERATE("memory", "unix", "tcp", "shm");
  const bool outer = GENERATE(true, false);
  const Kind kind = GENERATE(kRead, kPeek, kInner);
  CAPTURE(name, outer, kind);
  Two two(name);
  std::string seen;
  co::Scope scope;
  const auto inner = [](Two& of, Kind what, std::function<void()> turns) -> co::Task<> {
    std::array<char, 2> buffer;
    if (what == kPeek) {
      (void)(co_await co::first(of.b.peek(), turning(of, false, std::move(turns)))).index();
    } else if (what == kInner) {
      (void)(co_await co::first(co::first(of.b.read(buffer), co::sleep(of.loop, 1h)),
                                turning(of, false, std::move(turns))))
          .index();
    } else {
      (void)(co_await co::first(of.b.read(buffer), turning(of, false, std::move(turns)))).index();
    }
    FAIL("it went on");
  };
  const auto run = [&inner](Two& of, co::Scope& its, bool ends, Kind what) -> co::Task<> {
    std::array<char, 2> buffer;
    const auto which = co_await co::first(of.a.read(buffer), inner(of, what, [&of, &its, ends] {
                                            of.both();
                                            if (!ends) its.cancel();
                                          }));
    REQUIRE(which.index() == 0);
    REQUIRE(buffer[0] == 'a');
  };
  scope.spawn(run(two, scope, outer, kind));
  RUN_UNTIL(two.loop, scope.empty() && !two.b->has_read_handler());
  Two::say(*two.other, "!");
  scope.spawn(take_what_is_there(two.b, seen));
  if (!outer) scope.spawn(take_what_is_there(two.a, seen));
  if (!outer) Two::say(*two.client, "!");
  RUN_UNTIL(two.loop, scope.empty());
  REQUIRE((seen == "b\n!" || seen == "b\n!a\n!" || seen == "a\n!b\n!"));
  REQUIRE(seen.size() == (outer ? 3 : 6));
}

TEST_CASE("first: a read that won before the task on the stack waits keeps its stream", "[co]") {
  // Events on the stream until then.
  enum Until { kNothing, kAnotherReads, kStreamEnds, kLimit };
  const Until until = GENERATE(kNothing, kAnotherReads, kStreamEnds, kLimit);
  CAPTURE(until);
  Two two("unix");
  co::Result got, other;
  co::Scope scope;
  const auto run = [](Two& of, Until what, co::Result& its, co::Result& others) -> co::Task<> {
    std::array<char, 8> buffer{};
    co::Scope beside;
    const auto which = co_await co::first(
        of.b.read(buffer, 20ms), turning(of, false, [&of, &beside, &others, what] {
          Two::say(*of.other, "b");
          while (of.b->has_read_handler()) of.loop.dispatch();
          Two::say(*of.other, "c");
          const auto reads = [](co::Stream& from, co::Result& result) -> co::Task<> {
            std::array<char, 8> room;
            result = co_await from.read(room);
          };
          if (what == kAnotherReads) beside.spawn(reads(of.b, others));
          if (what == kStreamEnds) of.b = co::Stream();
          if (what == kLimit) std::this_thread::sleep_for(30ms);
        }));
    REQUIRE(which.index() == 0);
    its = std::get<0>(which);
    if (what == kLimit) co_await co::sleep(of.loop, 0s);
  };
  scope.spawn(run(two, until, got, other));
  RUN_UNTIL(two.loop, scope.empty());
  REQUIRE(got.error == (until == kStreamEnds ? std::errc::operation_canceled : std::errc()));
  REQUIRE((got.size > 0) == (until != kStreamEnds));
  if (until == kAnotherReads) REQUIRE(other.error == std::errc::device_or_resource_busy);
  if (until == kStreamEnds) return;
  std::string rest;  // the stream can still be used
  Two::say(*two.other, "def");
  scope.spawn(take_what_is_there(two.b, rest));
  RUN_UNTIL(two.loop, scope.empty());
  REQUIRE(rest.size() == 3);
}

TEST_CASE("acceptor: an arrival is the next one's where who was given it does not go on", "[co]") {
  enum How { kLoses, kCancelled, kTaskLoses };
  const How how = GENERATE(kLoses, kCancelled, kTaskLoses);
  const bool another_waits = GENERATE(false, true);
  CAPTURE(how, another_waits);
  Two two("unix");
  co::Acceptor acceptor(two.registry, two.loop, "tcp://127.0.0.1:0", 1);
  testing::RawSocket caller;
  int given = 0;
  co::Scope scope, others;
  const auto next = [](co::Acceptor& from, int& count) -> co::Task<> {
    if (co_await from.next(1s)) ++count;
  };
  const auto inside = [&] {
    if (how != kCancelled) {
      Two::say(*two.client, "a");
      while (two.a->has_read_handler()) two.loop.dispatch();
    }
    caller = testing::RawSocket::connect(acceptor.listener().endpoints().front());
    for (int i = 0; i < 5; ++i) two.loop.dispatch();
    if (another_waits) others.spawn(next(acceptor, given));
    if (how == kCancelled) scope.cancel();
  };
  const auto run = [&next](Two& of, co::Acceptor& from, int& count, How what,
                           std::function<void()> turns) -> co::Task<> {
    std::array<char, 2> buffer;
    if (what == kTaskLoses) {
      (void)(co_await co::first(of.a.read(buffer), next(from, count),
                                turning(of, false, std::move(turns))))
          .index();
    } else {
      (void)(co_await co::first(of.a.read(buffer), from.next(),
                                turning(of, false, std::move(turns))))
          .index();
    }
  };
  scope.spawn(run(two, acceptor, given, how, inside));
  RUN_UNTIL(two.loop, scope.empty());
  if (!another_waits) others.spawn(next(acceptor, given));
  RUN_UNTIL(two.loop, others.empty());
  REQUIRE(given == 1);
}
