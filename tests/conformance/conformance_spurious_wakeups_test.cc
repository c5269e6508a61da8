// SPDX-License-Identifier: BSD-3-Clause
// A handler must not be called in vain, over each transport: a write handler runs when the write
// call that it makes can accept bytes, whichever call that is, and a read handler when bytes can be
// read. While the peer does not read, no handler is called.

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "conn/co.h"
#include "conn/core/spurious_wakeups.h"
#include "tests/support/catch.h"
#include "tests/support/in_place_kit.h"
#include "tests/support/testing.h"

using conn::Connection;
using testing::Pair;
namespace co = conn::co;

namespace {

/// Writes by one of the write calls, or by all in turn.
class Writer {
 public:
  enum How {
    kWrite,
    kWritev,
    kReserve,
    kSend,
    kSendRegistered,
    kSendReleased,
    kTiny,
    kMixed,
    kWays
  };
  Writer(Pair& pair, How how, std::uint64_t total)
      : how_(how), total_(total), text_(testing::Pattern(0).at(0)) {
    memory_ = pair.type.register_memory(
        pair.loop,
        std::as_writable_bytes(std::span(const_cast<char*>(text_.data()), text_.size())));
  }
  /// As a write handler: writes until the buffer is full. Its first call must accept bytes.
  void run(Connection& to) {
    ++runs;
    for (bool first = true; sent < total_; first = false) {
      const ssize_t n = write_once(to);
      if (n > 0) {
        sent += static_cast<std::uint64_t>(n);
        continue;
      }
      REQUIRE(errno == EAGAIN);
      in_vain += first ? 1 : 0;
      return;
    }
    to.set_write_handler(nullptr);
  }
  bool over() const { return sent == total_; }
  std::uint64_t runs = 0, in_vain = 0, sent = 0, lent = 0, released = 0;

 private:
  ssize_t write_once(Connection& to) {
    const How how = how_ == kMixed ? static_cast<How>(random_() % kMixed) : how_;
    const std::size_t most = how == kTiny ? 1 + random_() % 160 : 1 + random_() % 20'000;
    const std::string_view part =
        testing::Pattern(0).at(sent).substr(0, std::min<std::uint64_t>(most, total_ - sent));
    const auto bytes = std::as_bytes(std::span(part));
    switch (how) {
      case kWritev: {
        const std::size_t half = part.size() / 2;
        const std::array<iovec, 2> two{
            {{const_cast<char*>(part.data()), half},
             {const_cast<char*>(part.data()) + half, part.size() - half}}};
        return to.writev(two.data(), 2);
      }
      case kReserve: {
        const std::span<std::byte> room = to.reserve(part.size());
        if (room.empty()) return -1;
        std::memcpy(room.data(), part.data(), part.size());
        to.commit(part.size());
        return static_cast<ssize_t>(part.size());
      }
      case kSend:
        return to.send({bytes});
      case kSendRegistered:
        return to.send({bytes, nullptr, nullptr, memory_.get()});
      case kSendReleased: {
        const ssize_t n = to.send({bytes, &Writer::on_release, this, memory_.get()});
        lent += n > 0 ? 1 : 0;
        return n;
      }
      default:
        return to.write(part.data(), part.size());
    }
  }
  static void on_release(void* context, std::error_code) noexcept {
    ++static_cast<Writer*>(context)->released;
  }
  How how_;
  std::uint64_t total_;
  std::string_view text_;
  std::unique_ptr<conn::Memory> memory_;
  std::mt19937 random_{11};
};

/// Reads by one of the read calls. Its first call must return bytes.
class Reader {
 public:
  enum How { kAll, kByte, kPeek, kPeekTogether, kMixed, kWays };
  explicit Reader(How how) : how_(how) {}
  void run(Connection& from) {
    ++runs;
    const How how = how_ == kMixed ? static_cast<How>(random_() % kMixed) : how_;
    std::size_t budget = how == kByte ? 500 : 100'000;
    for (bool first = true; budget != 0; first = false) {
      const ssize_t n = read_once(from, how, budget);
      if (n < 0) {
        REQUIRE(errno == EAGAIN);
        in_vain += first ? 1 : 0;
        return;
      }
      if (n == 0) return from.set_read_handler(nullptr);
      budget -= std::min<std::size_t>(budget, static_cast<std::size_t>(n));
    }
  }
  std::uint64_t runs = 0, in_vain = 0, received = 0;
  bool intact = true;

 private:
  ssize_t read_once(Connection& from, How how, std::size_t most) {
    if (how == kAll || how == kByte) {
      std::array<char, 10'000> bytes;
      const ssize_t n = from.read(bytes.data(), how == kByte ? 1 : std::min(most, bytes.size()));
      if (n > 0) take({bytes.data(), static_cast<std::size_t>(n)});
      return n;
    }
    const conn::View view = from.peek(how == kPeekTogether ? 1 + random_() % 3000 : 1);
    if (view.size == 0) return errno == 0 ? 0 : -1;
    const std::size_t size = std::min(view.pieces[0].iov_len, most);
    take({static_cast<const char*>(view.pieces[0].iov_base), size});
    from.consume(size);
    return static_cast<ssize_t>(size);
  }
  void take(std::string_view bytes) {
    intact = intact && testing::Pattern(0).matches(received, bytes);
    received += bytes.size();
  }
  How how_;
  std::mt19937 random_{13};
};

constexpr std::uint64_t kTotal = 6'000'000;

/// Runs the loop until the handler is no longer called. Fails if that never happens.
template <class End>
void settles(Pair& pair, const End& end) {
  const auto deadline = std::chrono::steady_clock::now() + testing::patience();
  for (std::uint64_t before = ~end.runs; before != end.runs;) {
    if (std::chrono::steady_clock::now() > deadline || end.in_vain > 1000)
      FAIL(end.runs << " runs, " << end.in_vain << " in vain, and it goes on");
    before = end.runs;
    testing::turns(pair.loop, 100);
  }
}

}  // namespace

