// SPDX-License-Identifier: BSD-3-Clause
// The parts of a TLS connection by themselves: which steps its states allow, and how plain text in
// pieces becomes records.
#if AECONN_TLS

#include <array>

#include "conn/tls/closing.h"
#include "conn/tls/gather.h"
#include "conn/tls/handshake.h"
#include "tests/support/catch.h"
#include "tests/support/engine_pair.h"

using conn::tls::Closing;
using conn::tls::Engine;
using conn::tls::Handshake;
using testing::Engines;

namespace {

iovec piece(const std::string& text) { return {const_cast<char*>(text.data()), text.size()}; }

}  // namespace

TEST_CASE("tls closing: both directions end, in either order, then the connection", "[tls]") {
  using enum Closing::State;
  for (const auto first : {kReadEnded, kWriteEnded}) {
    REQUIRE(Closing::allowed(kOpen, first));
    REQUIRE(Closing::allowed(first, kBothEnded));
    REQUIRE_FALSE(Closing::allowed(first, kOpen));
  }
  REQUIRE_FALSE(Closing::allowed(kOpen, kEndsBelow));  // our close_notify comes first
  REQUIRE_FALSE(Closing::allowed(kReadEnded, kEndsBelow));
  REQUIRE(Closing::allowed(kEndsBelow, kBelowEnded));
  for (int i = 0; i <= static_cast<int>(kClosed); ++i) {
    const auto from = static_cast<Closing::State>(i);
    REQUIRE(Closing::allowed(from, kClosed) == (from != kClosed));
    REQUIRE(Closing::allowed(from, kLingering) == (from < kLingering));
    REQUIRE_FALSE(Closing::allowed(kClosed, from));
    REQUIRE_FALSE(Closing::allowed(from, kOpen));
  }
}

TEST_CASE("tls closing: without an engine there is nothing to linger for", "[tls]") {
  conn::tls::Session session;
  Closing closing(session);
  REQUIRE_FALSE(closing.begin(false));
  REQUIRE(closing.state() == Closing::State::kOpen);
  REQUIRE_FALSE(closing.end_reading());
  REQUIRE(closing.read_ended());
  REQUIRE_FALSE(closing.write_ended());
}

TEST_CASE("tls handshake: a postponed step comes again", "[tls]") {
  using enum Handshake::Stage;
  REQUIRE(Handshake::allowed(kConnecting, kRunning));
  REQUIRE(Handshake::allowed(kRunning, kPostponed));
  REQUIRE(Handshake::allowed(kPostponed, kRunning));
  REQUIRE_FALSE(Handshake::allowed(kConnecting, kPostponed));
  REQUIRE_FALSE(Handshake::allowed(kRunning, kConnecting));
}

TEST_CASE("tls gather: pieces share a record if that saves one", "[tls]") {
  Engines both;
  REQUIRE(both.handshake());
  std::array<char, Engine::kRecord> scratch{};
  std::uint64_t gathered = 0;
  const std::string small = "small", empty, large(Engine::kRecord, 'x');
  SECTION("small ones do") {
    const std::array all{piece(empty), piece(small), piece(empty), piece(small)};
    both.client_wire.transmits = 0;
    REQUIRE(conn::tls::encrypt_gathered(both.client, all.data(), 4, scratch, gathered) == 10);
    REQUIRE(gathered == 10);
    REQUIRE(both.client_wire.transmits == 1);
    char buffer[100];
    const ssize_t n = both.server.read(buffer, sizeof buffer);
    REQUIRE(std::string(buffer, static_cast<std::size_t>(n)) == small + small);
  }
  SECTION("whole ones do not") {
    const std::array all{piece(large), piece(small)};
    both.client_wire.transmits = 0;
    REQUIRE(conn::tls::encrypt_gathered(both.client, all.data(), 2, scratch, gathered) ==
            static_cast<ssize_t>(large.size() + small.size()));
    REQUIRE(gathered == 0);
    REQUIRE(both.client_wire.transmits == 2);
  }
  SECTION("a wire that takes no more ends it") {
    both.up.room = both.up.bytes.size() + 100;
    REQUIRE(conn::tls::encrypt(both.client, (large + large).data(), 2 * large.size()) ==
            static_cast<ssize_t>(large.size()));
    REQUIRE(both.client.output().unsent() > 0);
    const std::array all{piece(small), piece(small)};
    REQUIRE(conn::tls::encrypt_gathered(both.client, all.data(), 2, scratch, gathered) == -1);
  }
}

#endif  // AECONN_TLS
