// SPDX-License-Identifier: BSD-3-Clause
// The guarantees of reserve(), commit() and send() in conn/connection.h, over each transport.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/in_place_kit.h"
#include "tests/support/testing.h"

using conn::Connection;
using in_place_kit::bytes_of;
using in_place_kit::fill;
using in_place_kit::Parcel;
using in_place_kit::pattern_of;
using in_place_kit::peek_until;
using in_place_kit::put;
using in_place_kit::put_if_room;
using testing::Collector;
using testing::Pair;
using testing::Receiver;
using namespace std::chrono_literals;

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
    pair.client->commit(5);  // without a reservation
    REQUIRE(pair.client->bytes_written() == 0);
    testing::send(pair.loop, *pair.client, "y");
    (void)pair.client->reserve(10);
    put(*pair.client, "z");  // another reserve() cancels the first
    REQUIRE(testing::receive(pair.loop, *pair.server, 2) == "yz");
    REQUIRE(testing::read_some(*pair.server, 10).empty());
  }
}

TEST_CASE("in place: commit takes no more than the room there was", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::span<std::byte> room = pair.client->reserve(10);
    REQUIRE(room.size() >= 10);
    std::memset(room.data(), 'x', room.size());
    pair.client->commit(room.size() + 1000);
    REQUIRE(pair.client->bytes_written() == room.size());
    REQUIRE(testing::receive(pair.loop, *pair.server, room.size()) ==
            std::string(room.size(), 'x'));
    testing::send(pair.loop, *pair.client, "next");
    REQUIRE(testing::receive(pair.loop, *pair.server, 4) == "next");
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

TEST_CASE("in place: a blocking flush waits for what was committed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    std::string sent = fill(*pair.client);
    const std::string block = pattern_of(78, 32 << 10);
    while (!put_if_room(*pair.client, block).empty()) sent += block;
    errno = 0;
    REQUIRE(pair.client->sync_write(nullptr, 0, 1ms) == -1);
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(testing::receive(pair.loop, *pair.server, sent.size()) == sent);
    REQUIRE(pair.client->sync_write(nullptr, 0, 10s) == 0);
  }
}

TEST_CASE("in place: after shutdown() no wait to write, and pending output arrives",
          "[conformance]") {
  const bool commits = GENERATE(false, true);
  CAPTURE(commits);
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.client->type().capabilities().half_close) return;
    std::string sent = fill(*pair.client);
    const std::string block = pattern_of(79, 32 << 10);
    while (commits && !put_if_room(*pair.client, block).empty()) sent += block;
    REQUIRE(pair.client->shutdown() == 0);
    errno = 0;
    REQUIRE(pair.client->write("x", 1) == -1);
    REQUIRE(errno == EPIPE);
    REQUIRE(pair.client->sync_wait(ae::kWritable, 1ms));
    REQUIRE(testing::receive(pair.loop, *pair.server, sent.size()) == sent);
    Collector collector(*pair.server);
    RUN_UNTIL(pair.loop, collector.over());
    REQUIRE(collector.bytes.empty());
    REQUIRE(collector.ended);
  }
}

TEST_CASE("in place: a blocking flush fails if the connection has failed", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    (void)fill(*pair.client);
    const std::string block = pattern_of(78, 32 << 10);
    while (!put_if_room(*pair.client, block).empty()) {
    }
    pair.server.release()->abort();
    testing::turns(pair.loop, 5);
    errno = 0;
    REQUIRE(pair.client->sync_write(nullptr, 0, 10s) == -1);
    REQUIRE(pair.client->state() == conn::State::kError);
    REQUIRE(errno != 0);
    REQUIRE(errno != ETIMEDOUT);
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
    RUN_UNTIL(pair.loop, refusals != 0);
    testing::turns(pair.loop, 200);
    const std::uint64_t stuck = sent;
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

TEST_CASE("in place: after shutdown there is no buffer, and nothing is sent", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    for (const bool both : {false, true}) {
      Pair pair(transport);
      if (!pair.type.capabilities().half_close) return;
      REQUIRE((both ? pair.client->shutdown_both() : pair.client->shutdown()) == 0);
      if (both) {  // it is closed
        CHECK(pair.client->reserve(5).empty());
        Parcel parcel("lost?");
        CHECK(pair.client->send(parcel.outgoing()) == -1);
        continue;
      }
      errno = 0;
      CHECK(pair.client->reserve(5).empty());
      CHECK(errno == EPIPE);
      Parcel parcel("lost?");
      errno = 0;
      CHECK(pair.client->send(parcel.outgoing()) == -1);
      CHECK(errno == EPIPE);
      CHECK(parcel.releases == 0);
    }
  }
}

// --- send ----------------------------------------------------------------------------------------

TEST_CASE("in place: nothing, sent alone, is released, and the connection goes on",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    for (const bool first : {true, false}) {
      Parcel none(""), more("");
      REQUIRE(pair.client->send(none.outgoing()) == 0);
      REQUIRE(pair.client->send(more.outgoing()) == 0);
      RUN_UNTIL(pair.loop, none.releases == 1 && more.releases == 1);
      REQUIRE_FALSE(none.error);
      REQUIRE_FALSE(more.error);
      testing::send(pair.loop, *pair.client, first ? "on" : "ce");
      REQUIRE(testing::receive(pair.loop, *pair.server, 2) == (first ? "on" : "ce"));
    }
  }
}

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
    REQUIRE(small.releases + large.releases + none.releases == 0);  // never within send()
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

TEST_CASE("in place: a release cannot move its connection to another loop", "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    if (!pair.client->type().capabilities().rebind) return;
    testing::AnyLoop other;
    Parcel parcel("parcel");
    bool left = true, moved = true;
    std::vector<int> errors;
    parcel.then = [&] {
      errno = 0;
      left = pair.client->leave();
      errors.push_back(errno);
      errno = 0;
      moved = !left && pair.client->rebind(other);
      errors.push_back(errno);
    };
    REQUIRE(pair.client->send(parcel.outgoing()) == 6);
    REQUIRE(testing::receive(pair.loop, *pair.server, 6) == "parcel");
    RUN_UNTIL(pair.loop, parcel.releases == 1);
    REQUIRE_FALSE(left);
    REQUIRE_FALSE(moved);
    REQUIRE(errors == std::vector<int>{EAGAIN, EAGAIN});
    REQUIRE(pair.client->leave());  // outside of it, it moves
    REQUIRE(pair.client->join(pair.loop));
    put(*pair.client, "after");
    REQUIRE(testing::receive(pair.loop, *pair.server, 5) == "after");
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
    testing::AnyLoop other;
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

TEST_CASE("in place: a child of fork() takes nothing of what its parent sends", "[conformance]") {
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
  pair.server->consume(conn::kMaxContiguous);
  while (sent < much.size() || pair.server->bytes_read() < sent)
    pair.server->consume(peek(std::min(sent + 1, much.size())));
  sent = much.size() - 10;
  REQUIRE(peek(much.size()) == 10);
  pair.server->consume(10);
  sent = 0;
  REQUIRE(peek(100'000) == 16 * 1024);
}
