// SPDX-License-Identifier: BSD-3-Clause
// A running task must not be destroyed, and a program's own awaitables work within tasks: resuming,
// cancelling and throwing, with anything on the stack.

#include <algorithm>
#include <array>
#include <chrono>
#include <coroutine>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "ae/epoll_loop.h"
#include "conn/co.h"
#include "tests/support/catch.h"
#include "tests/support/co_bed.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;
using testing::Bed;

namespace {

/// Records when its frame is destroyed.
struct Witness {
  Witness(std::string& its_log, char its_name) : log(&its_log), name(its_name) {}
  Witness(Witness&& other) noexcept : log(std::exchange(other.log, nullptr)), name(other.name) {}
  ~Witness() {
    if (log != nullptr) *log += name;
  }
  std::string* log;
  char name;
};

/// An awaitable as a program may write it: one task waits, and fire() resumes it.
class Signal {
 public:
  class Wait {
   public:
    explicit Wait(Signal& signal) : signal_(&signal) {}
    Wait(Wait&& other) noexcept : signal_(other.signal_) {}
    ~Wait() {
      if (waits_) signal_->waiter_ = nullptr;
    }
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) noexcept {
      signal_->waiter_ = waiter;
      waits_ = true;
    }
    int await_resume() noexcept {
      waits_ = false;
      return signal_->value_;
    }

   private:
    Signal* signal_;
    bool waits_ = false;
  };
  Wait operator co_await() { return Wait(*this); }
  Wait wait() { return Wait(*this); }
  bool waited_for() const { return waiter_ != nullptr; }
  void fire(int value = 1) {
    value_ = value;
    if (waiter_ != nullptr) std::exchange(waiter_, nullptr).resume();
  }

 private:
  std::coroutine_handle<> waiter_;
  int value_ = 0;
};

/// A coroutine type of another library: owning, lazy, with symmetric transfer at both ends.
class Lazy {
 public:
  struct promise_type {
    Lazy get_return_object() {
      return Lazy(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct Final {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> its) noexcept {
          const auto next = its.promise().next;
          return next ? next : std::noop_coroutine();
        }
        void await_resume() noexcept {}
      };
      return Final();
    }
    void return_void() {}
    void unhandled_exception() { thrown = std::current_exception(); }
    std::coroutine_handle<> next;
    std::exception_ptr thrown;
  };
  Lazy(Lazy&& other) noexcept : frame_(std::exchange(other.frame_, nullptr)) {}
  ~Lazy() {
    if (frame_) frame_.destroy();
  }
  auto operator co_await() {
    struct Awaiter {
      std::coroutine_handle<promise_type> frame;
      bool await_ready() { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> next) {
        frame.promise().next = next;
        return frame;
      }
      void await_resume() {
        if (frame.promise().thrown) std::rethrow_exception(frame.promise().thrown);
      }
    };
    return Awaiter{frame_};
  }
  void start() { frame_.resume(); }
  void drop() { std::exchange(frame_, nullptr).destroy(); }

 private:
  explicit Lazy(std::coroutine_handle<promise_type> frame) : frame_(frame) {}
  std::coroutine_handle<promise_type> frame_;
};

/// Resumes the awaiting task within await_suspend().
struct AtOnce {
  explicit AtOnce(int its_how) : how(its_how) {}
  ~AtOnce() { how = 0; }
  int how;
  bool await_ready() { return false; }
  void await_suspend(std::coroutine_handle<> waiter) { waiter.resume(); }
  int await_resume() { return how; }
};
struct Itself {
  ~Itself() { handle = nullptr; }
  std::coroutine_handle<> handle;
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) { return waiter; }
  void await_resume() {}
};

struct Trivial {
  bool await_ready() { return false; }
  void await_suspend(std::coroutine_handle<>) {}
  void await_resume() {}
};
struct OfAPromise {
  ~OfAPromise() {}
  bool await_ready() { return false; }
  void await_suspend(std::coroutine_handle<Lazy::promise_type>) {}
  void await_resume() {}
};
static_assert(co::Awaitable<Signal&> && co::Awaitable<Signal::Wait> && co::Awaitable<Lazy>);
static_assert(co::Awaitable<AtOnce> && co::Awaitable<Itself>);
static_assert(!co::Awaitable<Trivial> && !co::Awaitable<Trivial&>);
static_assert(!co::Awaitable<Lazy&>);  // destroying its awaiter does not end the wait
static_assert(!co::Awaitable<OfAPromise> && !co::Awaitable<int> && !co::Awaitable<std::string&>);

/// How a task gets onto the stack on which it runs nested iterations.
enum Way { kBegins, kByTheLoop, kByASignal, kBelowATask, kBelowALazy, kBelowFirst };

