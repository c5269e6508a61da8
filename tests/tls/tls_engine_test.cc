// SPDX-License-Identifier: BSD-3-Clause
// The TLS engine in memory, without sockets and loop; the wire transfers as little per call as the
// test says.
#if AECONN_TLS

#include <cerrno>
#include <deque>

#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

using conn::tls::Engine;
using conn::tls::Errc;
using testing::Engines;
using testing::Pipe;

namespace {

std::string text_of(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

}  // namespace

TEST_CASE("tls engine: bytes arrive whole and in order over a wire of single bytes", "[tls]") {
  const std::size_t step = GENERATE(1, 2, 7, 1000, SIZE_MAX);
  const std::string version = GENERATE("1.2", "1.3");
  Engines both({{"max-version", version}});
  both.up.step = both.down.step = step;
  REQUIRE(both.handshake());
  const std::string bytes = text_of(step == 1 ? 40'000 : 100'000);
  REQUIRE(Engines::carry(both.client, both.server, bytes) == bytes);
  REQUIRE(Engines::carry(both.server, both.client, bytes) == bytes);
}

TEST_CASE("tls engine: what write() took is delivered though the wire was full", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  char nothing[10];
  REQUIRE(both.client.read(nothing, sizeof nothing) == -1);  // the ticket
  both.up.room = 1000;
  const std::string first = text_of(5000);
  REQUIRE(both.client.write(first.data(), first.size()) == 5000);
  REQUIRE(both.client.output().unsent() > 4000);
  errno = 0;
  REQUIRE(both.client.write("x", 1) == -1);  // not accepted: the next call may pass other bytes
  REQUIRE(errno == EAGAIN);
  std::string got;
  for (int i = 0; i < 100 && got.size() < first.size() + 5; ++i) {
    if (both.client.flush() && got.size() == first.size()) {
      REQUIRE(both.client.write("other", 5) == 5);
    }
    char buffer[9000];
    const ssize_t n = both.server.read(buffer, sizeof buffer);
    if (n > 0) got.append(buffer, static_cast<std::size_t>(n));
  }
  REQUIRE(got == first + "other");
}

TEST_CASE("tls engine: one look at the wire for a request, none to learn that there is no more",
          "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  REQUIRE(both.client.write("request", 7) == 7);
  both.server_wire.receives = 0;
  char buffer[100];
  REQUIRE(both.server.read(buffer, sizeof buffer) == 7);
  REQUIRE(both.server_wire.receives == 1);
  both.server_wire.transmits = 0;
  REQUIRE(both.server.write("reply", 5) == 5);
  REQUIRE(both.server_wire.transmits == 1);
}

TEST_CASE("tls engine: the last flight of a handshake waits for company, if it is told to",
          "[tls]") {
  const std::string version = GENERATE("1.2", "1.3");
  Engines both({{"max-version", version}});
  both.server.hold_last_flight();
  Engine::Step client = Engine::Step::kWantRead, server = client;
  for (int i = 0; i < 10 && server != Engine::Step::kDone; ++i) {
    client = both.client.handshake();
    server = both.server.handshake();
  }
  REQUIRE(server == Engine::Step::kDone);
  REQUIRE(both.server.output().holds());
  REQUIRE(both.server.output().unsent() == 0);  // write() is possible
  REQUIRE(both.down.bytes.empty());
  both.server_wire.transmits = 0;
  both.server.release_buffers();  // has no effect on used buffers

  SECTION("a write") {
    REQUIRE(both.server.write("reply", 5) == 5);
    REQUIRE_FALSE(both.server.output().holds());
    REQUIRE(both.server_wire.transmits == 1);
    REQUIRE(both.handshake());
    char buffer[100];
    REQUIRE(both.client.read(buffer, sizeof buffer) == 5);
  }
  SECTION("a write that does not fit") {
    both.down.room = 10;
    REQUIRE(both.server.write("reply", 5) == 5);
    REQUIRE_FALSE(both.server.output().holds());
    REQUIRE(both.server.output().unsent() > 0);
    both.down.room = SIZE_MAX;
    REQUIRE(both.server.flush());
    REQUIRE(both.handshake());
    char buffer[100];
    REQUIRE(both.client.read(buffer, sizeof buffer) == 5);
  }
  SECTION("a flush") {
    REQUIRE(both.server.flush());
    REQUIRE_FALSE(both.server.output().holds());
    REQUIRE(both.server_wire.transmits == 1);
    REQUIRE(both.handshake());
  }
  SECTION("the end") {
    both.server.close_notify();
    REQUIRE(both.server_wire.transmits == 1);
    REQUIRE(both.handshake());
    char buffer[100];
    REQUIRE(both.client.read(buffer, sizeof buffer) == 0);
  }
  SECTION("a wire that fails") {
    both.down.error = EPIPE;
    REQUIRE(both.server.write("reply", 5) == -1);
    REQUIRE(both.server.failed());
    REQUIRE(both.server.wire_failed());
  }
}

TEST_CASE("tls engine: it knows what it holds: whole records, parts of them, nothing", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  for (int i = 0; i < 3; ++i) REQUIRE(both.client.write("abc", 3) == 3);
  char byte;
  for (int i = 0; i < 9; ++i) {
    REQUIRE(both.server.read(&byte, 1) == 1);
    REQUIRE(both.server.readable() == (i < 8));  // no event would report the others
  }
  REQUIRE(both.client.write("later", 5) == 5);
  const std::deque<char> record = std::exchange(both.up.bytes, {});
  both.up.bytes.assign(record.begin(), record.begin() + 10);
  REQUIRE_FALSE(both.server.look(true));
  REQUIRE_FALSE(both.server.readable());  // a partial record is not readable
  REQUIRE(both.server.read(&byte, 1) == -1);
  REQUIRE(errno == EAGAIN);
  both.up.bytes.assign(record.begin() + 10, record.end());
  REQUIRE_FALSE(both.server.look(false));  // this peek must not read the wire
  REQUIRE(both.server.look(true));
  REQUIRE(both.server.readable());
}

TEST_CASE("tls engine: what it has read ahead comes first, in any pieces", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  const std::size_t size = GENERATE(1, 1023, 1024, 1025, 5000);  // it reads 1024 bytes ahead
  const std::size_t piece = GENERATE(1, 1000, 1024, 6000);
  std::string text = text_of(size), got;
  REQUIRE(both.client.write(text.data(), text.size()) == static_cast<ssize_t>(size));
  REQUIRE(both.client.write("next", 4) == 4);
  text += "next";
  std::string buffer(piece, '\0');
  while (got.size() < text.size()) {
    CAPTURE(size, piece, got.size());
    REQUIRE(both.server.look(true));
    both.server.release_buffers();  // frees only what holds nothing
    REQUIRE(both.server.readable());
    REQUIRE_FALSE(both.server.is_quiet());
    const ssize_t n = both.server.read(buffer.data(), piece);
    REQUIRE(n > 0);
    got.append(buffer, 0, static_cast<std::size_t>(n));
  }
  REQUIRE(got == text);
  REQUIRE_FALSE(both.server.look(true));
  REQUIRE(both.server.is_quiet());
}

TEST_CASE("tls engine: the end comes after the last byte, and only close_notify is an end",
          "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  REQUIRE(both.client.write("last", 4) == 4);
  const bool orderly = GENERATE(true, false);
  if (orderly) both.client.close_notify();
  both.up.ended = true;
  char buffer[100];
  REQUIRE(both.server.read(buffer, sizeof buffer) == 4);
  REQUIRE(both.server.readable() == orderly);  // otherwise the wire reports its end
  REQUIRE(both.server.look(true));
  if (orderly) {
    REQUIRE(both.server.read(buffer, sizeof buffer) == 0);
    REQUIRE(both.server.read(buffer, sizeof buffer) == 0);
    REQUIRE(both.server.write("still open", 10) == 10);
    REQUIRE(both.client.read(buffer, sizeof buffer) == 10);
  } else {
    REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
    REQUIRE(both.server.failure().code == Errc::kTruncated);
  }
}

TEST_CASE("tls engine: a flipped bit anywhere in the handshake or the data is found", "[tls]") {
  // Each byte of both sides' first flights, then of a data record.
  int failed = 0, tried = 0;
  for (std::size_t at = 0; at < 3000; at += 7) {
    Engines both;
    Pipe& pipe = at % 2 == 0 ? both.up : both.down;
    bool flipped = false;
    bool through = false;
    for (int turn = 0; turn < 20 && !through; ++turn) {
      const Engine::Step a = both.client.handshake();
      if (!flipped && pipe.bytes.size() > at) {
        pipe.bytes[at] = static_cast<char>(pipe.bytes[at] ^ 4);
        flipped = true;
      }
      const Engine::Step b = both.server.handshake();
      if (!flipped && pipe.bytes.size() > at) {
        pipe.bytes[at] = static_cast<char>(pipe.bytes[at] ^ 4);
        flipped = true;
      }
      if (a == Engine::Step::kFailed || b == Engine::Step::kFailed) break;
      through = a == Engine::Step::kDone && b == Engine::Step::kDone;
    }
    if (!flipped) continue;
    ++tried;
    // A change that the message itself does not reveal is detected by Finished at the latest.
    const bool found = both.client.failed() || both.server.failed();
    failed += found || !through;
  }
  REQUIRE(tried > 20);
  REQUIRE(failed == tried);
  Engines both;
  REQUIRE(both.handshake());
  REQUIRE(both.client.write("secret", 6) == 6);
  both.up.bytes.back() = static_cast<char>(both.up.bytes.back() ^ 1);
  char buffer[100];
  REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
  REQUIRE(both.server.failure().code == Errc::kProtocol);
}

TEST_CASE("tls engine: a failure of the wire is told with its errno", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  char buffer[100];
  const bool reading = GENERATE(true, false);
  if (reading) {
    both.up.error = ECONNRESET;
    REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
  } else {
    both.down.error = ECONNRESET;
    REQUIRE(both.server.write("x", 1) == -1);
  }
  REQUIRE(both.server.wire_failed());
  REQUIRE(both.server.failure().code == std::errc::connection_reset);
}

TEST_CASE("tls engine: a wire that fails with bytes left to send fails the next write", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  both.down.room = 1000;
  REQUIRE(both.server.write(text_of(5000).data(), 5000) == 5000);
  REQUIRE(both.server.output().unsent() > 0);
  both.down.error = ECONNRESET;
  REQUIRE(both.server.write("x", 1) == -1);
  REQUIRE(both.server.failure().code == std::errc::connection_reset);
}

TEST_CASE("tls engine: buffers that are given back come again", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  for (int i = 0; i < 3; ++i) {
    both.client.release_buffers();
    both.server.release_buffers();
    REQUIRE(Engines::carry(both.client, both.server, "there") == "there");
    REQUIRE(Engines::carry(both.server, both.client, "back") == "back");
  }
}

TEST_CASE("tls engine: an error that another connection left behind is not taken for its own",
          "[tls]") {
  Engines both;
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_RECORD_TYPE);
  REQUIRE(both.handshake());
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_RECORD_TYPE);
  char buffer[10];
  REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
  REQUIRE_FALSE(both.server.failed());
  ERR_raise(ERR_LIB_SSL, SSL_R_BAD_RECORD_TYPE);
  REQUIRE(both.client.write("x", 1) == 1);
  REQUIRE(both.server.read(buffer, sizeof buffer) == 1);
}

