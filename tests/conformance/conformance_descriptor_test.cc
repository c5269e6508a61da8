// SPDX-License-Identifier: BSD-3-Clause
// adapters/descriptor.h over each transport: what the user of a descriptor sees of its connection,
// and the peer of the descriptor.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "adapters/descriptor.h"
#include "tests/support/catch.h"
#include "tests/support/no_descriptors.h"
#include "tests/support/site_counters.h"
#include "tests/support/testing.h"

using conn::Connection;
using conn::ConnectionPtr;
using conn::State;
using testing::Collector;
using testing::Pair;
using namespace std::chrono_literals;

namespace {

/// What the function given to to_descriptor() was told. The end of the loop, which comes after the
/// test, tells as well.
struct Told {
  conn::Failure why;
  int ended = 0;
};

/// The user's side of a descriptor, which does not block.
class User {
 public:
  explicit User(ConnectionPtr&& connection, std::shared_ptr<Told> told = std::make_shared<Told>())
      : fd_(adapters::to_descriptor(std::move(connection), [told](const conn::Failure& why) {
          told->why = why;
          ++told->ended;
        })) {
    REQUIRE(::fcntl(fd_, F_SETFL, O_NONBLOCK) == 0);
  }
  User(const User&) = delete;
  User& operator=(const User&) = delete;
  ~User() { close(); }

  int fd() const noexcept { return fd_; }
  void close() noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  ssize_t write(std::string_view text) const {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Reads what there is. Returns whether the stream is over.
  bool read() {
    std::vector<char> room(64 << 10);
    for (;;) {
      const ssize_t n = ::recv(fd_, room.data(), room.size(), 0);
      if (n < 0 && errno == EAGAIN) return false;
      if (n <= 0) {
        error = n < 0 ? errno : 0;
        return true;
      }
      bytes.append(room.data(), static_cast<std::size_t>(n));
    }
  }
  bool hung_up() const {
    pollfd entry{fd_, 0, 0};
    return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
  }

  std::string bytes;
  int error = 0;

 private:
  int fd_;
};

/// A connection whose client is a descriptor.
struct Bed : Pair {
  explicit Bed(const testing::Transport& its_transport)
      : Pair(its_transport), user(std::move(client), told) {}
  const std::shared_ptr<Told> told = std::make_shared<Told>();
  const conn::Failure& why = told->why;
  const int& ended = told->ended;
  User user;
};

std::uint64_t open(testing::Site& site) { return testing::counters(site).open; }

/// Whether both ends may end one direction alone.
bool halves(Pair& pair) { return pair.carrier.capabilities().half_close; }

/// The test transport memory drops bytes that were received but not read.
bool forgets(const testing::Transport& transport) { return transport.name.ends_with("memory"); }

}  // namespace

TEST_CASE("descriptor: any amount of bytes goes both ways in order", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    constexpr std::uint64_t kTotal = 3'000'000;
    Bed bed(transport);
    const testing::Pattern there(1), back(2);
    testing::Receiver receiver(*bed.server, 1);
    testing::Sender sender(*bed.server, 2, kTotal);
    std::uint64_t sent = 0, received = 0;
    bool intact = true;
    RUN_UNTIL(bed.loop, [&] {
      while (sent < kTotal) {
        const std::string_view next = there.at(sent).substr(0, kTotal - sent);
        const ssize_t n = bed.user.write(next);
        if (n < 0) break;
        sent += static_cast<std::uint64_t>(n);
      }
      REQUIRE_FALSE(bed.user.read());
      intact = intact && back.matches(received, bed.user.bytes);
      received += bed.user.bytes.size();
      bed.user.bytes.clear();
      return receiver.received == kTotal && received == kTotal;
    }());
    CHECK(intact);
    CHECK(receiver.intact);
    bed.user.close();
    RUN_UNTIL(bed.loop, receiver.ended && bed.ended == 1);
    CHECK_FALSE(bed.why);
    bed.server.reset();
    RUN_UNTIL(bed.loop, open(bed) == 0);
  }
}

