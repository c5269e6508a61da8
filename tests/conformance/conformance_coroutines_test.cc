// SPDX-License-Identifier: BSD-3-Clause
// Coroutines on a connection: the cases of the handler tests again, over each transport.

#include <cerrno>
#include <stdexcept>

#include "conn/co.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

namespace co = conn::co;
using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::await_readable;
using testing::Pair;
using namespace std::chrono_literals;

namespace {

co::Task<> collect(co::Stream& from, std::size_t chunk, std::string& got, bool& over) {
  std::string buffer(chunk, '\0');
  while (const co::Result part = co_await from.read(buffer)) {
    got.append(buffer, 0, part.size);
  }
  over = true;
}

co::Task<> read_into(co::Stream& from, std::span<char> buffer, co::Result& result, bool& over) {
  result = co_await from.read_exactly(buffer);
  over = true;
}

co::Task<> echo(co::Stream peer) {
  std::array<std::byte, 4096> buffer;
  while (const co::Result got = co_await peer.read(buffer)) {
    if (!co_await peer.write(std::span(buffer).first(got.size))) co_return;
  }
}

std::string text_of(const conn::View& view) {
  std::string text;
  for (int i = 0; i < view.count; ++i) {
    const auto& piece = view.pieces[static_cast<std::size_t>(i)];
    text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  }
  return text;
}

}  // namespace

TEST_CASE("coroutine: reads go on while there is unread data, and then wait", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string got;
    bool over = false;
    co::Stream server(std::move(pair.server));
    co::Scope scope;
    REQUIRE(pair.client->write("abcde", 5) == 5);
    scope.spawn(collect(server, 1, got, over));
    RUN_UNTIL(pair.loop, got.size() == 5);
    REQUIRE(got == "abcde");
    testing::turns(pair.loop, 20);
    REQUIRE(got == "abcde");
    REQUIRE_FALSE(over);
    testing::IterationCounter iterations(pair.loop);
    REQUIRE(iterations.during(50ms) <= 10);
    REQUIRE(pair.client->write("f", 1) == 1);
    RUN_UNTIL(pair.loop, got == "abcdef");
    pair.client.reset();
    RUN_UNTIL(pair.loop, over);
    REQUIRE(got == "abcdef");
    REQUIRE(scope.empty());
  }
}

TEST_CASE("coroutine: what is shown and not consumed is shown again, and others have their turn",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int shown = 0, turns = 0;
    co::Stream server(std::move(pair.server));
    co::Scope scope;
    const auto look = [](co::Stream& from, int& count) -> co::Task<> {
      while (const co::Peeked view = co_await from.peek()) {
        REQUIRE(text_of(view) == "x");
        ++count;
      }
    };
    REQUIRE(pair.client->write("x", 1) == 1);
    const ae::HookId hook = pair.loop.add_before_sleep([&] { ++turns; });
    scope.spawn(look(server, shown));
    RUN_UNTIL(pair.loop, shown > 300);
    REQUIRE(turns >= 4);
    pair.loop.remove_hook(hook);
  }
}

TEST_CASE("coroutine: a read that begins after the data came gets it", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->write("early", 5) == 5);
    await_readable(pair.loop, *pair.server);
    testing::turns(pair.loop, 5);  // no read is pending
    co::Stream server(std::move(pair.server));
    co::Scope scope;
    std::array<char, 5> buffer{};
    co::Result result;
    bool over = false;
    scope.spawn(read_into(server, buffer, result, over));
    RUN_UNTIL(pair.loop, over);
    REQUIRE(result.value() == 5);
    REQUIRE(std::string(buffer.data(), 5) == "early");
  }
}

TEST_CASE("coroutine: writable() is over in each iteration while there is room",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream client(std::move(pair.client));
    co::Scope scope;
    int calls = 0;
    const auto wait = [](co::Stream& to, int& count) -> co::Task<> {
      while (co_await to.writable()) ++count;
    };
    scope.spawn(wait(client, calls));
    REQUIRE(calls == 0);
    RUN_UNTIL(pair.loop, calls > 0);
    for (int i = 0; i < 10; ++i) {
      const int before = calls;
      testing::turns(pair.loop, 1);
      REQUIRE(calls == before + 1);
    }
  }
}

