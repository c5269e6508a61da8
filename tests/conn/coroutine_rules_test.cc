// SPDX-License-Identifier: BSD-3-Clause
// A running task is not destroyed under itself, and awaitables of a program's own inside tasks:
// what resumes, cancels and throws, whatever is on the stack meanwhile.

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
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using namespace std::chrono_literals;

namespace {

/// Says when its frame goes.
struct Witness {
  Witness(std::string& its_log, char its_name) : log(&its_log), name(its_name) {}
  Witness(Witness&& other) noexcept : log(std::exchange(other.log, nullptr)), name(other.name) {}
  ~Witness() {
    if (log != nullptr) *log += name;
  }
  std::string* log;
  char name;
};

/// An awaitable as a program writes it: one waits, and fire() resumes it.
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

/// A coroutine of another library: owned, lazy, with symmetric transfer at both ends.
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

/// Resumes in await_suspend().
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
static_assert(!co::Awaitable<Lazy&>);  // its awaiter does not end the wait, and it may live on
static_assert(!co::Awaitable<OfAPromise> && !co::Awaitable<int> && !co::Awaitable<std::string&>);

/// Two ends of a connection, on a loop that a handler may turn.
struct Bed {
  explicit Bed(const std::string& name) {
    conn::Endpoint at = conn::Endpoint::parse(name == "tcp"    ? "tcp://127.0.0.1:0"
                                              : name == "unix" ? "unix://" + folder.path() + "/s"
                                                               : "memory://rules");
    listener = registry.listen(
        loop, at, [this](conn::ConnectionPtr arrival) { server = std::move(arrival); });
    at = listener->endpoints().front();
    client = registry.create(loop, at);
    client->connect(at, [](conn::Connection&) {});
    RUN_UNTIL(loop, server != nullptr && client->state() == conn::State::kConnected);
  }
  /// Inside a handler: until the server has read what the client writes now.
  void turn_until_read() {
    conn::Connection& peer = *reader;
    REQUIRE(client->write("x", 1) == 1);
    client->flush();
    while (peer.has_read_handler()) loop.dispatch();
  }

  testing::TempFolder folder;
  conn::Registry registry = testing::test_registry();
  ae::EpollLoop loop;
  conn::ListenerPtr listener;
  conn::ConnectionPtr client, server;
  conn::Connection* reader = nullptr;
};

/// How a task comes onto the stack in which it turns the loop.
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
  sum += 1;  // it may be what awaits it that has this
  log += 'c';
  if (end == 1) co_return;
  if (end == 2) throw std::runtime_error("lost");
  co_await co::sleep(pair.loop, 1h);
  log += '?';
}

/// One waits for a stream until its limit, and another one for what it waited for, in a turn of the
/// loop inside the first. One of the two ends the stream.
struct Nested {
  static constexpr std::byte kGone{0xa5};

  Nested(Bed& its_bed, bool its_writes, bool its_first_ends)
      : bed(its_bed), writes(its_writes), first_ends(its_first_ends) {
    stream = new (place.data()) co::Stream(std::move(bed.server));
  }
  static co::Task<> outer(Nested& run) {
    std::array<char, 4> buffer;
    const std::string flood(8 << 20, 'x');  // more than there is room for
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
  // Where the stream was: what is written there afterwards is seen.
  alignas(co::Stream) std::array<std::byte, sizeof(co::Stream)> place{};
  co::Stream* stream;
  bool woken = false;
  co::Scope scope;
};

/// A second connection beside that of a Bed. Both servers are streams that live on.
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
  /// Both have something to read, and nobody waits for it any more.
  void both() {
    say(*client, "a\n");
    say(*other, "b\n");
    while (a->has_read_handler() || b->has_read_handler()) loop.dispatch();
  }

  conn::ConnectionPtr other;
  co::Stream a, b;
};

/// What waits for `b`.
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

/// first() of what turns the loop inside itself, and of both streams.
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

TEST_CASE("first: where another one ends while a task is on the stack, the task goes on first",
          "[co]") {
  const std::string name = GENERATE("memory", "unix", "tcp");
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
  // What a coroutine of another library awaits is not known to be below the task that awaits that.
  REQUIRE(log == (way == kBelowALazy ? "e01x" : "ce02x"));
}

TEST_CASE("first: what loses while a task is on the stack has taken nothing", "[co]") {
  const std::string name = GENERATE("memory", "unix", "tcp");
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
  // `b` ends in the turn in which it is cancelled: by the scope, or as another first() is over.
  const std::string name = GENERATE("memory", "unix", "tcp");
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
  // What may happen to the stream until then.
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
  std::string rest;  // the stream can be used on
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
  const std::string name = GENERATE("memory", "unix", "tcp");
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
    by.fire(7);  // what awaits this is not resumed here
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