TEST_CASE("descriptor: it works alike without a function for its end",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    const auto before = open(pair);
    const int fd = adapters::to_descriptor(std::move(pair.client));
    REQUIRE(pair.client == nullptr);
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    REQUIRE(::send(fd, "question", 8, MSG_NOSIGNAL) == 8);
    CHECK(testing::receive(pair.loop, *pair.server, 8) == "question");
    testing::send(pair.loop, *pair.server, "answer");
    std::string got;
    std::array<char, 16> room;
    RUN_UNTIL(pair.loop, [&] {
      const ssize_t n = ::recv(fd, room.data(), room.size(), MSG_DONTWAIT);
      if (n > 0) got.append(room.data(), static_cast<std::size_t>(n));
      return got == "answer";
    }());
    // A plain socket is the descriptor itself, and no connection of the loop.
    const bool plain = testing::counters(pair).open < before;
    const std::string_view kind = pair.carrier.name();
    CHECK(plain == (kind == "tcp" || kind == "unix" || kind == "vsock"));
    ::close(fd);
    Collector end(*pair.server);
    RUN_UNTIL(pair.loop, end.over());
    CHECK(end.ended);
    CHECK(end.bytes.empty());
    pair.server.reset();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("descriptor: what arrived before is read from it", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Pair pair(transport);
    testing::send(pair.loop, *pair.server, "before");
    testing::await_readable(pair.loop, *pair.client);
    REQUIRE(pair.client->peek().first().starts_with("b"));
    pair.client->consume(1);
    User user(std::move(pair.client));
    REQUIRE(pair.client == nullptr);
    RUN_UNTIL(pair.loop, !user.read() && user.bytes == "efore");
  }
}

TEST_CASE("descriptor: a reader that does not read stops the writer", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool user_reads = GENERATE(false, true);
    CAPTURE(user_reads);
    Bed bed(transport);
    const std::string piece(64 << 10, 'p');
    // A few iterations without a byte accepted: the way is full.
    std::uint64_t accepted = 0;
    for (int idle = 0; idle < 200;) {
      const ssize_t n =
          user_reads ? bed.server->write(piece.data(), piece.size()) : bed.user.write(piece);
      if (n > 0) accepted += static_cast<std::uint64_t>(n);
      idle = n > 0 ? 0 : idle + 1;
      testing::turns(bed.loop, 1);
      REQUIRE(accepted < (64u << 20));
    }
    // The reader gets all of it, and the writer goes on.
    std::uint64_t got = 0;
    std::optional<Collector> collector;
    if (!user_reads) collector.emplace(*bed.server);
    RUN_UNTIL(bed.loop, [&] {
      if (user_reads) REQUIRE_FALSE(bed.user.read());
      got = user_reads ? bed.user.bytes.size() : collector->bytes.size();
      return got == accepted;
    }());
    RUN_UNTIL(bed.loop, (user_reads ? bed.server->write("x", 1) : bed.user.write("x")) == 1);
    RUN_UNTIL(bed.loop, [&] {
      if (user_reads) REQUIRE_FALSE(bed.user.read());
      return (user_reads ? bed.user.bytes : collector->bytes).ends_with("px");
    }());
  }
}

TEST_CASE("descriptor: shutdown of it is the end of the stream alone",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    REQUIRE(bed.user.write("question") == 8);
    REQUIRE(::shutdown(bed.user.fd(), SHUT_WR) == 0);
    Collector question(*bed.server);
    RUN_UNTIL(bed.loop, question.over());
    CHECK(question.ended);
    CHECK(question.bytes == "question");
    if (!halves(bed)) {  // the end of one direction is that of both
      RUN_UNTIL(bed.loop, bed.user.read());
      CHECK(bed.user.error == 0);
      return;
    }
    testing::send(bed.loop, *bed.server, "answer");
    bed.server.reset();
    RUN_UNTIL(bed.loop, bed.user.read());
    CHECK(bed.user.bytes == "answer");
    CHECK(bed.user.error == 0);
    CHECK(bed.ended == 1);
    CHECK_FALSE(bed.why);
    RUN_UNTIL(bed.loop, open(bed) == 0);
  }
}

