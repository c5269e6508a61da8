// SPDX-License-Identifier: BSD-3-Clause
// The C interface over each transport: the same guarantees as conn/connection.h's, as far as C can
// express them.

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "c/aeconn.h"
#include "tests/support/c_echo.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"
#include "tests/support/tls_kit.h"

using testing::Contains;
using testing::Transport;

using namespace testing::c;

namespace {

std::string peer_of(const aeconn_conn* conn) {
  std::array<char, 200> host;
  std::uint16_t port = 0;
  REQUIRE(aeconn_peer(conn, host.data(), host.size(), &port) < host.size());
  return std::string(host.data()) + " " + std::to_string(port);
}

}  // namespace

TEST_CASE("C: an echo, and the end after the last byte", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    Reader server(pair.server.get()), client(pair.client.get());
    REQUIRE(aeconn_write(pair.client.get(), "question", 8) == 8);
    until(pair.loop.get(), [&] { return server.bytes == "question"; });
    const iovec answer[2] = {{const_cast<char*>("ans"), 3}, {const_cast<char*>("wer"), 3}};
    REQUIRE(aeconn_writev(pair.server.get(), answer, 2) == 6);
    pair.server.reset();
    until(pair.loop.get(), [&] { return client.over(); });
    REQUIRE(client.ended);
    REQUIRE(client.bytes == "answer");
    REQUIRE(aeconn_bytes_read(pair.client.get()) == 6);
    REQUIRE(aeconn_bytes_written(pair.client.get()) == 8);
  }
}

TEST_CASE("C: a host that prepares before each sleep", "[conformance][c]") {
  if (testing::simulated()) return;  // simulated devices wait within the loop's own sleep
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    aeconn_loop* const loop = pair.loop.get();
    Reader server(pair.server.get()), client(pair.client.get());
    const auto end = std::chrono::steady_clock::now() + testing::patience();
    const auto host_until = [&](const std::function<bool()>& condition) {
      while (!condition()) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        const int sleeps = aeconn_prepare(loop);
        REQUIRE(sleeps >= 0);
        pollfd entry{aeconn_descriptor(loop), POLLIN, 0};
        REQUIRE(::poll(&entry, 1, sleeps == 1 ? 1000 : 0) >= 0);
        REQUIRE(aeconn_dispatch(loop) >= 0);
      }
    };
    for (std::size_t i = 1; i <= 100; ++i) {
      REQUIRE(aeconn_write(pair.client.get(), "question", 8) == 8);
      host_until([&] { return server.bytes.size() == i * 8; });
      REQUIRE(aeconn_write(pair.server.get(), "answer", 6) == 6);
      host_until([&] { return client.bytes.size() == i * 6; });
    }
  }
}

TEST_CASE("C: what a write handler is told of is room", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    struct Writer {
      std::string text = std::string(3'000'000, 'w');
      std::size_t sent = 0;
      static void write(void* self, aeconn_conn* conn) {
        auto& its = *static_cast<Writer*>(self);
        const ssize_t n =
            aeconn_write(conn, its.text.data() + its.sent, its.text.size() - its.sent);
        if (n > 0) its.sent += static_cast<std::size_t>(n);
        if (its.sent == its.text.size()) aeconn_on_writable(conn, nullptr, nullptr);
      }
    } writer;
    REQUIRE(aeconn_on_writable(pair.client.get(), &Writer::write, &writer) == 0);
    Reader reader(pair.server.get());
    until(pair.loop.get(), [&] { return reader.bytes.size() == writer.text.size(); });
    REQUIRE((reader.bytes == writer.text));
  }
}

