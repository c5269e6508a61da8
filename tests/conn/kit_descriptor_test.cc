// SPDX-License-Identifier: BSD-3-Clause
// Tests of conn/kit/descriptor.h.

#include "conn/kit/descriptor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>

#include "tests/support/catch.h"

using conn::Descriptor;
using namespace std::chrono_literals;

namespace {

bool open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

struct Ends {
  Ends() {
    std::array<int, 2> made{};
    REQUIRE(::pipe2(made.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    read.reset(made[0]);
    write.reset(made[1]);
  }
  Descriptor read, write;
};

}  // namespace

TEST_CASE("descriptor: it is closed once, by its last owner", "[conn]") {
  Ends ends;
  const int read = ends.read.get(), write = ends.write.get();
  Descriptor other = std::move(ends.read);
  CHECK_FALSE(ends.read);
  CHECK(other.get() == read);
  other = std::move(ends.write);
  CHECK_FALSE(open(read));
  CHECK(other.get() == write);
  {
    const Descriptor last = std::move(other);
    CHECK(open(write));
  }
  CHECK_FALSE(open(write));
  CHECK_FALSE(Descriptor());
}

TEST_CASE("descriptor: poll_now() and poll_until() tell readiness and the other end's close",
          "[conn]") {
  Ends ends;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  CHECK_FALSE(conn::poll_now(-1, POLLIN));
  CHECK_FALSE(conn::poll_now(ends.read.get(), POLLIN));
  CHECK(conn::poll_now(ends.write.get(), POLLOUT));
  const auto began = now();
  CHECK_FALSE(conn::poll_until(ends.read.get(), POLLIN, began + 20ms));
  CHECK(now() - began >= 20ms);
  CHECK(::write(ends.write.get(), "x", 1) == 1);
  CHECK(conn::poll_until(ends.read.get(), POLLIN, began));
  CHECK_FALSE(conn::poll_now(ends.read.get(), 0));
  ends.write.reset();
  CHECK(conn::poll_now(ends.read.get(), 0));
}

TEST_CASE("descriptor: writing to a pipe whose reader is gone does not end the process", "[conn]") {
  Ends ends;
  ends.read.reset();
  char line[] = "a line\n";
  const iovec part{line, sizeof line - 1};
  const bool pending = GENERATE(false, true);  // a SIGPIPE of the program itself
  CAPTURE(pending);
  const pid_t child = ::fork();
  if (child == 0) {
    sigset_t pipe, found;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::signal(SIGPIPE, SIG_DFL);
    ::pthread_sigmask(pending ? SIG_BLOCK : SIG_UNBLOCK, &pipe, nullptr);
    if (pending) (void)::raise(SIGPIPE);
    const bool refused =
        conn::write_without_signal(ends.write.get(), {&part, 1}) == -1 && errno == EPIPE;
    sigpending(&found);
    ::_exit(refused && (sigismember(&found, SIGPIPE) != 0) == pending ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK_FALSE(WIFSIGNALED(status));
  CHECK(status == 0);
}

TEST_CASE("descriptor: a blocked write of which a pipe takes a part raises no signal either",
          "[conn]") {
  std::array<int, 2> made{};
  REQUIRE(::pipe2(made.data(), O_CLOEXEC) == 0);
  Descriptor read(made[0]), write(made[1]);
  const int room = ::fcntl(write.get(), F_GETPIPE_SZ);
  REQUIRE(room > 0);
  const std::string bytes(static_cast<std::size_t>(room) + 1, 'x');
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    read.reset();
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    ::signal(SIGPIPE, SIG_DFL);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    ::_exit(conn::write_without_signal(write.get(), {&part, 1}) == room ? 0 : 1);
  }
  // The write waits for room, until nobody reads any more.
  for (int unread = 0; unread < room; ::poll(nullptr, 0, 1))
    REQUIRE(::ioctl(read.get(), FIONREAD, &unread) == 0);
  read.reset();
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK_FALSE(WIFSIGNALED(status));
  CHECK(status == 0);
}
