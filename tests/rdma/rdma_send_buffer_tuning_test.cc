// SPDX-License-Identifier: BSD-3-Clause
// The send buffer grows as far as that makes a stream faster: tested with links of different rates
// and lengths, and a writer that always has more to send.
#if AECONN_RDMA

#include "conn/rdma/memory/send_buffer_tuning.h"

#include <algorithm>
#include <cstdint>

#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kUsual = 256 * 1024, kMost = 4 << 20;

struct Link {
  /// For `time`, writes whenever the buffer has room; bytes are confirmed a round trip later, or at
  /// the link's rate.
  void run(ae::Duration time) {
    const ae::TimePoint end = now + time;
    while (now < end) {
      const std::uint32_t part = buffer.size() / 4;
      const double whole = std::max(round_trip, buffer.size() / bytes_per_second);
      buffer.on_full(now);
      now += std::chrono::duration_cast<ae::Duration>(std::chrono::duration<double>(whole / 4));
      buffer.on_confirmed(part, now, limit);
      longest = std::max(longest, buffer.size());
    }
  }
  double round_trip, bytes_per_second;
  MemoryLimit limit{};
  SendBufferTuning buffer{kUsual, kMost};
  ae::TimePoint now{1000s};
  std::uint32_t longest = kUsual;
};

TEST_CASE("rdma send buffer: it grows as far as a stream gains by it", "[rdma][send-buffer]") {
  struct {
    double round_trip;
    std::uint32_t least, most;
  } const links[] = {{20e-6, kUsual, kUsual},
                     {190e-6, kUsual, kUsual},
                     {300e-6, 2 * kUsual, 2 * kUsual},
                     {2e-3, 10 * kUsual, 16 * kUsual},
                     {20e-3, kMost, kMost}};
  for (const auto& each : links) {
    CAPTURE(each.round_trip);
    Link link{each.round_trip, 1.25e9};
    link.run(2s);
    // A larger size that is tried from time to time is given up again.
    for (int i = 0; i < 100 && link.buffer.size() > each.most; ++i) link.run(1ms);
    CHECK(link.buffer.size() >= each.least);
    CHECK(link.buffer.size() <= each.most);
    CHECK(link.longest <= kMost);
  }
}

TEST_CASE("rdma send buffer: what gave nothing is tried ever more rarely", "[rdma][send-buffer]") {
  Link link{20e-6, 1.25e9};
  const auto longer = [&](ae::Duration time) {
    int count = 0;
    for (const ae::TimePoint end = link.now + time; link.now < end; link.run(100us))
      count += link.buffer.size() > kUsual ? 1 : 0;
    return count;
  };
  const int first = longer(1s);
  CHECK(first > 0);
  longer(60s);
  CHECK(longer(60s) < first * 60 / 8);
  CHECK(link.longest == 2 * kUsual);
}

TEST_CASE("rdma send buffer: half of memory-limit is left to others", "[rdma][send-buffer]") {
  Link link{2e-3, 1.25e9, MemoryLimit{registered_bytes() + 1}};
  link.run(2s);
  CHECK(link.longest == kUsual);
}

TEST_CASE("rdma send buffer: a refusal and a quiet second end it", "[rdma][send-buffer]") {
  Link link{2e-3, 1.25e9};
  link.run(2s);
  REQUIRE(link.buffer.size() > kUsual);
  const std::uint32_t grown = link.buffer.size();
  link.now += 500ms;
  link.buffer.on_idle_write([&] { return link.now; });
  CHECK(link.buffer.size() == grown);
  link.now += 600ms;
  link.buffer.on_idle_write([&] { return link.now; });
  CHECK(link.buffer.size() == kUsual);
  link.run(2s);
  CHECK(link.buffer.size() == grown);
  link.buffer.on_refusal(link.now);
  CHECK(link.buffer.size() == kUsual);
  link.run(900ms);  // other connections may use the memory first
  CHECK(link.buffer.size() == kUsual);
  link.run(1s);
  CHECK(link.buffer.size() == grown);
}

TEST_CASE("rdma send buffer: who is not short of room has no more", "[rdma][send-buffer]") {
  SendBufferTuning buffer(kUsual, kMost);
  ae::TimePoint now{1000s};
  buffer.on_full(now);
  for (int i = 0; i < 10'000; ++i) {
    now += 1ms;
    buffer.on_confirmed(kUsual / 4, now, {});
    if (i % 100 == 0) buffer.on_full(now);
  }
  CHECK(buffer.size() == kUsual);
}

TEST_CASE("rdma send buffer: one that may not grow does not", "[rdma][send-buffer]") {
  Link link{2e-3, 1.25e9};
  link.buffer = SendBufferTuning(kUsual, 4096);  // the maximum is at least the usual size
  link.run(2s);
  CHECK(link.longest == kUsual);
  CHECK(link.buffer.size() == kUsual);
}

}  // namespace
}}}  // namespace conn::rdma

#endif