TEST_CASE("C: bytes in place", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    aeconn_view view{};
    errno = 0;
    REQUIRE(aeconn_peek(pair.server.get(), 1, &view) == -1);
    REQUIRE(errno == EAGAIN);
    std::size_t room = 0;
    void* const to = aeconn_reserve(pair.client.get(), 5, &room);
    REQUIRE(to != nullptr);
    REQUIRE(room >= 5);
    std::memcpy(to, "hello", 5);
    aeconn_commit(pair.client.get(), 5);
    aeconn_flush(pair.client.get());
    until(pair.loop.get(), [&] { return aeconn_peek(pair.server.get(), 5, &view) == 5; });
    REQUIRE(view.count == 1);
    REQUIRE(std::string_view(static_cast<char*>(view.pieces[0].iov_base), 5) == "hello");
    aeconn_consume(pair.server.get(), 4);
    char last = 0;
    const iovec one{&last, 1};
    REQUIRE(aeconn_readv(pair.server.get(), &one, 1) == 1);
    REQUIRE(last == 'o');

    std::string text(100'000, 's');
    aeconn_memory* const memory =
        aeconn_memory_register(pair.loop.get(), transport.name.c_str(), text.data(), text.size());
    REQUIRE(memory != nullptr);
    struct Sent {
      int releases = 0, error = -1;
    } sent;
    aeconn_outgoing outgoing{text.data(), text.size(), memory,
                             [](aeconn_outgoing* its, int error) {
                               auto& told = *static_cast<Sent*>(its->context);
                               ++told.releases;
                               told.error = error;
                             },
                             &sent};
    REQUIRE(aeconn_send(pair.client.get(), &outgoing) == 100'000);
    REQUIRE(sent.releases == 0);
    Reader reader(pair.server.get());
    until(pair.loop.get(),
          [&] { return reader.bytes.size() == text.size() && sent.releases != 0; });
    REQUIRE((reader.bytes == text));
    REQUIRE(sent.releases == 1);
    REQUIRE(sent.error == 0);
    aeconn_memory_free(memory);
    outgoing.memory = nullptr;

    pair.server.reset();
    REQUIRE(aeconn_send(pair.client.get(), &outgoing) == 100'000);
    pair.client.reset();
    until(pair.loop.get(), [&] { return sent.releases == 2; });
  }
}

TEST_CASE("C: both directions end, or one", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    errno = 0;
    REQUIRE(aeconn_shutdown(pair.client.get(), 0) == -1);
    REQUIRE(errno == EINVAL);
    {
      Reader half(pair.server.get());
      REQUIRE(aeconn_shutdown(pair.client.get(), AECONN_WRITABLE) == 0);
      until(pair.loop.get(), [&] { return half.ended; });
    }
    struct Gone {
      int calls = 0;
    } gone;
    REQUIRE(aeconn_on_closed(
                pair.client.get(),
                [](void* self, aeconn_conn*) { ++static_cast<Gone*>(self)->calls; }, &gone) == 0);
    REQUIRE(aeconn_shutdown(pair.server.get(), AECONN_READABLE | AECONN_WRITABLE) == 0);
    until(pair.loop.get(), [&] { return gone.calls == 1; });
    char byte;
    REQUIRE(aeconn_read(pair.server.get(), &byte, 1) == 0);
    REQUIRE(aeconn_get_state(pair.server.get()) == AECONN_CLOSED);
  }
}

TEST_CASE("C: a failure is told apart from the end of the peer's stream", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    struct Told {
      static void on_failed(void* self, aeconn_conn* conn) {
        auto& told = *static_cast<Told*>(self);
        ++told.calls;
        told.error = aeconn_last_errno(conn);
        told.why = aeconn_last_error(conn);
      }
      int calls = 0, error = 0;
      std::string why;
    } failed, closed;
    REQUIRE(aeconn_on_failed(pair.server.get(), Told::on_failed, &failed) == 0);
    REQUIRE(aeconn_on_closed(pair.client.get(), Told::on_failed, &closed) == 0);
    REQUIRE(aeconn_shutdown(pair.client.get(), AECONN_WRITABLE) == 0);
    {
      Reader half(pair.server.get());
      until(pair.loop.get(), [&] { return half.ended; });
    }
    for (int i = 0; i < 5; ++i) REQUIRE(aeconn_turn(pair.loop.get(), 0) >= 0);
    REQUIRE(failed.calls == 0);
    REQUIRE(aeconn_write(pair.server.get(), "unread", 6) == 6);
    if (!pair.cpp.carrier.capabilities().reset) return;
    // What has come is unread, so no read has reported the failure yet.
    char byte;
    until(pair.loop.get(), [&] { return aeconn_read(pair.client.get(), &byte, 1) == 1; });
    aeconn_abort(pair.server.release());
    until(pair.loop.get(), [&] { return closed.calls == 1; });
    // tls learns that it was cut by reading to the end where the transport below has no resets.
    if (closed.error == 0 && transport.name != "tls" && transport.name.starts_with("tls")) {
      std::array<char, 100> rest;
      until(pair.loop.get(), [&] {
        return aeconn_read(pair.client.get(), rest.data(), rest.size()) < 0 && errno != EAGAIN;
      });
      Told::on_failed(&closed, pair.client.get());
    }
    REQUIRE(closed.error == ECONNRESET);
    REQUIRE_THAT(closed.why, Contains("reset") || Contains("cut") || Contains("aborted"));
  }
}

