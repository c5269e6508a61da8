// SPDX-License-Identifier: BSD-3-Clause
// The parts of the straight path of a message (conn/rdma/straight_path.h) over registered memory of
// a simulated device: the queue of bytes to send and the receives against plain models, and a
// sender that posts straight against one that plans a chain for everything.

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/memory/receive_queue.h"
#include "conn/rdma/memory/staging_queue.h"
#include "conn/rdma/sender.h"
#include "tests/simulation/choices.h"
#include "tests/simulation/objects.h"
#include "tests/simulation/world.h"
#include "tests/support/catch.h"
#include "tests/support/post_send_driver.h"
#include "tests/support/stream_bench.h"

using namespace simulation;
using namespace conn::rdma;

namespace {

/// A pool of registered memory of a simulated device.
class Memory {
 public:
  Memory() {
    simulation::Device& device = world_.add_device("sim0", "10.77.0.1", profile_named("mlx5"));
    context_ = ibv_open_device(&device.base);
    pd_ = ibv_alloc_pd(context_);
    pages_.emplace();
    const BlockPool::Config config{.first = 4096, .largest = 1 << 20, .keep = {}};
    pool.emplace(*pages_, pd_, IBV_ACCESS_LOCAL_WRITE, config);
    other.emplace(*pages_, pd_, IBV_ACCESS_LOCAL_WRITE, config);
  }
  ~Memory() {
    pool.reset();
    other.reset();
    pages_.reset();
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::optional<RegisteredPool> pool, other;

 private:
  World world_{Config{}};
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::optional<PagePool> pages_;
};

// No memory, except that an empty queue gets a small block if one is free in the pool.
constexpr MemoryLimit kNothingMore{.most = 4};
constexpr std::uint32_t kUsersKey = 0x77;

/// A StagingQueue, and what it should hold: all bytes that it accepted, and how many of them are
/// posted and completed.
class Staged {
 public:
  Staged(RegisteredPool& pool, Choices& choices, std::uint32_t cell)
      : pool_(pool), choices_(choices), cell_(std::min(cell, StagingQueue::kCell)) {
    queue.use(&pool, &references_);
    queue.use_cell(cell);
  }

  void step() {
    switch (pick(15)) {
      case 12:
        return pool_.give_back();
      case 13:
      case 14:
        post(queue.staged());
        return complete(queue.in_flight());
      case 0:
      case 1:
      case 2:
        return append(size(), pick(3) == 0 ? kNothingMore : MemoryLimit{});
      case 3:
        return append_to_cell(size());
      case 4:
        return refer(1 + pick(3000));
      case 5:
        return reserve(size(), pick(3) == 0 ? kNothingMore : MemoryLimit{});
      case 6:
        if (!reserving_.empty()) return commit();
        (void)queue.secure(1 + pick(5000), pick(3) == 0 ? kNothingMore : MemoryLimit{});
        return;
      case 7:
        return pick(30) == 0 ? clear() : commit();
      case 8:
        return copy_all();
      case 9:
        return post(queue.staged() == 0 ? 0 : 1 + pick(queue.staged()));
      case 10:
        return post(queue.staged());
      default:
        return complete(pick(2) == 0 ? queue.in_flight() : pick(queue.in_flight() + 1));
    }
  }

  void check() {
    REQUIRE(queue.staged() == bytes_.size() - posted_);
    REQUIRE(queue.in_flight() == posted_ - completed_);
    REQUIRE(queue.held() == bytes_.size() - completed_);
    REQUIRE(queue.referred() == referred());
    REQUIRE(queue.buffered() == queue.held() - referred());
    REQUIRE(queue.reserving() == !reserving_.empty());
    done_ += queue.take_done();
    REQUIRE(done_ == references_completed());
    std::array<StagingQueue::Segment, 512> segments;
    const std::size_t count = queue.segments(SIZE_MAX, segments.data(), segments.size());
    REQUIRE(count < segments.size());
    std::string staged;
    for (std::size_t i = 0; i < count; ++i) {
      const StagingQueue::Segment& each = segments[i];
      staged.append(reinterpret_cast<const char*>(each.data), each.length);
      REQUIRE(each.length != 0);
      if (!queue.is_in_cell(each)) {
        REQUIRE(each.lkey != 0);
        continue;
      }
      REQUIRE(i == 0);
      REQUIRE(each.length <= cell_);
      ++in_cell;
    }
    if (staged != std::string_view(bytes_).substr(posted_)) FAIL("other bytes are staged");
    const StagingQueue::Segment only = queue.only_segment();
    if (only.data == nullptr || queue.staged() == 0) return;
    REQUIRE(count == 1);
    REQUIRE(only.data == segments[0].data);
    REQUIRE(only.length == segments[0].length);
    REQUIRE(only.lkey == segments[0].lkey);
    ++contiguous;
  }

