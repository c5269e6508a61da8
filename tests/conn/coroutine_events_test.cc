// SPDX-License-Identifier: BSD-3-Clause
// Communication between tasks: events, queues, wait groups, and yielding to others.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "tests/support/allocations.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;

namespace {

co::Task<> await_event(co::Event& event, std::string& log, char name,
                       ae::Duration limit = co::kNoLimit) {
  const bool set = co_await event.wait(limit);
  log += name;
  if (!set) log += '-';
}

co::Task<> pop_all(co::Queue<std::unique_ptr<int>>& from, std::vector<int>& into) {
  while (const std::optional<std::unique_ptr<int>> value = co_await from.pop())
    into.push_back(**value);
}

co::Task<> push_range(co::Queue<std::unique_ptr<int>>& into, int begin, int end) {
  for (int i = begin; i < end; ++i)
    if (!co_await into.push(std::make_unique<int>(i))) co_return;
}

}  // namespace

TEST_CASE("event: who waits goes on in a turn of the loop, in the order in which they came",
          "[co]") {
  testing::AnyLoop loop;
  co::Event event(loop);
  std::string log;
  co::Scope scope;
  for (const char name : {'a', 'b', 'c'}) scope.spawn(await_event(event, log, name));
  scope.spawn(await_event(event, log, 'd', 1h));
  event.set();
  REQUIRE(log.empty());  // not within the call
  event.reset();         // woken tasks continue all the same
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "abcd");
  scope.spawn(await_event(event, log, 'e', 1ns));
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "abcde-");
  event.set();
  scope.spawn(await_event(event, log, 'f'));
  REQUIRE(log == "abcde-f");
}

TEST_CASE("event: set by what begins before the wait, in first()", "[co]") {
  testing::AnyLoop loop;
  co::Event event(loop);
  bool over = false;
  const auto sets = [](co::Event& which, ae::EventLoop& on) -> co::Task<> {
    which.set();
    co_await co::sleep(on, 1h);
  };
  const auto run = [&sets](co::Event& which, ae::EventLoop& on, bool& done) -> co::Task<> {
    const auto won = co_await co::first(sets(which, on), which.wait());
    done = won.index() == 1 && std::get<1>(won);
  };
  co::Scope scope;
  scope.spawn(run(event, loop, over));
  REQUIRE(over);
}

TEST_CASE("event: who is cancelled, woken or not, leaves no trace, and it may end before", "[co]") {
  testing::AnyLoop loop;
  auto event = std::make_unique<co::Event>(loop);
  std::string log;
  {
    co::Scope scope;
    scope.spawn(await_event(*event, log, 'a'));
    scope.spawn(await_event(*event, log, 'b'));
    scope.cancel();
    scope.spawn(await_event(*event, log, 'c'));
    event->set();
    scope.cancel();  // woken, but not resumed yet
    event->reset();
  }
  testing::turns(loop, 3);
  REQUIRE(log.empty());
  co::Scope scope;
  scope.spawn(await_event(*event, log, 'd'));
  event.reset();
  REQUIRE(log.empty());
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "d-");
}

TEST_CASE("event: what waits when the loop ends waits for ever", "[co]") {
  co::Scope scope;
  std::string log;
  std::unique_ptr<co::Event> event;
  {
    testing::AnyLoop loop;
    event = std::make_unique<co::Event>(loop);
    scope.spawn(await_event(*event, log, 'a'));
    scope.spawn(await_event(*event, log, 'b', 1h));
  }
  event->set();
  scope.cancel();
  REQUIRE(log.empty());
}

TEST_CASE("queue: several push and pop, nothing is lost, and no more is held than fits", "[co]") {
  testing::AnyLoop loop;
  const std::size_t capacity = GENERATE(std::size_t(0), std::size_t(1), std::size_t(3));
  co::Queue<std::unique_ptr<int>> queue(loop, capacity);
  std::vector<int> got;
  std::size_t most = 0;
  co::Scope scope, readers;
  for (int i = 0; i < 4; ++i) scope.spawn(push_range(queue, i * 100, i * 100 + 100));
  readers.spawn(pop_all(queue, got));
  readers.spawn(pop_all(queue, got));
  while (!scope.empty()) {
    loop.process_events(ae::kFullIteration);
    most = std::max(most, queue.size());
  }
  queue.close();
  RUN_UNTIL(loop, readers.empty());
  REQUIRE(got.size() == 400);
  std::array<int, 4> next{0, 100, 200, 300};  // in order for each writer
  for (const int value : got) REQUIRE(value == next[static_cast<std::size_t>(value / 100)]++);
  REQUIRE(most <= queue.capacity());
  REQUIRE(queue.capacity() == std::max(capacity, std::size_t(1)));
}

