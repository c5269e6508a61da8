// SPDX-License-Identifier: BSD-3-Clause
// A sender that posts straight (conn/rdma/straight_path.h) against one that plans a chain for
// everything.

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/sender.h"
#include "tests/simulation/choices.h"
#include "tests/simulation/registered_memory.h"
#include "tests/support/catch.h"
#include "tests/support/post_send_driver.h"
#include "tests/support/stream_bench.h"

using namespace simulation;
using namespace conn::rdma;

namespace {

struct Written {
  ibv_wr_opcode opcode;
  std::uint32_t immediate = 0;
  bool signaled, copied;
  std::uint64_t to = 0;
  std::string bytes;
  bool operator==(const Written&) const = default;
};

struct Driver : testing::PostSendDriver {
  void take(const ibv_send_wr& work) override {
    Written next;
    next.opcode = work.opcode;
    next.signaled = (work.send_flags & IBV_SEND_SIGNALED) != 0;
    next.copied = (work.send_flags & IBV_SEND_INLINE) != 0;
    if (work.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) next.immediate = ntohl(work.imm_data);
    if (work.opcode != IBV_WR_SEND) next.to = work.wr.rdma.remote_addr;
    if (next.copied ? work.num_sge != 1 : has_unregistered(work)) FAIL("wrong pieces");
    for (int i = 0; i < work.num_sge; ++i)
      next.bytes.append(reinterpret_cast<const char*>(work.sg_list[i].addr),
                        work.sg_list[i].length);
    ids.push_back(work.wr_id);
    written.push_back(std::move(next));
  }
  static bool has_unregistered(const ibv_send_wr& work) {
    return std::any_of(work.sg_list, work.sg_list + work.num_sge,
                       [](const ibv_sge& piece) { return piece.lkey == 0; });
  }
  std::vector<Written> written;
  std::vector<std::uint64_t> ids;
};

/// One end of a connection, whose peer is the test.
struct End {
  End(RegisteredPool& pool, Role role, const Sender::Limits& limits, bool goes_straight,
      const Settings& its_settings)
      : settings(its_settings), bench(config_for(role)), straight(goes_straight) {
    sender.buffer().use(&pool, &references);
    sender.begin(limits, &pool, {});
  }
  ~End() {
    sender.drop_all();
    (void)sender.queue().take_done();
  }
  static StreamConfig config_for(Role role) {
    StreamConfig config = test::config_of(role);
    config.peer_receives = 40;
    return config;
  }
  std::size_t write(const std::string& text, bool in_two, const MemoryLimit& limit) {
    const std::size_t half = in_two ? text.size() / 2 : text.size();
    char* const data = const_cast<char*>(text.data());
    const iovec parts[] = {{data, half}, {data + half, text.size() - half}};
    const auto now = [this] { return bench.now; };
    if (straight && !in_two &&
        sender.buffer().append_straight(parts[0].iov_base, parts[0].iov_len, now))
      return text.size();
    return sender.buffer().append(parts, in_two ? 2 : 1, limit, now);
  }
  void post() {
    if (straight && sender.post_straight(&driver, bench.now) != 0) {
      ++went;
      return;
    }
    using How = Sender::Posted::How;
    while (sender.post(&driver, windows, false, false, bench.now).how == How::kMore) {
    }
    if (sender.has_idle_work()) sender.on_idle(bench.now);
  }
  auto facts() {
    (void)sender.queue().take_done();
    const Proof& proof = bench.stream.outbound().proof();
    const StagingQueue& queue = sender.queue();
    return std::array<std::uint64_t, 15>{
        queue.staged(),
        queue.in_flight(),
        sender.requests().count(),
        sender.requests().done(),
        sender.was_refused(),
        sender.has_idle_work(),
        sender.buffer().has_room(),
        sender.buffer().wants_memory(),
        sender.requests().data_under_way(),
        sender.requests().wrote(),
        static_cast<std::uint64_t>(sender.ask_at().time_since_epoch().count()),
        proof.sent(),
        proof.unproven(),
        static_cast<std::uint64_t>(proof.last_post_at().time_since_epoch().count()),
        bench.stream.outbound().peer_windows().position()};
  }

  Settings settings;
  ReferencePool references;
  Driver driver;
  test::Bench bench;
  WindowMemory windows{bench.stream};
  Sender sender{bench.stream, settings};
  const bool straight;
  int went = 0;
};

}  // namespace