TEST_CASE("tls engine: its end has its own reason, whatever others left in OpenSSL's queue",
          "[tls]") {
  const std::string version = GENERATE("1.2", "1.3");
  const int left = GENERATE(0, 1, 30);  // 30: more than the queue holds
  const auto leave = [left] {
    for (int i = 0; i < left; ++i) ERR_raise(ERR_LIB_SSL, SSL_R_BAD_LENGTH);
    if (left != 0) ERR_raise(ERR_LIB_EVP, EVP_R_BAD_DECRYPT);
  };
  CAPTURE(version, left);
  Engines both({{"max-version", version}});
  REQUIRE(both.handshake());
  char buffer[100];
  REQUIRE(both.client.write("abc", 3) == 3);
  leave();
  REQUIRE(both.server.look(true));
  leave();
  REQUIRE(both.server.read(buffer, sizeof buffer) == 3);
  leave();
  REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
  REQUIRE(errno == EAGAIN);
  SECTION("close_notify") {
    both.client.close_notify();
    leave();
    REQUIRE(both.server.read(buffer, sizeof buffer) == 0);
    REQUIRE_FALSE(both.server.failed());
  }
  SECTION("a damaged record, and the alert about it") {
    REQUIRE(both.client.write("abc", 3) == 3);
    both.up.bytes.back() = static_cast<char>(both.up.bytes.back() ^ 1);
    leave();
    REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
    CAPTURE(both.server.failure().text);
    REQUIRE(both.server.failure().code == Errc::kProtocol);
    REQUIRE(both.server.failure().text.find("bad record mac") != std::string::npos);
    REQUIRE(ERR_peek_error() == 0);
    leave();
    REQUIRE_FALSE(both.server.write("x", 1) == 1);
    leave();
    REQUIRE(both.client.read(buffer, sizeof buffer) == -1);
    REQUIRE(both.client.failure().text.find("bad record mac") != std::string::npos);
    REQUIRE(ERR_peek_error() == 0);
  }
  SECTION("the end of the wire") {
    both.up.ended = true;
    leave();
    REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
    REQUIRE(both.server.failure().code == Errc::kTruncated);
  }
  SECTION("a wire that fails") {
    both.down.error = EPIPE;
    leave();
    REQUIRE(both.server.write("abc", 3) == -1);
    REQUIRE(both.server.failure().code == std::errc::broken_pipe);
  }
  ERR_clear_error();
}

