// SPDX-License-Identifier: BSD-3-Clause
// The ring of shm without a loop: bytes, pieces, room, bells, and words that break a rule. Every
// order of two ends' steps is explored by tests/models/bell.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "conn/shm/ring.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using conn::shm::kPiece;
using conn::shm::Reader;
using conn::shm::Words;
using conn::shm::Writer;

namespace {

/// One direction: the words of both ends, and the ring.
struct Direction {
  explicit Direction(std::size_t size) : ring(size) {}

  std::size_t put(const std::string& bytes) {
    const std::size_t n = writer.put(bytes.data(), bytes.size(), [this] { ++to_reader; });
    writer.publish([this] { ++to_reader; });
    return n;
  }
  std::string get(std::size_t size) {
    std::string bytes(size, '\0');
    bytes.resize(reader.get(bytes.data(), size, [this] { ++to_writer; }));
    return bytes;
  }

  Words writers{}, readers{};
  std::vector<std::byte> ring;
  Writer writer{writers, readers, ring.data(), ring.size()};
  Reader reader{readers, writers, ring.data(), ring.size()};
  int to_reader = 0, to_writer = 0;  // bells
};

std::string bytes_of(std::size_t size, std::uint64_t at = 0) {
  std::string bytes(size, '\0');
  for (char& each : bytes) each = static_cast<char>(at++ * 7);
  return bytes;
}

}  // namespace

TEST_CASE("shm: bytes pass through the ring, across its end, as far as there is room",
          "[shm][shm-ring]") {
  Direction one(64 << 10);
  CHECK(one.get(10).empty());
  std::uint64_t sent = 0, got = 0;
  for (const std::size_t size : {1, 100, 8191, 8192, 8193, 50000, 65536, 1, 65535}) {
    const std::string bytes = bytes_of(size, sent);
    CHECK(one.put(bytes) == size);
    sent += size;
    CHECK(one.get(size) == bytes_of(size, got));
    got += size;
  }
  const std::string more = bytes_of(65537, sent);
  CHECK(one.put(more) == 65536);
  CHECK(one.put("x") == 0);
  CHECK(one.writer.room() == 0);
  CHECK(one.get(70000) == more.substr(0, 65536));
  CHECK(one.put("x") == 1);
  CHECK(one.get(10) == "x");
}

TEST_CASE("shm: long data are shown in pieces, and freed in pieces", "[shm][shm-ring]") {
  Direction one(64 << 10);
  const std::string bytes = bytes_of(20000);
  CHECK(one.writer.put(bytes.data(), bytes.size(), [] {}) == 20000);
  CHECK(one.writers.tail.load() == 2 * kPiece);
  one.writer.publish([] {});
  CHECK(one.writers.tail.load() == 20000);
  CHECK(one.get(20000) == bytes);
  CHECK(one.readers.head.load() == 20000);
}

TEST_CASE("shm: an end is rung once for each wish, and for no other", "[shm][shm-ring]") {
  Direction one(64 << 10);
  one.put("a");
  CHECK(one.to_reader == 0);
  one.reader.wish();
  one.put("b");
  one.put("c");
  CHECK(one.to_reader == 1);
  one.reader.unwish();
  one.put("d");
  one.reader.wish();
  CHECK(one.to_reader == 1);
  one.put("e");
  CHECK(one.to_reader == 2);
  CHECK(one.reader.wishes() == 2);

  SECTION("for room when half of the ring is free") {
    (void)one.get(10);
    CHECK(one.put(bytes_of(65536)) == 65536);
    one.writer.wish();
    (void)one.get(32767);
    CHECK(one.to_writer == 0);
    (void)one.get(1);
    CHECK(one.to_writer == 1);
    (void)one.get(1000);
    CHECK(one.to_writer == 1);
  }
}

TEST_CASE("shm: the stream ends after the last byte", "[shm][shm-ring]") {
  Direction one(64 << 10);
  one.put("last");
  one.writer.finish();
  CHECK(one.reader.look());
  CHECK(one.reader.finished());
  CHECK(one.get(10) == "last");
  CHECK(one.get(10).empty());
  CHECK_FALSE(one.reader.look());
}