TEST_CASE("C: waiting here", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    errno = 0;
    REQUIRE(aeconn_wait(pair.server.get(), AECONN_READABLE, 0) == -1);
    REQUIRE(errno == ETIMEDOUT);
    REQUIRE(aeconn_wait(pair.server.get(), AECONN_WRITABLE, -1) == 0);
    REQUIRE(aeconn_wait(pair.server.get(), 3, 0) == -1);
    REQUIRE(errno == EINVAL);
    REQUIRE(aeconn_write_all(pair.client.get(), "a line\r\nrest", 12, 10 * kSecond) == 12);
    REQUIRE(aeconn_wait(pair.server.get(), AECONN_READABLE, 10 * kSecond) == 0);
    std::array<char, 20> line;
    REQUIRE(aeconn_read_line(pair.server.get(), line.data(), line.size(), 10 * kSecond) == 6);
    REQUIRE(std::string_view(line.data()) == "a line");
    REQUIRE(aeconn_read_all(pair.server.get(), line.data(), 4, 10 * kSecond) == 4);
    REQUIRE(std::string_view(line.data(), 4) == "rest");
  }
}

TEST_CASE("C: a client that waits for its connection", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    if (!transport.reaches_far) return;  // the server needs a thread of its own
    configure(transport);
    const testing::EchoThread echo(transport);
    const Loop loop(aeconn_loop_new());
    const Conn conn(
        aeconn_connect_wait(loop.get(), echo.address().to_string().c_str(), 60 * kSecond));
    INFO(aeconn_error());
    REQUIRE(conn != nullptr);
    std::array<char, 5> back;
    REQUIRE(aeconn_write_all(conn.get(), "hello", 5, -1) == 5);
    REQUIRE(aeconn_read_all(conn.get(), back.data(), 5, -1) == 5);
    REQUIRE(std::string_view(back.data(), 5) == "hello");
  }
}