TEST_CASE("descriptor: after the peer's end of stream it can be written to",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    if (!halves(bed)) return;
    testing::send(bed.loop, *bed.server, "question");
    if (bed.server->shutdown() != 0) return;
    RUN_UNTIL(bed.loop, bed.user.read());
    CHECK(bed.user.bytes == "question");
    CHECK(bed.user.error == 0);
    CHECK_FALSE(bed.user.hung_up());
    CHECK(bed.ended == 0);
    REQUIRE(bed.user.write("answer") == 6);
    CHECK(testing::receive(bed.loop, *bed.server, 6) == "answer");
    bed.user.close();
    Collector end(*bed.server);
    RUN_UNTIL(bed.loop, end.over() && bed.ended == 1);
    CHECK(end.ended);
  }
}

TEST_CASE("descriptor: closing it delivers what was written", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    std::string sent;
    const std::string piece(10'000, 'w');
    for (ssize_t n; (n = bed.user.write(piece)) > 0;)
      sent.append(piece, 0, static_cast<std::size_t>(n));
    bed.user.close();
    Collector end(*bed.server);
    RUN_UNTIL(bed.loop, end.over() && bed.ended == 1);
    CHECK(end.ended);
    CHECK((end.bytes == sent));
    bed.server.reset();
    RUN_UNTIL(bed.loop, open(bed) == 0);
  }
}

TEST_CASE("descriptor: closing it after its shutdown ends a connection whose peer is silent",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    REQUIRE(::shutdown(bed.user.fd(), SHUT_WR) == 0);
    Collector end(*bed.server);
    RUN_UNTIL(bed.loop, end.over());
    if (halves(bed) && transport.name != "rdma") CHECK(bed.ended == 0);
    bed.user.close();
    RUN_UNTIL(bed.loop, bed.ended == 1);
    CHECK_FALSE(bed.why);
  }
}

TEST_CASE("descriptor: closing it with unread bytes is an abort after what was written",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    const bool shut = GENERATE(false, true);
    CAPTURE(shut);
    Bed bed(transport);
    if (shut && !halves(bed)) return;
    testing::send(bed.loop, *bed.server, "not read");
    pollfd entry{bed.user.fd(), POLLIN, 0};
    RUN_UNTIL(bed.loop, ::poll(&entry, 1, 0) == 1);
    REQUIRE(bed.user.write("written") == 7);
    if (shut) REQUIRE(::shutdown(bed.user.fd(), SHUT_WR) == 0);
    // After its shutdown the peer has read the end of the stream already.
    std::optional<Collector> first;
    if (shut) {
      first.emplace(*bed.server);
      RUN_UNTIL(bed.loop, first->over());
      CHECK(first->bytes == "written");
      bed.user.close();
      RUN_UNTIL(bed.loop, bed.ended == 1);
      return;
    }
    bed.user.close();
    Collector seen(*bed.server);
    RUN_UNTIL(bed.loop, seen.over() && bed.ended == 1);
    if (!forgets(transport)) CHECK(seen.bytes == "written");
    if (bed.carrier.capabilities().reset) CHECK(seen.error == ECONNRESET);
    bed.server.reset();
    RUN_UNTIL(bed.loop, open(bed) == 0);
  }
}

TEST_CASE("descriptor: of a peer's abort its user learns the bytes before and the reason",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (forgets(transport)) return;
    Bed bed(transport);
    testing::send(bed.loop, *bed.server, "part of an answer");
    RUN_UNTIL(bed.loop, !bed.user.read() && bed.user.bytes.size() == 17);
    bed.server.release()->abort();
    RUN_UNTIL(bed.loop, bed.user.read());
    CHECK(bed.user.error == 0);  // all that it wrote was passed on
    if (!bed.carrier.capabilities().reset) return;
    CHECK(bed.ended == 1);  // it was told before
    CHECK(bed.why.code == std::errc::connection_reset);
    CHECK(bed.user.hung_up());
    CHECK(bed.user.write("x") == -1);
    CHECK(errno == EPIPE);
  }
}

