// SPDX-License-Identifier: BSD-3-Clause
// Random schedules of tasks that wait for each other, get cancelled and time out, held against
// oracles.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "conn/co.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;

namespace {

/// Tasks that can be cancelled one by one.
class Tasks {
 public:
  explicit Tasks(std::mt19937& random) : random_(random) {}
  void spawn(co::Task<> task) {
    scopes_.push_back(std::make_unique<co::Scope>());
    scopes_.back()->spawn(std::move(task));
  }
  void cancel_any() {
    if (scopes_.empty()) return;
    scopes_.erase(scopes_.begin() + static_cast<long>(random_() % scopes_.size()));
  }
  void forget_ended() {
    std::erase_if(scopes_, [](const auto& each) { return each->empty(); });
  }
  bool all_ended() {
    forget_ended();
    return scopes_.empty();
  }

 private:
  std::mt19937& random_;
  std::vector<std::unique_ptr<co::Scope>> scopes_;
};

/// A time-out for some tasks.
ae::Duration some_limit(std::mt19937& random) {
  return random() % 4 == 0 ? ae::Duration(std::chrono::microseconds(random() % 50)) : co::kNoLimit;
}

/// How a task waits: begun, woken, or over, in the order of the beginnings.
struct Line {
  struct Entry {
    bool waits = true;
    bool has_limit = false;
  };
  /// Marks an entry as no longer waiting when the task's frame is destroyed.
  struct Mark {
    explicit Mark(std::shared_ptr<Entry> its) : entry(std::move(its)) {}
    Mark(const Mark&) = delete;
    Mark& operator=(const Mark&) = delete;
    ~Mark() { entry->waits = false; }
    std::shared_ptr<Entry> entry;
  };
  std::shared_ptr<Entry> begin(bool has_limit) {
    entries.push_back(std::make_shared<Entry>(Entry{true, has_limit}));
    return entries.back();
  }
  /// `entry` has got what it waited for: it must be the one that has waited longest. Those that
  /// did not have to wait may go before those that were woken and have not resumed; and a time-out
  /// may resume one that was woken before the loop comes to it.
  void served(const Entry& entry) {
    if (spawning || entry.has_limit) return;
    while (!entries.empty() && !entries.front()->waits) entries.pop_front();
    if (entries.empty() || entries.front().get() != &entry) ++overtaken;
  }
  std::deque<std::shared_ptr<Entry>> entries;
  bool spawning = false;  // whether a task begins now, so that it has not waited
  int overtaken = 0;
};

}  // namespace

