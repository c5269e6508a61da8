// SPDX-License-Identifier: BSD-3-Clause
// The C interface: events that are collected instead of running the host's functions.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "c/aeconn.h"
#include "tests/support/c_kit.h"
#include "tests/support/catch.h"
#include "tests/support/testing.h"

using namespace testing::c;

namespace {

void* number(std::uintptr_t of) { return reinterpret_cast<void*>(of); }

/// The next stored number; 0 if there is none.
std::uintptr_t next(aeconn_loop* loop) {
  void* context = nullptr;
  const ssize_t n = aeconn_collect(loop, &context, 1);
  REQUIRE((n == 0 || n == 1));
  return reinterpret_cast<std::uintptr_t>(context);
}

bool is_ready(aeconn_loop* loop) {
  pollfd entry{aeconn_descriptor(loop), POLLIN, 0};
  return ::poll(&entry, 1, 1000) == 1;
}

}  // namespace

TEST_CASE("C: events are collected instead of told", "[c]") {
  FOR_EVERY_C_TRANSPORT(transport) {
    if (testing::simulated()) return;  // there a loop has events only while it sleeps itself
    Pair pair(transport);
    aeconn_loop* const loop = pair.loop.get();
    REQUIRE(aeconn_on_readable(pair.server.get(), aeconn_note, number(7)) == 0);
    REQUIRE(aeconn_write(pair.client.get(), "hello", 5) == 5);
    aeconn_flush(pair.client.get());
    const auto end = std::chrono::steady_clock::now() + testing::patience();
    const auto await = [&] {
      for (;;) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        if (!is_ready(loop)) continue;
        if (const std::uintptr_t found = next(loop); found != 0) return found;
      }
    };
    REQUIRE(await() == 7);
    std::array<char, 10> buffer{};
    REQUIRE(aeconn_read(pair.server.get(), buffer.data(), buffer.size()) == 5);
    REQUIRE(aeconn_on_readable(pair.server.get(), nullptr, nullptr) == 0);
    while (next(loop) != 0) {
    }
    std::uintptr_t first = 0;
    std::uintptr_t second = 0;
    while (second == 0) {  // a loop may find one earlier than the other
      REQUIRE(aeconn_on_writable(pair.client.get(), aeconn_note, number(1)) == 0);
      REQUIRE(aeconn_on_writable(pair.server.get(), aeconn_note, number(2)) == 0);
      first = await();
      REQUIRE(aeconn_on_writable(pair.client.get(), nullptr, nullptr) == 0);
      REQUIRE(aeconn_on_writable(pair.server.get(), nullptr, nullptr) == 0);
      second = next(loop);  // stored before: no handler is left
    }
    REQUIRE(first + second == 3);
    REQUIRE(aeconn_on_writable(pair.client.get(), aeconn_note, number(1)) == 0);
    REQUIRE(aeconn_on_writable(pair.server.get(), aeconn_note, number(2)) == 0);
    // Run by another call, they are not stored for the next aeconn_collect().
    for (int i = 0; i < 3; ++i) REQUIRE(aeconn_dispatch(loop) >= 0);
    REQUIRE(aeconn_on_writable(pair.client.get(), nullptr, nullptr) == 0);
    REQUIRE(aeconn_on_writable(pair.server.get(), nullptr, nullptr) == 0);
    REQUIRE(next(loop) == 0);
  }
}

TEST_CASE("C: collecting without a loop or room is an error", "[c]") {
  const Loop loop(aeconn_loop_new());
  void* context = nullptr;
  REQUIRE(aeconn_collect(nullptr, &context, 1) == -1);
  REQUIRE(errno == EINVAL);
  REQUIRE(aeconn_collect(loop.get(), nullptr, 1) == -1);
  REQUIRE(errno == EINVAL);
  aeconn_note(number(3), nullptr);  // not run by aeconn_collect()
  REQUIRE(aeconn_collect(loop.get(), &context, 1) == 0);
  REQUIRE(context == nullptr);
}

TEST_CASE("C: an exception is reported after the events that were collected before it", "[c]") {
  const Loop loop(aeconn_loop_new());
  const auto note = [](void* context) { aeconn_note(context, nullptr); };
  const auto fail = [](void*) { throw std::runtime_error("thrown"); };
  std::array<void*, 4> found{};
  REQUIRE(aeconn_post(loop.get(), note, number(5)) == 0);
  REQUIRE(aeconn_post(loop.get(), fail, nullptr) == 0);
  REQUIRE(aeconn_collect(loop.get(), found.data(), 1) == 1);
  CHECK(found[0] == number(5));
  // A host that found fewer than it asked for calls again when the descriptor is readable.
  if (!testing::simulated()) CHECK(is_ready(loop.get()));
  CHECK(aeconn_collect(loop.get(), found.data(), found.size()) == -1);
  CHECK(errno == ECANCELED);
  CHECK(aeconn_error() == std::string("thrown"));
  CHECK(aeconn_collect(loop.get(), found.data(), found.size()) == 0);
  // Without events before it, it is reported at once.
  REQUIRE(aeconn_post(loop.get(), fail, nullptr) == 0);
  CHECK(aeconn_collect(loop.get(), found.data(), found.size()) == -1);
  REQUIRE(aeconn_post(loop.get(), note, number(6)) == 0);
  REQUIRE(aeconn_collect(loop.get(), found.data(), found.size()) == 1);
  CHECK(found[0] == number(6));
}

TEST_CASE("C: a post that runs as its loop is freed may collect", "[c][lifetime]") {
  Loop loop(aeconn_loop_new());
  struct Seen {
    aeconn_loop* loop;
    ssize_t count = -1;
    void* context = nullptr;
  } seen{loop.get()};
  REQUIRE(aeconn_post(
              loop.get(), [](void* context) { aeconn_note(context, nullptr); }, number(1)) == 0);
  REQUIRE(next(loop.get()) == 1);
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], "x", 1) == 1);
  REQUIRE(aeconn_watch(
              loop.get(), ends[0], AECONN_READABLE,
              [](void* context, int, int) { aeconn_note(context, nullptr); }, number(2)) == 0);
  REQUIRE(aeconn_post(
              loop.get(),
              [](void* self) {
                auto& its = *static_cast<Seen*>(self);
                its.count = aeconn_collect(its.loop, &its.context, 1);
              },
              &seen) == 0);
  loop.reset();
  CHECK(seen.count == 1);
  CHECK(seen.context == number(2));
  for (const int end : ends) ::close(end);
}
