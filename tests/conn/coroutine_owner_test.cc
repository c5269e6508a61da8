// SPDX-License-Identifier: BSD-3-Clause
// Coroutines of another library that await this library's tasks, and are destroyed by them.

#include <chrono>
#include <coroutine>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "conn/co.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;

namespace {

/// A coroutine of another library: it begins when its owner says so.
struct Stranger {
  struct promise_type {
    Stranger get_return_object() {
      return {std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> frame;
  void begin() const { frame.resume(); }
  void drop() {
    if (frame) std::exchange(frame, nullptr).destroy();
  }
};

struct Witness {
  explicit Witness(std::string& its_log) : log(its_log) {}
  ~Witness() { log += 'w'; }
  std::string& log;
};

enum class How { kEnds, kThrows, kWaits };

/// Destroys what awaits it before it has waited for anything.
co::Task<int> drops(ae::EventLoop& loop, Stranger& owner, How how, std::string& log) {
  const Witness witness(log);
  owner.drop();
  log += 'd';
  if (how == How::kThrows) throw std::runtime_error("nobody is there to be told");
  if (how == How::kWaits) co_await co::sleep(loop, 0s);
  log += '.';
  co_return 1;
}

co::Task<> fails_at_once(co::Scope& scope) {
  scope.spawn([]() -> co::Task<> {
    throw std::runtime_error("spawned");
    co_return;
  }());
  co_return;
}

co::Task<> drops_and_spawns(Stranger& owner, co::Scope& scope, std::string& log) {
  const Witness witness(log);
  owner.drop();
  scope.spawn(fails_at_once(scope));
  log += '.';
  co_return;
}

Stranger alone(co::Task<int> task) { (void)co_await std::move(task); }
Stranger in_first(co::Task<int> task, ae::EventLoop& loop) {
  (void)co_await co::first(std::move(task), co::sleep(loop, 0s));
}
Stranger last_in_first(co::Task<int> task, ae::EventLoop& loop) {
  (void)co_await co::first(co::sleep(loop, 0s), std::move(task));
}
Stranger in_all(co::Task<int> task, ae::EventLoop& loop) {
  (void)co_await co::when_all(std::move(task), co::sleep(loop, 0s));
}
Stranger in_both(co::Task<int> task, ae::EventLoop& loop) {
  (void)co_await co::first(co::when_all(std::move(task), co::sleep(loop, 0s)), co::sleep(loop, 0s));
}
Stranger below_a_spawner(co::Task<> task) { co_await std::move(task); }

}  // namespace

TEST_CASE("task: it may destroy the foreign coroutine that has just begun to await it", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  const How how = GENERATE(How::kEnds, How::kThrows, How::kWaits);
  const int where = GENERATE(0, 1, 2, 3, 4);
  CAPTURE(where);
  Stranger owner{};
  co::Task<int> task = drops(loop, owner, how, log);
  owner = where == 0   ? alone(std::move(task))
          : where == 1 ? in_first(std::move(task), loop)
          : where == 2 ? last_in_first(std::move(task), loop)
          : where == 3 ? in_all(std::move(task), loop)
                       : in_both(std::move(task), loop);
  owner.begin();
  REQUIRE_FALSE(owner.frame);
  REQUIRE(log == (how == How::kEnds ? "d.w" : "dw"));
  testing::turns(loop, 3);
  REQUIRE(log == (how == How::kEnds ? "d.w" : "dw"));
}

TEST_CASE("task: what is thrown to a foreign coroutine that it has destroyed is dropped", "[co]") {
  std::string log;
  co::Scope scope;
  Stranger owner{};
  owner = below_a_spawner(drops_and_spawns(owner, scope, log));
  REQUIRE_NOTHROW(owner.begin());
  REQUIRE(log == ".w");
  REQUIRE(scope.empty());
}
