// SPDX-License-Identifier: BSD-3-Clause
// How many bytes of the heap an idle connection holds for itself: its objects, the records of its
// windows and the ring of its send queue.

#include <array>
#include <bit>
#include <string>
#include <vector>

#include "conn/core/connection_core.h"
#include "conn/rdma/carrier.h"
#include "tests/simulation/memory.h"
#include "tests/simulation/room.h"

using namespace simulation;

namespace {

// Most bytes for an idle connection whose receives are shared, with the pool's records of its
// window.
constexpr std::uint64_t kMost = 2560;

// What is allocated per connection beside these: a record of its window for the stream and another
// for its memory and key, and the ring of the send queue.
static_assert(sizeof(void*) != 8 ||
              sizeof(conn::ConnectionCore) + sizeof(conn::rdma::RdmaCarrier) <= kMost - 384);

struct Counted {
  std::uint64_t idle = 0, after_use = 0;  // bytes for one end
};

Counted count(const std::string& options, const std::string& more) {
  constexpr std::size_t kMore = 8;
  Room room({}, options);
  const auto dial = [&](std::size_t number) {
    std::vector<conn::ConnectionPtr> made;
    for (std::size_t i = 0; i < number; ++i) made.push_back(room.connected(more));
    return made;
  };
  // Sends so much that there are several long windows.
  const auto use = [&](conn::Connection& client) {
    for (const auto& each : room.log.clients)
      each->set_read_handler([](conn::Connection& here) {
        static std::array<char, 64 * 1024> bytes;
        while (here.read(bytes.data(), bytes.size()) > 0) {
        }
      });
    testing::send(room.loop, client, std::string(3 << 20, 'u'));
    room.run_for(1s);
  };
  Counted counted;
  // The first connections stay: with them the loop's tables get their size, and the domain and the
  // settings, which connections share, come to exist.
  const auto first = dial(2);
  use(*first.front());
  {
    const auto others = dial(kMore);
    for (const auto& each : others) use(*each);
    room.log.clients.erase(room.log.clients.begin() + 2, room.log.clients.end());
  }
  room.run_for(150s);
  const std::uint64_t before = live_bytes();
  const auto others = dial(kMore);
  room.run_for(60s);
  counted.idle = (live_bytes() - before) / (2 * kMore);
  for (const auto& each : others) use(*each);
  room.run_for(60s);
  counted.after_use = (live_bytes() - before) / (2 * kMore);
  return counted;
}

}  // namespace

TEST_CASE("simulation: the objects of an idle connection take at most 2.5 KiB",
          "[simulation][memory]") {
  // A connection with receives of its own also has their memory.
  const Profile& profile = chosen_profile();
  if (!profile.shared_receives || !profile.bound_keys()) return;
  // With short windows, because the records of the memory of long ones are counted here too. They
  // are the pool's, for other connections to use.
  const std::string windows = "window=4k&max-window=64k";
  const std::string more = GENERATE("", "&keepalive=0ms");
  const Counted counted = count("?" + windows + more, windows + more);
  CAPTURE(more, counted.idle, counted.after_use);
  CHECK(counted.idle >= sizeof(conn::rdma::RdmaCarrier));
  CHECK(counted.idle <= kMost);
  // The records of windows that keep a key for their next use: some devices cannot hand a key on to
  // another connection.
  CHECK(counted.after_use <=
        kMost + conn::rdma::ReceiveWindowQueue::kSlots * sizeof(conn::rdma::ReceiveWindow));
}

TEST_CASE("simulation: a send queue has no more places than option send-queue",
          "[simulation][memory]") {
  const std::uint32_t asked = GENERATE(12u, 16u, 32u, 33u);
  const Profile& profile = chosen_profile();
  const std::string option = "send-queue=" + std::to_string(asked);
  Room room({}, "?" + option);
  const auto client = room.connected(option);
  std::size_t seen = 0;
  for (const auto& [number, qp] : room.world.queue_pairs) {
    CAPTURE(profile.name, asked, qp->cap.max_send_wr);
    // A device that has 2^n places rounds other numbers up, and may keep one place free.
    CHECK(qp->cap.max_send_wr <= std::bit_ceil(asked));
    CHECK(qp->cap.max_send_wr + 1 >= asked);
    ++seen;
  }
  CHECK(seen >= 2);
}