co::Task<> nested(Bed& pair, Way way, Signal& signal, std::function<void()> inside) {
  if (way == kByTheLoop || way > kByASignal) co_await co::sleep(pair.loop, 0s);
  if (way == kByASignal) co_await signal;
  inside();
}

Lazy below_a_lazy(co::Task<> task) { co_await std::move(task); }

co::Task<> on_its_stack(Bed& pair, Way way, Signal& signal, std::string& log, int& sum,
                        std::function<void()> inside, int end) {
  const Witness witness(log, 'e');
  if (way == kBelowALazy) {
    co_await below_a_lazy(nested(pair, way, signal, inside));
  } else if (way == kBelowFirst) {
    (void)(co_await co::first(nested(pair, way, signal, inside), co::sleep(pair.loop, 1h))).index();
  } else {
    co_await nested(pair, way, signal, inside);
  }
  sum += 1;  // the awaiting frame may own this
  log += 'c';
  if (end == 1) co_return;
  if (end == 2) throw std::runtime_error("lost");
  co_await co::sleep(pair.loop, 1h);
  log += '?';
}

/// One task waits for a stream with a deadline, and another one does the same in a nested iteration
/// within the first. One of the two destroys the stream.
struct Nested {
  static constexpr std::byte kGone{0xa5};

  Nested(Bed& its_bed, bool its_writes, bool its_first_ends)
      : bed(its_bed), writes(its_writes), first_ends(its_first_ends) {
    stream = new (place.data()) co::Stream(std::move(bed.server));
  }
  static co::Task<> outer(Nested& run) {
    std::array<char, 4> buffer;
    const std::string flood(8 << 20, 'x');  // more than fits into the buffers
    const co::Result got = run.writes ? co_await run.stream->write(flood, 1ms)
                                      : co_await run.stream->read(buffer, 1ms);
    REQUIRE(got.error == std::errc::timed_out);
    run.scope.spawn(inner(run));
    run.wake();
    while (!run.woken) run.bed.loop.dispatch();
    if (run.first_ends) run.end();
  }
  static co::Task<> inner(Nested& run) {
    std::array<char, 4> buffer;
    const co::Result got =
        run.writes ? co_await run.stream->writable() : co_await run.stream->read(buffer);
    REQUIRE(got);
    run.woken = true;
    if (!run.first_ends) run.end();
  }
  void wake() {
    if (!writes) {
      REQUIRE(bed.client->write("x", 1) == 1);
      return bed.client->flush();
    }
    bed.client->set_read_handler([](conn::Connection& from) {
      std::array<char, 1 << 16> sink;
      while (from.read(sink.data(), sink.size()) > 0) continue;
    });
  }
  void end() {
    stream->~Stream();
    place.fill(kGone);
  }

  Bed& bed;
  const bool writes, first_ends;
  // The stream's memory: writes to it after its destruction are detected.
  alignas(co::Stream) std::array<std::byte, sizeof(co::Stream)> place{};
  co::Stream* stream;
  bool woken = false;
  co::Scope scope;
};

}  // namespace

TEST_CASE("first: where another one ends while a task is on the stack, the task goes on first",
          "[co]") {
  const std::string name = GENERATE("memory", "unix", "tcp", "shm");
  const Way way = GENERATE(kBegins, kByTheLoop, kByASignal, kBelowATask, kBelowALazy, kBelowFirst);
  const int end = GENERATE(0, 1, 2);
  CAPTURE(name, way, end);
  Bed pair(name);
  std::string log;
  Signal signal;
  co::Scope scope;
  pair.reader = pair.server.get();
  const auto inside = [&pair] { pair.turn_until_read(); };
  const auto run = [](Bed& of, Way how, Signal& by, std::string& seen, std::function<void()> turns,
                      int ends) -> co::Task<> {
    co::Stream peer(std::move(of.server));
    std::array<char, 4> buffer{};
    int sum = 1;
    const auto which = co_await co::first(
        peer.read(buffer), on_its_stack(of, how, by, seen, sum, std::move(turns), ends));
    seen += std::to_string(which.index()) + std::to_string(sum) + buffer[0];
  };
  scope.spawn(run(pair, way, signal, log, inside, end));
  RUN_UNTIL(pair.loop, scope.empty() || signal.waited_for());
  if (signal.waited_for()) signal.fire();
  REQUIRE(scope.empty());
  // A frame awaited through another library's coroutine is not known to be below the awaiting task.
  REQUIRE(log == (way == kBelowALazy ? "e01x" : "ce02x"));
}