  StagingQueue queue;
  std::size_t in_cell = 0, contiguous = 0, copied = 0, refused = 0;

 private:
  struct Lent {
    std::size_t begin, end;
  };
  std::uint64_t pick(std::uint64_t below) { return choices_() % below; }
  std::size_t size() {
    switch (pick(8)) {
      case 0:
        return 1 + pick(60'000);
      case 1:
      case 2:
        return 1 + pick(4000);
      default:
        return pick(150);
    }
  }
  std::string some(std::size_t size) {
    std::string text(size, '\0');
    for (char& each : text) each = static_cast<char>(choices_() >> 40);
    return text;
  }
  void append(std::size_t size, const MemoryLimit& limit) {
    if (!reserving_.empty()) return;
    const std::string text = some(size);
    const bool fits = queue.has_cell_for(size);
    const std::size_t n =
        queue.append(reinterpret_cast<const std::byte*>(text.data()), size, limit);
    REQUIRE(n <= size);
    if (limit.most == 0 || fits) REQUIRE(n == size);
    refused += n < size ? 1 : 0;
    bytes_.append(text, 0, n);
  }
  void append_to_cell(std::size_t size) {
    const bool empty = queue.held() == 0;
    if (!reserving_.empty() || !queue.has_cell_for(size)) return;
    if (empty) REQUIRE(size <= cell_);
    const std::string text = some(size);
    queue.append_to_cell(text.data(), size);
    bytes_ += text;
  }
  void refer(std::size_t size) {
    if (!reserving_.empty()) return;
    const std::string& text = users_.emplace_back(some(size));
    REQUIRE(queue.refer(reinterpret_cast<const std::byte*>(text.data()),
                        static_cast<std::uint32_t>(size), kUsersKey));
    lent_.push_back({bytes_.size(), bytes_.size() + size});
    bytes_ += text;
  }
  void reserve(std::size_t size, const MemoryLimit& limit) {
    if (!reserving_.empty()) return;
    reserving_ = queue.reserve(std::max<std::size_t>(size, 1), limit);
    if (limit.most == 0) REQUIRE(reserving_.size() >= size);
    if (reserving_.empty()) ++refused;
  }
  void commit() {
    if (reserving_.empty()) return;
    const std::string text = some(pick(std::min<std::size_t>(reserving_.size(), 5000) + 1));
    std::memcpy(reserving_.data(), text.data(), text.size());
    reserving_ = {};
    queue.commit(text.size());
    if (!std::exchange(cleared_, false)) bytes_ += text;
  }
  void clear() {
    queue.clear();
    cleared_ = !reserving_.empty();
    posted_ = completed_ = bytes_.size();
  }
  void post(std::size_t size) {
    queue.on_posted(size);
    posted_ += size;
  }
  void complete(std::size_t size) {
    queue.on_completed(size);
    completed_ += size;
  }
  void copy_all() {
    if (queue.in_flight() != 0 || queue.staged() == 0) return;
    queue.on_all_copied();
    posted_ = completed_ = bytes_.size();
    ++copied;
  }
  std::size_t referred() const {
    std::size_t all = 0;
    for (const Lent& each : lent_) all += each.end - std::clamp(completed_, each.begin, each.end);
    return all;
  }
  std::size_t references_completed() const {
    return static_cast<std::size_t>(std::count_if(
        lent_.begin(), lent_.end(), [this](const Lent& each) { return each.end <= completed_; }));
  }

  RegisteredPool& pool_;
  Choices& choices_;
  const std::size_t cell_;
  ReferencePool references_;
  std::deque<std::string> users_;
  std::vector<Lent> lent_;
  std::string bytes_;
  std::size_t posted_ = 0, completed_ = 0, done_ = 0;
  std::span<std::byte> reserving_;
  bool cleared_ = false;  // whether the queue was cleared since the memory was reserved
};

}  // namespace

TEST_CASE("rdma staging: with and without the cell the queue holds what was put into it",
          "[simulation][rdma][straight]") {
  Memory memory;
  std::size_t in_cell = 0, contiguous = 0, copied = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Choices choices(seed);
    const std::uint32_t cells[] = {0, 1, 60, 128, 4000};
    const std::uint32_t cell = cells[seed % 5];
    Staged staged(*memory.pool, choices, cell);
    for (int i = 0; i < 400; ++i) {
      staged.step();
      staged.check();
    }
    if (cell == 0) REQUIRE(staged.in_cell == 0);
    in_cell += staged.in_cell;
    contiguous += staged.contiguous;
    copied += staged.copied;
    refused += staged.refused;
  }
  CHECK(in_cell > 500);
  CHECK(contiguous > 1000);
  CHECK(copied > 100);
  CHECK(refused > 50);
}

TEST_CASE("rdma staging: bytes leave the cell for the block that the next ones go to",
          "[simulation][rdma][straight]") {
  Memory memory;
  StagingQueue queue;
  queue.use(&*memory.pool, nullptr);
  queue.use_cell(100);
  const std::array<std::byte, 200> bytes{};
  CHECK_FALSE(queue.has_cell_for(101));
  REQUIRE(queue.has_cell_for(100));
  queue.append_to_cell(bytes.data(), 60);
  CHECK(queue.has_cell_for(40));
  CHECK_FALSE(queue.has_cell_for(41));
  CHECK(queue.is_in_cell(queue.only_segment()));
  // Only without memory do they stay, in a request of their own.
  SECTION("append") {
    CHECK(queue.append(bytes.data(), 41, {}) == 41);
    CHECK_FALSE(queue.is_in_cell(queue.only_segment()));
    CHECK(queue.only_segment().length == 101);
  }
  SECTION("append, without memory") {
    CHECK(queue.append(bytes.data(), 41, kNothingMore) == 0);
    CHECK(queue.is_in_cell(queue.only_segment()));
    CHECK(queue.append(bytes.data(), 40, kNothingMore) == 40);  // as many as the cell holds
    CHECK(queue.only_segment().length == 100);
  }
  SECTION("reserve") {
    CHECK(queue.reserve(30, {}).size() >= 30);
    queue.commit(30);
    CHECK_FALSE(queue.is_in_cell(queue.only_segment()));
    CHECK(queue.only_segment().length == 90);
  }
  SECTION("a part of them is sent") {
    queue.on_posted(10);
    CHECK_FALSE(queue.has_cell_for(1));  // the device may still read the cell
    CHECK(queue.append(bytes.data(), 1, {}) == 1);
    CHECK(queue.is_in_cell({queue.only_segment().data, 1, 0}) == false);
    queue.on_completed(10);
    CHECK(queue.staged() == 51);
  }
  SECTION("a part of them is sent, and confirmed at once") {
    queue.on_posted(10);
    queue.on_completed(10);
    CHECK(queue.has_cell_for(40));
    CHECK(queue.append(bytes.data(), 41, {}) == 41);
    CHECK_FALSE(queue.is_in_cell(queue.only_segment()));
    CHECK(queue.only_segment().length == 91);
  }
}

// --- receives ------------------------------------------------------------------------------------

namespace {

/// A shared receive queue whose driver is a function of the test.
struct Receives : ibv_srq {
  Receives() : ibv_srq{} {
    context = &table_;
    table_.ops.post_srq_recv = [](ibv_srq* base, ibv_recv_wr* work, ibv_recv_wr** bad) {
      auto& self = *static_cast<Receives*>(base);
      for (; work != nullptr; work = work->next) {
        if (self.takes == 0) {
          *bad = work;
          return ENOMEM;
        }
        --self.takes;
        const auto slot = static_cast<std::uint32_t>(work->wr_id);
        if ((work->wr_id & (kReceiveId | kOwnReceiveId)) != kReceiveId || work->num_sge != 1 ||
            self.posted.count(slot) != 0)
          FAIL("a wrong receive");
        self.posted[slot] = ++self.posts;
      }
      return 0;
    };
  }
  std::map<std::uint32_t, std::uint64_t> posted;  // position in the order of posting, by slot
  std::uint64_t posts = 0;
  std::size_t takes = SIZE_MAX;

