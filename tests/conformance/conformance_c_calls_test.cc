// SPDX-License-Identifier: BSD-3-Clause
// The C interface without regard to a transport: mistakes, null handles, timers, descriptors and
// sockets of the program's own, and exceptions.

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "c/aeconn.h"
#include "tests/support/c_echo.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"
#include "tests/support/testing.h"

using namespace testing::c;

TEST_CASE("C: mistakes are told in a sentence", "[c]") {
  const Loop loop(aeconn_loop_new());
  const auto ignore = [](void*, aeconn_conn*) {};
  int err = 0;
  const auto refused = [&](const char* url) {
    errno = 0;
    const Listener none(aeconn_listen(loop.get(), url, ignore, nullptr));
    err = errno;
    REQUIRE(none == nullptr);
    REQUIRE(err != 0);
    return std::string(aeconn_error());
  };
  CHECK(refused("tcp:127.0.0.1:1").starts_with("tcp:127.0.0.1:1: "));
  CHECK(refused("smoke://127.0.0.1:1").find("smoke") != std::string::npos);
  CHECK(refused("tcp://127.0.0.1:0?colour=red").find("colour") != std::string::npos);
  CHECK(refused("tcp://192.0.2.1:1").find("192.0.2.1") != std::string::npos);
  CHECK(err == EADDRNOTAVAIL);
  const Listener taken(aeconn_listen(loop.get(), "tcp://127.0.0.1:0", ignore, nullptr));
  CHECK(refused(aeconn_listener_url(taken.get(), 0)).find("in use") != std::string::npos);
  CHECK(err == EADDRINUSE);
  // With shm-path the shared memory is only a short cut to the other scheme.
  const std::string list = std::string("shm|").append(aeconn_listener_url(taken.get(), 0));
  CHECK(refused((list + "?shm-path=@aeconn-nobody").c_str()).find("in use") != std::string::npos);
  CHECK(err == EADDRINUSE);
  CHECK(refused("shm|unix:///nowhere/at/all?shm-path=@aeconn-nobody").find("/nowhere") !=
        std::string::npos);
  CHECK(err == ENOENT);
  CHECK(refused("unix:///nowhere/at/all").find("/nowhere") != std::string::npos);
  CHECK(err == ENOENT);
  REQUIRE(aeconn_connect(loop.get(), "tcp", nullptr, nullptr) == nullptr);
  REQUIRE(aeconn_connect_wait(loop.get(), "tcp://127.0.0.1:1", kSecond) == nullptr);
  REQUIRE(errno == ECONNREFUSED);
  REQUIRE(aeconn_adopt(loop.get(), "tcp", -1) == nullptr);
  REQUIRE(aeconn_listen_on(loop.get(), "tcp", -1, "", ignore, nullptr) == nullptr);
  REQUIRE(aeconn_configure("tcp", "colour=red") == -1);
  REQUIRE(aeconn_has_transport("tcp") == 1);
  REQUIRE(aeconn_has_transport("smoke") == 0);
  REQUIRE(std::string_view(aeconn_error()).find("smoke") != std::string_view::npos);
  REQUIRE(std::string_view(aeconn_version()) == AECONN_VERSION);
}

TEST_CASE("C: null handles are errors, or nothing", "[c]") {
  errno = 0;
  CHECK(aeconn_read(nullptr, nullptr, 1) == -1);
  CHECK(errno == EINVAL);
  CHECK(aeconn_listen(nullptr, "tcp://127.0.0.1:0", nullptr, nullptr) == nullptr);
  CHECK(aeconn_dispatch(nullptr) == -1);
  CHECK(aeconn_descriptor(nullptr) == -1);
  CHECK(aeconn_timer_start(nullptr, 0, nullptr, nullptr) == 0);
  CHECK(aeconn_post(nullptr, nullptr, nullptr) == -1);
  CHECK(aeconn_get_state(nullptr) == AECONN_FAILED);
  CHECK(aeconn_is_local(nullptr) == -1);
  CHECK(aeconn_path(nullptr, nullptr, 0) == 0);
  aeconn_close(nullptr);
  aeconn_loop_free(nullptr);
  aeconn_listener_free(nullptr);
  aeconn_memory_free(nullptr);
  aeconn_stop(nullptr);
}