TEST_CASE("rdma sender: one that posts straight sends what one does that plans every chain",
          "[simulation][rdma][straight]") {
  RegisteredMemory memory;
  int went = 0;
  std::size_t written = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    CAPTURE(seed);
    Choices choices(seed);
    const auto pick = [&choices](std::uint64_t below) { return choices() % below; };
    Settings settings;
    settings.send_buffer = settings.max_send_buffer = pick(2) == 0 ? 4096 : 256 * 1024;
    const Sender::Limits limits{pick(2) == 0 ? 8u : 64u, 1 + static_cast<std::uint32_t>(pick(3)),
                                static_cast<std::uint32_t>(std::array{0, 32, 60, 220}[pick(4)])};
    const Role role = pick(2) == 0 ? Role::kClient : Role::kServer;
    const bool hello = pick(2) == 0;
    std::deque<End> ends;
    ends.emplace_back(*memory.pool, role, limits, false, settings);
    ends.emplace_back(*memory.other, role, limits, true, settings);
    const auto both = [&](auto&& what) {
      for (End& each : ends) what(each);
    };
    Hello theirs;
    theirs.flags = Hello::kWindowMayChange | Hello::kAnswersProbes | Hello::kMarksWindows |
                   Hello::kTakesAhead | Hello::kHearsAborts;
    if (hello) both([&](End& each) { each.bench.stream.on_hello(theirs); });
    std::string referred(3000, 'r');
    for (int i = 0; i < 400; ++i) {
      switch (pick(16)) {
        case 0:
        case 1:
        case 2:
        case 3: {
          const std::size_t size = pick(8) == 0   ? 1 + pick(70'000)
                                   : pick(4) == 0 ? 1 + pick(1000)
                                                  : 1 + pick(130);
          const bool in_two = pick(6) == 0;
          std::string text(size, '\0');
          for (char& each : text) each = static_cast<char>(choices() >> 40);
          const MemoryLimit limit = pick(4) == 0 ? kNothingMore : MemoryLimit{};
          const std::size_t taken = ends[0].write(text, in_two, limit);
          REQUIRE(ends[1].write(text, in_two, limit) == taken);
          refused += taken < size && ends[0].sender.buffer().wants_memory() ? 1 : 0;
          break;
        }
        case 4:
          if (pick(4) != 0) break;
          both([&](End& each) {
            REQUIRE(each.sender.queue().refer(reinterpret_cast<const std::byte*>(referred.data()),
                                              static_cast<std::uint32_t>(referred.size()), 0x77));
          });
          break;
        case 5: {
          if (ends[0].bench.failed()) break;
          const auto length =
              static_cast<std::uint32_t>(pick(3) == 0 ? 1 + pick(300) : 1 + pick(60'000));
          if (ends[0].bench.stream.outbound().peer_windows().left() < 100)
            both([&](End& each) { each.bench.peer_registers(length); });
          break;
        }
        case 6:
          if (pick(4) == 0 && !ends[0].bench.failed())
            both([&](End& each) { each.bench.feature(Opcode::kGetServerFeature, 3); });
          break;
        case 7: {  // the answer to a probe
          const auto select =
              static_cast<std::uint16_t>(ends[0].bench.stream.outbound().proof().next_probe() - 1);
          if (pick(2) == 0)
            both([&](End& each) { each.bench.feature(Opcode::kGetServerFeature, select); });
          break;
        }
        case 8:
          both([&](End& each) { each.bench.now += std::chrono::microseconds(1); });
          if (pick(10) == 0) {
            const auto late = std::chrono::milliseconds(pick(8000));
            both([&](End& each) { each.bench.now += late; });
          }
          break;
        case 9:
          if (pick(3) == 0) both([&](End& each) { each.bench.tick(); });
          break;
        case 10:
          if (pick(8) == 0) both([&](End& each) { each.bench.stream.ask_path(); });
          if (pick(2) == 0) {
            memory.pool->give_back();
            memory.other->give_back();
          }
          break;
        case 11:
          if (pick(4) == 0) both([&](End& each) { each.bench.settle(); });
          {  // the send queue is full sooner than it should be
            const std::size_t takes = pick(4) == 0 ? pick(3) : 100'000;
            both([&](End& each) { each.driver.takes = each.driver.written.size() + takes; });
          }
          break;
        case 12: {  // the completion of a request
          const std::uint32_t open = ends[0].sender.requests().count();
          if (open == 0) break;
          const auto sequence =
              ends[0].sender.requests().done() + 1 + static_cast<std::uint32_t>(pick(open));
          const bool came = ends[0].sender.retire(sequence, ends[0].bench.now, {});
          REQUIRE(ends[1].sender.retire(sequence, ends[1].bench.now, {}) == came);
          break;
        }
        default:
          both([](End& each) { each.post(); });
      }
      REQUIRE(ends[0].facts() == ends[1].facts());
      REQUIRE(ends[0].driver.written.size() == ends[1].driver.written.size());
      if (!ends[0].driver.written.empty())
        REQUIRE(ends[0].driver.written.back() == ends[1].driver.written.back());
    }
    REQUIRE(ends[0].driver.written == ends[1].driver.written);
    REQUIRE(ends[0].driver.ids == ends[1].driver.ids);
    went += ends[1].went;
    written += ends[1].driver.written.size();
  }
  CHECK(went > 500);
  CHECK(written > 3000);
  CHECK(refused > 100);
}
