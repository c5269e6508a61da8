// SPDX-License-Identifier: BSD-3-Clause
// The guarantees of read(), write() and writev() in conn/connection.h, over each transport.

#include <algorithm>
#include <cerrno>
#include <climits>
#include <deque>
#include <span>

#include "tests/support/catch.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using testing::Collector;
using testing::Pair;
using testing::Receiver;
using testing::Sender;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

/// Writes until the send buffer is full. Returns the number of bytes accepted; `partial` counts
/// partial writes.
std::uint64_t fill(Connection& connection, const testing::Pattern& pattern,
                   std::uint64_t* partial = nullptr) {
  std::uint64_t sent = 0;
  for (;;) {
    const std::string_view next = pattern.at(sent).substr(0, 64 << 10);
    const ssize_t n = connection.write(next.data(), next.size());
    if (n < 0) {
      REQUIRE(errno == EAGAIN);
      return sent;
    }
    sent += static_cast<std::uint64_t>(n);
    if (partial != nullptr && static_cast<std::size_t>(n) < next.size()) ++*partial;
  }
}

}  // namespace

TEST_CASE("connection: what one end writes the other reads, both ways", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(pair.client->loop() == &pair.loop);
    REQUIRE((pair.server->loop() == &pair.loop) == (testing::listening_loops() == 1));
    testing::send(pair.loop, *pair.client, "question");
    REQUIRE(testing::receive(pair.loop, *pair.server, 8) == "question");
    testing::send(pair.loop, *pair.server, "answer");
    REQUIRE(testing::receive(pair.loop, *pair.client, 6) == "answer");
  }
}

TEST_CASE("connection: a read with nothing there says EAGAIN and changes nothing",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    char byte = 0;
    errno = 0;
    REQUIRE(pair.client->read(&byte, 1) == -1);
    REQUIRE(errno == EAGAIN);
    REQUIRE(pair.client->state() == conn::State::kConnected);
    testing::send(pair.loop, *pair.server, "x");
    REQUIRE(testing::receive(pair.loop, *pair.client, 1) == "x");
  }
}

TEST_CASE("connection: empty reads and writes return 0 and move nothing", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    char byte = 0;
    const iovec nothing[3]{{&byte, 0}, {nullptr, 0}, {&byte, 0}};
    REQUIRE(pair.client->write("", 0) == 0);
    REQUIRE(pair.client->write(nullptr, 0) == 0);
    REQUIRE(pair.client->writev(nothing, 3) == 0);
    REQUIRE(pair.client->writev(nothing, 0) == 0);
    REQUIRE(pair.client->read(&byte, 0) == 0);
    REQUIRE(pair.client->state() == conn::State::kConnected);
    // The peer does not see an end of stream, either.
    testing::send(pair.loop, *pair.client, "x");
    REQUIRE(testing::receive(pair.loop, *pair.server, 1) == "x");
  }
}

TEST_CASE("connection: a buffer may be reused once write() has returned", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string buffer = "first";
    REQUIRE(pair.client->write(buffer.data(), 5) == 5);
    buffer = "again";
    REQUIRE(pair.client->write(buffer.data(), 5) == 5);
    buffer = "xxxxx";
    REQUIRE(testing::receive(pair.loop, *pair.server, 10) == "firstagain");
  }
}

TEST_CASE("connection: sizes around 64 KiB and 1 MiB arrive whole", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::uint64_t seed = 1;
    for (const std::size_t base : {std::size_t{64} << 10, std::size_t{1} << 20}) {
      for (const std::size_t size : {base - 1, base, base + 1}) {
        CAPTURE(size);
        Receiver receiver(*pair.server, seed);
        Sender sender(*pair.client, seed++, size, size);
        RUN_UNTIL(pair.loop, receiver.received >= size || receiver.error != 0);
        REQUIRE(receiver.received == size);
        REQUIRE(receiver.intact);
      }
    }
  }
}

