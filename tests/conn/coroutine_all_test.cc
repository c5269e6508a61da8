// SPDX-License-Identifier: BSD-3-Clause
// when_all(): runs operations until all have ended; and Semaphore, which limits how many run.

#include <array>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "conn/co.h"
#include "tests/support/allocations.h"
#include "tests/support/catch.h"
#include "tests/support/co_bed.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;
using testing::Bed;

namespace {

co::Task<int> after(co::Event& event, int value) {
  co_await event.wait();
  co_return value;
}

co::Task<> note(co::Event& event, std::string& log, char name) {
  co_await event.wait();
  log += name;
}

co::Task<int> fail(co::Event& event, const char* what) {
  co_await event.wait();
  throw std::runtime_error(what);
}

/// Resumes the task inside await_suspend().
struct AtOnce {
  explicit AtOnce(int its) : value(its) {}
  AtOnce(AtOnce&&) = default;
  ~AtOnce() { value = 0; }
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) const { handle.resume(); }
  int await_resume() const noexcept { return value; }
  int value;
};

/// Holds a permit until it is cancelled or the event is set.
co::Task<> hold(co::Semaphore& semaphore, co::Event& until, std::string& log, char name,
                ae::Duration limit = co::kNoLimit) {
  const co::Semaphore::Permit permit = co_await semaphore.acquire(limit);
  log += permit ? name : '-';
  if (permit) co_await until.wait();
}

}  // namespace

TEST_CASE("all: the results are in the order of the arguments, whichever ends first", "[co]") {
  testing::AnyLoop loop;
  std::array<co::Event, 3> events{co::Event(loop), co::Event(loop), co::Event(loop)};
  const std::array<std::size_t, 3> order =
      GENERATE(std::array<std::size_t, 3>{0, 1, 2}, std::array<std::size_t, 3>{2, 1, 0},
               std::array<std::size_t, 3>{1, 2, 0});
  std::string log;
  bool over = false;
  const auto run = [](std::array<co::Event, 3>& on, std::string& seen, bool& done) -> co::Task<> {
    const auto [one, two, nothing, set, at_once] = co_await co::when_all(
        after(on[0], 1), after(on[1], 2), note(on[2], seen, 'n'), on[2].wait(), AtOnce(5));
    static_assert(std::is_same_v<decltype(nothing), const std::monostate>);
    done = one == 1 && two == 2 && set && at_once == 5;
  };
  co::Scope scope;
  scope.spawn(run(events, log, over));
  for (const std::size_t each : order) {
    REQUIRE_FALSE(over);
    testing::turns(loop, 3);
    events[each].set();
  }
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(over);
  REQUIRE(log == "n");
}

TEST_CASE("all: what is complete at once waits for nothing, and takes no stack", "[co]") {
  testing::AnyLoop loop;
  co::Queue<int> queue(loop, 1);
  long sum = 0;
  const auto run = [](co::Queue<int>& with, long& into) -> co::Task<> {
    for (int i = 0; i < 100'000; ++i) {
      // popped before the push, which needs its space
      if (!with.try_push(i)) co_return;
      const auto [value, pushed, one] = co_await co::when_all(with.pop(), with.push(1), AtOnce(1));
      const std::optional<int> other = with.try_pop();
      if (value == i && pushed && other == 1) into += one;
    }
  };
  co::Scope scope;
  scope.spawn(run(queue, sum));
  REQUIRE(scope.empty());
  REQUIRE(sum == 100'000);
}

TEST_CASE("all: the first argument's exception is thrown, after all have ended", "[co]") {
  testing::AnyLoop loop;
  co::Event soon(loop), late(loop);
  std::string log;
  const auto run = [](co::Event& first, co::Event& last, std::string& seen) -> co::Task<> {
    std::string caught;
    try {
      (void)co_await co::when_all(note(last, seen, 'n'), fail(last, "last"), fail(first, "soon"));
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    seen += caught;
  };
  co::Scope scope;
  scope.spawn(run(soon, late, log));
  soon.set();
  testing::turns(loop, 3);
  REQUIRE(log.empty());
  late.set();
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "nlast");
}

TEST_CASE("all: an empty task, and an awaitable that cannot begin", "[co]") {
  struct Refuses {
    explicit Refuses(std::string& its) : log(&its) {}
    Refuses(Refuses&& other) noexcept : log(std::exchange(other.log, nullptr)) {}
    ~Refuses() {
      if (log != nullptr) *log += 'r';
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<>) const { throw std::runtime_error("refused"); }
    void await_resume() const noexcept {}
    std::string* log;
  };
  testing::AnyLoop loop;
  co::Event event(loop);
  std::string log;
  const auto run = [](co::Event& on, std::string& seen, bool empty) -> co::Task<> {
    co::Task<int> task = after(on, 1);
    if (empty) const co::Task<int> gone = std::move(task);
    std::string caught;
    try {
      (void)co_await co::when_all(note(on, seen, 'n'), std::move(task), Refuses(seen));
    } catch (const std::exception& error) {
      caught = error.what();
    }
    seen += caught;
  };
  co::Scope scope;
  scope.spawn(run(event, log, true));
  REQUIRE(log == "r" + std::string(std::bad_alloc().what()));  // nothing has begun
  scope.spawn(run(event, log = "", false));
  event.set();
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "nrrefused");
}

