// SPDX-License-Identifier: BSD-3-Clause
// Tasks, scopes and what they cost; what coroutines get of connections is in conformance_*_test.cc.

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "tests/support/allocations.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;

namespace {

co::Task<int> answer() { co_return 42; }

co::Task<std::unique_ptr<int>> later(ae::EventLoop& loop, int value) {
  co_await co::sleep(loop, 0s);
  co_return std::make_unique<int>(value);
}

co::Task<> fail_later(ae::EventLoop& loop) {
  co_await co::sleep(loop, 0s);
  throw std::runtime_error("later");
}

/// Says when its frame goes.
struct Witness {
  explicit Witness(std::string& its_log, char its_name) : log(&its_log), name(its_name) {}
  Witness(Witness&& other) noexcept : log(std::exchange(other.log, nullptr)), name(other.name) {}
  ~Witness() {
    if (log != nullptr) *log += name;
  }
  std::string* log;
  char name;
};

co::Task<> linger(ae::EventLoop& loop, Witness) { co_await co::sleep(loop, 1h); }

co::Task<> fail_at_once(std::string what) {
  throw std::runtime_error(what);
  co_return;
}

/// Turns the loop until something is thrown, and gives what.
std::string thrown_by(ae::EventLoop& loop, const bool& over) {
  try {
    while (!over) loop.process_events(ae::kFullIteration);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
}

co::Task<> read_into(co::Stream& from, std::span<char> buffer, std::optional<co::Result>& result) {
  result = co_await from.read(buffer);
}

template <class Task>
concept AwaitableAgain = requires(Task& task) {
  task.operator co_await();
}
|| requires(Task& task) { task.await_ready(); };
template <class Task>
concept AwaitableOnce = requires(Task task) {
  std::move(task).operator co_await();
};
static_assert(AwaitableOnce<co::Task<>> && AwaitableOnce<co::Task<int>>);
static_assert(!AwaitableAgain<co::Task<>> && !AwaitableAgain<co::Task<int>>);
template <class Task>
concept FirstTakesOnlyIts = requires(Task task) {
  co::first(std::move(task));
}
&&!requires(Task & task) { co::first(task); };
static_assert(FirstTakesOnlyIts<co::Task<>>);

}  // namespace

TEST_CASE("task: it begins when it is awaited, gives its value, and throws what it threw", "[co]") {
  testing::AnyLoop loop;
  std::string order;
  const auto run = [](ae::EventLoop& on, std::string& seen) -> co::Task<> {
    co::Task<int> first = answer();
    seen += "made ";
    seen += std::to_string(co_await std::move(first)) + " ";
    const std::unique_ptr<int> second = co_await later(on, 7);
    seen += std::to_string(*second) + " ";
    try {
      co_await fail_later(on);
    } catch (const std::runtime_error& error) {
      seen += error.what();
    }
  };
  co::Scope scope;
  scope.spawn(run(loop, order));
  REQUIRE(order == "made 42 ");
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(order == "made 42 7 later");
}

TEST_CASE("task: a million that end at once need no stack", "[co]") {
  const auto run = [](long& all) -> co::Task<> {
    for (int i = 0; i < 1'000'000; ++i) all += co_await answer();
  };
  long sum = 0;
  co::Scope scope;
  scope.spawn(run(sum));
  REQUIRE(scope.empty());
  REQUIRE(sum == 42'000'000);
}

TEST_CASE("task: dropped before it began, it never runs", "[co]") {
  std::string log;
  testing::AnyLoop loop;
  { const co::Task<> task = linger(loop, Witness(log, 'a')); }
  REQUIRE(log == "a");
}

TEST_CASE("task: once it was awaited, spawned or moved from it is empty, and is refused", "[co]") {
  std::string log;
  const auto run = [](std::string& seen) -> co::Task<> {
    co::Task<int> task = answer();
    seen += task.done() ? '?' : 'b';
    co::Task<int> moved = std::move(task);
    seen += task.done() && !moved.done() ? 'm' : '?';
    seen += co_await std::move(moved) == 42 ? 'a' : '?';
    seen += moved.done() ? 'e' : '?';
    try {
      co_await std::move(moved);
    } catch (const std::bad_alloc&) {
      seen += '!';
    }
    try {
      co_await co::first(answer(), std::move(moved));
    } catch (const std::bad_alloc&) {
      seen += '!';
    }
  };
  co::Scope scope;
  co::Task<> task = run(log);
  scope.spawn(std::move(task));
  REQUIRE(log == "bmae!!");
  REQUIRE(task.done());
  REQUIRE_THROWS_AS(scope.spawn(std::move(task)), std::bad_alloc);
  REQUIRE(scope.empty());
}

TEST_CASE("task: it is awaited where its frame is owned, whatever becomes of the variable",
          "[co]") {
  testing::AnyLoop loop;
  std::string log;
  std::optional<co::Task<>> variable;
  const auto inner = [](ae::EventLoop& on, std::optional<co::Task<>>& own, Witness,
                        std::string& seen) -> co::Task<> {
    own = co::Task<>(linger(on, Witness(seen, 'x')));  // while it is awaited itself
    own.reset();
    co_await co::sleep(on, 0s);
    seen += "in ";
  };
  const auto outer = [](std::optional<co::Task<>>& own, std::string& seen) -> co::Task<> {
    co_await *std::move(own);
    seen += " out";
  };
  variable.emplace(inner(loop, variable, Witness(log, '.'), log));
  co::Scope scope;
  scope.spawn(outer(variable, log));
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "xin . out");
}