TEST_CASE("queue: a value goes to the next one where the one that was woken is cancelled", "[co]") {
  testing::AnyLoop loop;
  co::Queue<std::unique_ptr<int>> queue(loop, 2);
  std::vector<int> first, second;
  co::Scope gone, stays;
  gone.spawn(pop_all(queue, first));
  stays.spawn(pop_all(queue, second));
  REQUIRE(queue.try_push(std::make_unique<int>(7)));
  REQUIRE_FALSE(queue.try_pop());  // reserved for the first reader
  gone.cancel();
  RUN_UNTIL(loop, !second.empty());
  REQUIRE(first.empty());
  REQUIRE(second == std::vector<int>{7});
  // The same for space, if a writer is cancelled.
  stays.cancel();
  for (const int value : {1, 2}) REQUIRE(queue.try_push(std::make_unique<int>(value)));
  auto kept = std::make_unique<int>(3);
  REQUIRE_FALSE(queue.try_push(kept));
  REQUIRE(kept != nullptr);
  gone.spawn(push_range(queue, 10, 11));
  stays.spawn(push_range(queue, 20, 21));
  REQUIRE(**queue.try_pop() == 1);
  REQUIRE_FALSE(queue.try_push(kept));  // reserved for the first writer
  gone.cancel();
  RUN_UNTIL(loop, stays.empty());
  REQUIRE(**queue.try_pop() == 2);
  REQUIRE(**queue.try_pop() == 20);
  REQUIRE_FALSE(queue.try_pop());
  REQUIRE(queue.size() == 0);
}

TEST_CASE("queue: closed, or gone, who waits goes on without a value", "[co]") {
  testing::AnyLoop loop;
  enum How { kClosed, kGone, kClosedWhileWoken, kGoneWhileWoken };
  const How how = static_cast<How>(GENERATE(range(0, 4)));
  CAPTURE(how);
  auto queue = std::make_unique<co::Queue<int>>(loop, 1);
  auto full = std::make_unique<co::Queue<int>>(loop, 1);
  REQUIRE(full->try_push(1));
  std::optional<std::optional<int>> popped;
  std::optional<bool> pushed;
  const auto pop = [](co::Queue<int>& from, std::optional<std::optional<int>>& into) -> co::Task<> {
    into = co_await from.pop();
  };
  const auto push = [](co::Queue<int>& to, std::optional<bool>& done) -> co::Task<> {
    done = co_await to.push(2);
  };
  co::Scope scope;
  scope.spawn(pop(*queue, popped));
  scope.spawn(push(*full, pushed));
  REQUIRE_FALSE((popped || pushed));
  if (how >= kClosedWhileWoken) {
    REQUIRE(queue->try_push(5));
    REQUIRE(full->try_pop() == 1);
  }
  if (how == kClosed || how == kClosedWhileWoken) {
    queue->close();
    full->close();
  } else {
    queue.reset();
    full.reset();
  }
  REQUIRE_FALSE((popped || pushed));
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(*popped == (how == kClosedWhileWoken ? std::optional<int>(5) : std::nullopt));
  REQUIRE(*pushed == false);
  if (how == kClosed) {
    scope.spawn(pop(*full, popped));
    REQUIRE(*popped == 1);  // existing values can still be popped
    scope.spawn(pop(*full, popped));
    REQUIRE_FALSE(*popped);
    REQUIRE_FALSE(full->try_push(3));
  }
}

TEST_CASE("queue: a limit ends a wait, not the queue", "[co]") {
  testing::AnyLoop loop;
  co::Queue<int> queue(loop, 1);
  std::string log;
  const auto run = [](co::Queue<int>& with, std::string& seen) -> co::Task<> {
    seen += co_await with.pop(1ns) ? '?' : 'n';
    seen += co_await with.push(1, 1ns) ? 'p' : '?';
    seen += co_await with.push(2, 1ns) ? '?' : 'n';
    const auto value = co_await with.pop(1ns);
    seen += value == 1 ? '1' : '?';
  };
  co::Scope scope;
  scope.spawn(run(queue, log));
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "npn1");
}