TEST_CASE("coroutine: operations of several kinds follow each other on one stream",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream server(std::move(pair.server)), client(std::move(pair.client));
    co::Scope scope;
    std::string order;
    const auto read = [](co::Stream& from, std::string& seen) -> co::Task<> {
      std::array<char, 16> buffer;
      co::Result got = co_await from.read_line(buffer);
      seen += std::string(buffer.data(), got.value()) + "|";
      const co::Peeked view = co_await from.peek(4);
      seen += text_of(view).substr(0, 4) + "|";
      from.consume(2);
      got = co_await from.read_exactly(std::span(buffer).first(3));
      seen += std::string(buffer.data(), got.value()) + "|";
      got = co_await from.read(buffer);
      seen += std::string(buffer.data(), got.value()) + "|";
      got = co_await from.read_line(std::span(buffer).first(4));
      seen += got.error == std::errc::message_size ? "full" : "?";
      seen += std::string(buffer.data(), got.size) + "|";
      got = co_await from.read_line(buffer);
      seen += std::string(buffer.data(), got.value()) + "|";
      got = co_await from.read_line(buffer);
      seen += got.error == std::errc::no_message_available ? "ended" : "?";
      seen += std::string(buffer.data(), got.size) + ".";
    };
    const auto write = [](co::Stream& to, const std::string& seen,
                          ae::EventLoop& loop) -> co::Task<> {
      const auto until = [&](std::size_t size) { return seen.size() >= size; };
      for (const std::string_view part : {"lin", "e\r", "\nabcd", "e"}) {
        const co::Result written = co_await to.write(part);
        REQUIRE(written.value() == part.size());
      }
      while (!until(14)) co_await co::sleep(loop, 0s);
      const co::Result written = co_await to.write("rest");
      REQUIRE(written);
      while (!until(19)) co_await co::sleep(loop, 0s);
      const co::Result next = co_await to.write("too long\nhal");
      REQUIRE(next);
      REQUIRE(to->shutdown_both() == 0);
    };
    scope.spawn(read(server, order));
    scope.spawn(write(client, order, *client->loop()));
    RUN_UNTIL(pair.loop, scope.empty());
    REQUIRE(order == "line|abcd|cde|rest|fulltoo |long|endedhal.");
  }
}

TEST_CASE("coroutine: a reader that is cancelled by a writer does not go on", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->write("x", 1) == 1);
    co::Stream server(std::move(pair.server));
    co::Scope readers, writers;
    bool wrote = false;
    std::array<char, 2> buffer;
    co::Result result;
    bool over = false;
    readers.spawn(read_into(server, buffer, result, over));
    const auto write = [](co::Stream& to, co::Scope& others, bool& done) -> co::Task<> {
      const co::Result written = co_await to.writable();
      REQUIRE(written);
      others.cancel();
      done = true;
    };
    writers.spawn(write(server, readers, wrote));
    RUN_UNTIL(pair.loop, wrote);
    REQUIRE(pair.client->write("y", 1) == 1);
    testing::turns(pair.loop, 5);
    REQUIRE_FALSE(over);
    REQUIRE_FALSE(server->has_read_handler());
    REQUIRE_FALSE(server->has_write_handler());
  }
}

TEST_CASE("coroutine: none goes on inside a call", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream server(std::move(pair.server)), client(std::move(pair.client));
    co::Scope scope;
    bool inside = false;
    std::string got;
    const auto read = [](co::Stream& from, const bool& in, std::string& seen) -> co::Task<> {
      std::array<char, 16> buffer;
      while (const co::Result part = co_await from.read(buffer)) {
        REQUIRE_FALSE(in);
        seen.append(buffer.data(), part.size);
      }
    };
    scope.spawn(read(server, inside, got));
    scope.spawn(read(client, inside, got));
    inside = true;
    REQUIRE(client->write("ab", 2) == 2);
    REQUIRE(server->write("cd", 2) == 2);
    client->flush();
    server->flush();
    inside = false;
    RUN_UNTIL(pair.loop, got.size() == 4);
    inside = true;
    REQUIRE(client->shutdown_both() == 0);
    REQUIRE(server->shutdown_both() == 0);
    inside = false;
    RUN_UNTIL(pair.loop, scope.empty());
  }
}