TEST_CASE("connection: ten thousand writes of one byte make the same stream", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Receiver receiver(*pair.server, 7);
    Sender sender(*pair.client, 7, 10'000, 1);
    RUN_UNTIL(pair.loop, receiver.received == 10'000);
    REQUIRE(receiver.intact);
  }
}

TEST_CASE("connection: many small writes of one handler make the same stream", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const testing::Pattern pattern(8);
    Receiver receiver(*pair.server, 8);
    std::uint64_t sent = 0;
    pair.client->set_write_handler([&](Connection& c) {
      while (sent < 30'000 && c.write(pattern.at(sent).data(), 3) == 3) sent += 3;
      if (sent == 30'000) c.set_write_handler(nullptr);
    });
    RUN_UNTIL(pair.loop, receiver.received == 30'000);
    REQUIRE(receiver.intact);
  }
}

TEST_CASE("connection: reads of one byte see the same stream", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Receiver receiver(*pair.server, 9, 1);
    Sender sender(*pair.client, 9, 5'000);
    RUN_UNTIL(pair.loop, receiver.received == 5'000);
    REQUIRE(receiver.intact);
  }
}

TEST_CASE("connection: a gather write takes more vectors than IOV_MAX, empty ones too",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const testing::Pattern pattern(10);
    Receiver receiver(*pair.server, 10);
    // Lengths 0 to 40: some are empty, and they are not aligned.
    std::vector<iovec> vectors;
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < IOV_MAX * 3 + 5; ++i) {
      const std::size_t length = i * 7 % 41;
      const std::string_view bytes = pattern.at(total).substr(0, length);
      REQUIRE(bytes.size() == length);
      vectors.push_back({const_cast<char*>(bytes.data()), length});
      total += length;
    }
    std::span<iovec> left(vectors);
    int calls = 0;
    pair.client->set_write_handler([&](Connection& c) {
      ++calls;
      ssize_t n = c.writev(left.data(), static_cast<int>(left.size()));
      if (n < 0) return;
      while (!left.empty() && static_cast<std::size_t>(n) >= left.front().iov_len) {
        n -= static_cast<ssize_t>(left.front().iov_len);
        left = left.subspan(1);
      }
      if (left.empty()) return c.set_write_handler(nullptr);
      left.front().iov_base = static_cast<char*>(left.front().iov_base) + n;
      left.front().iov_len -= static_cast<std::size_t>(n);
    });
    RUN_UNTIL(pair.loop, receiver.received >= total);
    REQUIRE(receiver.received == total);
    REQUIRE(receiver.intact);
    REQUIRE(left.empty());
    REQUIRE(pair.client->bytes_written() == total);
  }
}

TEST_CASE("connection: a gather write that takes nothing is -1 and EAGAIN, and never 0",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string piece(16 * 1024, 'g');
    const iovec two[2] = {{piece.data(), 100}, {piece.data(), piece.size()}};
    ssize_t n = 0;
    do {
      errno = 0;
      n = pair.client->writev(two, 2);
    } while (n > 0);
    const int error = errno;
    REQUIRE(n == -1);
    REQUIRE(error == EAGAIN);
  }
}

TEST_CASE("connection: a gather write of more than 2 GiB takes a part, and that part arrives",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string piece(64 << 20, 'g');
    std::vector<iovec> vectors(40, {const_cast<char*>(piece.data()), piece.size()});
    const ssize_t n = pair.client->writev(vectors.data(), static_cast<int>(vectors.size()));
    REQUIRE(n > 0);
    const std::string got = testing::receive(pair.loop, *pair.server, static_cast<std::size_t>(n));
    REQUIRE(got.find_first_not_of('g') == std::string::npos);
    testing::send(pair.loop, *pair.client, "!");
    REQUIRE(testing::receive(pair.loop, *pair.server, 1) == "!");
  }
}

TEST_CASE("connection: 64 MiB each way at once arrive intact", "[conformance][large]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    constexpr std::uint64_t kSize = 64 * kMiB;
    Receiver at_server(*pair.server, 11), at_client(*pair.client, 12);
    Sender from_client(*pair.client, 11, kSize), from_server(*pair.server, 12, kSize);
    testing::run_until(
        pair.loop,
        [&] {
          return (at_server.received == kSize && at_client.received == kSize) ||
                 !at_server.intact || !at_client.intact || at_server.error || at_client.error;
        },
        "64 MiB each way", 6 * testing::patience());
    INFO(pair.client->last_error() << " / " << pair.server->last_error());
    REQUIRE(at_server.intact);
    REQUIRE(at_client.intact);
    REQUIRE(at_server.received == kSize);
    REQUIRE(at_client.received == kSize);
    REQUIRE(pair.client->bytes_written() == kSize);
    REQUIRE(pair.client->bytes_read() == kSize);
  }
}