TEST_CASE("scope: what a task throws leaves the call that ran it", "[co]") {
  testing::AnyLoop loop;
  co::Scope scope;
  const auto fail = []() -> co::Task<> {
    throw std::runtime_error("at once");
    co_return;
  };
  REQUIRE_THROWS_AS(scope.spawn(fail()), std::runtime_error);
  REQUIRE(scope.empty());
  scope.spawn(fail_later(loop));
  const auto turn = [&] {
    while (!scope.empty()) loop.process_events(ae::kFullIteration);
  };
  REQUIRE_THROWS_AS(turn(), std::runtime_error);
  REQUIRE(scope.empty());
}

TEST_CASE("scope: what a task throws at once spares the task that spawned it", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  bool over = false;
  const auto spawner = [](co::Scope& in, ae::EventLoop& on, std::string& seen, bool ends,
                          bool& done) -> co::Task<> {
    co_await co::sleep(on, 0s);
    try {
      in.spawn(fail_at_once("first"));
      in.spawn(fail_at_once("second"));
      seen += "on";
    } catch (...) {
      seen += "?";
    }
    if (!ends) co_await co::sleep(on, 0s);
    seen += ".";
    done = true;
  };
  const bool same = GENERATE(true, false), ends = GENERATE(true, false);
  CAPTURE(same, ends);
  co::Scope scope, others;
  scope.spawn(spawner(same ? scope : others, loop, log, ends, over));
  REQUIRE(thrown_by(loop, over) == "first");
  REQUIRE(log == (ends ? "on." : "on"));
  REQUIRE(thrown_by(loop, over) == "nothing");
  REQUIRE(log == "on.");
  REQUIRE(scope.empty());
  REQUIRE(others.empty());
}

TEST_CASE("scope: of what a task and those it spawned throw in a turn the first is told", "[co]") {
  testing::AnyLoop loop;
  bool over = false;
  const auto spawner = [](co::Scope& in, ae::EventLoop& on, bool& done) -> co::Task<> {
    co_await co::sleep(on, 0s);
    in.spawn(fail_at_once("spawned"));
    done = true;
    throw std::runtime_error("its own");
  };
  co::Scope scope;
  scope.spawn(spawner(scope, loop, over));
  REQUIRE(thrown_by(loop, over) == "spawned");
  REQUIRE(scope.empty());
}

TEST_CASE("scope: what is thrown at several removes leaves the outermost call", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  struct Nest {
    static co::Task<> spawn(co::Scope& in, ae::EventLoop& on, std::string& seen, int depth) {
      if (depth == 0) throw std::runtime_error("inside");
      in.spawn(spawn(in, on, seen, depth - 1));
      seen += std::to_string(depth);
      co_await co::sleep(on, 0s);
      seen += std::to_string(depth);
    }
  };
  co::Scope scope;
  REQUIRE_THROWS_AS(scope.spawn(Nest::spawn(scope, loop, log, 3)), std::runtime_error);
  REQUIRE(log == "123");
  REQUIRE(scope.size() == 3);
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log.size() == 6);
}