TEST_CASE("C: timers, posts and descriptors of the program's own", "[c]") {
  const Loop loop(aeconn_loop_new());
  struct Seen {
    aeconn_loop* loop;
    int ticks = 0, posts = 0, reads = 0;
  } seen{loop.get()};
  const auto tick = [](void* self) -> int64_t {
    auto& its = *static_cast<Seen*>(self);
    return ++its.ticks < 3 ? 1'000'000 : -1;
  };
  const uint64_t timer = aeconn_timer_start(loop.get(), 3600 * kSecond, tick, &seen);
  REQUIRE(timer != 0);
  REQUIRE(aeconn_timer_again(loop.get(), timer, 0) == 0);
  until(loop.get(), [&] { return seen.ticks == 3; });
  errno = 0;
  REQUIRE(aeconn_timer_cancel(loop.get(), timer) == -1);
  REQUIRE(errno == ENOENT);
  REQUIRE(aeconn_timer_again(loop.get(), timer, 0) == -1);
  const uint64_t other = aeconn_timer_start(loop.get(), 0, tick, &seen);
  REQUIRE(aeconn_timer_cancel(loop.get(), other) == 0);

  std::thread([&] {
    REQUIRE(aeconn_post(
                loop.get(), [](void* self) { ++static_cast<Seen*>(self)->posts; }, &seen) == 0);
  }).join();
  until(loop.get(), [&] { return seen.posts == 1; });

  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  REQUIRE(aeconn_watch(
              loop.get(), ends[0], AECONN_READABLE,
              [](void* self, int fd, int ready) {
                auto& its = *static_cast<Seen*>(self);
                ++its.reads;
                REQUIRE(ready == AECONN_READABLE);
                aeconn_unwatch(its.loop, fd, AECONN_READABLE);
                aeconn_stop(its.loop);
              },
              &seen) == 0);
  REQUIRE(::write(ends[1], "x", 1) == 1);
  REQUIRE(aeconn_run(loop.get()) == 0);
  REQUIRE(seen.reads == 1);
  ::close(ends[0]);
  ::close(ends[1]);
  REQUIRE(aeconn_watch(
              loop.get(), -1, AECONN_READABLE, [](void*, int, int) {}, &seen) == -1);
  REQUIRE(std::string_view(aeconn_error()).size() > 5);
}