TEST_CASE("in vain: a write handler runs when its call has room, and not while the peer is full",
          "[conformance]") {
  const auto how = static_cast<Writer::How>(GENERATE(range(0, static_cast<int>(Writer::kWays))));
  CAPTURE(how);
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    // Small enough writes that the peer's memory, or all segments, are used up before everything is
    // sent.
    const std::uint64_t total = how == Writer::kTiny ? kTotal / 4 : 2 * kTotal;
    Writer writer(pair, how, total);
    pair.client->set_write_handler([&](Connection& here) { writer.run(here); });
    settles(pair, writer);
    CHECK(writer.in_vain == 0);
    if (how != Writer::kTiny) CHECK_FALSE(writer.over());
    // A few bytes are read from time to time.
    Reader reader(Reader::kAll);
    for (int i = 0; i < 20; ++i) {
      std::string some(50'000, '\0');
      const ssize_t n = pair.server->read(some.data(), some.size());
      testing::turns(pair.loop, 3);
      if (n < 0) continue;  // a TLS record that is still incomplete
      reader.intact =
          reader.intact &&
          testing::Pattern(0).matches(reader.received, {some.data(), static_cast<std::size_t>(n)});
      reader.received += static_cast<std::uint64_t>(n);
    }
    settles(pair, writer);
    pair.server->set_read_handler([&](Connection& here) { reader.run(here); });
    RUN_UNTIL(pair.loop, reader.received == total);
    CHECK(writer.in_vain == 0);
    CHECK(reader.in_vain == 0);
    CHECK(reader.intact);
    RUN_UNTIL(pair.loop, writer.released == writer.lent);
  }
}

TEST_CASE("in vain: writable() is over when the next call has room, whichever it is",
          "[conformance][co]") {
  const auto how = static_cast<Writer::How>(GENERATE(range(0, static_cast<int>(Writer::kWays))));
  CAPTURE(how);
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Writer writer(pair, how, kTotal);
    co::Stream client(std::move(pair.client));
    co::Scope scope;
    const auto write = [](co::Stream& to, Writer& all) -> co::Task<> {
      while (!all.over() && co_await to.writable()) all.run(*to);
    };
    scope.spawn(write(client, writer));
    settles(pair, writer);
    CHECK(writer.in_vain == 0);
    Reader reader(Reader::kMixed);
    pair.server->set_read_handler([&](Connection& here) { reader.run(here); });
    RUN_UNTIL(pair.loop, reader.received == kTotal);
    CHECK(writer.in_vain == 0);
    CHECK(reader.in_vain == 0);
    CHECK(reader.intact);
    RUN_UNTIL(pair.loop, writer.released == writer.lent);
  }
}

TEST_CASE("in vain: a read handler runs when there is something to read, however it reads",
          "[conformance]") {
  const auto how = static_cast<Reader::How>(GENERATE(range(0, static_cast<int>(Reader::kWays))));
  const bool in_bursts = GENERATE(false, true);
  CAPTURE(how, in_bursts);
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const std::uint64_t total = how == Reader::kByte ? 20'000 : 1'000'000;
    Writer writer(pair, Writer::kMixed, total);
    Reader reader(how);
    pair.server->set_read_handler([&](Connection& here) { reader.run(here); });
    int turn = 0;
    pair.client->set_write_handler([&](Connection& here) {
      if (!in_bursts || ++turn % 5 == 0) writer.run(here);
    });
    RUN_UNTIL(pair.loop, reader.received == total);
    CHECK(reader.in_vain == 0);
    CHECK(writer.in_vain == 0);
    CHECK(reader.intact);
    settles(pair, reader);
  }
}

TEST_CASE("in vain: a reader whose bytes somebody else has read is called again when more come",
          "[conformance]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    Reader reader(Reader::kAll);
    const std::uint64_t total = 3'000'000;
    std::uint64_t taken = 0;  // runs of the other handler that got bytes
    // The barrier makes the write handler run first, and it uses much of the iteration's budget.
    pair.server->set_read_handler([&](Connection& here) { reader.run(here); });
    pair.server->set_write_handler(
        [&](Connection& here) {
          Reader other(Reader::kAll);
          const std::uint64_t before = reader.received;
          std::swap(other.received, reader.received);
          other.run(here);
          std::swap(other.received, reader.received);
          taken += reader.received != before ? 1 : 0;
          reader.intact = reader.intact && other.intact;
        },
        conn::Barrier::kYes);
    Writer writer(pair, Writer::kWrite, total);
    pair.client->set_write_handler([&](Connection& here) { writer.run(here); });
    RUN_UNTIL(pair.loop, reader.received == total);
    CHECK(reader.intact);
    CHECK(writer.in_vain == 0);
    // The event existed before the other handler took its bytes, so the reader may find none: once
    // per such run, possibly several times in a row.
    CHECK(reader.in_vain <= taken);
    conn::SpuriousWakeups::longest_row = 0;
  }
}