TEST_CASE("scope: its end inside a task loses nothing that another one threw", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  bool over = false;
  auto scope = std::make_unique<co::Scope>();
  const auto end = [](ae::EventLoop& on, std::unique_ptr<co::Scope>& whole, bool& done,
                      Witness) -> co::Task<> {
    co_await co::sleep(on, 0s);
    whole->spawn(fail_at_once("thrown"));
    whole.reset();
    done = true;
    co_await co::sleep(on, 1h);
  };
  scope->spawn(end(loop, scope, over, Witness(log, 'a')));
  REQUIRE(thrown_by(loop, over) == "thrown");
  REQUIRE(log == "a");
}

TEST_CASE("scope: its end cancels its tasks, the newest first", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  {
    co::Scope scope;
    for (const char name : {'a', 'b', 'c'}) scope.spawn(linger(loop, Witness(log, name)));
    REQUIRE(scope.size() == 3);
    REQUIRE(log.empty());
  }
  REQUIRE(log == "cba");
}

TEST_CASE("scope: a task that ends it goes on until it waits", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  const bool waits = GENERATE(true, false);
  auto scope = std::make_unique<co::Scope>();
  const auto end = [](ae::EventLoop& on, std::unique_ptr<co::Scope>& whole, std::string& seen,
                      bool more, Witness) -> co::Task<> {
    co_await co::sleep(on, 0s);
    whole.reset();
    seen += '!';
    if (!more) co_return;
    co_await co::sleep(on, 0s);
    seen += '?';
  };
  scope->spawn(linger(loop, Witness(log, 'a')));
  scope->spawn(end(loop, scope, log, waits, Witness(log, 'b')));
  scope->spawn(linger(loop, Witness(log, 'c')));
  RUN_UNTIL(loop, scope == nullptr);
  REQUIRE(log == "ca!b");
  testing::turns(loop, 3);
  REQUIRE(log == "ca!b");
}

TEST_CASE("scope: one that ends inside its task's first step takes the task with it", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  auto scope = std::make_unique<co::Scope>();
  const auto end = [](ae::EventLoop& on, std::unique_ptr<co::Scope>& whole, Witness) -> co::Task<> {
    const auto inner = [](ae::EventLoop& at, std::unique_ptr<co::Scope>& all) -> co::Task<> {
      all.reset();
      co_await co::sleep(at, 0s);
    };
    co_await inner(on, whole);
  };
  scope->spawn(end(loop, scope, Witness(log, 'a')));
  REQUIRE(log == "a");
}

TEST_CASE("scope: a task may spawn, and a frame that goes may try to", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  struct Spawner {
    co::Scope& scope;
    ae::EventLoop& loop;
    std::string& log;
    ~Spawner() { scope.spawn(linger(loop, Witness(log, 'x'))); }
  };
  const auto grow = [](co::Scope& in, ae::EventLoop& on, std::string& seen) -> co::Task<> {
    const Spawner last{in, on, seen};
    in.spawn(linger(on, Witness(seen, 'a')));
    co_await co::sleep(on, 1h);
  };
  {
    co::Scope scope;
    scope.spawn(grow(scope, loop, log));
    REQUIRE(scope.size() == 2);
    scope.cancel();  // lives on, and so does what was spawned meanwhile
    REQUIRE(log == "a");
    REQUIRE(scope.size() == 1);
    scope.spawn(grow(scope, loop, log));
  }
  REQUIRE(log == "aaxx");
}

TEST_CASE("first: tasks are operations, too, and a draw goes to the first", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  const auto run = [](ae::EventLoop& on, std::string& seen) -> co::Task<> {
    const auto one = co_await co::first(linger(on, Witness(seen, 'a')), later(on, 7));
    seen += std::to_string(one.index());
    seen += std::to_string(*std::get<1>(one));
    const auto two = co_await co::first(answer(), answer(), linger(on, Witness(seen, 'b')));
    seen += std::to_string(two.index());
    try {
      co_await co::first(linger(on, Witness(seen, 'c')), fail_later(on));
    } catch (const std::runtime_error&) {
      seen += '!';
    }
    const auto nested =
        co_await co::first(co::first(co::sleep(on, 1h), co::sleep(on, 0s)), co::sleep(on, 1h));
    seen += std::to_string(nested.index());
    seen += std::to_string(std::get<0>(nested).index());
  };
  co::Scope scope;
  scope.spawn(run(loop, log));
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "a17b0c!01");
}

