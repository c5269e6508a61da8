// SPDX-License-Identifier: BSD-3-Clause
// The parts of a TLS engine that keep input: data that was decrypted before a read asked for it,
// and ciphertext that was read too early; and the part that judges what a peer sends beside data.
#if AECONN_TLS

#include <array>
#include <cerrno>
#include <string>

#include "conn/tls/engine/peer_check.h"
#include "conn/tls/engine/phases.h"
#include "conn/tls/engine/read_ahead_bytes.h"
#include "conn/tls/engine/unused_input.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

using namespace conn::tls;

namespace {

std::string take(ReadAheadBytes& ahead, std::size_t size) {
  std::string bytes(size, '\0');
  bytes.resize(ahead.take(bytes.data(), size));
  return bytes;
}

/// What a reader gets from the wire: the bytes, "later", "end" or "failed".
std::string receive(CheckedWire& wire, std::size_t size = 100) {
  std::string bytes(size, '\0');
  const ssize_t n = wire.receive(bytes.data(), size);
  if (n == CheckedWire::kNothingNow) return "later";
  if (n <= 0) return n == 0 ? "end" : "failed";
  bytes.resize(static_cast<std::size_t>(n));
  return bytes;
}

void put(testing::Pipe& pipe, const std::string& bytes) {
  pipe.bytes.insert(pipe.bytes.end(), bytes.begin(), bytes.end());
}

/// A wire with its two directions, and the input of it that is not used.
struct Input {
  testing::Pipe in, out;
  testing::PipeWire pipe{in, out};
  CheckedWire wire{pipe};
  UnusedInput unused{wire};
};

constexpr std::array<unsigned char, 5> kKeyUpdate{SSL3_MT_KEY_UPDATE, 0, 0, 1, 1};
constexpr std::array<unsigned char, 5> kOwnUpdate{SSL3_MT_KEY_UPDATE, 0, 0, 1, 0};
constexpr std::array<unsigned char, 4> kTicket{SSL3_MT_NEWSESSION_TICKET, 0, 0, 0};

}  // namespace

TEST_CASE("tls read-ahead: bytes come back in order, in pieces, once", "[tls]") {
  ReadAheadBytes ahead;
  REQUIRE(ahead.empty());
  const std::span<char> room = ahead.room();
  REQUIRE(room.size() == ReadAheadBytes::kSize);
  REQUIRE(ahead.room().data() == room.data());
  std::copy_n("abcdef", 6, room.data());
  ahead.filled(6);
  REQUIRE_FALSE(ahead.empty());
  REQUIRE(take(ahead, 2) == "ab");
  ahead.release_memory();  // no effect: there are bytes
  REQUIRE(take(ahead, 3) == "cde");
  REQUIRE_FALSE(ahead.empty());
  REQUIRE(take(ahead, 100) == "f");
  REQUIRE(ahead.empty());
  REQUIRE(take(ahead, 100).empty());
  // A full room, and one after the memory was freed.
  for (int round = 0; round < 2; ++round) {
    std::fill_n(ahead.room().data(), ReadAheadBytes::kSize, 'x');
    ahead.filled(ReadAheadBytes::kSize);
    REQUIRE(take(ahead, 2000) == std::string(ReadAheadBytes::kSize, 'x'));
    ahead.release_memory();
    REQUIRE(ahead.empty());
  }
}

TEST_CASE("tls unused input: what is put back comes before what the wire has", "[tls]") {
  Input input;
  REQUIRE_FALSE(input.unused.any());
  put(input.in, "wire");
  REQUIRE(input.unused.put_back(std::string("second")));
  REQUIRE(input.unused.put_back(std::string("first ")));
  REQUIRE(input.unused.any());
  REQUIRE(receive(input.wire, 6) == "first ");
  REQUIRE(input.unused.any());
  REQUIRE(receive(input.wire) == "second");
  REQUIRE_FALSE(input.unused.any());
  // From here on the wire is read directly, as its calls show.
  const int receives = input.pipe.receives;
  REQUIRE(receive(input.wire) == "wire");
  REQUIRE(input.pipe.receives == receives + 1);
  REQUIRE(&input.wire.wire() == &input.pipe);
}