TEST_CASE("coroutine: connect gives a stream that writes at once, and accept one that answers",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    co::Acceptor acceptor(site.registry, site.loop, site.fresh());
    std::string answer;
    co::Scope scope;
    const auto serve = [](co::Acceptor& from) -> co::Task<> {
      co::Stream peer = co_await from.next();
      REQUIRE(peer);
      REQUIRE(peer->state() == State::kConnected);
      const co::Result written = co_await peer.write("welcome");
      REQUIRE(written);
      std::array<char, 6> buffer;
      const co::Result next = co_await peer.read_exactly(buffer);
      REQUIRE(next);
      REQUIRE(std::string(buffer.data(), 6) == "thanks");
    };
    const auto ask = [](testing::Site& at, conn::Endpoint to, std::string& seen) -> co::Task<> {
      co::Connected found = co_await co::connect(at.registry, at.loop, to, 60s);
      INFO(found.failure.text);
      REQUIRE(found);
      const co::Result written = co_await found.stream.write("thanks");
      REQUIRE(written);
      std::array<char, 7> buffer;
      const co::Result next = co_await found.stream.read_exactly(buffer);
      REQUIRE(next);
      seen.assign(buffer.data(), 7);
    };
    scope.spawn(serve(acceptor));
    scope.spawn(ask(site, testing::address_of(acceptor.listener()), answer));
    RUN_UNTIL(site.loop, scope.empty());
    REQUIRE(answer == "welcome");
  }
}

TEST_CASE("coroutine: connect tells why there is no stream", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    conn::Failure failure;
    co::Scope scope;
    const auto ask = [](testing::Site& at, conn::Endpoint to, conn::Failure& why) -> co::Task<> {
      why = (co_await co::connect(at.registry, at.loop, to)).failure;
    };
    scope.spawn(ask(site, site.deserted(), failure));
    RUN_UNTIL(site.loop, scope.empty());
    REQUIRE(failure);
    REQUIRE_FALSE(failure.text.empty());
  }
}

TEST_CASE("coroutine: arrivals wait for next(), and the listener pauses", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    co::Acceptor acceptor(site.registry, site.loop, site.fresh(), 2);
    std::vector<ConnectionPtr> clients;
    for (int i = 0; i < 5; ++i)
      clients.push_back(site.connect(testing::address_of(acceptor.listener())));
    RUN_UNTIL(site.loop, acceptor.waiting() >= 2);
    testing::turns(site.loop, 20);
    REQUIRE(acceptor.waiting() == 2);
    int served = 0;
    const auto serve = [](co::Acceptor& from, int& count) -> co::Task<> {
      std::vector<co::Stream> all;
      while (count < 5) {
        all.push_back(co_await from.next());
        REQUIRE(all.back());
        ++count;
      }
    };
    co::Scope scope;
    scope.spawn(serve(acceptor, served));
    RUN_UNTIL(site.loop, served == 5 && scope.empty());
    REQUIRE(acceptor.waiting() == 0);
  }
}

TEST_CASE("coroutine: one that throws leaves its stream and the loop usable", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream server(std::move(pair.server));
    co::Scope scope;
    const auto fail = [](co::Stream& from) -> co::Task<> {
      (void)(co_await from.peek()).size;
      throw std::runtime_error("thrown by a task");
    };
    scope.spawn(fail(server));
    REQUIRE(pair.client->write("x", 1) == 1);
    bool thrown = false;
    const auto turn = [&] {
      try {
        pair.loop.process_events(ae::kFullIteration);
      } catch (const std::runtime_error&) {
        thrown = true;
      }
      // A loop that shares another's ev_loop keeps the exception.
      for (std::size_t i = 1; pair.loops && i < pair.loops->size(); ++i)
        if ((*pair.loops)[i].take_exception()) thrown = true;
    };
    while (!thrown) turn();
    REQUIRE(scope.empty());
    std::string got;
    bool over = false;
    scope.spawn(collect(server, 10, got, over));
    RUN_UNTIL(pair.loop, got == "x");
    REQUIRE(server->state() == State::kConnected);
  }
}