 private:
  ibv_context table_{};
};

}  // namespace

TEST_CASE("rdma receives: in any order of completions, the lost ones are found",
          "[simulation][rdma][straight]") {
  Memory memory;
  std::size_t lost = 0, overtaken_seen = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Choices choices(seed);
    const auto pick = [&choices](std::uint64_t below) { return choices() % below; };
    const auto depth = static_cast<std::uint32_t>(1 + pick(200));
    Receives device;
    ReceiveQueue queue(*memory.pool, depth, {});
    queue.attach(&device);
    std::uint64_t newest = 0, overtaken = 0;
    const bool loses = seed % 2 == 0;
    for (int i = 0; i < 600; ++i) {
      switch (pick(8)) {
        case 0: {
          device.takes = pick(3) == 0 ? pick(100) : SIZE_MAX;
          const std::size_t missing = queue.missing(), may = device.takes;
          const std::uint64_t before = device.posts;
          REQUIRE(queue.replenish() == (may < missing ? ENOMEM : 0));
          REQUIRE(device.posts - before == std::min(may, missing));
          break;
        }
        case 1: {
          std::size_t expected = 0;
          for (auto each = device.posted.begin(); each != device.posted.end();) {
            const bool is_lost = each->second < overtaken;
            expected += is_lost ? 1 : 0;
            each = is_lost ? device.posted.erase(each) : std::next(each);
          }
          overtaken = newest;
          REQUIRE(queue.take_lost() == expected);
          lost += expected;
          break;
        }
        case 2: {  // a completion that comes twice, or of no receive
          const auto slot = static_cast<std::uint32_t>(pick(2 * depth));
          if (device.posted.count(slot) == 0) REQUIRE_FALSE(queue.consumed(slot));
          break;
        }
        default: {
          if (device.posted.empty()) break;
          auto next = std::min_element(
              device.posted.begin(), device.posted.end(),
              [](const auto& one, const auto& other) { return one.second < other.second; });
          if (loses && pick(6) == 0)  // a later one comes first
            next = std::next(device.posted.begin(),
                             static_cast<std::ptrdiff_t>(pick(device.posted.size())));
          newest = std::max(newest, next->second);
          REQUIRE(queue.consumed(next->first));
          device.posted.erase(next);
        }
      }
      REQUIRE(queue.missing() == depth - device.posted.size());
      const bool any = std::any_of(device.posted.begin(), device.posted.end(),
                                   [&](const auto& each) { return each.second < newest; });
      REQUIRE(queue.has_overtaken() == any);
      overtaken_seen += any ? 1 : 0;
    }
  }
  CHECK(lost > 20);
  CHECK(overtaken_seen > 500);
}