TEST_CASE("tls unused input: lent bytes are all that can be read until they are taken back",
          "[tls]") {
  Input input;
  REQUIRE_FALSE(input.unused.lend());  // the wire has nothing
  REQUIRE_FALSE(input.unused.any());
  put(input.in, "lent");
  REQUIRE(input.unused.lend());
  put(input.in, " later");
  REQUIRE(receive(input.wire, 3) == "len");
  REQUIRE(receive(input.wire) == "t");
  REQUIRE(receive(input.wire) == "later");
  input.unused.take_back();
  REQUIRE(receive(input.wire) == " later");
  REQUIRE_FALSE(input.unused.any());
  input.unused.take_back();  // nothing is lent: no effect
  REQUIRE(receive(input.wire) == "later");
}

TEST_CASE("tls unused input: bytes that a lent step leaves are lent again", "[tls]") {
  Input input;
  put(input.in, "abc");
  REQUIRE(input.unused.lend());
  REQUIRE(receive(input.wire, 1) == "a");
  input.unused.take_back();
  REQUIRE(input.unused.any());
  REQUIRE(input.unused.lend());  // though the wire has nothing more
  REQUIRE(receive(input.wire) == "bc");
  input.in.ended = true;
  REQUIRE(receive(input.wire) == "later");  // the end is found after take_back()
  input.unused.take_back();
  REQUIRE(receive(input.wire) == "end");
}

TEST_CASE("tls peer check: too many messages for the data are an objection", "[tls]") {
  PeerCheck peer;
  REQUIRE_FALSE(peer.objects());
  REQUIRE_FALSE(peer.objection());
  for (std::uint64_t i = 0; i < MessageLimit::kMessages; ++i) peer.on_message(kTicket, false);
  REQUIRE_FALSE(peer.objects());
  SECTION("one more") {
    peer.on_message(kTicket, false);
    REQUIRE(peer.objects());
    REQUIRE(peer.objection().code == Errc::kTooManyMessages);
    REQUIRE(peer.objection().text.find("without end") != std::string::npos);
    peer.on_message(kKeyUpdate, true);  // the first reason stays
    REQUIRE(peer.objection().code == Errc::kTooManyMessages);
  }
  SECTION("one more after data") {
    peer.count_data(MessageLimit::kPer);
    peer.on_message(kTicket, false);
    REQUIRE_FALSE(peer.objects());
  }
}

TEST_CASE("tls peer check: a request for new keys is one only if the kernel encrypts", "[tls]") {
  PeerCheck peer;
  peer.on_message(kKeyUpdate, false);
  peer.on_message(kOwnUpdate, true);  // the peer changes its own key, and asks for nothing
  peer.on_message(kTicket, true);
  peer.on_message(std::span(kKeyUpdate).first(4), true);  // malformed: OpenSSL refuses it
  REQUIRE_FALSE(peer.objects());
  peer.on_message(kKeyUpdate, true);
  REQUIRE(peer.objects());
  REQUIRE(peer.objection().code == Errc::kProtocol);
  REQUIRE(peer.objection().text.find("ktls=yes") != std::string::npos);
}

TEST_CASE("tls phases: what a connection may do follows from how far it has come", "[tls]") {
  Progress progress;
  REQUIRE_FALSE(progress.established());
  progress.move_to(Phase::kShaking);
  REQUIRE_FALSE(progress.established());
  progress.move_to(Phase::kEstablished);
  REQUIRE(progress.established());
  REQUIRE_FALSE(progress.ended());
  REQUIRE_FALSE(progress.reading_over());
  SECTION("the peer ends") {
    progress.move_to(Receiving::kEnded);
    REQUIRE(progress.ended());
    REQUIRE_FALSE(progress.reading_over());
  }
  SECTION("it fails") {
    progress.move_to(Receiving::kOver);
    REQUIRE_FALSE(progress.ended());
    REQUIRE(progress.reading_over());
  }
  REQUIRE(progress.sending() == Sending::kOpen);
  progress.move_to(Sending::kBlocked);
  progress.move_to(Sending::kCloseOwed);
  REQUIRE(progress.sending() == Sending::kCloseOwed);
  REQUIRE(progress.phase() == Phase::kEstablished);
}

#endif  // AECONN_TLS