TEST_CASE("tls engine: messages that carry no data end a connection, however they are padded",
          "[tls][hostile]") {
  const std::size_t padding = GENERATE(1, 64);  // 64: part of the next record is always buffered
  Engines both({{"min-version", "1.3"}});
  REQUIRE(both.handshake());
  SSL* const peer = both.client.ssl();
  REQUIRE(SSL_set_block_padding(peer, padding) == 1);
  for (int i = 0; i < 20'000; ++i) {
    REQUIRE(SSL_key_update(peer, SSL_KEY_UPDATE_REQUESTED) == 1);
    REQUIRE(SSL_do_handshake(peer) == 1);
  }
  both.down.room = 0;  // the peer does not read the answers
  char buffer[100];
  for (int i = 0; i < 100 && !both.server.failed(); ++i) {
    REQUIRE(both.server.read(buffer, sizeof buffer) == -1);
    REQUIRE(both.server.output().unsent() < Engine::kMostUnsent + Engine::kRecord);
  }
  REQUIRE(both.server.failure().code == Errc::kTooManyMessages);
  REQUIRE(both.up.bytes.size() > 400'000);  // most was not even read
}

TEST_CASE("tls engine: in the middle of a message it can send nothing, says so, and goes on after",
          "[tls]") {
  Engines both({{"min-version", "1.3"}, {"auth-clients", "yes"}});
  // A ticket that contains a client's certificate is longer than its records.
  REQUIRE(SSL_set_max_send_fragment(both.server.ssl(), 512) == 1);
  REQUIRE(both.handshake());
  REQUIRE(both.down.bytes.size() > 600);
  const std::deque<char> ticket = std::exchange(both.down.bytes, {});
  const std::size_t first =
      5 + (static_cast<std::size_t>(static_cast<unsigned char>(ticket[3])) << 8 |
           static_cast<unsigned char>(ticket[4]));
  REQUIRE(first < ticket.size());
  const auto middle = ticket.begin() + static_cast<std::ptrdiff_t>(first);
  both.down.bytes.assign(ticket.begin(), middle);
  char buffer[100];
  REQUIRE(both.client.read(buffer, sizeof buffer) == -1);
  REQUIRE(errno == EAGAIN);
  REQUIRE(both.client.write("x", 1) == -1);
  REQUIRE(errno == EAGAIN);
  REQUIRE(both.client.write_needs_read());
  const bool closes = GENERATE(false, true);
  if (closes) both.client.close_notify();
  both.down.bytes.assign(middle, ticket.end());
  REQUIRE_FALSE(both.client.look(true));
  REQUIRE_FALSE(both.client.write_needs_read());
  if (closes) {
    REQUIRE(both.server.read(buffer, sizeof buffer) == 0);
  } else {
    REQUIRE(both.client.write("x", 1) == 1);
    REQUIRE(both.server.read(buffer, sizeof buffer) == 1);
  }
}

TEST_CASE("tls engine: a peer that wants small records gets small writes", "[tls]") {
  Engines both;
  REQUIRE(SSL_set_tlsext_max_fragment_length(both.client.ssl(), TLSEXT_max_fragment_length_512) ==
          1);
  REQUIRE(both.handshake());
  const std::string bytes = text_of(20'000);
  REQUIRE(both.server.write(bytes.data(), bytes.size()) == 512);
  Engines again;
  REQUIRE(SSL_set_tlsext_max_fragment_length(again.client.ssl(), TLSEXT_max_fragment_length_512) ==
          1);
  REQUIRE(again.handshake());
  REQUIRE(Engines::carry(again.server, again.client, bytes) == bytes);
}

#endif  // AECONN_TLS