TEST_CASE("scope: it may end while a task of it is on the stack, however deep", "[co]") {
  const Way way = GENERATE(kBegins, kByTheLoop, kByASignal, kBelowATask, kBelowFirst);
  const int end = GENERATE(0, 1, 2);
  const bool whole = GENERATE(true, false);
  CAPTURE(way, end, whole);
  Bed pair("unix");
  std::string log;
  Signal signal;
  auto scope = std::make_unique<co::Scope>();
  pair.reader = pair.server.get();
  co::Scope others;
  const auto cancel = [](co::Stream peer, std::unique_ptr<co::Scope>& which,
                         bool all) -> co::Task<> {
    std::array<char, 4> buffer;
    const co::Result got = co_await peer.read(buffer);
    REQUIRE(got);
    if (all)
      which.reset();
    else
      which->cancel();
  };
  others.spawn(cancel(std::move(pair.server), scope, whole));
  const auto inside = [&pair, &scope, whole] {
    REQUIRE(pair.client->write("x", 1) == 1);
    pair.client->flush();
    while (whole ? scope != nullptr : !scope->empty()) pair.loop.dispatch();
  };
  const auto run = [](Bed& of, Way how, Signal& by, std::string& seen, std::function<void()> turns,
                      int ends) -> co::Task<> {
    const Witness witness(seen, 'r');
    int sum = 1;
    co_await on_its_stack(of, how, by, seen, sum, std::move(turns), ends);
    seen += 'g';
  };
  std::string thrown;
  try {
    scope->spawn(run(pair, way, signal, log, inside, end));
    RUN_UNTIL(pair.loop, !log.empty() || signal.waited_for());
    if (signal.waited_for()) signal.fire();
  } catch (const std::runtime_error& error) {
    thrown = error.what();
  }
  REQUIRE(log == (end == 0 ? "cer" : end == 1 ? "cegr" : "cer"));
  REQUIRE(thrown == (end == 2 ? "lost" : ""));
  testing::turns(pair.loop, 3);
}

TEST_CASE("stream: it may end while two that waited for it are on the stack", "[co]") {
  const std::string name = GENERATE("memory", "unix", "tcp", "shm");
  const bool writes = GENERATE(false, true);
  const bool first_ends = GENERATE(true, false);
  CAPTURE(name, writes, first_ends);
  Bed pair(name);
  Nested run(pair, writes, first_ends);
  run.scope.spawn(Nested::outer(run));
  RUN_UNTIL(pair.loop, run.scope.empty());
  REQUIRE(run.woken);
  testing::turns(pair.loop, 3);
  REQUIRE(std::all_of(run.place.begin(), run.place.end(),
                      [](std::byte each) { return each == Nested::kGone; }));
}

TEST_CASE("task: a foreign owner may drop what awaits it while it runs", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  const bool ends = GENERATE(true, false);
  const auto task = [](ae::EventLoop& on, std::optional<Lazy>& owner, std::string& seen,
                       bool over) -> co::Task<> {
    const Witness witness(seen, 'w');
    co_await co::sleep(on, 0s);
    owner->drop();
    seen += 'd';
    if (!over) co_await co::sleep(on, 0s);
    seen += over ? '.' : '?';
  };
  std::optional<Lazy> owner;
  owner.emplace(below_a_lazy(task(loop, owner, log, ends)));
  owner->start();
  RUN_UNTIL(loop, log.ends_with('w'));
  REQUIRE(log == (ends ? "d.w" : "dw"));
  testing::turns(loop, 3);
}

