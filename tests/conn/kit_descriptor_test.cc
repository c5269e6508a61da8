// SPDX-License-Identifier: BSD-3-Clause
// Tests of conn/kit/descriptor.h, except for write_without_signal(), which tls_key_log_test.cc has.

#include "conn/kit/descriptor.h"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <chrono>
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