TEST_CASE("all: cancelled, those that wait have taken nothing, and results are destroyed", "[co]") {
  testing::AnyLoop loop;
  co::Event never(loop);
  co::Semaphore semaphore(loop, 2);
  co::Queue<std::unique_ptr<int>> queue(loop, 1);
  const auto run = [](co::Semaphore& permits, co::Queue<std::unique_ptr<int>>& from,
                      co::Event& until) -> co::Task<> {
    (void)co_await co::when_all(permits.acquire(), permits.acquire(), from.pop(), until.wait(),
                                permits.acquire(1h));
  };
  co::Scope scope;
  scope.spawn(run(semaphore, queue, never));
  REQUIRE(semaphore.available() == 0);
  const bool woken = GENERATE(true, false);
  if (woken) REQUIRE(queue.try_push(std::make_unique<int>(7)));
  scope.cancel();
  REQUIRE(semaphore.available() == 2);
  if (woken) REQUIRE(**queue.try_pop() == 7);
  REQUIRE(queue.size() == 0);
}

TEST_CASE("all: within first(), and first() within it", "[co]") {
  testing::AnyLoop loop;
  co::Event a(loop), b(loop), c(loop);
  co::Semaphore semaphore(loop, 1);
  const bool all_wins = GENERATE(true, false);
  std::string log;
  const auto run = [](co::Event& x, co::Event& y, co::Event& z, co::Semaphore& permits,
                      std::string& seen) -> co::Task<> {
    const auto which = co_await co::first(co::when_all(permits.acquire(), note(x, seen, 'x'),
                                                       co::first(after(y, 2), permits.acquire())),
                                          z.wait());
    seen += which.index() == 0 ? "all" : "other";
    seen += std::to_string(permits.available());  // the result holds the permit
    if (which.index() == 0) seen += std::to_string(std::get<2>(std::get<0>(which)).index());
  };
  co::Scope scope;
  scope.spawn(run(a, b, c, semaphore, log));
  (all_wins ? b : a).set();
  testing::turns(loop, 3);
  (all_wins ? a : c).set();
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == (all_wins ? "xall00" : "xother1"));
  REQUIRE(semaphore.available() == 1);
}

TEST_CASE("all: both directions of a stream", "[co]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Pair pair(transport);
    std::string got;
    const auto run = [](co::Stream peer, std::string& seen) -> co::Task<> {
      std::array<char, 4> buffer;
      const auto [sent, read] =
          co_await co::when_all(peer.write("ping"), peer.read_exactly(buffer, testing::patience()));
      if (sent) seen.assign(buffer.data(), read.size);
    };
    const auto answer = [](co::Stream peer) -> co::Task<> {
      std::array<char, 4> buffer;
      const co::Result read = co_await peer.read_exactly(buffer, testing::patience());
      if (read) (void)co_await peer.write("pong");
    };
    co::Scope scope;
    scope.spawn(run(std::move(pair.client), got));
    scope.spawn(answer(std::move(pair.server)));
    RUN_UNTIL(pair.loop, scope.empty());
    REQUIRE(got == "pong");
  }
}

