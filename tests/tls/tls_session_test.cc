// SPDX-License-Identifier: BSD-3-Clause
// A TLS session by itself: an engine over a tcp connection, without a TLS connection above.
#if AECONN_TLS

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>

#include "conn/tls/loop_state.h"
#include "conn/tls/session.h"
#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

using conn::ConnectionPtr;
using conn::tls::Engine;
using conn::tls::Role;
using conn::tls::Session;

namespace {

/// Two sessions, whose handshakes are over, on both ends of a tcp connection.
struct Sessions : testing::TlsSite {
  Sessions() {
    listener = tcp.listen(loop, conn::Endpoint::parse("tcp://127.0.0.1:0"),
                          [this](ConnectionPtr one) { accepted_below = std::move(one); });
    ConnectionPtr connected = tcp.create(loop);
    connected->connect(testing::address_of(*listener), {});
    RUN_UNTIL(loop, accepted_below != nullptr && connected->state() == conn::State::kConnected);
    const auto context = std::make_shared<conn::tls::Context>(
        conn::tls::parse_settings(testing::test_tls_options("localhost")), conn::tls::Secret());
    a.take(std::move(connected), context);
    b.take(std::move(accepted_below), context);
    a.make_engine(Role::kClient, "localhost");
    b.make_engine(Role::kServer, "");
    const auto over = [](Session& session) {
      const Engine::Step step = session.engine().handshake();
      (void)session.engine().flush();
      return step != Engine::Step::kWantRead;
    };
    bool both = false;
    for (int i = 0; i < 1000 && !both; ++i) {
      both = over(a);
      both = over(b) && both;
      if (!both)
        (void)a.below().carrier().wait_for(ae::kReadable,
                                           std::chrono::steady_clock::now() + kMoment);
    }
    REQUIRE(both);
    REQUIRE_FALSE(a.engine().failed());
    REQUIRE_FALSE(b.engine().failed());
  }
  ssize_t write(Session& from, const std::string& bytes) {
    const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
    return from.write(&piece, 1, state);
  }
  static constexpr ae::Duration kMoment = std::chrono::milliseconds(10);

  conn::ListenerPtr listener;
  ConnectionPtr accepted_below;
  conn::tls::LoopState& state = conn::tls::LoopState::of(server, loop);
  Session a, b;
};

}  // namespace

TEST_CASE("tls session: the records of a large write leave together", "[tls]") {
  Sessions both;
  const auto segments = [&] {
    tcp_info info{};
    socklen_t size = sizeof info;
    REQUIRE(getsockopt(both.a.below().carrier().facts().fd(), IPPROTO_TCP, TCP_INFO, &info,
                       &size) == 0);
    return info.tcpi_segs_out;
  };
  const std::string bytes(80'000, 'x');
  const auto before = segments();
  SECTION("as one piece") { REQUIRE(both.write(both.a, bytes) == 80'000); }
  SECTION("as two") {
    std::string header = "header", body = bytes;
    const std::array pieces{iovec{header.data(), header.size()}, iovec{body.data(), body.size()}};
    REQUIRE(both.a.write(pieces.data(), 2, both.state) == 80'006);
  }
  // A segment of the loopback device has 64 KiB; five records by themselves were five segments.
  REQUIRE(segments() - before <= 3);
}

TEST_CASE("tls session: it waits for bytes, and for nothing", "[tls]") {
  Sessions both;
  const auto soon = [] { return std::chrono::steady_clock::now() + Sessions::kMoment; };
  REQUIRE_FALSE(both.b.wait_for(ae::kReadable, soon()));
  REQUIRE(both.write(both.a, "hello") == 5);
  REQUIRE(both.a.all_sent());
  REQUIRE(
      both.b.wait_for(ae::kReadable, std::chrono::steady_clock::now() + std::chrono::seconds(9)));
  REQUIRE(both.b.readable());
  char buffer[10];
  REQUIRE(both.b.engine().read(buffer, sizeof buffer) == 5);
  REQUIRE_FALSE(both.b.readable());
  REQUIRE(both.b.wanted(true, false) == ae::kReadable);
  REQUIRE(both.b.wanted(false, true) == ae::kNone);
}

TEST_CASE("tls session: what the connection below does not take wants its next event", "[tls]") {
  Sessions both;
  const std::string bytes(1 << 20, 'x');
  std::size_t sent = 0;
  while (both.a.all_sent()) {
    const ssize_t n = both.write(both.a, bytes);
    REQUIRE(n > 0);
    sent += static_cast<std::size_t>(n);
  }
  REQUIRE_FALSE(both.a.writable());
  REQUIRE((both.a.wanted(false, false) & ae::kWritable) != 0);
  REQUIRE_FALSE(both.a.flush(ae::TimePoint::min()));
  REQUIRE(both.write(both.a, bytes) == -1);
  REQUIRE(errno == EAGAIN);
  std::string buffer(100'000, '\0');
  std::size_t got = 0;
  while (got < sent) {
    (void)both.a.flush(ae::TimePoint::min());
    const ssize_t n = both.b.engine().read(buffer.data(), buffer.size());
    if (n > 0) got += static_cast<std::size_t>(n);
    REQUIRE_FALSE(both.b.engine().failed());
  }
  REQUIRE(got == sent);
  REQUIRE(both.a.writable());
}

TEST_CASE("tls session: a failure of the connection below is reported as its own", "[tls]") {
  Sessions both;
  both.b.below().close(true);
  REQUIRE(both.b.below().open() == nullptr);
  REQUIRE(
      both.a.wait_for(ae::kReadable, std::chrono::steady_clock::now() + std::chrono::seconds(9)));
  char byte;
  REQUIRE(both.a.engine().read(&byte, 1) == -1);
  REQUIRE(both.a.engine().failed());
  REQUIRE(both.a.why_below()->code == std::errc::connection_reset);
  REQUIRE(both.a.why_failed("read from ").code == std::errc::connection_reset);
}

#endif  // AECONN_TLS