TEST_CASE("first: what is listed first is over first, and the others never begin", "[co]") {
  testing::Pair pair({.name = "unix"});
  REQUIRE(pair.client->write("abc", 3) == 3);
  testing::await_readable(pair.loop, *pair.server);
  pair.server->set_read_handler(nullptr);
  co::Stream server(std::move(pair.server));
  std::string log;
  const auto note = [](std::string& seen, char name) -> co::Task<char> {
    seen += name;
    co_return name;
  };
  const auto run = [](co::Stream& from, ae::EventLoop& loop, auto task,
                      std::string& seen) -> co::Task<> {
    std::array<char, 2> one{}, two{};
    const auto a = co_await co::first(task(seen, 'a'), from.read(one));
    seen += std::to_string(a.index());
    const auto b = co_await co::first(co::first(co::sleep(loop, 1h), task(seen, 'b')),
                                      from.read(one), task(seen, '?'));
    seen += std::to_string(b.index());
    REQUIRE(one[0] == '\0');  // nothing was read
    const auto c = co_await co::first(from.read(one), task(seen, '?'));
    seen += std::to_string(c.index());
    seen.append(one.data(), std::get<0>(c).size);
    const auto d =
        co_await co::first(co::sleep(loop, 1h), from.read(two), task(seen, '?'), from.read(one));
    seen += std::to_string(d.index());
    seen.append(two.data(), std::get<1>(d).size);
  };
  co::Scope scope;
  scope.spawn(run(server, pair.loop, note, log));
  RUN_UNTIL(pair.loop, scope.empty());
  REQUIRE(log == "a0b00ab1c");
}

TEST_CASE("stream: a limit counts from the call, however long the handler has taken", "[co]") {
  testing::Pair pair({.name = "unix"});
  co::Stream server(std::move(pair.server));
  co::Acceptor acceptor(pair.registry, pair.loop, pair.fresh());
  const int which = GENERATE(0, 1, 2, 3);
  CAPTURE(which);
  const auto wait = [](co::Stream& from, co::Acceptor& arrivals, int how, ae::EventLoop& loop,
                       ae::Duration& took) -> co::Task<> {
    std::array<char, 8> buffer;
    // One that has set the timer, to later and to earlier.
    if (how == 1) (void)(co_await co::first(from.read(buffer, 1h), co::sleep(loop, 0s))).index();
    if (how == 2) (void)(co_await co::first(from.read(buffer, 50ms), co::sleep(loop, 0s))).index();
    co_await co::sleep(loop, 0s);
    (void)loop.now();
    std::this_thread::sleep_for(40ms);
    const auto begin = std::chrono::steady_clock::now();
    if (how == 3) {
      const co::Stream none = co_await arrivals.next(30ms);
      REQUIRE_FALSE(none);
    } else {
      const co::Result got = co_await from.read(buffer, 30ms);
      REQUIRE(got.error == std::errc::timed_out);
    }
    took = std::chrono::steady_clock::now() - begin;
  };
  ae::Duration took{};
  co::Scope scope;
  scope.spawn(wait(server, acceptor, which, pair.loop, took));
  RUN_UNTIL(pair.loop, scope.empty());
  CHECK(took >= 30ms);
}

TEST_CASE("stream: its idle limit is that of operations that are given none", "[co]") {
  testing::Pair pair({.name = "unix"});
  const auto run = [](co::Stream from, ae::EventLoop& loop, std::string& seen) -> co::Task<> {
    std::array<char, 8> buffer;
    const auto tell = [&](std::errc error) {
      seen += error == std::errc::timed_out ? 't' : error == std::errc() ? '.' : '?';
    };
    from.set_idle_limit(1ns);
    tell((co_await from.read(buffer)).error);
    tell((co_await from.read(std::as_writable_bytes(std::span(buffer)))).error);
    tell((co_await from.read_exactly(buffer)).error);
    tell((co_await from.read_exactly(std::as_writable_bytes(std::span(buffer)))).error);
    tell((co_await from.read_line(buffer)).error);
    tell((co_await from.peek()).error);
    const std::string flood(8 << 20, 'x');
    tell((co_await from.write(flood)).error);
    tell((co_await from.write(std::as_bytes(std::span(flood)))).error);
    tell((co_await from.writable()).error);
    const auto named = co_await co::first(from.read(buffer, co::kNoLimit), co::sleep(loop, 2ms));
    seen += std::to_string(named.index());
    co::Stream moved(std::move(from));
    tell((co_await moved.read(buffer)).error);
    moved.set_idle_limit(co::kNoLimit);
    const auto none = co_await co::first(moved.read(buffer), co::sleep(loop, 2ms));
    seen += std::to_string(none.index());
  };
  std::string log;
  co::Scope scope;
  scope.spawn(run(std::move(pair.server), pair.loop, log));
  RUN_UNTIL(pair.loop, scope.empty());
  REQUIRE(log == "ttttttttt1t1");
}

