// SPDX-License-Identifier: BSD-3-Clause
// conn/tls: how streams end, in order and truncated, with plain OpenSSL as the peer.
#if AECONN_TLS

#include <poll.h>

#include <cerrno>

#include "conn/kit/descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using conn::tls::Errc;
using testing::Held;
using testing::RawContext;
using testing::RawSocket;
using testing::RawTls;
using testing::TlsPair;
using testing::TlsSite;
using namespace std::chrono_literals;
using Catch::Matchers::StartsWith;
using testing::Contains;

namespace {

/// A connection in either role, with plain OpenSSL as its peer.
struct Half : TlsSite {
  Half(bool we_serve, const std::string& version, const conn::Options& options = {})
      : TlsSite(options, options) {
    if (we_serve) {
      listener = listen();
      RawContext context = RawContext::client();
      limit(context, version);
      peer.emplace(testing::aside(loop, [&] {
        RawTls made(context, RawSocket::connect(testing::address_of(*listener)));
        (void)made.handshake();
        return made;
      }));
      ours = next_accepted();
    } else {
      const RawSocket listening = RawSocket::listening();
      RawContext context = RawContext::server(identity);
      limit(context, version);
      ours = start(listening.endpoint());
      peer.emplace(testing::aside(loop, [&] {
        RawTls made(context, listening.accept());
        (void)made.handshake();
        return made;
      }));
      RUN_UNTIL(loop, ours->state() != State::kConnecting);
    }
    REQUIRE(ours->state() == State::kConnected);
    // Reads what TLS 1.3 sends after the handshake: unread bytes would turn the end into a reset.
    testing::send(loop, *ours, "!");
    REQUIRE(testing::aside(loop, [&] { return peer->receive(1); }) == "!");
  }
  static void limit(RawContext& context, const std::string& version) {
    if (version == "1.2") context.set_versions(TLS1_2_VERSION, TLS1_2_VERSION);
  }
  conn::ListenerPtr listener;
  std::optional<RawTls> peer;
  ConnectionPtr ours;
};

/// Runs the rest of a test for both roles and both versions.
#define BOTH_ROLES_AND_VERSIONS                                          \
  const bool we_serve = GENERATE(true, false);                           \
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3"); \
  CAPTURE(we_serve, version)

}  // namespace

// --- truncation ----------------------------------------------------------------------------------

TEST_CASE("tls: an end without close_notify is an error, after all the bytes", "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  const std::string sent(50'000, 'x');
  testing::Collector collector(*half.ours, 1000);
  testing::aside(half.loop, [&] {
    (void)half.peer->send(sent);
    half.peer->socket().close();
  });
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.bytes == sent);
  REQUIRE_FALSE(collector.ended);
  REQUIRE(half.ours->state() == State::kError);
  REQUIRE(half.ours->error_code() == Errc::kTruncated);
  REQUIRE(half.ours->error_code() == std::errc::connection_reset);
  REQUIRE_THAT(half.ours->last_error(),
               StartsWith("read from 127.0.0.1:") && Contains("close_notify"));
  REQUIRE(collector.error == ECONNRESET);
  char byte;
  REQUIRE(half.ours->read(&byte, 1) == -1);
  REQUIRE(errno == ENOTCONN);
}

TEST_CASE("tls: an end in the middle of a record is an error, and nothing of it is given out",
          "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  testing::Collector collector(*half.ours);
  testing::aside(half.loop, [&] {
    (void)half.peer->send("whole");
    SSL_write(half.peer->ssl(), "this one is cut", 15);
    const std::string record = half.peer->take_outgoing();
    half.peer->socket().send(std::string_view(record).substr(0, record.size() - 1));
    half.peer->socket().close();
  });
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.bytes == "whole");
  REQUIRE(half.ours->error_code() == Errc::kTruncated);
}

TEST_CASE("tls: a blocking flush after both ends tells of bytes that a reset has lost",
          "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  testing::Collector collector(*half.ours);
  testing::aside(half.loop, [&] {
    half.peer->close_notify();
    half.peer->socket().close();
  });
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.ended);
  REQUIRE(half.ours->write("lost", 4) == 4);
  LOOK_UNTIL(half.loop, conn::poll_now(half.ours->fd(), POLLHUP));
  REQUIRE(half.ours->shutdown() == 0);
  REQUIRE(half.ours->state() == State::kClosed);
  REQUIRE(half.ours->sync_write(nullptr, 0, 5s) == -1);
}

TEST_CASE("tls: a reset is an error of the socket below", "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  testing::Collector collector(*half.ours);
  half.peer->socket().reset();
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.error == ECONNRESET);
  REQUIRE(half.ours->error_code() == std::errc::connection_reset);
  REQUIRE(half.ours->error_code() != Errc::kTruncated);
}

// --- orderly closing -----------------------------------------------------------------------------

TEST_CASE("tls: close_notify is the end of the stream, and our end goes on writing",
          "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  testing::Collector collector(*half.ours);
  testing::aside(half.loop, [&] {
    (void)half.peer->send("all there is");
    half.peer->close_notify();
  });
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.bytes == "all there is");
  REQUIRE(collector.ended);
  REQUIRE(half.ours->state() == State::kConnected);
  REQUIRE(half.ours->last_error().empty());
  char byte;
  REQUIRE(half.ours->read(&byte, 1) == 0);  // repeatedly
  const std::string answer(300'000, 'y');
  std::string got;
  std::size_t written = 0;
  half.ours->set_write_handler([&](Connection& c) {
    const ssize_t n = c.write(answer.data() + written, answer.size() - written);
    if (n > 0) written += static_cast<std::size_t>(n);
    if (written == answer.size()) c.set_write_handler(nullptr);
  });
  testing::aside(half.loop, [&] { got = half.peer->receive(answer.size()); });
  REQUIRE(got == answer);
}