TEST_CASE("awaitable: of a program's own, in a task", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  Signal signal;
  const auto run = [](ae::EventLoop& on, Signal& by, std::string& seen) -> co::Task<> {
    seen += std::to_string(co_await by);
    seen += std::to_string(co_await by.wait());
    seen += std::to_string(co_await AtOnce(3));
    co_await Itself();
    int sum = 0;
    for (int i = 0; i < 100'000; ++i) sum += co_await AtOnce(1);
    seen += std::to_string(sum);
    const auto lazy = [](ae::EventLoop& at, bool throws) -> Lazy {
      co_await co::sleep(at, 0s);
      if (throws) throw std::runtime_error("lazy");
    };
    co_await lazy(on, false);
    try {
      co_await lazy(on, true);
    } catch (const std::runtime_error& error) {
      seen += error.what();
    }
    const auto at_once = []() -> Lazy { co_return; };
    for (int i = 0; i < 100'000; ++i) co_await at_once();
    seen += '.';
  };
  co::Scope scope;
  scope.spawn(run(loop, signal, log));
  signal.fire(1);
  signal.fire(2);
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "123100000lazy.");
}

TEST_CASE("awaitable: what a task throws after it leaves the call that resumed it", "[co]") {
  enum By { kAHandler, kTheProgram, kATask, kAChild };
  const By by = static_cast<By>(GENERATE(range(0, 4)));
  CAPTURE(by);
  testing::AnyLoop loop;
  Signal signal;
  const auto fail = [](Signal& on) -> co::Task<> {
    co_await on;
    throw std::runtime_error("mine");
  };
  const auto outer = [](co::Task<> task) -> co::Task<> { co_await std::move(task); };
  co::Scope scope;
  if (by == kAChild)
    scope.spawn(outer(fail(signal)));
  else
    scope.spawn(fail(signal));
  std::string log;
  const auto fires = [](Signal& which, ae::EventLoop& on, std::string& seen) -> co::Task<> {
    co_await co::sleep(on, 0s);
    which.fire();
    seen += "on ";
    co_await co::sleep(on, 0s);
    seen += "more ";
  };
  try {
    if (by == kAHandler) {
      loop.add_time_event(0s, [&] {
        signal.fire();
        return ae::kNoMore;
      });
    } else if (by == kATask) {
      scope.spawn(fires(signal, loop, log));
    } else {
      signal.fire();
      log += "not thrown ";
    }
    RUN_UNTIL(loop, scope.empty());
    log += "not thrown";
  } catch (const std::runtime_error& error) {
    log += error.what();
  }
  REQUIRE(log == (by == kATask ? "on mine" : "mine"));
  RUN_UNTIL(loop, scope.empty());
}

TEST_CASE("awaitable: a task that it resumed may end its scope", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  Signal signal;
  const bool waits = GENERATE(true, false), below = GENERATE(true, false);
  CAPTURE(waits, below);
  auto scope = std::make_unique<co::Scope>();
  const auto end = [](Signal& by, ae::EventLoop& on, std::unique_ptr<co::Scope>& whole,
                      std::string& seen, bool more) -> co::Task<> {
    const Witness witness(seen, 'w');
    co_await by;
    whole.reset();
    seen += '!';
    if (!more) co_return;
    co_await co::sleep(on, 0s);
    seen += '?';
  };
  const auto outer = [](co::Task<> task, Witness) -> co::Task<> { co_await std::move(task); };
  if (below)
    scope->spawn(outer(end(signal, loop, scope, log, waits), Witness(log, 'o')));
  else
    scope->spawn(end(signal, loop, scope, log, waits));
  signal.fire();
  REQUIRE(log == (below ? "!wo" : "!w"));
  testing::turns(loop, 3);
}

TEST_CASE("awaitable: cancelled with what awaits it, and not resumed then", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  Signal signal;
  const auto run = [](Signal& by, std::string& seen) -> co::Task<> {
    const Witness witness(seen, 'w');
    co_await by;
    seen += '?';
  };
  co::Scope scope;
  scope.spawn(run(signal, log));
  REQUIRE(signal.waited_for());
  scope.cancel();
  REQUIRE_FALSE(signal.waited_for());
  signal.fire();
  REQUIRE(log == "w");
}

TEST_CASE("first: takes awaitables of a program's own", "[co]") {
  testing::AnyLoop loop;
  std::string log;
  Signal signal, other;
  const auto fires = [](Signal& by, ae::EventLoop& on, std::string& seen) -> co::Task<> {
    const Witness witness(seen, 'w');
    by.fire(7);  // must not resume the awaiting task
    seen += 'f';
    co_await co::sleep(on, 1h);
  };
  const auto later = [](Signal& by, ae::EventLoop& on, std::string& seen) -> co::Task<> {
    const Witness witness(seen, 'l');
    co_await co::sleep(on, 0s);
    by.fire(8);
    seen += 'f';
    co_await co::sleep(on, 1h);
  };
  const auto run = [&](Signal& one, Signal& two, ae::EventLoop& on,
                       std::string& seen) -> co::Task<> {
    const auto a = co_await co::first(one.wait(), fires(one, on, seen));
    seen += std::to_string(a.index()) + std::to_string(std::get<0>(a));
    const auto b = co_await co::first(two.wait(), later(one, on, seen), one.wait());
    seen += std::to_string(b.index()) + std::to_string(std::get<2>(b));
    const auto c = co_await co::first(one.wait(), co::sleep(on, 0s), two.wait());
    seen += std::to_string(c.index());
    const auto d = co_await co::first(one.wait(), AtOnce(5), two.wait());
    seen += std::to_string(d.index());
    if (one.waited_for() || two.waited_for()) seen += '?';
    const auto lazy = [](ae::EventLoop& at) -> Lazy { co_await co::sleep(at, 0s); };
    const auto e = co_await co::first(one.wait(), lazy(on));
    seen += std::to_string(e.index());
  };
  co::Scope scope;
  scope.spawn(run(signal, other, loop, log));
  RUN_UNTIL(loop, scope.empty());
  REQUIRE(log == "fw07fl28111");
}