TEST_CASE("stream: a second one in a direction is told so, and takes nothing", "[co]") {
  testing::Pair pair({.name = "unix"});
  co::Stream server(std::move(pair.server));
  std::array<char, 4> one{}, two{};
  std::optional<co::Result> first, second, third;
  co::Scope scope;
  scope.spawn(read_into(server, one, first));
  REQUIRE(pair.client->write("ab", 2) == 2);  // is there, and nobody has told the first
  scope.spawn(read_into(server, two, second));
  REQUIRE(second);
  REQUIRE(second->error == std::errc::device_or_resource_busy);
  REQUIRE(second->size == 0);
  REQUIRE_FALSE(first);
  const auto write = [](co::Stream& to, std::optional<co::Result>& result) -> co::Task<> {
    result = co_await to.write("c");
  };
  scope.spawn(write(server, third));  // the other direction
  RUN_UNTIL(pair.loop, first && third);
  REQUIRE(first->value() == 2);
  REQUIRE(third->value() == 1);
  REQUIRE(one[0] == 'a');
  scope.spawn(read_into(server, one, first = std::nullopt));
  const auto both = [](co::Stream& of, ae::EventLoop& loop, std::string& seen) -> co::Task<> {
    const auto which = co_await co::first(of.writable(), of.write("d"), co::sleep(loop, 1h));
    seen += std::to_string(which.index());
    seen += std::get<1>(which).error == std::errc::device_or_resource_busy ? "busy" : "?";
  };
  std::string log;
  scope.spawn(both(server, pair.loop, log));
  REQUIRE(log == "1busy");
}

TEST_CASE("stream: what waits is cancelled where the stream lets go of the connection", "[co]") {
  enum How { kReleased, kMoved, kDestroyed, kScopeEnds, kLoopEnds };
  const auto how = static_cast<How>(GENERATE(range(0, 5)));
  CAPTURE(how);
  co::Scope scope;
  testing::Pair pair({.name = "unix"});
  auto stream = std::make_unique<co::Stream>(std::move(pair.server));
  const auto write = [](co::Stream& to, std::optional<co::Result>& result) -> co::Task<> {
    const std::string flood(8 << 20, 'x');  // more than there is room for
    result = co_await to.write(flood, 1h);
  };
  std::array<char, 4> buffer{};
  std::optional<co::Result> read, written;
  conn::ConnectionPtr bare;
  std::unique_ptr<co::Stream> moved;
  scope.spawn(read_into(*stream, buffer, read));
  scope.spawn(write(*stream, written));
  REQUIRE(scope.size() == 2);
  switch (how) {
    case kMoved:
      moved = std::make_unique<co::Stream>(std::move(*stream));
      break;
    case kDestroyed:
      stream.reset();
      break;
    default:
      bare = stream->release();
      REQUIRE_FALSE(bare->has_read_handler());
      REQUIRE_FALSE(bare->has_write_handler());
  }
  REQUIRE_FALSE(read);  // not inside the call
  REQUIRE_FALSE(written);
  if (how == kScopeEnds) {
    scope.cancel();
    return testing::turns(pair.loop, 3);
  }
  if (how == kLoopEnds) return;  // they wait for ever, and go with their scope
  RUN_UNTIL(pair.loop, scope.empty());
  REQUIRE(read->error == std::errc::operation_canceled);
  REQUIRE(written->error == std::errc::operation_canceled);
  REQUIRE(written->size > 0);  // what was taken is on its way
  if (how == kDestroyed) return;
  co::Stream after = how == kMoved ? std::move(*moved) : co::Stream(std::move(bare));
  REQUIRE(pair.client->write("ab", 2) == 2);
  scope.spawn(read_into(after, buffer, read = std::nullopt));
  RUN_UNTIL(pair.loop, read.has_value());
  REQUIRE(read->value() == 2);
  scope.spawn(read_into(*stream, buffer, read));  // it is empty
  REQUIRE(read->error == std::errc::not_connected);
}