TEST_CASE("C: facts", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    REQUIRE(std::string_view(aeconn_transport(pair.client.get())) == transport.name);
    const bool has_none = transport.name.ends_with("rdma") || transport.name.ends_with("shm");
    REQUIRE((aeconn_fd(pair.client.get()) == -1) == has_none);
    REQUIRE(aeconn_is_local(pair.client.get()) != 0);
    pid_t process = 0;
    const bool tells = conn::carries_path(transport.name);
    REQUIRE((aeconn_peer_credentials(pair.client.get(), &process, nullptr, nullptr) == 0) == tells);
    REQUIRE((tells ? process == ::getpid() : errno == EOPNOTSUPP));
    REQUIRE(aeconn_id(pair.client.get()) != aeconn_id(pair.server.get()));
    const std::string url = aeconn_listener_url(pair.listener.get(), 0);
    const std::string peer = peer_of(pair.client.get());
    if (conn::carries_path(transport.name)) {
      REQUIRE(url.ends_with(peer.substr(0, peer.find(' '))));
    } else {
      REQUIRE(url.find("//" + peer.substr(0, peer.find(' ')) + ":" +
                       peer.substr(peer.find(' ') + 1)) != std::string::npos);
    }
    char one;
    REQUIRE(aeconn_peer(pair.client.get(), &one, 1, nullptr) == peer.find(' '));
    REQUIRE(one == '\0');
    REQUIRE(aeconn_local(pair.server.get(), nullptr, 0, nullptr) == peer.find(' '));
    REQUIRE(aeconn_listener_url(pair.listener.get(), 1) == nullptr);
    REQUIRE((aeconn_peer_certificate(pair.client.get(), nullptr, 0) != 0) ==
            transport.name.starts_with("tls"));
    std::array<char, 512> path;
    const std::size_t length = aeconn_path(pair.client.get(), path.data(), path.size());
    REQUIRE(length < path.size());
    REQUIRE(std::string_view(path.data(), length)
                .starts_with(transport.name.starts_with("tls") ? "tls TLSv1." : transport.name));
    REQUIRE(aeconn_path(pair.client.get(), &one, 1) == length);
    REQUIRE(aeconn_user_data(pair.client.get()) == nullptr);
    aeconn_set_user_data(pair.client.get(), &pair);
    REQUIRE(aeconn_user_data(pair.client.get()) == &pair);
    int facts = 0;
    const auto count = [](void* all, const char* name, const char* value) {
      REQUIRE(*name != '\0');
      REQUIRE(value != nullptr);
      ++*static_cast<int*>(all);
    };
    aeconn_info(pair.client.get(), count, &facts);
    REQUIRE(facts > 0);
    facts = 0;
    REQUIRE(aeconn_statistics(pair.loop.get(), transport.name.c_str(), count, &facts) == 0);
    REQUIRE(facts > 5);
    REQUIRE(aeconn_statistics(pair.loop.get(), nullptr, count, &facts) == 0);
  }
}

TEST_CASE("C: another loop, in two steps", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    const Loop other(aeconn_loop_new());
    if (transport.name.ends_with("rdma")) {
      errno = 0;
      REQUIRE(aeconn_leave(pair.server.get()) == -1);
      REQUIRE(errno == EOPNOTSUPP);
      return;
    }
    Reader reader(pair.server.get());
    REQUIRE(aeconn_leave(pair.server.get()) == 0);
    REQUIRE(aeconn_join(pair.server.get(), other.get()) == 0);
    REQUIRE(aeconn_write(pair.client.get(), "there", 5) == 5);
    aeconn_flush(pair.client.get());
    until(other.get(), [&] { return reader.bytes == "there"; });
    pair.server.reset();
  }
}

TEST_CASE("C: a connection as a descriptor", "[conformance][c][descriptor]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    struct Told {
      int times = 0, error = -1;
      std::string why;
    } told;
    const int fd = aeconn_to_fd(
        pair.client.get(),
        [](void* self, int error, const char* why) {
          *static_cast<Told*>(self) = {static_cast<Told*>(self)->times + 1, error, why};
        },
        &told);
    INFO(aeconn_error());
    REQUIRE(fd >= 0);
    (void)pair.client.release();
    Reader reader(pair.server.get());
    REQUIRE(::write(fd, "there", 5) == 5);
    until(pair.loop.get(), [&] { return reader.bytes == "there"; });
    REQUIRE(aeconn_write(pair.server.get(), "back", 4) == 4);
    aeconn_flush(pair.server.get());
    std::array<char, 10> back;
    ssize_t size = -1;
    until(pair.loop.get(),
          [&] { return (size = ::recv(fd, back.data(), back.size(), MSG_DONTWAIT)) > 0; });
    CHECK(std::string_view(back.data(), static_cast<std::size_t>(size)) == "back");
    CHECK(told.times == 0);
    ::close(fd);
    until(pair.loop.get(), [&] { return reader.ended && told.times == 1; });
    CHECK(told.error == 0);
    CHECK(told.why.empty());
  }
}

