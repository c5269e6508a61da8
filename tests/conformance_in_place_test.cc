// What conn/connection.h promises of peek, consume, reserve, commit, send and readv, for every
// transport alike.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>

#include "tests/support/catch.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::Outgoing;
using conn::View;
using testing::Collector;
using testing::Pair;
using testing::Receiver;
using testing::Sender;
using namespace std::chrono_literals;

namespace {

std::string text_of(const View& view) {
  std::string text;
  for (const iovec& piece : std::span(view.pieces).first(static_cast<std::size_t>(view.count)))
    text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
  REQUIRE(text.size() == view.size);
  return text;
}

/// Runs the loop until a peek shows so many bytes, or that no more come.
View peek_until(testing::Site& site, Connection& connection, std::size_t size) {
  View view;
  RUN_UNTIL(site.loop,
            (view = connection.peek(std::min(size, conn::kTogether)), view.size >= size) ||
                view.last || (view.size == 0 && errno != EAGAIN));
  return view;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Bytes that were sent from where they lie, and what came of it.
struct Parcel {
  explicit Parcel(std::string its_text) : text(std::move(its_text)) {}
  Outgoing outgoing(const conn::Memory* memory = nullptr) {
    return {bytes_of(text), &Parcel::released, this, memory};
  }
  static void released(void* context, std::error_code why) noexcept {
    auto& parcel = *static_cast<Parcel*>(context);
    ++parcel.releases;
    parcel.error = why;
    if (parcel.then) parcel.then();
  }
  std::string text;
  int releases = 0;
  std::error_code error;
  std::function<void()> then;
};

std::string pattern_of(std::uint64_t seed, std::size_t size, std::uint64_t from = 0) {
  const testing::Pattern pattern(seed);
  std::string text;
  while (text.size() < size)
    text.append(pattern.at(from + text.size()).substr(0, size - text.size()));
  return text;
}

void put(Connection& connection, std::string_view text) {
  const std::span<std::byte> room = connection.reserve(text.size());
  REQUIRE(room.size() >= text.size());
  std::memcpy(room.data(), text.data(), text.size());
  connection.commit(text.size());
}

/// Puts it where there is room at once; what was put.
std::string put_if_room(Connection& connection, const std::string& text) {
  const std::span<std::byte> room = connection.reserve(text.size());
  if (room.empty()) return {};
  std::memcpy(room.data(), text.data(), text.size());
  connection.commit(text.size());
  return text;
}

/// Writes without end until there is no room, and returns what it wrote.
std::string fill(Connection& connection) {
  std::string sent;
  const std::string block = pattern_of(77, 32 << 10);
  for (ssize_t n = 0; (n = connection.write(block.data(), block.size())) > 0;)
    sent.append(block, 0, static_cast<std::size_t>(n));
  REQUIRE(errno == EAGAIN);
  return sent;
}

}  // namespace

// --- peek and consume ----------------------------------------------------------------------------

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
    // Sizes that do not divide anything, so that pieces cross every border there is.
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

TEST_CASE("in place: nobody may ask for more than kTogether", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    errno = 0;
    REQUIRE(pair.client->peek(conn::kTogether + 1).size == 0);
    REQUIRE(errno == EMSGSIZE);
    errno = 0;
    REQUIRE(pair.client->reserve(conn::kTogether + 1).empty());
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

// --- reserve and commit --------------------------------------------------------------------------

TEST_CASE("in place: what is committed arrives, in order with what is written", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    put(*pair.client, "one ");
    put(*pair.client, "two ");
    REQUIRE(pair.client->bytes_written() == 8);
    testing::send(pair.loop, *pair.client, "three ");
    put(*pair.client, "four");
    REQUIRE(testing::receive(pair.loop, *pair.server, 18) == "one two three four");
  }
}

TEST_CASE("in place: room is given back, and is the caller's until then", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->reserve(100).size() >= 100);
    errno = 0;
    REQUIRE(pair.client->write("x", 1) == -1);
    REQUIRE(errno == EBUSY);
    const iovec vector{const_cast<char*>("x"), 1};
    errno = 0;
    REQUIRE(pair.client->writev(&vector, 1) == -1);
    REQUIRE(errno == EBUSY);
    errno = 0;
    REQUIRE(pair.client->send({bytes_of("x")}) == -1);
    REQUIRE(errno == EBUSY);
    pair.client->commit(0);
    pair.client->commit(5);  // of nothing
    REQUIRE(pair.client->bytes_written() == 0);
    testing::send(pair.loop, *pair.client, "y");
    (void)pair.client->reserve(10);
    put(*pair.client, "z");  // another reserve() gives the first back
    REQUIRE(testing::receive(pair.loop, *pair.server, 2) == "yz");
    REQUIRE(testing::read_some(*pair.server, 10).empty());
  }
}

