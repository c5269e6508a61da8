// SPDX-License-Identifier: BSD-3-Clause
// Reads and writes of several records: they go to the wire together and come from it together, in
// order, whatever the wire takes or has.
#if AECONN_TLS

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <string>
#include <vector>

#include "conn/tls/gather.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

using conn::tls::Engine;
using testing::Engines;

namespace {

using Room = std::array<char, Engine::kRoom>;

std::string text_of(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + (i ^ i >> 9) % 23);
  return text;
}

ssize_t write(Engine& engine, std::string_view bytes, Room& room) {
  return conn::tls::encrypt_large(engine, bytes.data(), bytes.size(), room);
}

/// Reads once, with a buffer of `size` bytes.
std::string read(Engine& engine, std::size_t size, Room& room) {
  std::string bytes(size, '\0');
  const ssize_t n = engine.read(bytes.data(), size, room);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return bytes;
}

/// Reads until there is nothing that the engine or the wire is known to have.
std::string read_all(Engine& engine, std::size_t size, Room& room) {
  std::string all;
  do all += read(engine, size, room);
  while (engine.look(true) && !engine.failed() && !engine.progress().ended());
  return all;
}

/// The bytes of ciphertext of a full record.
constexpr std::size_t kSealed = Engine::kRecord + 22;

}  // namespace

TEST_CASE("tls large: the records of a write are offered to the wire together", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  Room room, other;
  const auto [size, transmits] =
      GENERATE(std::pair{100, 1}, std::pair{16384, 1}, std::pair{16385, 1}, std::pair{65536 + 4, 1},
               std::pair{5 * 16384, 1}, std::pair{5 * 16384 + 1, 2}, std::pair{256 * 1024, 4});
  const std::string bytes = text_of(static_cast<std::size_t>(size));
  both.client_wire.transmits = 0;
  REQUIRE(write(both.client, bytes, room) == size);
  REQUIRE(both.client_wire.transmits == transmits);
  REQUIRE_FALSE(both.client.output().gathers());
  REQUIRE(read_all(both.server, 1 << 20, other) == bytes);
}