TEST_CASE("acceptor: as many as it says are kept, and others wait for these", "[co]") {
  testing::Site site({.name = "unix"});
  co::Acceptor acceptor(site.registry, site.loop, site.fresh());
  constexpr std::size_t kMore = 20;
  std::vector<conn::ConnectionPtr> clients;
  for (std::size_t i = 0; i < co::Acceptor::kBacklog + kMore; ++i)
    clients.push_back(site.connect(testing::address_of(acceptor.listener())));
  RUN_UNTIL(site.loop, acceptor.waiting() >= co::Acceptor::kBacklog);
  testing::turns(site.loop, 20);
  REQUIRE(acceptor.waiting() == co::Acceptor::kBacklog);
  const auto take = [](co::Acceptor& from, std::size_t count) -> co::Task<> {
    std::vector<co::Stream> all;
    for (; count != 0; --count) all.push_back(co_await from.next());
  };
  co::Scope scope;
  scope.spawn(take(acceptor, kMore));
  RUN_UNTIL(site.loop, scope.empty() && acceptor.waiting() == co::Acceptor::kBacklog);
}

TEST_CASE("acceptor: a second next() is told at once, and the first one waits on", "[co]") {
  testing::Site site({.name = "tcp"});
  co::Acceptor acceptor(site.registry, site.loop, site.fresh());
  int streams = 0, none = 0;
  const auto ask = [](co::Acceptor& from, int& some, int& no, ae::Duration limit) -> co::Task<> {
    const co::Stream found = co_await from.next(limit);
    ++(found ? some : no);
  };
  co::Scope scope;
  scope.spawn(ask(acceptor, streams, none, co::kNoLimit));
  scope.spawn(ask(acceptor, streams, none, 1ms));
  REQUIRE(none == 1);
  const conn::ConnectionPtr client = site.connect(testing::address_of(acceptor.listener()));
  RUN_UNTIL(site.loop, streams == 1);
}

TEST_CASE("acceptor: it may go while one waits, and while a stream's session goes on", "[co]") {
  testing::Site site({.name = "tcp"});
  auto acceptor = std::make_unique<co::Acceptor>(site.registry, site.loop, site.fresh());
  std::string log;
  const auto session = [](co::Stream peer, std::string& seen) -> co::Task<> {
    seen += "begins ";
    std::array<char, 1> byte;
    const co::Result got = co_await peer.read(byte);
    seen += got && got.size == 1 ? "reads " : "fails ";
  };
  const auto serve = [&session](co::Acceptor& from, std::string& seen) -> co::Task<> {
    co_await session(co_await from.next(), seen);  // next() lives as long as the session
  };
  const auto ask = [](co::Acceptor& from, std::string& seen, ae::Duration limit) -> co::Task<> {
    const co::Stream none = co_await from.next(limit);
    seen += none ? "a stream " : "none ";
  };
  co::Scope scope;
  scope.spawn(serve(*acceptor, log));
  const conn::ConnectionPtr client = site.connect(testing::address_of(acceptor->listener()));
  RUN_UNTIL(site.loop, log == "begins ");
  scope.spawn(ask(*acceptor, log, GENERATE(co::kNoLimit, ae::Duration(1h))));
  acceptor.reset();
  REQUIRE(log == "begins ");
  RUN_UNTIL(site.loop, log == "begins none ");
  REQUIRE(client->write("x", 1) == 1);
  RUN_UNTIL(site.loop, log == "begins none reads ");
  RUN_UNTIL(site.loop, scope.empty());
}

TEST_CASE("acceptor: it may go before what would have asked it", "[co]") {
  testing::Site site({.name = "tcp"});
  auto acceptor = std::make_unique<co::Acceptor>(site.registry, site.loop, site.fresh());
  const auto end = [](std::unique_ptr<co::Acceptor>& which) -> co::Task<> {
    which.reset();
    co_return;
  };
  const auto run = [&end](std::unique_ptr<co::Acceptor>& which) -> co::Task<> {
    const auto won = co_await co::first(end(which), which->next());
    REQUIRE(won.index() == 0);
  };
  co::Scope scope;
  scope.spawn(run(acceptor));
  REQUIRE(scope.empty());
}