TEST_CASE("descriptor: of a peer's abort its user sees ECONNRESET if it had written more",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    const std::string piece(64 << 10, 'p');
    for (int idle = 0; idle < 200; ++idle) {
      if (bed.user.write(piece) > 0) idle = 0;
      testing::turns(bed.loop, 1);
    }
    bed.server.release()->abort();  // with unread bytes, which a Unix socket tells its peer
    RUN_UNTIL(bed.loop, bed.user.read());
    CHECK(bed.user.error == ECONNRESET);
    CHECK(bed.user.write("x") == -1);
    CHECK(errno == EPIPE);
    CHECK(bed.ended == 1);
  }
}

TEST_CASE("descriptor: a failure ends a user that waits to write", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    if (!bed.carrier.capabilities().reset) return;
    const std::string piece(64 << 10, 'p');
    // Neither end reads.
    for (int idle = 0; idle < 200; ++idle) {
      if (bed.user.write(piece) > 0) idle = 0;
      if (bed.server->write(piece.data(), piece.size()) > 0) idle = 0;
      testing::turns(bed.loop, 1);
    }
    bed.server.release()->abort();
    RUN_UNTIL(bed.loop, bed.user.write("x") == -1 && errno == EPIPE);
    RUN_UNTIL(bed.loop, bed.user.read());
    CHECK(bed.user.error == ECONNRESET);
  }
}

TEST_CASE("descriptor: a user that no longer reads does not stop its own writing",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    Bed bed(transport);
    REQUIRE(::shutdown(bed.user.fd(), SHUT_RD) == 0);
    testing::Sender sender(*bed.server, 1, 2'000'000);  // more than fits anywhere
    RUN_UNTIL(bed.loop, sender.done());
    REQUIRE(bed.user.write("still") == 5);
    CHECK(testing::receive(bed.loop, *bed.server, 5) == "still");
    bed.user.close();
    Collector end(*bed.server);
    RUN_UNTIL(bed.loop, end.over() && bed.ended == 1);
  }
}

TEST_CASE("descriptor: any thread may block on it", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (testing::simulated()) return;  // its time does not wait for other threads
    Pair pair(transport);
    const int fd = adapters::to_descriptor(std::move(pair.client));
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    std::thread echo([fd] {
      std::vector<char> room(10'000);
      ssize_t n;
      while ((n = ::read(fd, room.data(), room.size())) > 0)
        for (ssize_t at = 0; at < n;)
          at += ::write(fd, room.data() + at, static_cast<std::size_t>(n - at));
      ::close(fd);
    });
    testing::Receiver receiver(*pair.server, 3);
    testing::Sender sender(*pair.server, 3, 1'000'000);
    testing::run_until(
        pair.loop, [&] { return receiver.received == 1'000'000; }, "echo");
    CHECK(receiver.intact);
    pair.server.reset();
    std::atomic<bool> ended = false;
    std::thread waiter([&] {
      echo.join();
      ended = true;
    });
    const ae::TimerId again = pair.loop.add_time_event(1ms, [] { return 1ms; });
    RUN_UNTIL(pair.loop, ended.load());
    pair.loop.remove_time_event(again);
    waiter.join();
    RUN_UNTIL(pair.loop, open(pair) == 0);
  }
}

TEST_CASE("descriptor: it outlives the loop of its connection", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    const auto told = std::make_shared<Told>();
    std::optional<User> user;
    {
      Pair pair(transport);
      user.emplace(std::move(pair.client), told);
      testing::send(pair.loop, *pair.server, "last");
      RUN_UNTIL(pair.loop, !user->read() && user->bytes == "last");
      pair.server.reset();
      pair.listener.reset();
      user->write("never read");
    }
    CHECK(told->ended == 1);
    CHECK(told->why.code == std::errc::operation_canceled);
    CHECK(user->read());
    CHECK(user->bytes == "last");
    CHECK(user->hung_up());
    CHECK(user->write("x") == -1);
    CHECK(errno == EPIPE);
  }
}