TEST_CASE("in place: flush hands on what was committed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    put(*pair.client, "now");
    pair.client->flush();
    REQUIRE(testing::receive(pair.loop, *pair.server, 3) == "now");
    REQUIRE(pair.client->sync_write("then", 4, 5s) == 4);
    REQUIRE(testing::receive(pair.loop, *pair.server, 4) == "then");
  }
}

TEST_CASE("in place: a writer that commits is bounded, called again, and loses nothing",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    constexpr std::uint64_t kTotal = 16'000'000;
    const testing::Pattern pattern(5);
    std::uint64_t sent = 0;
    std::uint64_t refusals = 0;
    std::mt19937 random(5);
    pair.client->set_write_handler([&](Connection& connection) {
      while (sent < kTotal) {
        const std::size_t size = 1 + random() % 40'000;
        const std::span<std::byte> room = connection.reserve(size);
        if (room.empty()) {
          REQUIRE(errno == EAGAIN);
          ++refusals;
          return;
        }
        const std::string_view next =
            pattern.at(sent).substr(0, std::min<std::uint64_t>(size, kTotal - sent));
        std::memcpy(room.data(), next.data(), next.size());
        connection.commit(next.size());
        sent += next.size();
      }
      connection.set_write_handler(nullptr);
    });
    testing::turns(pair.loop, 200);
    const std::uint64_t stuck = sent;
    REQUIRE(refusals != 0);
    REQUIRE(stuck < kTotal);
    Receiver receiver(*pair.server, 5);
    RUN_UNTIL(pair.loop, receiver.received == kTotal);
    REQUIRE(receiver.intact);
  }
}