TEST_CASE("coroutine: a stream that ends lets go of its connection, and a scope of its frames",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const auto resource = std::make_shared<int>();
    const auto hold = [](co::Stream from, std::shared_ptr<int>) -> co::Task<> {
      std::array<char, 16> buffer;
      while (co_await from.read(buffer, 3600s)) {
      }
    };
    co::Scope scope;
    scope.spawn(hold(std::move(pair.server), resource));
    REQUIRE(resource.use_count() == 2);
    REQUIRE(scope.size() == 1);
    scope.cancel();
    REQUIRE(resource.use_count() == 1);
    REQUIRE(scope.empty());
    char byte;
    testing::Collector rest(*pair.client);
    RUN_UNTIL(pair.loop, rest.over());
    REQUIRE(rest.ended);
    REQUIRE(pair.client->read(&byte, 1) == 0);
  }
}

TEST_CASE("coroutine: a dead stream tells each direction, and lets the loop sleep",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream client(std::move(pair.client));
    pair.server.reset();
    co::Scope scope;
    std::errc written{}, again{}, read{}, read_again{};
    const auto write = [](co::Stream& to, ae::EventLoop& loop, std::errc& error,
                          std::errc& second) -> co::Task<> {
      for (;;) {
        const co::Result result = co_await to.write("x");
        error = result.error;
        if (!result) break;
        co_await co::sleep(loop, 0s);
      }
      second = (co_await to.write("x")).error;
    };
    const auto look = [](co::Stream& from, std::errc& error, std::errc& second) -> co::Task<> {
      std::array<char, 16> buffer;
      error = (co_await from.read(buffer)).error;
      second = (co_await from.read(buffer)).error;
    };
    scope.spawn(write(client, pair.loop, written, again));
    RUN_UNTIL(pair.loop, scope.empty());
    REQUIRE(client->state() == State::kError);
    REQUIRE(written != std::errc());
    REQUIRE(again == std::errc::not_connected);
    scope.spawn(look(client, read, read_again));
    RUN_UNTIL(pair.loop, scope.empty());
    REQUIRE(read != std::errc());
    REQUIRE(read_again == std::errc::not_connected);
    testing::IterationCounter iterations(pair.loop);
    REQUIRE(iterations.during(50ms) <= 10);
  }
}

TEST_CASE("coroutine: much data goes both ways through a small pipe", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream client(std::move(pair.client));
    const std::size_t total = testing::simulated() ? 1 << 20 : 4 << 20;
    const testing::Pattern pattern(7);
    std::size_t sent = 0, received = 0;
    bool intact = true;
    const auto send = [](co::Stream& to, testing::Pattern bytes, std::size_t& at,
                         std::size_t size) -> co::Task<> {
      while (at < size) {
        const std::string_view part = bytes.at(at).substr(0, size - at);
        {
          const co::Result written = co_await to.write(part);
          REQUIRE(written.value() == part.size());
        }
        at += part.size();
      }
    };
    const auto receive = [](co::Stream& from, testing::Pattern bytes, std::size_t& at,
                            std::size_t size, bool& same) -> co::Task<> {
      std::vector<char> buffer(100'000);
      while (at < size) {
        const co::Result got = co_await from.read(buffer);
        if (!got) co_return;
        same = same && bytes.matches(at, {buffer.data(), got.size});
        at += got.size;
      }
    };
    co::Scope scope;
    scope.spawn(echo(std::move(pair.server)));
    scope.spawn(send(client, pattern, sent, total));
    scope.spawn(receive(client, pattern, received, total, intact));
    RUN_UNTIL(pair.loop, received == total || scope.size() == 1);
    REQUIRE(received == total);
    REQUIRE(intact);
  }
}

