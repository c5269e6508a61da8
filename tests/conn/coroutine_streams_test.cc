// SPDX-License-Identifier: BSD-3-Clause
// Streams, acceptors, connect(), and the cost of a session; tasks are in coroutines_test.cc,
// coroutines over each transport in tests/conformance.

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
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

co::Task<> read_into(co::Stream& from, std::span<char> buffer, std::optional<co::Result>& result) {
  result = co_await from.read(buffer);
}

}  // namespace

TEST_CASE("stream: a limit counts from the call, however long the handler has taken", "[co]") {
  testing::Pair pair({.name = "unix"});
  co::Stream server(std::move(pair.server));
  co::Acceptor acceptor(pair.registry, pair.loop, pair.fresh());
  const int which = GENERATE(0, 1, 2, 3);
  CAPTURE(which);
  const auto wait = [](co::Stream& from, co::Acceptor& arrivals, int how, ae::EventLoop& loop,
                       ae::Duration& took) -> co::Task<> {
    std::array<char, 8> buffer;
    // With a timer that was set before, to later and to earlier.
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
  REQUIRE(pair.client->write("ab", 2) == 2);  // available, but the first reader was not resumed yet
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
    const std::string flood(8 << 20, 'x');  // more than fits into the buffers
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
  REQUIRE_FALSE(read);  // not within the call
  REQUIRE_FALSE(written);
  if (how == kScopeEnds) {
    scope.cancel();
    return testing::turns(pair.loop, 3);
  }
  if (how == kLoopEnds) return;  // they wait until their scope ends
  RUN_UNTIL(pair.loop, scope.empty());
  REQUIRE(read->error == std::errc::operation_canceled);
  REQUIRE(written->error == std::errc::operation_canceled);
  REQUIRE(written->size > 0);  // accepted bytes are being sent
  if (how == kDestroyed) return;
  co::Stream after = how == kMoved ? std::move(*moved) : co::Stream(std::move(bare));
  REQUIRE(pair.client->write("ab", 2) == 2);
  scope.spawn(read_into(after, buffer, read = std::nullopt));
  RUN_UNTIL(pair.loop, read.has_value());
  REQUIRE(read->value() == 2);
  scope.spawn(read_into(*stream, buffer, read));  // the stream is empty
  REQUIRE(read->error == std::errc::not_connected);
}

TEST_CASE("stream: assigned to, it lets go of what it had, and what waits is told", "[co]") {
  testing::Pair one({.name = "unix"});
  const conn::ListenerPtr listener =
      one.listen([&](conn::ConnectionPtr peer) { one.server = std::move(peer); });
  co::Stream target(std::move(one.server)), source;
  const conn::ConnectionPtr second = one.connect(testing::address_of(*listener));
  RUN_UNTIL(one.loop, one.server != nullptr);
  source = co::Stream(std::move(one.server));
  source.set_idle_limit(1h);
  std::array<char, 4> buffer{}, other{};
  std::optional<co::Result> old, moved, fresh, none;
  co::Scope scope;
  scope.spawn(read_into(target, buffer, old));
  scope.spawn(read_into(source, other, moved));
  target = std::move(source);
  REQUIRE_FALSE((old || moved));
  REQUIRE_FALSE(source);
  co::Stream& itself = target;
  target = std::move(itself);
  REQUIRE(target);
  RUN_UNTIL(one.loop, scope.empty());
  REQUIRE(old->error == std::errc::operation_canceled);
  REQUIRE(moved->error == std::errc::operation_canceled);
  testing::Collector first(*one.client);  // its former connection was closed
  RUN_UNTIL(one.loop, first.over());
  scope.spawn(read_into(target, buffer, fresh));
  REQUIRE(second->write("ab", 2) == 2);
  RUN_UNTIL(one.loop, fresh.has_value());
  REQUIRE(fresh->value() == 2);
  // Within the operation that it resumes.
  const auto replace = [](co::Stream& its, std::optional<co::Result>& result) -> co::Task<> {
    std::array<char, 4> room;
    const co::Result got = co_await its.read(room);
    REQUIRE(got);
    its = co::Stream();
    result = co_await its.read(room);
  };
  scope.spawn(replace(target, none));
  REQUIRE(second->write("ab", 2) == 2);
  RUN_UNTIL(one.loop, none.has_value());
  REQUIRE(none->error == std::errc::not_connected);
  std::vector<co::Stream> several(3);
  several.erase(several.begin());
  REQUIRE(several.size() == 2);
}

TEST_CASE("stream: reads into and writes from whatever keeps bytes together", "[co]") {
  testing::Pair pair({.name = "unix"});
  co::Stream server(std::move(pair.server)), client(std::move(pair.client));
  const auto write = [](co::Stream& to) -> co::Task<> {
    const std::string text = "1";
    const std::string_view view = "2";
    const std::vector<char> chars{'3'};
    std::vector<unsigned char> numbers{'4'};
    const std::array<std::byte, 1> bytes{std::byte{'5'}};
    std::array<char, 1> array{'6'};
    char buffer[1] = {'7'};
    const unsigned char raw[1] = {'8'};
    const char text_array[1] = {'9'};  // no terminating NUL
    const char* const pointer = "a";
    std::size_t size = 0;
    const auto add = [&](const co::Result& result) { size += result.value(); };
    add(co_await to.write(text));
    add(co_await to.write(view));
    add(co_await to.write(chars));
    add(co_await to.write(numbers));
    add(co_await to.write(bytes));
    add(co_await to.write(array));
    add(co_await to.write(buffer));
    add(co_await to.write(raw));
    add(co_await to.write(text_array));
    add(co_await to.write(pointer));
    add(co_await to.write("b"));
    add(co_await to.write(std::string("c")));
    add(co_await to.write(std::span<const char>(array)));
    add(co_await to.write(std::span(buffer)));
    add(co_await to.write(std::as_bytes(std::span(numbers))));
    add(co_await to.write({chars.data(), chars.size()}));
    add(co_await to.write({bytes.data(), bytes.size()}, 1h));
    REQUIRE(size == 17);
  };
  const auto read = [](co::Stream& from, std::string& seen) -> co::Task<> {
    std::string text(1, ' ');
    std::vector<char> chars(1);
    std::vector<unsigned char> numbers(1);
    std::array<std::byte, 1> bytes{};
    std::array<char, 1> array{};
    char buffer[1];
    const auto add = [&](const co::Result& result, auto byte) {
      REQUIRE(result.value() == 1);
      seen += static_cast<char>(byte);
    };
    add(co_await from.read(text), text[0]);
    add(co_await from.read_exactly(chars), chars[0]);
    add(co_await from.read(numbers), numbers[0]);
    add(co_await from.read(bytes), bytes[0]);
    add(co_await from.read_exactly(array), array[0]);
    add(co_await from.read(buffer), buffer[0]);
    add(co_await from.read(std::span(buffer)), buffer[0]);
    add(co_await from.read(std::as_writable_bytes(std::span(array))), array[0]);
    add(co_await from.read_exactly({array.data(), 1}, 1h), array[0]);
    std::vector<char> rest(8);
    co_await from.read_exactly(rest);
    seen.append(rest.data(), rest.size());
    // Empty reads and writes complete at once, also while another operation waits.
    const auto none = co_await co::first(from.read(array), from.read(std::span<char>()));
    REQUIRE(none.index() == 1);
    REQUIRE(std::get<1>(none));
    co_await from.read_exactly(std::span<std::byte>());
    const std::string flood(8 << 20, 'x');
    const auto nothing = co_await co::first(from.write(flood), from.write(""));
    REQUIRE(nothing.index() == 1);
    REQUIRE(std::get<1>(nothing));
  };
  std::string log;
  co::Scope scope;
  scope.spawn(write(client));
  scope.spawn(read(server, log));
  RUN_UNTIL(pair.loop, scope.empty());
  REQUIRE(log == "123456789abc67435");
}

TEST_CASE("stream: its end is one error, whatever reads, and what came before it is there",
          "[co]") {
  testing::Pair pair({.name = "unix"});
  const int what = GENERATE(range(0, 4));
  CAPTURE(what);
  REQUIRE(pair.client->write("ab", 2) == 2);
  pair.client.reset();
  const auto run = [](co::Stream from, int how, std::string& seen) -> co::Task<> {
    std::array<char, 8> buffer{};
    for (int i = 0; i < 3; ++i) {
      std::size_t size = 0;
      bool good = false, ended = false;
      if (how == 3) {
        const co::Peeked head = co_await from.peek(4);
        size = head.size;
        good = bool(head);
        ended = head.ended();
        if (size != 0) seen += head.first();
        from.consume(size);
      } else {
        co::Result got;
        if (how == 0) got = co_await from.read(buffer);
        if (how == 1) got = co_await from.read_exactly(buffer);
        if (how == 2) got = co_await from.read_line(buffer);
        size = got.size;
        good = bool(got);
        ended = got.ended();
        seen.append(buffer.data(), size);
      }
      REQUIRE(good != ended);
      seen += ended ? '.' : '+';
    }
  };
  std::string log;
  co::Scope scope;
  scope.spawn(run(std::move(pair.server), what, log));
  RUN_UNTIL(pair.loop, scope.empty());
  REQUIRE(log == (what == 0 ? "ab+.." : "ab..."));
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
    co_await session(co_await from.next(), seen);  // next()'s result lives as long as the session
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

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("connect: if it throws in when_all(), its time-out does not end it again", "[co]") {
  testing::Site site({.name = "tcp"});
  bool elapsed = false, thrown = false, late = false;
  site.loop.add_time_event(1ms, [&] { return elapsed = true, ae::kNoMore; });
  RUN_UNTIL(site.loop, elapsed);  // the loop now has memory for a timer
  co::Event event(site.loop);
  const auto run = [](auto attempt, co::Event& set, bool& failed) -> co::Task<> {
    try {
      co_await co::when_all(std::move(attempt), set.wait());
    } catch (const std::bad_alloc&) {
      failed = true;
    }
  };
  co::Task<> task =
      run(co::connect(site.registry, site.loop, site.deserted(), 10ms), event, thrown);
  co::Scope scope;
  {
    const testing::NoMemory none;
    scope.spawn(std::move(task));
  }
  site.loop.add_time_event(20ms, [&] { return late = true, ae::kNoMore; });
  RUN_UNTIL(site.loop, late);
  REQUIRE_FALSE(thrown);  // it waits for the event, too
  event.set();
  RUN_UNTIL(site.loop, scope.empty());
  REQUIRE(thrown);
}
#endif

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
  const std::string name = GENERATE("unix", "tcp", "shm", "tls");
  if (!AECONN_TLS && name == "tls") return;
  CAPTURE(name);
  testing::Pair pair({.name = name});
  testing::let_libev_grow(pair.loop);
  co::Stream client(std::move(pair.client));
  const auto echo = [](co::Stream peer, ae::Duration patience) -> co::Task<> {
    std::array<std::byte, 512> buffer;
    while (const co::Result got = co_await peer.read(buffer, patience)) {
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
  // The loop's own allocations for watching a connection, without coroutines.
  std::size_t first = 0, before = 0;
  for (int i = 0; i < 2; ++i) {  // its tables grow only the first time
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