TEST_CASE("in place: close delivers what was committed and what was sent", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string sent = fill(*pair.client);
    Parcel parcel(pattern_of(9, 500'000));
    sent += put_if_room(*pair.client, "committed");
    REQUIRE(pair.client->send(parcel.outgoing()) == 500'000);
    sent += parcel.text;
    sent += put_if_room(*pair.client, "and more");
    REQUIRE(parcel.releases == 0);
    pair.client.reset();
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over() && parcel.releases == 1);
    REQUIRE(collector.bytes == sent);
    REQUIRE(collector.ended);
    REQUIRE_FALSE(parcel.error);
  }
}

TEST_CASE("in place: shutdown comes after what was committed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().half_close) return;
    std::string sent = fill(*pair.client);
    Parcel parcel(pattern_of(10, 300'000));
    REQUIRE(pair.client->send(parcel.outgoing()) == 300'000);
    REQUIRE(pair.client->shutdown() == 0);
    errno = 0;
    REQUIRE(pair.client->write("x", 1) == -1);
    REQUIRE(errno == EPIPE);
    REQUIRE(pair.client->shutdown() == 0);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over());
    REQUIRE(collector.bytes == sent + parcel.text);
    RUN_UNTIL(pair.loop, parcel.releases == 1);
    testing::send(pair.loop, *pair.server, "still");
    REQUIRE(testing::receive(pair.loop, *pair.client, 5) == "still");
  }
}

// --- send ----------------------------------------------------------------------------------------

TEST_CASE("in place: send delivers from where the bytes lie and releases them once",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Parcel small("small"), large(pattern_of(11, 1'000'000)), none("");
    put(*pair.client, "<");
    REQUIRE(pair.client->send(small.outgoing()) == 5);
    put(*pair.client, "|");
    REQUIRE(pair.client->send(large.outgoing()) == 1'000'000);
    REQUIRE(pair.client->send(none.outgoing()) == 0);
    put(*pair.client, ">");
    REQUIRE(pair.client->bytes_written() == 1'000'008);
    REQUIRE(small.releases + large.releases + none.releases == 0);  // never inside send()
    REQUIRE(testing::receive(pair.loop, *pair.server, 1'000'008) == "<small|" + large.text + ">");
    RUN_UNTIL(pair.loop, small.releases == 1 && large.releases == 1 && none.releases == 1);
    REQUIRE_FALSE(small.error);
    REQUIRE_FALSE(large.error);
    testing::turns(pair.loop, 5);
    REQUIRE(large.releases == 1);
  }
}

TEST_CASE("in place: what is sent is bounded, all or none", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string sent = fill(*pair.client);
    std::vector<std::unique_ptr<Parcel>> parcels;
    for (;;) {
      auto parcel = std::make_unique<Parcel>(pattern_of(parcels.size(), 10'000));
      const ssize_t n = pair.client->send(parcel->outgoing());
      if (n < 0) {
        REQUIRE(errno == EAGAIN);
        testing::turns(pair.loop, 3);
        REQUIRE(parcel->releases == 0);
        break;
      }
      REQUIRE(n == 10'000);
      sent += parcel->text;
      parcels.push_back(std::move(parcel));
      REQUIRE(parcels.size() < 10'000);
    }
    REQUIRE_FALSE(parcels.empty());
    bool writable = false;
    pair.client->set_write_handler([&](Connection& connection) {
      writable = true;
      connection.set_write_handler(nullptr);
    });
    REQUIRE(testing::receive(pair.loop, *pair.server, sent.size()) == sent);
    RUN_UNTIL(pair.loop, writable);
    RUN_UNTIL(pair.loop, std::all_of(parcels.begin(), parcels.end(),
                                     [](const auto& parcel) { return parcel->releases == 1; }));
  }
}

TEST_CASE("in place: a release may use and close the connection", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Parcel first("first "), second("second ");
    first.then = [&] {
      REQUIRE(pair.client->send(second.outgoing()) == 7);
      put(*pair.client, "third");
    };
    second.then = [&] { pair.client.reset(); };
    REQUIRE(pair.client->send(first.outgoing()) == 6);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over() && second.releases == 1);
    REQUIRE(collector.bytes == "first second third");
    REQUIRE(first.releases == 1);
  }
}

TEST_CASE("in place: registered memory may be used with every transport", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Parcel parcel(pattern_of(12, 200'000));
    const auto memory =
        pair.type.register_memory(pair.loop, std::as_writable_bytes(std::span(parcel.text)));
    REQUIRE(memory->bytes().size() == 200'000);
    for (int i = 1; i <= 3; ++i) {
      REQUIRE(pair.client->send(parcel.outgoing(memory.get())) == 200'000);
      REQUIRE(testing::receive(pair.loop, *pair.server, 200'000) == parcel.text);
      RUN_UNTIL(pair.loop, parcel.releases == i);
      REQUIRE_FALSE(parcel.error);
    }
  }
}

TEST_CASE("in place: a peer that dies releases everything once", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    (void)fill(*pair.client);
    std::array<Parcel, 3> parcels{Parcel(pattern_of(1, 400'000)), Parcel(pattern_of(2, 400'000)),
                                  Parcel(pattern_of(3, 400'000))};
    for (Parcel& parcel : parcels) REQUIRE(pair.client->send(parcel.outgoing()) == 400'000);
    pair.server.reset();
    RUN_UNTIL(pair.loop, std::all_of(parcels.begin(), parcels.end(),
                                     [](const Parcel& parcel) { return parcel.releases == 1; }));
    pair.client.reset();
    testing::turns(pair.loop, 3);
    for (const Parcel& parcel : parcels) REQUIRE(parcel.releases == 1);
  }
}

TEST_CASE("in place: the loop's end releases everything", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    auto pair = std::make_unique<Pair>(transport);
    (void)fill(*pair->client);
    Parcel parcel(pattern_of(4, 5'000'000)), abandoned(pattern_of(5, 100));
    REQUIRE(pair->client->send(parcel.outgoing()) == 5'000'000);
    REQUIRE(pair->server->send(abandoned.outgoing()) == 100);
    pair.reset();
    REQUIRE(parcel.releases == 1);
    REQUIRE(abandoned.releases == 1);
  }
}

TEST_CASE("in place: operations of a connection that is not connected say so", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const conn::ConnectionPtr fresh = pair.type.create(pair.loop);
    errno = 0;
    REQUIRE(fresh->peek().size == 0);
    REQUIRE(errno == ENOTCONN);
    fresh->consume(1);
    errno = 0;
    REQUIRE(fresh->reserve(1).empty());
    REQUIRE(errno == ENOTCONN);
    fresh->commit(1);
    Parcel parcel("x");
    errno = 0;
    REQUIRE(fresh->send(parcel.outgoing()) == -1);
    REQUIRE(errno == ENOTCONN);
    REQUIRE(parcel.releases == 0);
    errno = 0;
    REQUIRE(pair.client->send({std::span<const std::byte>(static_cast<std::byte*>(nullptr), 1)}) ==
            -1);
    REQUIRE(errno == EINVAL);
  }
}

TEST_CASE("in place: unread bytes come along to another loop, unsent ones are waited for",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.type.capabilities().rebind) return;
    ae::LibevLoop other;
    std::string got;
    pair.server->set_read_handler([&](Connection& connection) {
      if (!other.in_handler()) return connection.set_read_handler(nullptr);
      got += testing::read_some(connection, 100);
    });
    testing::send(pair.loop, *pair.client, "peeked");
    RUN_UNTIL(pair.loop, !pair.server->has_read_handler());
    REQUIRE(peek_until(pair, *pair.server, 6).size == 6);
    pair.server->consume(1);
    REQUIRE(pair.server->reserve(10).size() >= 10);
    errno = 0;
    REQUIRE_FALSE(pair.server->rebind(other));
    REQUIRE(errno == EBUSY);
    pair.server->commit(0);
    (void)fill(*pair.server);
    Parcel parcel("waits");
    REQUIRE(pair.server->send(parcel.outgoing()) == 5);
    errno = 0;
    REQUIRE_FALSE(pair.server->rebind(other));
    REQUIRE(errno == EAGAIN);
    Collector collector(*pair.client);
    RUN_UNTIL(pair.loop, parcel.releases == 1);
    pair.server->set_read_handler([&](Connection& connection) {
      REQUIRE(other.in_handler());
      got += testing::read_some(connection, 100);
    });
    REQUIRE(pair.server->rebind(other));
    RUN_UNTIL(other, got == "eeked");
    put(*pair.server, "from there");
    testing::turns(other, 1);
    RUN_UNTIL(pair.loop, collector.bytes.ends_with("from there"));
    pair.server.reset();
  }
}

TEST_CASE("in place: a child of fork() and its parent release what is theirs", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    (void)fill(*pair.client);
    Parcel parcel(pattern_of(6, 100'000));
    REQUIRE(pair.client->send(parcel.outgoing()) == 100'000);
    const pid_t child = fork();
    REQUIRE(child != -1);
    if (child == 0) _exit(parcel.releases == 0 ? 0 : 1);
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, parcel.releases == 1);
    REQUIRE_FALSE(parcel.error);
  }
}

TEST_CASE("in place: who sends much is read in larger pieces, until it sends little",
          "[conn][unix]") {
  Pair pair({.name = "unix"});
  const std::string much = pattern_of(1, 150'000);
  std::size_t sent = 0;
  const auto peek = [&](std::size_t least) {
    RUN_UNTIL(pair.loop, [&] {
      const ssize_t n = pair.client->write(much.data() + sent, much.size() - sent);
      if (n > 0) sent += static_cast<std::size_t>(n);
      return sent >= least;
    }());
    return pair.server->peek().size;
  };
  REQUIRE(peek(100'000) == 16 * 1024);
  pair.server->consume(16 * 1024);
  REQUIRE(peek(100'000) > 16 * 1024);
  pair.server->consume(conn::kTogether);
  while (sent < much.size() || pair.server->bytes_read() < sent)
    pair.server->consume(peek(std::min(sent + 1, much.size())));
  sent = much.size() - 10;
  REQUIRE(peek(much.size()) == 10);
  pair.server->consume(10);
  sent = 0;
  REQUIRE(peek(100'000) == 16 * 1024);
}