TEST_CASE("shm: a word that breaks a rule is named, and nothing moves any more",
          "[shm][shm-ring][hostile]") {
  Direction one(64 << 10);
  one.put("abcdef");
  CHECK(one.get(3) == "abc");
  SECTION("more than the ring holds") { one.writers.tail = 3 + (64 << 10) + 1; }
  SECTION("less than was read") { one.writers.tail = 2; }
  SECTION("less than before") { one.writers.tail = 5; }
  SECTION("far away") { one.writers.tail = ~std::uint64_t{0}; }
  CHECK(one.reader.look());
  REQUIRE(one.reader.broken() != nullptr);
  CHECK(one.get(3).empty());
  CHECK_FALSE(one.reader.look());
}

TEST_CASE("shm: a head that breaks a rule is named, and nothing is written any more",
          "[shm][shm-ring][hostile]") {
  Direction one(64 << 10);
  one.put("abcdef");
  (void)one.get(3);
  one.writer.look();
  REQUIRE(one.writer.broken() == nullptr);
  SECTION("more than was written") { one.readers.head = 7; }
  SECTION("less than before") { one.readers.head = 2; }
  SECTION("far away") { one.readers.head = ~std::uint64_t{0}; }
  one.writer.look();
  REQUIRE(one.writer.broken() != nullptr);
  CHECK(one.put("x") == 0);
}

TEST_CASE("shm: a writer counts what the peer has not read, without a look()",
          "[shm][shm-ring][hostile]") {
  Direction one(64 << 10);
  CHECK(one.writer.unread() == 0);
  one.put("abcdef");
  CHECK(one.writer.unread() == 6);
  (void)one.get(4);
  CHECK(one.writer.unread() == 2);
  CHECK(one.writer.room() == (64 << 10) - 6);  // of the last look()
  one.readers.head = 7;
  CHECK(one.writer.unread() == 64 << 10);
  CHECK(one.writer.broken() == nullptr);
}

TEST_CASE("shm: two threads on one memory lose no byte and no wake-up", "[shm][shm-ring]") {
  Direction one(64 << 10);
  // The bells of each end; a thread that waits for one does not look at the ring.
  std::atomic<int> to_reader{0}, to_writer{0};
  constexpr std::uint64_t kAll = std::uint64_t{8} << 20;
  std::thread other([&] {
    const auto bell = [&] { to_reader.fetch_add(1); };
    for (std::uint64_t sent = 0; sent < kAll;) {
      const std::string bytes = bytes_of(std::min(1 + sent % 20000, kAll - sent), sent);
      const std::size_t n = one.writer.put(bytes.data(), bytes.size(), bell);
      one.writer.publish(bell);
      sent += n;
      if (n != 0) continue;
      one.writer.wish();
      one.writer.look();
      if (one.writer.room() == 0)
        while (to_writer.exchange(0) == 0) std::this_thread::yield();
      one.writer.unwish();
      one.writer.look();
    }
    one.writer.finish();
    to_reader.fetch_add(1);
  });
  std::uint64_t got = 0;
  bool intact = true;
  std::string bytes(30000, '\0');
  while (!one.reader.finished() || one.reader.unread() != 0) {
    const std::size_t n =
        one.reader.get(bytes.data(), bytes.size(), [&] { to_writer.fetch_add(1); });
    intact = intact && std::memcmp(bytes.data(), bytes_of(n, got).data(), n) == 0;
    got += n;
    if (n != 0) continue;
    one.reader.wish();
    if (!one.reader.look())
      while (to_reader.exchange(0) == 0) std::this_thread::yield();
    one.reader.unwish();
    (void)one.reader.look();
  }
  other.join();
  CHECK(intact);
  CHECK(got == kAll);
  CHECK(one.reader.broken() == nullptr);
  CHECK(one.writer.broken() == nullptr);
}
