// SPDX-License-Identifier: BSD-3-Clause
// Output that waits for a carrier, without a connection: whatever the carrier takes, and in which
// pieces, the bytes leave in order, each piece of memory is released once and in order, and nothing
// of a chunk is kept. A random walk against a plain string.

#include "conn/core/pending_output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using conn::ChunkPool;
using conn::Outgoing;
using conn::PendingOutput;

namespace {

std::vector<int> g_released;  // contexts, in order

void release(void* context, std::error_code error) noexcept {
  g_released.push_back(error ? -*static_cast<int*>(context) : *static_cast<int*>(context));
}

struct Walk {
  explicit Walk(unsigned seed) : random(seed) { output.set_pool(&pool); }
  std::size_t below(std::size_t most) { return random() % most; }

  void commit() {
    const std::size_t size = 1 + below(3000);
    const std::span<std::byte> room = output.reserve(size);
    if (room.empty()) {
      REQUIRE(errno == EAGAIN);
      return;
    }
    REQUIRE(room.size() >= size);
    const std::size_t used = below(4) == 0 ? 0 : 1 + below(size);
    for (std::size_t i = 0; i < used; ++i) room[i] = std::byte(next_byte(expected));
    REQUIRE(output.commit(used) == (used != 0));
  }
  void push() {
    memory.push_back(std::string());
    std::string& bytes = memory.back();
    for (std::size_t left = below(5000); left != 0; --left) bytes += next_byte(expected_late);
    names.push_back(static_cast<int>(names.size()) + 1);
    const Outgoing one{std::as_bytes(std::span(bytes)), release, &names.back(), nullptr};
    if (output.push(one, below(2) == 0)) {
      expected += expected_late;
    } else {
      REQUIRE(output.full());
      names.pop_back();
      memory.pop_back();
    }
    expected_late.clear();
  }
  void hand_on() {
    if (!output.waits()) return;
    if (output.next_is_reference()) {
      const Outgoing one = output.offer();
      if (below(4) == 0) return output.refused();
      const std::size_t n =
          below(2) == 0 ? one.bytes.size() : below(std::max<std::size_t>(one.bytes.size(), 1)) + 1;
      const std::size_t taken = std::min(n, one.bytes.size());
      sent.append(reinterpret_cast<const char*>(one.bytes.data()), taken);
      const bool whole = taken == one.bytes.size();
      if (whole && below(3) == 0) {
        output.given_back(1 + lent, {});  // before the carrier has returned
        lent = 0;
        return output.lent(taken);
      }
      output.lent(taken);
      if (whole) ++lent;
      return;
    }
    iovec vectors[PendingOutput::kSegments];
    const int count = output.gather(vectors);
    REQUIRE(count > 0);
    std::size_t all = 0;
    for (int i = 0; i < count; ++i) all += vectors[i].iov_len;
    std::size_t take = below(2) == 0 ? all : below(all + 1);
    const std::size_t written = take;
    for (int i = 0; take != 0; ++i) {
      const std::size_t part = std::min(take, vectors[i].iov_len);
      sent.append(static_cast<const char*>(vectors[i].iov_base), part);
      take -= part;
    }
    output.written(written);
  }
  void give_back() {
    const std::size_t count = below(lent + 1);
    output.given_back(count, {});
    lent -= count;
  }
  void tell() {
    while (output.has_release()) {
      const PendingOutput::Release one = output.take_release();
      one.call(one.context, one.error);
    }
  }

  char next_byte(std::string& into) {
    into += static_cast<char>('a' + counter++ % 23);
    return into.back();
  }

  ChunkPool pool;
  PendingOutput output;
  std::mt19937 random;
  std::string expected, expected_late, sent;
  std::deque<std::string> memory;
  std::deque<int> names;
  std::size_t lent = 0, counter = 0;
};

}  // namespace

TEST_CASE("pending output: any walk sends the bytes in order and releases each memory once",
          "[conn][in-place]") {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    g_released.clear();
    Walk walk(seed);
    for (int step = 0; step < 400; ++step) {
      switch (walk.below(5)) {
        case 0:
          walk.commit();
          break;
        case 1:
          walk.push();
          break;
        case 2:
        case 3:
          walk.hand_on();
          break;
        default:
          walk.give_back();
          walk.tell();
      }
      REQUIRE(walk.expected.starts_with(walk.sent));
    }
    const bool dropped = seed % 3 == 0;
    if (dropped) {
      walk.output.drop(std::make_error_code(std::errc::broken_pipe));
    } else {
      while (walk.output.waits()) walk.hand_on();
      REQUIRE(walk.sent == walk.expected);
    }
    REQUIRE_FALSE(walk.output.waits());
    if (seed % 2 == 0) walk.output.set_pool(nullptr);  // between two loops chunks are freed
    walk.output.end(std::make_error_code(std::errc::operation_canceled));
    walk.tell();
    REQUIRE(walk.output.idle());
    REQUIRE(g_released.size() == walk.names.size());
    for (std::size_t i = 0; i < g_released.size(); ++i)
      REQUIRE(std::abs(g_released[i]) == static_cast<int>(i) + 1);
  }
}

TEST_CASE("pending output: what was lent in part before a failure is released when it comes back",
          "[conn][in-place]") {
  ChunkPool pool;
  PendingOutput output;
  output.set_pool(&pool);
  g_released.clear();
  int name = 1;
  const std::string bytes(100, 'x');
  REQUIRE(output.push({std::as_bytes(std::span(bytes)), release, &name, nullptr}, true));
  output.lent(40);
  REQUIRE(output.waits());
  output.drop(std::make_error_code(std::errc::connection_reset));
  REQUIRE_FALSE(output.waits());
  REQUIRE_FALSE(output.has_release());  // the carrier still reads the first part
  output.given_back(1, {});
  REQUIRE(output.has_release());
  const PendingOutput::Release one = output.take_release();
  REQUIRE(one.error == std::errc::connection_reset);
  REQUIRE(output.idle());
}
