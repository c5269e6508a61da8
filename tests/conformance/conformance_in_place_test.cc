// SPDX-License-Identifier: BSD-3-Clause
// The guarantees of peek(), consume() and readv() in conn/connection.h, over each transport.

#include <array>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/in_place_kit.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::View;
using in_place_kit::pattern_of;
using in_place_kit::peek_until;
using in_place_kit::text_of;
using testing::Collector;
using testing::Pair;
using testing::Sender;

TEST_CASE("in place: peek shows what read would give, as often as it is asked", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    errno = 0;
    REQUIRE(pair.server->peek().size == 0);
    REQUIRE(errno == EAGAIN);
    testing::send(pair.loop, *pair.client, "hello world");
    REQUIRE(text_of(peek_until(pair, *pair.server, 11)) == "hello world");
    REQUIRE(pair.server->bytes_read() == 0);
    REQUIRE(text_of(pair.server->peek()) == "hello world");
    pair.server->consume(6);
    REQUIRE(pair.server->bytes_read() == 6);
    REQUIRE(text_of(pair.server->peek()) == "world");
    char rest[8];
    REQUIRE(pair.server->read(rest, sizeof rest) == 5);
    REQUIRE(std::string_view(rest, 5) == "world");
    REQUIRE(pair.server->peek().size == 0);
    REQUIRE(errno == EAGAIN);
    REQUIRE(pair.server->bytes_read() == 11);
  }
}

TEST_CASE("in place: consume takes no more than was shown", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.client, "abc");
    REQUIRE(peek_until(pair, *pair.server, 3).size == 3);
    pair.server->consume(100);
    REQUIRE(pair.server->bytes_read() == 3);
    pair.server->consume(1);
    REQUIRE(pair.server->bytes_read() == 3);
    testing::send(pair.loop, *pair.client, "d");
    REQUIRE(testing::receive(pair.loop, *pair.server, 1) == "d");
  }
}

TEST_CASE("in place: the first piece holds as much as was asked for", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string sent = pattern_of(3, 200'000);
    Sender sender(*pair.client, 3, sent.size());
    std::string got;
    // Sizes without common divisors, so that pieces cross every internal boundary.
    for (const std::size_t together : {1000u, 30'000u, 65'536u, 17u, 65'535u, 37'912u}) {
      CAPTURE(together);
      const View view = peek_until(pair, *pair.server, together);
      REQUIRE(view.pieces[0].iov_len >= together);
      got.append(view.first().substr(0, together));
      pair.server->consume(together);
    }
    REQUIRE(got == sent.substr(0, got.size()));
    REQUIRE(sent.substr(got.size()) ==
            testing::receive(pair.loop, *pair.server, sent.size() - got.size()));
  }
}

TEST_CASE("in place: nobody may ask for more than kMaxContiguous", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    errno = 0;
    REQUIRE(pair.client->peek(conn::kMaxContiguous + 1).size == 0);
    REQUIRE(errno == EMSGSIZE);
    errno = 0;
    REQUIRE(pair.client->reserve(conn::kMaxContiguous + 1).empty());
    REQUIRE(errno == EMSGSIZE);
    REQUIRE(pair.client->state() == conn::State::kConnected);
  }
}

TEST_CASE("in place: the read handler comes again while unread bytes are left", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string got;
    int calls = 0;
    pair.server->set_read_handler([&](Connection& connection) {
      ++calls;
      const View view = connection.peek();
      if (view.size == 0) return;
      got += view.first().substr(0, 1);
      connection.consume(1);
    });
    testing::send(pair.loop, *pair.client, "one by one");
    RUN_UNTIL(pair.loop, got.size() == 10);
    REQUIRE(got == "one by one");
    REQUIRE(calls >= 10);
    calls = 0;
    testing::turns(pair.loop, 5);
    REQUIRE(calls == 0);
  }
}

TEST_CASE("in place: a handler set later is called for bytes that a peek left", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.client, "left");
    REQUIRE(peek_until(pair, *pair.server, 4).size == 4);
    testing::turns(pair.loop, 3);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.bytes == "left");
  }
}

TEST_CASE("in place: who waits for more is called when more has come, not before",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int calls = 0;
    std::string got;
    pair.server->set_read_handler([&](Connection& connection) {
      ++calls;
      const View view = connection.peek(8);
      if (view.size < 8) return;
      got = std::string(view.first().substr(0, 8));
      connection.consume(8);
    });
    testing::send(pair.loop, *pair.client, "1234");
    RUN_UNTIL(pair.loop, calls != 0);
    testing::turns(pair.loop, 3);
    const int before = calls;
    testing::turns(pair.loop, 20);
    REQUIRE(calls == before);
    testing::send(pair.loop, *pair.client, "5678");
    RUN_UNTIL(pair.loop, got == "12345678");
  }
}

TEST_CASE("in place: a read handler that is set while one waited for more runs for what is there",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    int asked = 0;
    pair.server->set_read_handler([&](Connection& connection) {
      ++asked;
      REQUIRE(connection.peek(100).size == 5);
    });
    testing::send(pair.loop, *pair.client, "hello");
    RUN_UNTIL(pair.loop, asked > 0 && pair.server->peek(100).size == 5);
    std::string got;
    pair.server->set_read_handler([&](Connection& connection) {
      const View view = connection.peek();
      got += text_of(view);
      connection.consume(view.size);
    });
    RUN_UNTIL(pair.loop, got == "hello");
  }
}