TEST_CASE("descriptor: the end of a loop passes on what was written though others are older",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (transport.one_loop) return;
    testing::Site site(transport);
    ConnectionPtr first_peer, peer;
    testing::Site other({.name = "unix"});
    const conn::ListenerPtr first_listener =
        other.listen([&](ConnectionPtr next) { first_peer = std::move(next); });
    const conn::ListenerPtr listener =
        site.listen([&](ConnectionPtr next) { peer = std::move(next); });
    std::optional<User> first, user;
    {
      testing::AnyLoop loop;
      const auto both_until = [&](const auto& condition) {
        while (!condition()) {
          loop.process_events(ae::kFullIteration | ae::kDontWait);
          site.loop.process_events(ae::kFullIteration | ae::kDontWait);
          other.loop.process_events(ae::kFullIteration | ae::kDontWait);
        }
      };
      // The state of descriptors is older on this loop than that of the transport.
      ConnectionPtr of_unix = other.type.create(loop);
      of_unix->connect(testing::address_of(*first_listener), {});
      both_until([&] { return first_peer && of_unix->state() == State::kConnected; });
      first.emplace(std::move(of_unix));
      ConnectionPtr connection = site.type.create(loop);
      connection->connect(testing::address_of(*listener), {});
      both_until([&] { return peer && connection->state() == State::kConnected; });
      user.emplace(std::move(connection));
      // Over rdma nothing leaves before the peer's window is known.
      std::array<char, 1> byte{};
      CHECK(user->write("x") == 1);
      both_until([&] { return peer->read(byte.data(), byte.size()) == 1; });
      CHECK(first->write("first") == 5);
      CHECK(user->write("last") == 4);
    }
    Collector of_first(*first_peer), of_user(*peer);
    RUN_UNTIL(other.loop, of_first.over());
    CHECK(of_first.bytes == "first");
    RUN_UNTIL(site.loop, of_user.over());
    CHECK(of_user.bytes == "last");
  }
}

TEST_CASE("descriptor: without descriptors the connection stays with its owner",
          "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    const unsigned left = GENERATE(0u, 1u);  // descriptors that the process may still open
    CAPTURE(left);
    Pair pair(transport);
    std::string said;
    int code = 0;
    {
      const testing::FewDescriptors few(left);
      try {
        ::close(adapters::to_descriptor(std::move(pair.client), [](const auto&) {}));
      } catch (const std::system_error& error) {
        said = error.what();
        code = error.code().value();
      }
    }
    CHECK(code == EMFILE);
    CHECK(said.starts_with("a descriptor for a connection: "));
    REQUIRE(pair.client != nullptr);
    testing::send(pair.loop, *pair.client, "still here");
    CHECK(testing::receive(pair.loop, *pair.server, 10) == "still here");
    const User user(std::move(pair.client));
    REQUIRE(user.write("and as a descriptor") == 19);
    CHECK(testing::receive(pair.loop, *pair.server, 19) == "and as a descriptor");
  }
}

TEST_CASE("descriptor: only an established connection becomes one", "[conformance][descriptor]") {
  FOR_EVERY_TRANSPORT(transport) {
    testing::Site site(transport);
    ConnectionPtr idle = site.type.create(site.loop);
    CHECK_THROWS_AS(adapters::to_descriptor(std::move(idle)), std::system_error);
    CHECK(idle != nullptr);
    CHECK_THROWS_AS(adapters::to_descriptor(ConnectionPtr()), std::system_error);
  }
}

TEST_CASE("descriptor: a child of fork() leaves it to the parent",
          "[conformance][descriptor][fork]") {
  FOR_EVERY_TRANSPORT(transport) {
    if (testing::simulated() || transport.name.find("rdma") != std::string::npos) return;
    const bool goes_on = GENERATE(false, true);
    CAPTURE(goes_on);
    auto bed = std::make_unique<Bed>(transport);
    REQUIRE(bed->user.write("for the parent") == 14);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(10 * testing::slower());
      if (goes_on) bed->loop.after_fork();
      bed->user.close();
      bed.reset();
      ::_exit(0);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK(WIFEXITED(status));
    CHECK(testing::receive(bed->loop, *bed->server, 14) == "for the parent");
    testing::send(bed->loop, *bed->server, "and back");
    RUN_UNTIL(bed->loop, !bed->user.read() && bed->user.bytes == "and back");
  }
}