TEST_CASE("all: a task in it turns the loop, and another ends or all is cancelled", "[co]") {
  const std::string name = GENERATE("memory", "unix", "tcp");
  enum How { kOtherEnds, kCancelled, kFirstWins };
  const How how = GENERATE(kOtherEnds, kCancelled, kFirstWins);
  const bool at_once = GENERATE(true, false);  // the task turns while when_all() still begins
  CAPTURE(name, how, at_once);
  Bed bed(name);
  co::Stream server(std::move(bed.server));
  bed.reader = &*server;
  std::string log;
  co::Scope scope;
  co::Event event(bed.loop);
  const auto turning = [](Bed& of, co::Scope& mine, co::Event& wins, How what,
                          bool begins) -> co::Task<> {
    if (!begins) co_await co::sleep(of.loop, 0s);
    if (what == kCancelled) mine.cancel();
    if (what == kFirstWins) {
      wins.set();
      testing::turns(of.loop, 2);
    }
    if (what == kOtherEnds) {
      of.turn_until_read();
    } else {
      REQUIRE_FALSE(of.reader->has_read_handler());  // nobody reads for who is gone
    }
    if (what == kFirstWins) co_await co::sleep(of.loop, 1h);
  };
  const auto run = [&turning](Bed& of, co::Stream& from, co::Scope& mine, co::Event& wins, How what,
                              bool begins, std::string& seen) -> co::Task<> {
    std::array<char, 2> buffer;
    const auto which = co_await co::first(
        wins.wait(), co::when_all(from.read(buffer), turning(of, mine, wins, what, begins)));
    seen += which.index() == 1 ? buffer[0] : 'w';
  };
  scope.spawn(run(bed, server, scope, event, how, at_once, log));
  RUN_UNTIL(bed.loop, scope.empty());
  REQUIRE(log == (how == kOtherEnds ? "x" : how == kFirstWins ? "w" : ""));
}

TEST_CASE("semaphore: permits go to those that have waited longest, and come back", "[co]") {
  testing::AnyLoop loop;
  auto semaphore = std::make_unique<co::Semaphore>(loop, 2);
  co::Event end(loop);
  std::string log;
  co::Scope first, second, others;
  first.spawn(hold(*semaphore, end, log, 'a'));
  second.spawn(hold(*semaphore, end, log, 'b'));
  REQUIRE(log == "ab");
  REQUIRE_FALSE(semaphore->try_acquire());
  co::Scope gone;
  gone.spawn(hold(*semaphore, end, log, 'c'));
  others.spawn(hold(*semaphore, end, log, 'd', 1h));
  others.spawn(hold(*semaphore, end, log, 'e', 1ns));
  RUN_UNTIL(loop, log == "ab-");
  first.cancel();  // its permit goes to c
  REQUIRE(semaphore->available() == 0);
  REQUIRE_FALSE(semaphore->try_acquire());
  gone.cancel();  // woken, but not resumed yet: to d
  RUN_UNTIL(loop, log == "ab-d");
  second.cancel();
  REQUIRE(semaphore->available() == 1);
  {
    co::Semaphore::Permit one = semaphore->try_acquire();
    REQUIRE(one);
    co::Semaphore::Permit moved = std::move(one);
    REQUIRE(semaphore->available() == 0);
    one = std::move(moved);
    one.release();
    one.release();
    REQUIRE_FALSE(one);
    REQUIRE(semaphore->available() == 1);
  }
  end.set();
  RUN_UNTIL(loop, others.empty());
  REQUIRE(semaphore->available() == 2);
  // It may end before its permits, and before those that wait for it.
  end.reset();
  for (const char name : {'f', 'g', 'h'}) others.spawn(hold(*semaphore, end, log = "", name));
  semaphore.reset();
  RUN_UNTIL(loop, log == "-");
  end.set();
  RUN_UNTIL(loop, others.empty());
}

TEST_CASE("semaphore: without permits nobody gets one, also after the loop's end", "[co]") {
  std::string log;
  std::unique_ptr<co::Semaphore> semaphore;
  std::unique_ptr<co::Event> end;
  co::Scope scope;
  {
    testing::AnyLoop loop;
    semaphore = std::make_unique<co::Semaphore>(loop, 0);
    end = std::make_unique<co::Event>(loop);
    scope.spawn(hold(*semaphore, *end, log, 'a'));
    scope.spawn(hold(*semaphore, *end, log, 'b', 1ns));
    RUN_UNTIL(loop, log == "-");
  }
  semaphore.reset();
  scope.cancel();
  REQUIRE(log == "-");
}

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("all: it takes no memory, nor does a semaphore", "[co][allocation]") {
  testing::AnyLoop loop;
  testing::let_libev_grow(loop);
  co::Semaphore semaphore(loop, 1);
  int rounds = 0;
  const auto run = [](ae::EventLoop& on, co::Semaphore& permits, int& count) -> co::Task<> {
    for (;; ++count) {
      const auto [permit, nothing] = co_await co::when_all(permits.acquire(), co::yield(on));
      co_await co::yield(on);
    }
  };
  co::Scope scope;
  for (int i = 0; i < 3; ++i) scope.spawn(run(loop, semaphore, rounds));
  RUN_UNTIL(loop, rounds >= 10);
  const std::size_t begin = testing::watch_allocations(true).by_others;
  while (rounds < 200) loop.process_events(ae::kFullIteration);
  CHECK(testing::watch_allocations(false).by_others == begin);
}
#endif