TEST_CASE("in place: the end of the stream comes after the last byte", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.client, "last words");
    pair.client.reset();
    View view;
    RUN_UNTIL(pair.loop, (view = pair.server->peek(11)).last);
    REQUIRE(text_of(view) == "last words");
    pair.server->consume(10);
    errno = EIO;
    REQUIRE(pair.server->peek().size == 0);
    REQUIRE(errno == 0);
    char byte;
    REQUIRE(pair.server->read(&byte, 1) == 0);
  }
}

TEST_CASE("in place: a peer that closed is heard of while a part of a message waits",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    bool ended = false;
    std::string rest;
    pair.server->set_read_handler([&](Connection& connection) {
      const View view = connection.peek(100);
      if (view.size >= 100 || !view.last) return;
      ended = true;
      rest = text_of(view);
      connection.set_read_handler(nullptr);
    });
    testing::send(pair.loop, *pair.client, "half a mess");
    testing::turns(pair.loop, 5);
    pair.client.reset();
    RUN_UNTIL(pair.loop, ended);
    REQUIRE(rest == "half a mess");
  }
}

TEST_CASE("in place: readv fills one buffer after the other", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.client, "abcdefghij");
    REQUIRE(peek_until(pair, *pair.server, 10).size == 10);
    pair.server->consume(1);
    std::array<char, 3> first{};
    std::array<char, 20> second{};
    const iovec vectors[]{
        {first.data(), first.size()}, {nullptr, 0}, {second.data(), second.size()}};
    REQUIRE(pair.server->readv(vectors, 3) == 9);
    REQUIRE(std::string_view(first.data(), 3) == "bcd");
    REQUIRE(std::string_view(second.data(), 6) == "efghij");
    REQUIRE(pair.server->readv(vectors, 3) == -1);
    REQUIRE(errno == EAGAIN);
    testing::send(pair.loop, *pair.client, "0123456");
    testing::await_readable(pair.loop, *pair.server);
    REQUIRE(pair.server->readv(vectors, 3) == 7);
    REQUIRE(std::string_view(first.data(), 3) == "012");
    REQUIRE(std::string_view(second.data(), 4) == "3456");
    REQUIRE(pair.server->bytes_read() == 17);
    REQUIRE(pair.server->readv(vectors, 0) == 0);
    errno = 0;
    REQUIRE(pair.server->readv(vectors, -1) == -1);
    REQUIRE(errno == EINVAL);
    const iovec bad{nullptr, 5};
    REQUIRE(pair.server->readv(&bad, 1) == -1);
    REQUIRE(errno == EINVAL);
    pair.client.reset();
    ssize_t n = -1;
    RUN_UNTIL(pair.loop, (n = pair.server->readv(vectors, 3)) == 0);
  }
}

TEST_CASE("in place: the same bytes by read, peek, readv and any mixture", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    for (const std::uint32_t seed : {1u, 2u, 3u}) {
      CAPTURE(seed);
      Pair pair(transport);
      constexpr std::uint64_t kTotal = 600'000;
      const testing::Pattern pattern(seed);
      std::mt19937 random(seed);
      std::uint64_t got = 0;
      bool intact = true;
      std::vector<char> buffer(100'000);
      const auto take = [&](std::string_view bytes) {
        intact = intact && pattern.matches(got, bytes);
        got += bytes.size();
      };
      pair.server->set_read_handler([&](Connection& connection) {
        const std::size_t size = 1 + random() % (random() % 2 == 0 ? 300u : 60'000u);
        switch (random() % 3) {
          case 0: {
            const ssize_t n = connection.read(buffer.data(), size);
            if (n > 0) take({buffer.data(), static_cast<std::size_t>(n)});
            break;
          }
          case 1: {
            const iovec vectors[]{{buffer.data(), size / 2},
                                  {buffer.data() + size / 2, size - size / 2}};
            const ssize_t n = connection.readv(vectors, 2);
            if (n > 0) take({buffer.data(), static_cast<std::size_t>(n)});
            break;
          }
          default: {
            const View view = connection.peek(size);
            const std::size_t part = view.size == 0 ? 0 : 1 + random() % view.size;
            std::string text = text_of(view);
            text.resize(part);
            connection.consume(part);
            take(text);
          }
        }
      });
      Sender sender(*pair.client, seed, kTotal);
      RUN_UNTIL(pair.loop, got == kTotal);
      REQUIRE(intact);
      REQUIRE(pair.server->bytes_read() == kTotal);
    }
  }
}

TEST_CASE("in place: the connection may be closed with bytes peeked", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    bool called = false;
    pair.server->set_read_handler([&](Connection& connection) {
      const View view = connection.peek();
      REQUIRE(view.size != 0);
      called = true;
      (void)pair.server.release();
      connection.close();
    });
    testing::send(pair.loop, *pair.client, "goodbye");
    RUN_UNTIL(pair.loop, called);
    Collector end(*pair.client);
    RUN_UNTIL(pair.loop, end.over());
  }
}
