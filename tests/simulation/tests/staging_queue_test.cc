// SPDX-License-Identifier: BSD-3-Clause
// The queue of bytes to send, with its cell, against a plain model.

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conn/rdma/memory/staging_queue.h"
#include "tests/simulation/choices.h"
#include "tests/simulation/registered_memory.h"
#include "tests/support/catch.h"

using namespace simulation;
using namespace conn::rdma;

namespace {

constexpr std::uint32_t kUsersKey = 0x77;

/// A StagingQueue, and what it should hold: all bytes that it accepted, and how many of them are
/// posted and completed.
class Staged {
 public:
  Staged(RegisteredPool& pool, Choices& choices, std::uint32_t cell)
      : pool_(pool), choices_(choices), cell_(std::min(cell, StagingQueue::kCell)) {
    queue.use(&pool, &references);
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

  ReferencePool references;  // what the queue holds goes back to it
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
  RegisteredMemory memory;
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

TEST_CASE("rdma staging: an empty piece is nothing", "[simulation][rdma][straight]") {
  RegisteredMemory memory;
  StagingQueue queue;
  queue.use(&*memory.pool, nullptr);
  queue.use_cell(100);
  CHECK(queue.append(nullptr, 0, {}) == 0);
  CHECK(queue.has_cell_for(100));
  CHECK(queue.only_segment().data == nullptr);
}

TEST_CASE("rdma staging: bytes leave the cell for the block that the next ones go to",
          "[simulation][rdma][straight]") {
  RegisteredMemory memory;
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