TEST_CASE("connection: two hundred at once each get back what they sent", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    testing::EchoServer echo;
    const conn::ListenerPtr listener = site.listen(echo.handler());
    constexpr std::uint64_t kConnections = 200, kSize = 10'000;
    // On a busy machine two hundred handshakes take longer than one connection may by default.
    conn::Endpoint to = testing::address_of(*listener);
    for (const char* const key : {"connect-timeout", "handshake-timeout"}) {
      const conn::OptionRow* const row = site.type.find_option(key);
      if (row != nullptr && row->side() != conn::OptionSide::kListener)
        to.options.set(key, conn::time_words(2 * testing::patience()));
    }
    std::vector<ConnectionPtr> clients;
    std::deque<Sender> senders;
    std::deque<Receiver> receivers;
    std::string refused;
    for (std::uint64_t i = 0; i < kConnections; ++i) {
      clients.push_back(site.connect(to, [&, i](Connection& c) {
        if (c.state() != conn::State::kConnected) {
          refused += std::to_string(i) + ": " + c.last_error() + "\n";
          return;
        }
        receivers.emplace_back(c, i, 4096);
        senders.emplace_back(c, i, kSize, 3000);
      }));
    }
    RUN_UNTIL(site.loop, senders.size() == kConnections || !refused.empty());
    REQUIRE(refused == "");
    RUN_UNTIL(site.loop, std::all_of(receivers.begin(), receivers.end(), [](const Receiver& r) {
                return r.received >= kSize || r.error != 0;
              }));
    for (const Receiver& receiver : receivers) {
      CAPTURE(receiver.error);
      REQUIRE(receiver.received == kSize);
      REQUIRE(receiver.intact);
    }
    REQUIRE(echo.open() == kConnections);
    clients.clear();
    RUN_UNTIL(site.loop, echo.open() == 0);
  }
}

TEST_CASE("connection: a writer whose reader is slow sleeps until there is room", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const testing::Pattern pattern(13);
    testing::IterationCounter iterations(pair.loop);
    // Writes until the buffer stays full: bytes under way may still make room.
    std::uint64_t sent = 0;
    int calls = 0;
    pair.client->set_write_handler([&](Connection& c) {
      ++calls;
      const std::string_view next = pattern.at(sent).substr(0, 64 << 10);
      const ssize_t n = c.write(next.data(), next.size());
      if (n > 0) sent += static_cast<std::uint64_t>(n);
    });
    for (int before = -1; before != calls;) {
      before = calls;
      iterations.during(20ms);
    }
    REQUIRE(sent > 0);
    const int calls_when_full = calls;
    REQUIRE(iterations.during(100ms) <= 10);  // not 0: a kernel may report free space late
    REQUIRE(calls - calls_when_full <= 10);

    const std::uint64_t sent_when_full = sent;
    Receiver receiver(*pair.server, 13);
    RUN_UNTIL(pair.loop, sent > sent_when_full && receiver.received > sent_when_full);
    pair.client->set_write_handler(nullptr);
    RUN_UNTIL(pair.loop, receiver.received == sent);
    REQUIRE(receiver.intact);
  }
}

TEST_CASE("connection: a full one says EAGAIN, and takes more when the peer has read",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const testing::Pattern pattern(14);
    const conn::LoopCounters& counters = pair.carrier.counters(pair.loop);
    const std::uint64_t before = counters.short_writes;
    std::uint64_t partial = 0;
    const std::uint64_t sent = fill(*pair.client, pattern, &partial);
    REQUIRE(sent > 0);
    REQUIRE(counters.short_writes - before == partial + 1);
    Receiver receiver(*pair.server, 14);
    RUN_UNTIL(pair.loop, receiver.received == sent);
    REQUIRE(pair.client->write(pattern.at(sent).data(), 1) == 1);
    RUN_UNTIL(pair.loop, receiver.received == sent + 1);
    REQUIRE(receiver.intact);
  }
}

TEST_CASE("connection: it counts the bytes it moved, and so does its type", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const conn::LoopCounters before = testing::counters(pair);
    testing::send(pair.loop, *pair.client, std::string(100, 'x'));
    testing::receive(pair.loop, *pair.server, 60);
    REQUIRE(pair.client->bytes_written() == 100);
    REQUIRE(pair.client->bytes_read() == 0);
    REQUIRE(pair.server->bytes_read() == 60);
    REQUIRE(pair.server->bytes_written() == 0);
    const conn::LoopCounters after = testing::counters(pair);
    REQUIRE(after.bytes_written - before.bytes_written == 100);
    REQUIRE(after.bytes_read - before.bytes_read == 60);
    REQUIRE(after.short_writes == before.short_writes);
  }
}

TEST_CASE("connection: one that is fed without end starves no other", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair busy(transport);
    ConnectionPtr quiet_client = busy.type.create(busy.loop), quiet_server;
    const conn::ListenerPtr listener =
        busy.listen([&](ConnectionPtr accepted) { quiet_server = std::move(accepted); });
    quiet_client->connect(testing::address_of(*listener), nullptr);
    RUN_UNTIL(busy.loop, quiet_server && quiet_client->state() == conn::State::kConnected);
    Receiver receiver(*busy.server, 15);
    Sender sender(*busy.client, 15, std::uint64_t{1} << 40);
    for (int i = 0; i < 20; ++i) {
      testing::send(busy.loop, *quiet_client, "ping");
      REQUIRE(testing::receive(busy.loop, *quiet_server, 4) == "ping");
    }
    REQUIRE(receiver.intact);
  }
}