TEST_CASE("group: waits until all its members have ended, in whatever way", "[co]") {
  testing::AnyLoop loop;
  auto group = std::make_unique<co::WaitGroup>(loop);
  std::string log;
  const auto member = [](ae::EventLoop& on, co::WaitGroup::Member, int how) -> co::Task<> {
    co_await co::sleep(on, how == 0 ? ae::Duration(0s) : ae::Duration(1h));
  };
  const auto wait = [](co::WaitGroup& of, std::string& seen, ae::Duration limit) -> co::Task<> {
    const bool over = co_await of.wait(limit);
    seen += over ? "over" : "not ";
  };
  co::Scope scope, waits;
  waits.spawn(wait(*group, log, co::kNoLimit));
  REQUIRE(log == "over");  // no members: no wait
  for (const int how : {0, 1, 1}) scope.spawn(member(loop, group->join(), how));
  waits.spawn(wait(*group, log = "", 1ns));
  RUN_UNTIL(loop, waits.empty());
  waits.spawn(wait(*group, log, co::kNoLimit));
  RUN_UNTIL(loop, group->size() == 2);
  scope.cancel();
  REQUIRE(group->size() == 0);
  REQUIRE(log == "not ");
  RUN_UNTIL(loop, waits.empty());
  REQUIRE(log == "not over");
  scope.spawn(member(loop, group->join(), 1));
  waits.spawn(wait(*group, log = "", co::kNoLimit));
  group.reset();
  RUN_UNTIL(loop, waits.empty());
  REQUIRE(log == "not ");
}

TEST_CASE("yield: those who yield have turns, and so has the loop", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  const auto run = [](ae::EventLoop& on, std::string& seen, char name) -> co::Task<> {
    for (int i = 0; i < 3; ++i) {
      seen += name;
      co_await co::yield(on);
    }
  };
  int turns = 0;
  const ae::HookId hook = loop.add_before_sleep([&] { ++turns; });
  co::Scope scope;
  scope.spawn(run(loop, log, 'a'));
  scope.spawn(run(loop, log, 'b'));
  REQUIRE(log == "ab");
  RUN_UNTIL(loop, scope.empty());
  loop.remove_hook(hook);
  REQUIRE(log == "ababab");
  REQUIRE(turns >= 2);
  {
    co::Scope gone;
    gone.spawn(run(loop, log = "", 'c'));
  }
  testing::turns(loop, 3);
  REQUIRE(log == "c");
}

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("event: waiting, waking, pushing, popping and yielding take no memory",
          "[co][allocation]") {
  testing::AnyLoop loop;
  testing::let_libev_grow(loop);
  co::Event event(loop);
  co::Queue<int> queue(loop, 2), back(loop, 2);
  int rounds = 0;
  const auto serve = [](co::Queue<int>& from, co::Queue<int>& to) -> co::Task<> {
    while (const auto value = co_await from.pop())
      if (!co_await to.push(*value)) co_return;
  };
  const auto ask = [](ae::EventLoop& on, co::Queue<int>& to, co::Queue<int>& from, co::Event& tell,
                      int& count) -> co::Task<> {
    for (;; ++count) {
      for (int i = 0; i < 2; ++i) (void)(co_await to.push(i));
      for (int i = 0; i < 2; ++i) (void)(co_await from.pop());
      tell.set();
      co_await co::yield(on);
      tell.reset();
      co_await co::yield(on);
    }
  };
  const auto listen = [](co::Event& to) -> co::Task<> {
    for (;;) {
      const bool set = co_await to.wait();
      if (!set) co_return;
      to.reset();
    }
  };
  co::Scope scope;
  scope.spawn(serve(queue, back));
  scope.spawn(listen(event));
  scope.spawn(ask(loop, queue, back, event, rounds));
  RUN_UNTIL(loop, rounds >= 10);
  const std::size_t begin = testing::watch_allocations(true).by_others;
  while (rounds < 200) loop.process_events(ae::kFullIteration);
  CHECK(testing::watch_allocations(false).by_others == begin);
}
#endif