// Goal: what was pushed is popped once, in that order, and nothing else is; no one is overtaken,
// and nobody is forgotten. Method: random steps from one seed; the oracle is the list of pushed
// values.
TEST_CASE("schedules: a queue of several producers and consumers", "[co][random]") {
  const auto seed = GENERATE(take(30, random(0U, 0xffffffffU)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  testing::AnyLoop loop;
  const std::size_t capacity = 1 + random() % 4;
  auto queue = std::make_unique<co::Queue<std::unique_ptr<int>>>(loop, capacity);
  using Its = co::Queue<std::unique_ptr<int>>;
  std::vector<int> pushed, popped;
  Line pushers, poppers;
  const auto produce = [&](Its& to, int value, ae::Duration limit) -> co::Task<> {
    const Line::Mark mark(pushers.begin(limit != co::kNoLimit));
    const bool done = co_await to.push(std::make_unique<int>(value), limit);
    if (!done) co_return;
    pushers.served(*mark.entry);
    pushed.push_back(value);
  };
  const auto consume = [&](Its& from, ae::Duration limit) -> co::Task<> {
    const Line::Mark mark(poppers.begin(limit != co::kNoLimit));
    const std::optional<std::unique_ptr<int>> value = co_await from.pop(limit);
    if (!value) co_return;
    poppers.served(*mark.entry);
    popped.push_back(**value);
  };
  Tasks tasks(random);
  const bool closes = random() % 2 == 0;
  for (int step = 0, next = 0; step < 2000; ++step) {
    switch (random() % 7) {
      case 0:
      case 1:
        pushers.spawning = true;
        tasks.spawn(produce(*queue, next++, some_limit(random)));
        pushers.spawning = false;
        break;
      case 2:
      case 3:
        poppers.spawning = true;
        tasks.spawn(consume(*queue, some_limit(random)));
        poppers.spawning = false;
        break;
      case 4:
        tasks.cancel_any();
        break;
      case 5:
        if (auto value = std::make_unique<int>(next); random() % 2 == 0 && queue->try_push(value)) {
          pushed.push_back(next++);
        } else if (const auto taken = queue->try_pop()) {
          popped.push_back(**taken);
        }
        break;
      default:
        testing::turns(loop, 1);
    }
    tasks.forget_ended();
    REQUIRE(queue->size() <= capacity);
    REQUIRE(popped.size() + queue->size() == pushed.size());
    REQUIRE(std::equal(popped.begin(), popped.end(), pushed.begin()));
  }
  REQUIRE(pushers.overtaken == 0);
  REQUIRE(poppers.overtaken == 0);
  if (closes) {
    queue->close();
    REQUIRE_FALSE(queue->try_push(std::make_unique<int>(0)));
    RUN_UNTIL(loop, tasks.all_ended());
    while (const auto value = queue->try_pop()) popped.push_back(**value);
    REQUIRE(popped == pushed);
  } else {
    queue.reset();
    RUN_UNTIL(loop, tasks.all_ended());
  }
}

// Goal: no more permits are held than there are, none is lost, and no one is overtaken. Method:
// random steps from one seed; the tasks count themselves.
TEST_CASE("schedules: a semaphore", "[co][random]") {
  const auto seed = GENERATE(take(30, random(0U, 0xffffffffU)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  testing::AnyLoop loop;
  const std::size_t count = 1 + random() % 3;
  co::Semaphore semaphore(loop, count);
  Line line;
  std::size_t held = 0;
  const auto hold = [&](ae::EventLoop& on, ae::Duration limit, unsigned how) -> co::Task<> {
    struct Held {
      explicit Held(std::size_t& its) : count(its) { ++count; }
      Held(const Held&) = delete;
      Held& operator=(const Held&) = delete;
      ~Held() { --count; }
      std::size_t& count;
    };
    const Line::Mark mark(line.begin(limit != co::kNoLimit));
    co::Semaphore::Permit permit = co_await semaphore.acquire(limit);
    if (!permit) co_return;
    line.served(*mark.entry);
    mark.entry->waits = false;
    const Held now(held);
    if (how == 0) {
      co_await co::sleep(on, std::chrono::microseconds(20));
    } else if (how == 1) {
      // also held as a result that when_all() keeps
      (void)co_await co::when_all(semaphore.acquire(1us), co::yield(on));
    } else {
      co_await co::yield(on);
    }
  };
  Tasks tasks(random);
  for (int step = 0; step < 2000; ++step) {
    switch (random() % 5) {
      case 0:
      case 1:
        line.spawning = true;
        tasks.spawn(hold(loop, some_limit(random), random() % 4));
        line.spawning = false;
        break;
      case 2:
        tasks.cancel_any();
        break;
      case 3:
        if (const co::Semaphore::Permit permit = semaphore.try_acquire()) REQUIRE(held < count);
        break;
      default:
        testing::turns(loop, 1);
    }
    tasks.forget_ended();
    REQUIRE(held + semaphore.available() <= count);
  }
  RUN_UNTIL(loop, tasks.all_ended());
  REQUIRE(semaphore.available() == count);
  REQUIRE(held == 0);
  REQUIRE(line.overtaken == 0);
}

// Goal: a wait succeeds exactly if the event was set while it waited, or before; those that
// wait resume in their order. Method: random steps from one seed; the oracle knows who waits.
TEST_CASE("schedules: an event", "[co][random]") {
  const auto seed = GENERATE(take(30, random(0U, 0xffffffffU)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  testing::AnyLoop loop;
  co::Event event(loop);
  struct Waiting {
    int number;
    bool woken;
  };
  std::vector<Waiting> waiting;  // in the order in which they began
  int wrong = 0;
  const auto wait = [&](int number, ae::Duration limit) -> co::Task<> {
    struct Leaves {
      Leaves(std::vector<Waiting>& its, int mine) : list(its), number(mine) {}
      Leaves(const Leaves&) = delete;
      Leaves& operator=(const Leaves&) = delete;
      ~Leaves() {
        std::erase_if(list, [&](const Waiting& each) { return each.number == number; });
      }
      std::vector<Waiting>& list;
      const int number;
    };
    waiting.push_back({number, event.is_set()});
    const Leaves leaves(waiting, number);
    const bool set = co_await event.wait(limit);
    const auto mine = std::find_if(waiting.begin(), waiting.end(),
                                   [&](const Waiting& each) { return each.number == number; });
    if (set != mine->woken) ++wrong;
    // Those with a time-out may resume earlier than the loop would have come to them.
    if (set && limit == co::kNoLimit && mine != waiting.begin() &&
        std::any_of(waiting.begin(), mine, [](const Waiting& each) { return !each.woken; }))
      ++wrong;
  };
  Tasks tasks(random);
  for (int step = 0; step < 2000; ++step) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        tasks.spawn(wait(step, some_limit(random)));
        break;
      case 3:
        tasks.cancel_any();
        break;
      case 4:
        event.set();
        for (Waiting& each : waiting) each.woken = true;
        break;
      case 5:
        event.reset();
        break;
      default:
        testing::turns(loop, 1);
    }
    tasks.forget_ended();
  }
  event.set();
  for (Waiting& each : waiting) each.woken = true;
  RUN_UNTIL(loop, tasks.all_ended());
  REQUIRE(wrong == 0);
}