TEST_CASE("tls large: pieces of a writev are offered to the wire together", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  Room room, other;
  std::array<char, Engine::kRecord> scratch;
  std::uint64_t gathered = 0;
  std::string header = "a header of the program", bytes = text_of(65536), tail = text_of(20'000);
  const std::array pieces{iovec{header.data(), header.size()}, iovec{nullptr, 0},
                          iovec{bytes.data(), bytes.size()}, iovec{tail.data(), tail.size()}};
  const std::string all = header + bytes + tail;
  both.client_wire.transmits = 0;
  REQUIRE(conn::tls::encrypt_gathered(both.client, pieces.data(), 4, scratch, gathered, room) ==
          static_cast<ssize_t>(all.size()));
  REQUIRE(both.client_wire.transmits == 2);
  REQUIRE(read_all(both.server, 1 << 20, other) == all);
  REQUIRE(conn::tls::encrypt_gathered(both.client, &pieces[1], 1, scratch, gathered, room) == 0);
}

TEST_CASE("tls large: a wire may end anywhere in the records of a write", "[tls]") {
  const std::string version = GENERATE("1.2", "1.3");
  const auto context = Engines::context_of({{"max-version", version}});
  const std::string bytes = text_of(150'000);
  for (std::size_t record = 0; record <= 5; ++record) {
    for (const int beside : {-1, 0, 1, 6, 100}) {
      if (record == 0 && beside < 0) continue;
      CAPTURE(record, beside);
      Engines both(context);
      REQUIRE(both.handshake());
      char nothing[10];
      REQUIRE(both.client.read(nothing, sizeof nothing) == -1);  // the ticket
      const std::size_t sealed = version == "1.3" ? kSealed : Engine::kRecord + 29;
      both.up.room = both.up.bytes.size() + record * sealed + static_cast<std::size_t>(beside);
      Room room, other;
      std::string got;
      std::size_t sent = 0;
      for (int turn = 0; turn < 1000 && got.size() < bytes.size(); ++turn) {
        (void)both.client.flush();
        const bool full = both.client.output().unsent() != 0;
        errno = 0;
        const ssize_t n = sent == bytes.size()
                              ? 0
                              : write(both.client, std::string_view(bytes).substr(sent), room);
        if (full) REQUIRE((sent == bytes.size() || (n == -1 && errno == EAGAIN)));
        if (n > 0) sent += static_cast<std::size_t>(n);
        REQUIRE_FALSE(both.client.output().gathers());
        REQUIRE(both.client.output().unsent() <=
                Engine::kMostGathered);  // reading never waits for it
        got += read(both.server, turn % 2 == 0 ? 256 * 1024 : 20'000, other);
        both.up.room = both.up.bytes.size() + 40'000;
      }
      REQUIRE(got == bytes);
    }
  }
}

TEST_CASE("tls large: any sizes of writes and reads over any wire carry the bytes in order",
          "[tls]") {
  const unsigned seed = GENERATE(range(0U, 40U));
  std::minstd_rand random(seed + 1);
  const auto below = [&](std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(1, most)(random);
  };
  // TLS 1.2 with a cipher of blocks has the longest records, CCM8 those with the shortest tags.
  static const std::array contexts{
      Engines::context_of({}), Engines::context_of({{"max-version", "1.2"}}),
      Engines::context_of({{"max-version", "1.2"}, {"ciphers", "ECDHE-ECDSA-AES128-SHA256"}}),
      Engines::context_of({{"max-version", "1.2"}, {"ciphers", "ECDHE-ECDSA-AES128-CCM8:@SECLEVEL=0"}})};
  Engines both(contexts[seed % contexts.size()]);
  REQUIRE(both.handshake());
  if (seed % 3 == 0) REQUIRE(SSL_set_max_send_fragment(both.client.ssl(), 512 + below(8000)) == 1);
  const std::string up = text_of(700'000), down = text_of(300'000);
  Room room;  // shared by both, as the connections of a loop share one
  std::string up_got, down_got;
  std::size_t up_sent = 0, down_sent = 0;
  for (int turn = 0; turn < 20'000 && (up_got.size() < up.size() || down_got.size() < down.size());
       ++turn) {
    both.up.step = below(4) == 1 ? below(70'000) : SIZE_MAX;
    both.up.room = below(200'000);
    both.down.room = below(100'000);
    if (both.client.flush() && up_sent < up.size()) {
      const ssize_t n =
          write(both.client, std::string_view(up).substr(up_sent, below(200'000)), room);
      if (n > 0) up_sent += static_cast<std::size_t>(n);
    }
    if (both.server.flush() && down_sent < down.size()) {
      const ssize_t n =
          write(both.server, std::string_view(down).substr(down_sent, below(50'000)), room);
      if (n > 0) down_sent += static_cast<std::size_t>(n);
    }
    if (seed % 5 == 0 && below(10) == 1) {
      const int kind = below(2) == 1 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED;
      (void)SSL_key_update(both.client.ssl(), kind);  // goes with the next write; 1.3 only
      ERR_clear_error();
    }
    if (below(3) == 1) (void)both.server.look(true);
    up_got += read(both.server, below(3) == 1 ? below(1000) : below(300'000), room);
    down_got += read(both.client, below(100'000), room);
    CAPTURE(both.client.failure().text, both.server.failure().text);
    REQUIRE_FALSE(both.client.failed());
    REQUIRE_FALSE(both.server.failed());
  }
  REQUIRE(up_got == up);
  REQUIRE(down_got == down);
}

TEST_CASE("tls large: many records come from the wire by one read", "[tls]") {
  const std::string version = GENERATE("1.2", "1.3");
  Engines both({{"max-version", version}});
  REQUIRE(both.handshake());
  Room room, other;
  const std::string bytes = text_of(65536);
  REQUIRE(write(both.client, bytes + bytes + bytes, room) == 3 * 65536);
  SECTION("as many as fill the program's buffer, and no more") {
    for (int i = 0; i < 3; ++i) {
      both.server_wire.receives = 0;
      REQUIRE(read(both.server, 65536, other) == bytes);
      REQUIRE(both.server_wire.receives == 1);
      REQUIRE_FALSE(both.server.only_maybe());  // nothing is kept that no event announces
    }
    REQUIRE(both.up.bytes.empty());
  }
  SECTION("with a first look, which tells that there is a whole record") {
    for (int i = 0; i < 3; ++i) {
      both.server_wire.receives = 0;
      REQUIRE(both.server.look(true));
      REQUIRE(read(both.server, 65536, other) == bytes);
      REQUIRE(both.server_wire.receives == 2);
      REQUIRE_FALSE(both.server.only_maybe());
    }
  }
  SECTION("a small buffer takes them one by one") {
    std::string got;
    while (got.size() < 3 * bytes.size()) got += read(both.server, 1000, other);
    REQUIRE(got == bytes + bytes + bytes);
  }
}

TEST_CASE("tls large: records of single bytes that were read together are announced until read",
          "[tls][hostile]") {
  Engines both;
  REQUIRE(both.handshake());
  std::string sent;
  for (int i = 0; i < 6000; ++i) {
    const char byte = static_cast<char>('a' + i % 26);
    REQUIRE(both.client.write(&byte, 1) == 1);
    sent += byte;
  }
  Room room;
  std::string got = read(both.server, 256 * 1024, room);
  REQUIRE(got.size() <= 256);  // a call decrypts no more records
  both.up.ended = false;
  for (int turn = 0; turn < 100 && got.size() < sent.size(); ++turn) {
    REQUIRE(both.server.readable());  // although the wire may be empty
    const std::string more = read(both.server, 256 * 1024, room);
    REQUIRE(more.size() <= 256 + 1);
    got += more;
  }
  REQUIRE(got == sent);
  (void)both.server.look(true);
  REQUIRE_FALSE(both.server.readable());
}

TEST_CASE("tls large: the end comes after the last byte of what was read together", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  Room room, other;
  const std::string bytes = text_of(100'000);
  REQUIRE(write(both.client, bytes, room) == 100'000);
  SECTION("with close_notify") {
    both.client.close_notify();
    const std::string more = "what follows the end is not data";
    both.up.bytes.insert(both.up.bytes.end(), more.begin(), more.end());
    REQUIRE(read(both.server, 1 << 20, other) + read(both.server, 1 << 20, other) == bytes);
    char byte;
    REQUIRE(both.server.read(&byte, 1, other) == 0);
    REQUIRE(both.server.progress().ended());
    REQUIRE_FALSE(both.server.failed());
  }
  SECTION("without it the stream was cut") {
    both.up.ended = true;
    REQUIRE(read_all(both.server, 1 << 20, other) == bytes);
    REQUIRE(both.server.failure().code == conn::tls::Errc::kTruncated);
  }
  SECTION("a damaged record ends it, after the ones before it") {
    both.up.bytes[3 * kSealed + 100] ^= 1;
    REQUIRE(read_all(both.server, 1 << 20, other) == bytes.substr(0, 3 * Engine::kRecord));
    REQUIRE(both.server.failed());
  }
}

TEST_CASE("tls large: a wire that fails fails the write, and only what it was not offered is lost",
          "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  Room room, other;
  const std::string bytes = text_of(200'000);
  SECTION("at once") {
    both.up.error = EPIPE;
    REQUIRE(write(both.client, bytes, room) == -1);
    REQUIRE(both.client.failure().code == std::errc::broken_pipe);
  }
  SECTION("with records that it did not take") {
    both.up.room = both.up.bytes.size() + 1000;
    const ssize_t taken = write(both.client, bytes, room);
    REQUIRE(taken == 5 * Engine::kRecord);
    both.up.error = ECONNRESET;
    REQUIRE(write(both.client, bytes, room) == -1);
    REQUIRE(both.client.failure().code == std::errc::connection_reset);
  }
  REQUIRE_FALSE(both.client.output().gathers());
  // what the peer sent before is read nevertheless
  const std::string reply = text_of(90'000);
  REQUIRE(write(both.server, reply, room) == 90'000);
  REQUIRE(read_all(both.client, 60'000, other).substr(0, 60'000) == reply.substr(0, 60'000));
}

TEST_CASE("tls large: who must answer and cannot keeps what was read together", "[tls][hostile]") {
  Engines both({{"min-version", "1.3"}});
  REQUIRE(both.handshake());
  Room room, other;
  // The server cannot send: its answers to KeyUpdates stay with it. The client's data follow.
  const std::string bytes = text_of(40'000);
  std::string sent;
  both.down.room = both.down.bytes.size();
  for (int i = 0; i < 30; ++i) {
    REQUIRE(SSL_key_update(both.client.ssl(), SSL_KEY_UPDATE_REQUESTED) == 1);
    REQUIRE(write(both.client, bytes, room) == 40'000);
    sent += bytes;
  }
  std::string got;
  for (int turn = 0; turn < 1000 && got.size() < sent.size(); ++turn) {
    got += read(both.server, 256 * 1024, other);
    REQUIRE_FALSE(both.server.failed());
    if (turn == 20) both.down.room = SIZE_MAX;
    if (turn > 20) REQUIRE(both.server.flush());
  }
  REQUIRE(got == sent);
}

#endif  // AECONN_TLS
