// SPDX-License-Identifier: BSD-3-Clause
// Tasks, scopes and first(); streams and acceptors are in coroutine_streams_test.cc, coroutines
// over each transport in tests/conformance.

#include <array>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "conn/co.h"
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

/// Records when its frame is destroyed.
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

/// Iterates until an exception is thrown; returns its text.
std::string thrown_by(ae::EventLoop& loop, const bool& over) {
  try {
    while (!over) loop.process_events(ae::kFullIteration);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing";
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
    own = co::Task<>(linger(on, Witness(seen, 'x')));  // while this task is awaited
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
    scope.cancel();  // the scope and later spawns live on
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