TEST_CASE("C: a descriptor is told that its loop was freed", "[c][descriptor]") {
  int ends[2], error = 0;
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const testing::RawSocket peer(ends[1]);
  int fd = -1;
  {
    const Loop loop(aeconn_loop_new());
    Conn conn(aeconn_adopt(loop.get(), "unix", ends[0]));
    fd = aeconn_to_fd(
        conn.get(), [](void* to, int err, const char*) { *static_cast<int*>(to) = err; }, &error);
    REQUIRE(fd >= 0);
    (void)conn.release();
    REQUIRE(::write(fd, "last", 4) == 4);
  }
  CHECK(error == ECANCELED);
  CHECK(peer.receive(5) == "last");  // then the end of the stream
  char byte;
  CHECK(::recv(fd, &byte, 1, 0) <= 0);
  ::close(fd);
}

TEST_CASE("C: only an established connection becomes a descriptor", "[c][descriptor]") {
  const Loop loop(aeconn_loop_new());
  const Conn conn(aeconn_connect(loop.get(), "tcp://127.0.0.1:1", nullptr, nullptr));
  REQUIRE(conn != nullptr);
  CHECK(aeconn_to_fd(conn.get(), nullptr, nullptr) == -1);
  CHECK(errno == ENOTCONN);
  CHECK(std::string_view(aeconn_error()).starts_with("only an established connection"));
  CHECK(aeconn_get_state(conn.get()) == AECONN_CONNECTING);
  CHECK(aeconn_to_fd(nullptr, nullptr, nullptr) == -1);
}

TEST_CASE("C: a listener that pauses leaves arrivals waiting", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Site site(transport);
    Guests late, early;
    const Listener paused = site.listen(&Guests::take, &late);
    const Listener open = site.listen(&Guests::take, &early);
    aeconn_listener_pause(paused.get());
    const Conn first = site.connect(paused.get());
    // A later client of another listener is served: by then the first would have been accepted,
    // too.
    const Conn second = site.connect(open.get());
    until(site.loop.get(), [&] { return early.all.size() == 1; });
    require_echo(site.loop.get(), second.get(), early.all[0].get());
    REQUIRE(late.all.empty());
    aeconn_listener_resume(paused.get());
    until(site.loop.get(), [&] { return late.all.size() == 1; });
    require_echo(site.loop.get(), first.get(), late.all[0].get());
  }
}

TEST_CASE("C: a listener tells of arrivals that became no connection", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Site site(transport);
    Guests guests;
    const Listener listener = site.listen(&Guests::take, &guests, {{"max-connections", "1"}});
    std::vector<std::string> told;
    aeconn_listener_on_refused(
        listener.get(),
        [](void* all, const char* why) {
          static_cast<std::vector<std::string>*>(all)->emplace_back(why);
        },
        &told);
    const Conn first = site.connect(listener.get());
    until(site.loop.get(), [&] { return guests.all.size() == 1; });
    const Conn second = site.connect(listener.get());
    until(site.loop.get(), [&] { return !told.empty(); });
    REQUIRE(told[0].ends_with("1 connections are open (max-connections)"));

    aeconn_listener_on_refused(listener.get(), nullptr, nullptr);
    const Conn third = site.connect(listener.get());
    Reader end(third.get());
    until(site.loop.get(),
          [&] { return end.over() || aeconn_get_state(third.get()) == AECONN_FAILED; });
    REQUIRE(told.size() == 1);
    REQUIRE(guests.all.size() == 1);
  }
}

TEST_CASE("C: a listener that nobody can reach", "[conformance][c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    Pair pair(transport);
    const std::string url = aeconn_listener_url(pair.listener.get(), 0);
    pair.listener.reset();
    int done = 0;
    const Conn failing(aeconn_connect(
        pair.loop.get(), url.c_str(), [](void* self, aeconn_conn*) { ++*static_cast<int*>(self); },
        &done));
    REQUIRE(failing != nullptr);
    until(pair.loop.get(), [&] { return done == 1; });
    REQUIRE(aeconn_get_state(failing.get()) == AECONN_FAILED);
    REQUIRE(std::string_view(aeconn_last_error(failing.get())).size() > 5);
  }
}