TEST_CASE("C: a host that prepares before it sleeps", "[c]") {
  const Loop loop(aeconn_loop_new());
  const auto readable = [&] {
    pollfd entry{aeconn_descriptor(loop.get()), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  };
  CHECK(aeconn_prepare(nullptr) == -1);
  CHECK(aeconn_prepare(loop.get()) == 1);
  CHECK_FALSE(readable());
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const Conn conn(aeconn_adopt(loop.get(), "unix", ends[0]));
  REQUIRE(conn != nullptr);
  const testing::RawSocket peer(ends[1]);
  Reader reader(conn.get());
  REQUIRE(aeconn_dispatch(loop.get()) >= 0);

  // Once a host has prepared, its loop leaves the arming to that.
  peer.send("hello");
  int posts = 0;
  REQUIRE(aeconn_post(
              loop.get(), [](void* count) { ++*static_cast<int*>(count); }, &posts) == 0);
  CHECK(aeconn_prepare(loop.get()) == 0);
  CHECK(posts == 0);
  CHECK(readable());
  REQUIRE(aeconn_dispatch(loop.get()) == 2);
  CHECK(posts == 1);
  CHECK(reader.bytes == "hello");
  CHECK(aeconn_prepare(loop.get()) == 1);
  CHECK_FALSE(readable());
}

TEST_CASE("C: sockets of the program's own", "[c]") {
  const Loop loop(aeconn_loop_new());
  const auto is_open = [](int fd) { return ::fcntl(fd, F_GETFD) >= 0; };
  SECTION("a pair of Unix sockets") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const Conn one(aeconn_adopt(loop.get(), "unix", ends[0]));
    const Conn two(aeconn_adopt(loop.get(), "unix", ends[1]));
    REQUIRE(one != nullptr);
    REQUIRE(two != nullptr);
    require_echo(loop.get(), one.get(), two.get());
  }
  testing::RawSocket master = testing::RawSocket::listening();
  const std::string url = master.endpoint().to_string();
  SECTION("a connected tcp socket") {
    const testing::RawSocket peer = testing::RawSocket::connect(master.endpoint());
    const int fd = ::dup(master.accept().fd());
    Conn conn(aeconn_adopt(loop.get(), "tcp", fd));
    INFO(aeconn_error());
    REQUIRE(conn != nullptr);
    CHECK(aeconn_get_state(conn.get()) == AECONN_CONNECTED);
    CHECK(std::string_view(aeconn_transport(conn.get())) == "tcp");
    CHECK(aeconn_fd(conn.get()) == fd);
    Reader reader(conn.get());
    peer.send("hello");
    until(loop.get(), [&] { return reader.bytes == "hello"; });
    REQUIRE(aeconn_write(conn.get(), "answer", 6) == 6);
    conn.reset();
    CHECK(peer.receive(7) == "answer");
    CHECK_FALSE(is_open(fd));
  }
  SECTION("a tcp socket that listens") {
    const bool limited = GENERATE(false, true);
    const int fd = ::dup(master.fd());
    Guests guests;
    Listener listener(aeconn_listen_on(
        loop.get(), "tcp", fd, limited ? "max-connections=1" : nullptr, &Guests::take, &guests));
    INFO(aeconn_error());
    REQUIRE(listener != nullptr);
    CHECK_FALSE(is_open(fd));
    master.close();
    CHECK(aeconn_listener_url(listener.get(), 0) == url);
    CHECK(aeconn_listener_url(listener.get(), 1) == nullptr);
    int refused = 0;
    aeconn_listener_on_refused(
        listener.get(), [](void* count, const char*) { ++*static_cast<int*>(count); }, &refused);
    const Conn one(aeconn_connect(loop.get(), url.c_str(), nullptr, nullptr));
    const Conn two(aeconn_connect(loop.get(), url.c_str(), nullptr, nullptr));
    until(loop.get(), [&] { return guests.all.size() + static_cast<std::size_t>(refused) == 2; });
    CHECK(refused == (limited ? 1 : 0));
    require_echo(loop.get(), one.get(), guests.all[0].get());
    listener.reset();
    errno = 0;
    CHECK(aeconn_connect_wait(loop.get(), url.c_str(), 60 * kSecond) == nullptr);
    CHECK(errno == ECONNREFUSED);
  }
}

TEST_CASE("C: what a handler in C++ throws comes out of the call that ran it", "[c]") {
  const Loop loop(aeconn_loop_new());
  const auto thrower = [](void*) -> int64_t { throw std::runtime_error("thrown"); };
  REQUIRE(aeconn_timer_start(loop.get(), 0, thrower, nullptr) != 0);
  REQUIRE(aeconn_run(loop.get()) == -1);
  REQUIRE(std::string_view(aeconn_error()) == "thrown");
  const auto inside = [](void* self) -> int64_t {
    REQUIRE(aeconn_turn(static_cast<aeconn_loop*>(self), 0) == -1);
    REQUIRE(errno == EDEADLK);
    aeconn_stop(static_cast<aeconn_loop*>(self));
    return -1;
  };
  REQUIRE(aeconn_timer_start(loop.get(), 0, inside, loop.get()) != 0);
  REQUIRE(aeconn_run(loop.get()) == 0);
}