// --- sending -------------------------------------------------------------------------------------

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
    sender.use(&pool, &references);
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
    if (straight && !in_two && sender.append_straight(parts[0].iov_base, parts[0].iov_len, now))
      return text.size();
    return sender.append(parts, in_two ? 2 : 1, limit, now);
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
    const Proof& proof = bench.stream.proof();
    const StagingQueue& queue = sender.queue();
    return std::array<std::uint64_t, 15>{
        queue.staged(),
        queue.in_flight(),
        sender.requests_in_flight(),
        sender.done(),
        sender.was_refused(),
        sender.has_idle_work(),
        sender.has_room(),
        sender.wants_memory(),
        sender.data_under_way(),
        sender.wrote(),
        static_cast<std::uint64_t>(sender.ask_at().time_since_epoch().count()),
        proof.sent(),
        proof.unproven(),
        static_cast<std::uint64_t>(proof.last_post_at().time_since_epoch().count()),
        bench.stream.peer_windows().position()};
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
  Memory memory;
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
          refused += taken < size && ends[0].sender.wants_memory() ? 1 : 0;
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
          if (ends[0].bench.stream.peer_windows().left() < 100)
            both([&](End& each) { each.bench.peer_registers(length); });
          break;
        }
        case 6:
          if (pick(4) == 0 && !ends[0].bench.failed())
            both([&](End& each) { each.bench.feature(Opcode::kGetServerFeature, 3); });
          break;
        case 7: {  // the answer to a probe
          const auto select =
              static_cast<std::uint16_t>(ends[0].bench.stream.proof().next_probe() - 1);
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
          const std::uint32_t open = ends[0].sender.requests_in_flight();
          if (open == 0) break;
          const auto sequence = ends[0].sender.done() + 1 + static_cast<std::uint32_t>(pick(open));
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
