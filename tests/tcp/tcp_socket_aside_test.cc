// SPDX-License-Identifier: BSD-3-Clause
// SocketAside by itself: events of a socket, zero-copy sending and lingering. The socket is one of
// the test's own, and the test is the host.

#include "conn/tcp/socket_aside.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "conn/core/make_connection.h"
#include "conn/tcp/socket_carrier.h"
#include "conn/tcp/tcp_type.h"
#include "tests/support/allocations.h"
#include "tests/support/any_loop.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/socket_calls.h"
#include "tests/support/testing.h"

using conn::State;
using conn::tcp::SocketAside;
using conn::tcp::SocketEvents;
using testing::RawSocket;
using namespace std::chrono_literals;

namespace {

/// The host of a connection's carrier, in place of the connection.
class Host final : public conn::CarrierHost {
 public:
  Host(ae::EventLoop& loop, conn::CarrierHost& from) : from_(from) {
    loop_ = &loop;
    exchange_carriers(from_);
    state_ = State::kConnected;
  }
  ~Host() override { exchange_carriers(from_); }

  bool wants_close() const noexcept override { return wants; }
  void path_changed() noexcept override {}
  void take_over(CarrierHost&) noexcept override {}
  void set_origin(conn::Origin) override {}
  Alive run_connect_handler() override { return Alive::kYes; }
  Alive run_read_handler() override { return Alive::kYes; }
  Alive run_write_handler() override { return Alive::kYes; }
  void references_done(std::size_t count, std::error_code error) noexcept override {
    done += count;
    why = error;
  }
  void set_state(State state) { state_ = state; }
  void set_closing() { ending_ = Ending::kClosing; }
  bool peer_is_gone() const { return peer_gone_; }

  bool wants = false;
  std::size_t done = 0;  ///< references that are no longer needed
  std::error_code why;   ///< why the last of them were not sent

 private:
  void state_changed(State) noexcept override {}
  void peer_gone_changed() noexcept override {}
  void released() noexcept override {}