TEST_CASE("tls: close_notify and the end of the socket right behind it are an end",
          "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  testing::Collector collector(*half.ours);
  testing::aside(half.loop, [&] {
    (void)half.peer->send("bye");
    half.peer->close_notify();
    half.peer->socket().close();
  });
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.bytes == "bye");
  REQUIRE(collector.ended);
  REQUIRE(half.ours->last_error().empty());
}

TEST_CASE("tls: shutdown() sends close_notify after all that was written, and reading goes on",
          "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  REQUIRE(half.ours->write("last words", 10) == 10);
  REQUIRE(half.ours->shutdown() == 0);
  REQUIRE(half.ours->shutdown() == 0);
  REQUIRE(half.ours->write("x", 1) == -1);
  REQUIRE(errno == EPIPE);
  const std::string got = testing::aside(half.loop, [&] { return half.peer->receive(100); });
  REQUIRE(got == "last words");
  REQUIRE(half.peer->ended_cleanly());
  REQUIRE_FALSE(half.peer->cut());
  // The peer keeps writing.
  testing::Collector collector(*half.ours);
  testing::aside(half.loop, [&] {
    (void)half.peer->send("the answer");
    half.peer->close_notify();
  });
  RUN_UNTIL(half.loop, collector.over());
  REQUIRE(collector.bytes == "the answer");
  REQUIRE(collector.ended);
  REQUIRE(half.ours->state() == State::kClosed);
}

TEST_CASE("tls: close() delivers all that was written, then close_notify, then the end",
          "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version);
  Held held(half);
  // More than the sockets' buffers hold: what write() accepts must arrive.
  const std::string chunk(100'000, 'z');
  std::size_t taken = 0;
  for (ssize_t n; (n = half.ours->write(chunk.data(), chunk.size())) > 0;) {
    taken += static_cast<std::size_t>(n);
  }
  REQUIRE(errno == EAGAIN);
  half.ours.reset();
  const std::string got = testing::aside(half.loop, [&] { return half.peer->receive(taken + 1); });
  REQUIRE(got.size() == taken);
  REQUIRE(half.peer->ended_cleanly());
  half.peer->socket().close();
}

TEST_CASE("tls: a peer that does not read cannot hold a closed connection longer than linger",
          "[tls][close]") {
  BOTH_ROLES_AND_VERSIONS;
  Half half(we_serve, version, {{"linger", "100ms"}});
  const std::string chunk(100'000, 'z');
  while (half.ours->write(chunk.data(), chunk.size()) > 0) {
  }
  half.ours.reset();
  const conn::tls::TlsType& type = we_serve ? half.server : half.client;
  REQUIRE(type.counters(half.loop).open == 1);
  LOOK_UNTIL(half.loop, type.counters(half.loop).open == 0);
  LOOK_UNTIL(half.loop, half.tcp.counters(half.loop).open == 0);
}

TEST_CASE("tls: both ends may close at once", "[tls][close]") {
  const std::string version = GENERATE(as<std::string>{}, "1.2", "1.3");
  TlsSite site({{"max-version", version}});
  Held held(site);
  {
    conn::ListenerPtr listener = site.listen();
    ConnectionPtr a = site.connect(*listener);
    ConnectionPtr b = site.next_accepted();
    REQUIRE(a->shutdown() == 0);
    REQUIRE(b->shutdown() == 0);
    REQUIRE(testing::read_event(site.loop, *a) == "(end)");
    REQUIRE(testing::read_event(site.loop, *b) == "(end)");
    REQUIRE(a->state() == State::kClosed);
    REQUIRE(b->state() == State::kClosed);
  }
  {
    conn::ListenerPtr listener = site.listen();
    ConnectionPtr a = site.connect(*listener);
    ConnectionPtr b = site.next_accepted();
    a.reset();
    b.reset();
  }
  held.require_same();
}

TEST_CASE("tls: an end that a relay makes up is not taken for the peer's", "[tls][close]") {
  TlsSite site;
  const conn::ListenerPtr listener = site.listen();
  testing::Relay relay(testing::address_of(*listener));
  const ConnectionPtr a = site.connect(relay.endpoint());
  INFO(a->last_error());
  REQUIRE(a->state() == State::kConnected);
  const ConnectionPtr b = site.next_accepted();
  site.require_echo(*a, *b);
  testing::Collector at_a(*a), at_b(*b);
  relay.cut();
  LOOK_UNTIL(site.loop, at_a.over() && at_b.over());
  REQUIRE(a->error_code() == Errc::kTruncated);
  REQUIRE(b->error_code() == Errc::kTruncated);
}

TEST_CASE("tls: a sync_read that the end cuts short says how", "[tls][close]") {
  const bool clean = GENERATE(true, false);
  Half half(true, "1.3");
  testing::aside(half.loop, [&] {
    (void)half.peer->send("four");
    if (clean) half.peer->close_notify();
    half.peer->socket().close();
  });
  char buffer[10];
  const ssize_t n = half.ours->sync_read(buffer, sizeof buffer, 5s);
  if (clean) {
    REQUIRE(n == 4);
    REQUIRE(half.ours->last_error().empty());
  } else {
    REQUIRE(n == -1);
    REQUIRE(half.ours->error_code() == Errc::kTruncated);
  }
}

#endif  // AECONN_TLS