TEST_CASE("acceptor: next() has a limit, and a stream goes and comes back", "[co]") {
  testing::Site site({.name = "tcp"});
  co::Acceptor acceptor(site.registry, site.loop, site.fresh());
  bool over = false;
  const auto run = [](testing::Site& at, co::Acceptor& from, bool& done) -> co::Task<> {
    const co::Stream none = co_await from.next(1ms);
    REQUIRE_FALSE(none);
    co::Connected found =
        co_await co::connect(at.registry, at.loop, testing::address_of(from.listener()), 1h);
    co::Stream near = std::move(found).value();
    co::Stream far = co_await from.next(1h);
    REQUIRE(far);
    const co::Result sent = co_await near.write("x");
    REQUIRE(sent);
    std::array<char, 1> byte;
    co::Result got = co_await far.read(byte, 1h);
    REQUIRE(got.value() == 1);
    conn::ConnectionPtr bare = far.release();
    REQUIRE_FALSE(far);
    REQUIRE_FALSE(bare->has_read_handler());
    co::Stream again(std::move(bare));
    const co::Result more = co_await near.write("y");
    REQUIRE(more);
    got = co_await again.read(byte);
    REQUIRE(got.value() == 1);
    done = true;
  };
  co::Scope scope;
  scope.spawn(run(site, acceptor, over));
  RUN_UNTIL(site.loop, over);
}

TEST_CASE("connect: its limit, and what value() throws", "[co]") {
  testing::Site site({.name = "tcp"});
  std::string log;
  const auto run = [](testing::Site& at, conn::Endpoint to, std::string& seen) -> co::Task<> {
    co::Connected found = co_await co::connect(at.registry, at.loop, to);
    try {
      const co::Stream none = std::move(found).value();
    } catch (const std::system_error& error) {
      seen = error.code() == std::errc::connection_refused ? "refused" : error.what();
    }
  };
  co::Scope scope;
  scope.spawn(run(site, site.deserted(), log));
  RUN_UNTIL(site.loop, scope.empty());
  REQUIRE(log == "refused");
}

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("coroutine: a session is one frame, and a request allocates nothing",
          "[co][allocation]") {
  const ae::Duration limit = GENERATE(co::kNoLimit, ae::Duration(1h));
  const std::string name = GENERATE("unix", "tcp", "tls");
  if (!AECONN_TLS && name == "tls") return;
  CAPTURE(name);
  testing::Pair pair({.name = name});
  testing::let_libev_grow(pair.loop);
  co::Stream client(std::move(pair.client));
  const auto echo = [](co::Stream peer, ae::Duration patience) -> co::Task<> {
    std::array<std::byte, 512> buffer;
    while (const co::Result got = co_await peer.read(buffer, patience)) {
      if (got.size == 0) co_return;
      if (!co_await peer.write(std::span(buffer).first(got.size), patience)) co_return;
    }
  };
  const auto ask = [](co::Stream& peer, int times, int& done, ae::Duration patience) -> co::Task<> {
    std::array<char, 64> buffer{};
    for (; done < times; ++done) {
      buffer.back() = '\n';
      if (!co_await peer.write({buffer.data(), buffer.size()}, patience)) co_return;
      if (done % 3 == 0) {
        if (!co_await peer.read_exactly(buffer, patience)) co_return;
      } else if (done % 3 == 1) {
        if (!co_await peer.read_line(buffer, patience)) co_return;
      } else {
        if (!co_await peer.peek(buffer.size(), patience)) co_return;
        peer.consume(buffer.size());
      }
    }
  };
  co::Scope scope;
  int asked = 0;
  // What the loop takes to watch a connection, without coroutines.
  std::size_t first = 0, before = 0;
  for (int i = 0; i < 2; ++i) {  // its tables grow the first time
    first = testing::watch_allocations(true).by_others;
    pair.server->set_read_handler([](conn::Connection&) {});
    before = testing::watch_allocations(true).by_others;
    pair.server->set_read_handler(nullptr);
  }
  const std::size_t begun = testing::watch_allocations(true).by_others;
  scope.spawn(echo(std::move(pair.server), limit));
  const std::size_t session = testing::watch_allocations(false).by_others - begun;
  if (limit == co::kNoLimit) CHECK(session == 1 + (before - first));
  scope.spawn(ask(client, 600, asked, limit));
  while (asked < 100) pair.loop.process_events(ae::kFullIteration);
  const std::size_t begin = testing::watch_allocations(true).by_others;
  while (asked < 600 && scope.size() == 2) pair.loop.process_events(ae::kFullIteration);
  const std::size_t requests = testing::watch_allocations(false).by_others - begin;
  CHECK(asked == 600);
  CHECK(requests == 0);
}
#endif