  CarrierHost& from_;
};

struct Bed {
  Bed() {
    const RawSocket listening = RawSocket::listening();
    peer = RawSocket::connect(listening.endpoint());
    set(listening.accept());
  }
  void set(RawSocket ours) {
    conn::tcp::Fd fd(::dup(ours.fd()));
    REQUIRE(::fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0);
    conn::SocketAddress unused;
    socket.set(std::move(fd), unused);
  }
  /// Sends `bytes` as a reference; returns how many the socket has taken.
  std::size_t send(const std::string& bytes) {
    const ssize_t n = aside.send(std::as_bytes(std::span(bytes)));
    return n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  /// Sends a reference that the peer does not read, until the socket takes no more.
  void fill() {
    const std::string bytes(64 << 20, 'x');
    REQUIRE(send(bytes) < bytes.size());
    REQUIRE(aside.goes_on());
  }

  testing::SocketCalls calls;
  conn::tcp::TcpType type;
  testing::AnyLoop loop;
  std::shared_ptr<const conn::tcp::Settings> settings =
      std::make_shared<const conn::tcp::Settings>();
  std::pair<conn::ConnectionPtr, conn::tcp::SocketCarrier&> made =
      conn::make_connection<conn::tcp::SocketCarrier>(loop, type, settings);
  conn::tcp::SocketCarrier& carrier = made.second;
  Host host{loop, conn::ConnectionCore::of(*made.first)};
  conn::tcp::ConnectedSocket socket{settings};
  RawSocket peer;
  SocketAside aside{carrier, socket};
};

}  // namespace

// --- events --------------------------------------------------------------------------------------

TEST_CASE("tcp aside: it watches for the peer's end while a close handler wants that",
          "[tcp][aside]") {
  Bed bed;
  bed.aside.watch();
  CHECK(bed.aside.watched() == SocketEvents::kNothing);
  bed.host.wants = true;
  bed.aside.watch();
  CHECK(bed.aside.watched() == SocketEvents::kPeerGone);
  bed.peer.half_close();
  RUN_UNTIL(bed.loop, bed.host.peer_is_gone());
  CHECK(bed.host.state() == State::kConnected);
  CHECK(bed.host.done == 0);
  bed.host.wants = false;
  bed.aside.watch();
  CHECK(bed.aside.watched() == SocketEvents::kNothing);
}

TEST_CASE("tcp aside: an error of the socket fails a connection that is established",
          "[tcp][aside]") {
  const State state = GENERATE(State::kConnected, State::kConnecting);
  Bed bed;
  bed.host.wants = true;
  bed.aside.watch();
  bed.host.set_state(state);
  bed.peer.reset();
  RUN_UNTIL(bed.loop, bed.host.peer_is_gone());
  if (state == State::kConnecting) {
    CHECK(bed.host.state() == state);
    return;
  }
  CHECK(bed.host.state() == State::kError);
  CHECK(bed.host.failure().code == std::errc::connection_reset);
  CHECK_THAT(bed.host.failure().text, Catch::Matchers::StartsWith("connection to "));
  bed.host.set_state(State::kClosed);
}

// --- zero-copy sending ---------------------------------------------------------------------------

TEST_CASE("tcp aside: memory is lent until the kernel's completions", "[tcp][aside]") {
  Bed bed;
  bed.calls.hide_copies = true;
  CHECK_FALSE(bed.aside.goes_on());
  CHECK_FALSE(bed.aside.is_lent());
  CHECK_FALSE(bed.aside.take_completions());
  REQUIRE(bed.aside.begin());
  CHECK(bed.aside.watched() == SocketEvents::kErrors);
  REQUIRE(bed.aside.begin());
  CHECK(bed.aside.is_ours());
  REQUIRE(bed.send("first") == 5);
  CHECK_FALSE(bed.aside.goes_on());
  CHECK(bed.calls.sends(true) == 1);
  RUN_UNTIL(bed.loop, bed.host.done == 1);
  CHECK(bed.calls.completions == 1);
  CHECK_FALSE(bed.host.why);
  CHECK_FALSE(bed.aside.is_lent());
  CHECK(bed.aside.watched() == SocketEvents::kErrors);  // more may be sent
  CHECK(bed.peer.receive(5) == "first");
}

TEST_CASE("tcp aside: where the kernel copies, zero-copy sending ends", "[tcp][aside]") {
  Bed bed;
  REQUIRE(bed.aside.begin());
  REQUIRE(bed.send("copied on the loopback device") == 29);
  RUN_UNTIL(bed.loop, bed.host.done == 1);
  CHECK(bed.socket.zero_copy_given_up);
  CHECK(bed.aside.watched() == SocketEvents::kNothing);
  CHECK_FALSE(bed.aside.begin());
}

TEST_CASE("tcp aside: a reference is done once all of it was sent", "[tcp][aside]") {
  Bed bed;
  bed.calls.hide_copies = true;
  REQUIRE(bed.aside.begin());
  bed.fill();
  bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
  CHECK(bed.host.done == 0);
  SECTION("the rest is sent later") {
    std::array<char, 65536> bytes;
    while (::recv(bed.peer.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
    REQUIRE(bed.send("the rest") == 8);
    CHECK_FALSE(bed.aside.goes_on());
    RUN_UNTIL(bed.loop, (bed.aside.is_lent(), bed.host.done == 1));
    CHECK_FALSE(bed.host.why);
  }
  SECTION("the rest is never sent, because the connection is closed") {
    bed.host.set_closing();
    bed.aside.tell_done();
    CHECK_FALSE(bed.aside.goes_on());
  }
  SECTION("the rest is never sent, because the connection has failed") {
    bed.host.set_state(State::kError);
    bed.aside.tell_done();
    CHECK_FALSE(bed.aside.goes_on());
    bed.host.set_state(State::kClosed);
  }
}

TEST_CASE("tcp aside: memory comes back with an error if the connection was reset",
          "[tcp][aside]") {
  const bool failed = GENERATE(false, true);
  Bed bed;
  bed.calls.hide_copies = true;
  REQUIRE(bed.aside.begin());
  bed.fill();
  if (failed) bed.host.fail(conn::errno_failure(ETIMEDOUT, "the test"));
  bed.peer.reset();
  RUN_UNTIL(bed.loop, bed.host.state() == State::kError);
  if (!failed) CHECK(bed.host.failure().code == std::errc::connection_reset);
  bed.aside.tell_done();
  CHECK_FALSE(bed.aside.is_lent());
  CHECK(bed.host.done == 1);
  CHECK(bed.host.why == (failed ? std::errc::timed_out : std::errc::connection_reset));
  bed.host.set_state(State::kClosed);
}

TEST_CASE("tcp aside: an event for completions alone is no readiness", "[tcp][aside]") {
  Bed bed;
  bed.calls.hide_copies = true;
  CHECK(bed.aside.is_ready(POLLIN));  // as the event says: there are no completions
  REQUIRE(bed.aside.begin());
  REQUIRE(bed.send("lent") == 4);
  pollfd entry{bed.socket.fd(), 0, 0};
  REQUIRE(::poll(&entry, 1, 10'000) == 1);
  CHECK_FALSE(bed.aside.is_ready(POLLIN));
  CHECK(bed.host.done == 1);
  CHECK(bed.aside.is_ready(POLLIN));
  REQUIRE(bed.send("lent") == 4);
  REQUIRE(::poll(&entry, 1, 10'000) == 1);
  CHECK(bed.aside.is_ready(POLLOUT));
}

TEST_CASE("tcp aside: a socket of another kind lends nothing", "[tcp][aside]") {
  Bed bed;
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) == 0);
  const conn::tcp::Fd other(fds[1]);
  bed.socket.set(conn::tcp::Fd(fds[0]), {});
  CHECK_FALSE(bed.aside.begin());
  CHECK(bed.socket.zero_copy_given_up);
  CHECK(bed.aside.watched() == SocketEvents::kNothing);
}

#if AECONN_COUNTS_ALLOCATIONS
TEST_CASE("tcp aside: without memory to watch for completions, the kernel is lent nothing",
          "[tcp][aside]") {
  Bed bed;
  {
    const testing::NoMemory none;
    CHECK_FALSE(bed.aside.begin());
  }
  CHECK(bed.socket.zero_copy_given_up);
  CHECK_FALSE(bed.aside.begin());
  CHECK(bed.aside.watched() == SocketEvents::kNothing);
}
#endif

// --- after close() -------------------------------------------------------------------------------

TEST_CASE("tcp aside: it lingers until the peer has everything", "[tcp][aside]") {
  Bed bed;
  bool over = false;
  CHECK_FALSE(bed.aside.lingers());
  const std::string bytes(16 << 20, 'x');  // more than the kernel takes from both ends
  const ssize_t sent = ::send(bed.socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  REQUIRE(sent > 0);
  bed.aside.linger(60s, [&] { over = true; });
  CHECK(bed.aside.lingers());
  SECTION("in the loop") {
    bed.loop.process_events(ae::kFullIteration | ae::kDontWait);
    CHECK_FALSE(over);
    CHECK(bed.peer.receive(bytes.size()).size() == static_cast<std::size_t>(sent));
    bed.peer.close();
    RUN_UNTIL(bed.loop, over);
  }
  SECTION("at the end of the loop, as long as there is time") {
    bed.peer.send("unread");
    CHECK_FALSE(bed.aside.drain(std::chrono::steady_clock::now() + 20ms));
    bed.peer.reset();
    CHECK(bed.aside.drain(std::chrono::steady_clock::now() + 60s));
    CHECK_FALSE(over);
  }
  bed.aside.end_linger();
  CHECK_FALSE(bed.aside.lingers());
}