TEST_CASE("coroutine: an operation is over at its limit, keeps what it took, and loses nothing",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream server(std::move(pair.server));
    co::Scope scope;
    bool over = false;
    const auto wait = [](co::Stream& from, Connection& peer, bool& done) -> co::Task<> {
      std::array<char, 8> buffer{};
      co::Result got = co_await from.read(buffer, 1ms);
      REQUIRE(got.error == std::errc::timed_out);
      REQUIRE(got.size == 0);
      REQUIRE(peer.write("abc", 3) == 3);
      do got = co_await from.read_exactly(buffer, 1ms);
      while (got.size == 0);
      REQUIRE(got.error == std::errc::timed_out);
      REQUIRE(got.size == 3);
      REQUIRE(peer.write("de", 2) == 2);
      const co::Peeked all = co_await from.peek(3, 50ms);
      REQUIRE_FALSE(all);
      REQUIRE(all.error == std::errc::timed_out);
      got = co_await from.read_exactly(std::span(buffer).first(2), 3600s);
      REQUIRE(got);
      REQUIRE(std::string(buffer.data(), 3) == "dec");
      done = true;
    };
    scope.spawn(wait(server, *pair.client, over));
    RUN_UNTIL(pair.loop, over);
  }
}

TEST_CASE("coroutine: a write whose limit ends says how much was taken", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream client(std::move(pair.client));
    std::string flood(8 << 20, 'x');
    std::size_t taken = 0;
    std::errc error{};
    const auto write = [](co::Stream& to, std::string_view bytes, std::size_t& size,
                          std::errc& why) -> co::Task<> {
      while (why == std::errc()) {
        const co::Result result = co_await to.write(bytes, 10ms);
        size += result.size;
        why = result.error;
      }
    };
    co::Scope scope;
    scope.spawn(write(client, flood, taken, error));
    RUN_UNTIL(pair.loop, scope.empty());
    REQUIRE(error == std::errc::timed_out);
    testing::Collector server(*pair.server);
    RUN_UNTIL(pair.loop, server.bytes.size() >= taken);
    REQUIRE(server.bytes.size() == taken);
  }
}

TEST_CASE("coroutine: of first() the others are cancelled and lose nothing", "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream server(std::move(pair.server));
    co::Scope scope;
    std::string order;
    const auto run = [](co::Stream& from, ae::EventLoop& loop, Connection& peer,
                        std::string& seen) -> co::Task<> {
      std::array<char, 16> buffer;
      const auto timed = co_await co::first(from.read(buffer), co::sleep(loop, 1ms));
      seen += timed.index() == 1 ? "sleep " : "? ";
      REQUIRE(peer.write("abc", 3) == 3);
      const auto read = co_await co::first(from.read(buffer), co::sleep(loop, 3600s));
      seen += read.index() == 0 ? "read " : "? ";
      REQUIRE(std::get<0>(read).value() > 0);
      seen.append(buffer.data(), std::get<0>(read).size);
    };
    scope.spawn(run(server, *server->loop(), *pair.client, order));
    RUN_UNTIL(pair.loop, scope.empty());
    REQUIRE(order == "sleep read abc");
  }
}

TEST_CASE("coroutine: abort() ends a stream, tells what waits, and its peer sees a cut",
          "[conformance][co]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    co::Stream server(std::move(pair.server)), client(std::move(pair.client));
    co::Scope scope;
    std::array<char, 8> buffer{}, far{};
    co::Result near_result, far_result;
    bool near_over = false, far_over = false;
    scope.spawn(read_into(client, buffer, near_result, near_over));
    scope.spawn(read_into(server, far, far_result, far_over));
    client.abort();
    REQUIRE_FALSE(client);
    REQUIRE_FALSE(near_over);
    client.abort();  // nothing is left to abort
    RUN_UNTIL(pair.loop, near_over && far_over);
    REQUIRE(near_result.error == std::errc::operation_canceled);
    REQUIRE(far_result.error ==
            (pair.carrier.capabilities().reset ? std::errc::connection_reset : co::kEndOfStream));
  }
}
