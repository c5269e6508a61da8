// SPDX-License-Identifier: BSD-3-Clause
// Blocks allocated from slabs: no two blocks overlap, free neighbours are merged, and empty slabs
// are released. (Pools of registered memory are tested over simulated devices.)
#if AECONN_RDMA

#include "conn/rdma/memory/blocks.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma { namespace {

using namespace std::chrono_literals;

constexpr std::size_t kUnit = BlockPool::kUnit;

// A pool whose slabs are plain memory and can be refused.
class TestPool final : public BlockPool {
 public:
  explicit TestPool(const Config& config) : BlockPool(config) {}
  ~TestPool() override { clear(); }
  std::vector<std::size_t> made;  ///< sizes of all slabs ever made
  std::size_t most = ~std::size_t{0};

 protected:
  struct Plain final : Slab {
    explicit Plain(std::size_t bytes) : memory(bytes) {
      base = memory.data();
      size = bytes;
    }
    std::vector<std::byte> memory;
  };
  std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit&) override {
    if (bytes() + size > most) throw VerbsError(memory_limit_reached());
    made.push_back(size);
    return std::make_unique<Plain>(size);
  }
};

bool is_zero(const Block& block) {
  return std::all_of(block.data, block.data + block.size,
                     [](std::byte byte) { return byte == std::byte{}; });
}
ae::TimePoint at(ae::Duration time) { return ae::TimePoint(1h) + time; }

// A slab is a memory region: where a key reaches all of its region, no two windows may share one.
TEST_CASE("rdma blocks: a pool of one block for each slab shares none between two blocks",
          "[rdma][blocks]") {
  TestPool pool({.first = 0, .largest = 0});
  for (const std::size_t first : {8192u, 65536u, 262144u, 1u << 20, 3u << 20}) {
    pool.release(pool.acquire(first, {}));
    std::vector<Block*> taken;
    for (std::size_t size = 4096; size <= 2 * first; size *= 2) {
      taken.push_back(pool.acquire(size, {}));
      taken.push_back(pool.acquire(size, {}));
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
      REQUIRE(taken[i] != nullptr);
      for (std::size_t k = 0; k < i; ++k) CHECK(taken[i]->slab != taken[k]->slab);
    }
    for (Block* each : taken) pool.release(each);
  }
}

TEST_CASE("rdma blocks: a block is a power of two of 4 KiB that holds what was asked for",
          "[rdma][blocks]") {
  TestPool pool({});
  for (const std::size_t size : {1u, 4096u, 4097u, 8192u, 20000u, 65536u, 1u << 20, 2u << 20}) {
    CAPTURE(size);
    Block* block = pool.acquire(size, {});
    REQUIRE(block != nullptr);
    CHECK(block->size >= size);
    CHECK(block->size < std::max<std::size_t>(2 * size, 2 * kUnit));
    std::memset(block->data, 1, block->size);
    pool.release(block);
  }
}

TEST_CASE("rdma blocks: many empty slabs go a few at a time, and tick() says that more are to go",
          "[rdma][blocks]") {
  TestPool pool({.first = kUnit, .largest = kUnit, .keep = 5s});
  std::vector<Block*> blocks;
  for (int i = 0; i < 40; ++i) blocks.push_back(pool.acquire(1, {}));
  REQUIRE(pool.made.size() == 40);
  for (Block* block : blocks) pool.release(block);
  CHECK_FALSE(pool.tick(at(0s)));
  CHECK(pool.bytes() == 40 * kUnit);
  CHECK_FALSE(pool.tick(at(4s)));
  CHECK(pool.tick(at(5s)));
  const std::size_t left = pool.bytes();
  CHECK(left < 40 * kUnit);
  CHECK(left != 0);
  int turns = 1;
  for (; turns < 40 && pool.tick(at(5s)); ++turns) CHECK(pool.bytes() != 0);
  CHECK(turns < 40);
  CHECK(pool.bytes() == 0);
  CHECK(pool.at_rest());
}

TEST_CASE("rdma blocks: slabs double from the first to the largest", "[rdma][blocks]") {
  TestPool pool({.first = 16 * kUnit, .largest = 64 * kUnit});
  std::vector<Block*> blocks;
  for (int i = 0; i < 256; ++i) blocks.push_back(pool.acquire(1, {}));
  CHECK(pool.made == std::vector<std::size_t>{16 * kUnit, 16 * kUnit, 32 * kUnit, 64 * kUnit,
                                              64 * kUnit, 64 * kUnit});
  CHECK(pool.bytes() == 256 * kUnit);
  for (Block* block : blocks) pool.release(block);
}

TEST_CASE("rdma blocks: longer than the largest order is a slab of its own, of whole pages",
          "[rdma][blocks]") {
  TestPool pool({});
  Block* block = pool.acquire(BlockPool::kLargest + 1, {});
  REQUIRE(block != nullptr);
  CHECK(block->size == BlockPool::kLargest + page_size());
  CHECK(pool.slabs() == 1);
  pool.release(block);
  CHECK_FALSE(pool.at_rest());
  pool.give_back();
  CHECK(pool.slabs() == 0);
  CHECK(pool.at_rest());
}

TEST_CASE("rdma blocks: halves that are free join, and serve larger wishes again",
          "[rdma][blocks]") {
  const bool cached = GENERATE(false, true);
  TestPool pool({.first = 64 * kUnit, .largest = 64 * kUnit, .cache = cached});
  std::vector<Block*> small;
  for (int i = 0; i < 64; ++i) small.push_back(pool.acquire(1, {}));
  REQUIRE(pool.slabs() == 1);
  for (Block* block : small) pool.release(block);
  Block* large = pool.acquire(64 * kUnit, {});
  CHECK(pool.slabs() == 1);
  pool.release(large);
  // And the other way round.
  for (int i = 0; i < 64; ++i) CHECK(pool.acquire(1, {}) != nullptr);
  CHECK(pool.slabs() == 1);
}

TEST_CASE("rdma blocks: a small wish takes the smallest that is free", "[rdma][blocks]") {
  TestPool pool({.first = 64 * kUnit, .largest = 64 * kUnit});
  Block* left = pool.acquire(32 * kUnit, {});
  Block* right = pool.acquire(32 * kUnit, {});
  Block* other = pool.acquire(kUnit, {});  // of a second slab, with at most 32 units in one piece
  REQUIRE(pool.slabs() == 2);
  pool.release(left);
  Block* next = pool.acquire(kUnit, {});
  CHECK(next->slab == other->slab);
  for (Block* block : {right, other, next}) pool.release(block);
}

TEST_CASE("rdma blocks: a slab that was empty for long goes, one that is used stays",
          "[rdma][blocks]") {
  TestPool pool({.first = 4 * kUnit, .largest = 4 * kUnit, .keep = 45s});
  Block* stays = pool.acquire(4 * kUnit, {});
  Block* goes = pool.acquire(4 * kUnit, {});
  pool.release(goes);
  pool.tick(at(0s));
  pool.tick(at(44s));
  CHECK(pool.slabs() == 2);
  SECTION("and is used again in time") {
    goes = pool.acquire(1, {});
    pool.tick(at(46s));
    pool.release(goes);
    pool.tick(at(47s));  // unused from now on
    pool.tick(at(91s));
    CHECK(pool.slabs() == 2);
    pool.tick(at(92s));
  }
  pool.tick(at(100s));
  CHECK(pool.slabs() == 1);
  CHECK(pool.at_rest());
  pool.release(stays);
  pool.tick(at(101s));
  CHECK_FALSE(pool.at_rest());
  pool.tick(at(200s));
  CHECK(pool.slabs() == 0);
  CHECK(pool.at_rest());
}

TEST_CASE("rdma blocks: what is at hand and was not needed for a tick joins the rest",
          "[rdma][blocks]") {
  TestPool pool({.first = 64 * kUnit, .largest = 64 * kUnit, .keep = 0s, .cache = true});
  std::vector<Block*> blocks;
  for (int i = 0; i < 10; ++i) blocks.push_back(pool.acquire(1, {}));
  for (Block* block : blocks) pool.release(block);
  pool.tick(at(0s));  // all ten were in use a moment ago
  CHECK(pool.slabs() == 1);
  Block* used = pool.acquire(1, {});
  pool.release(used);
  pool.tick(at(1s));  // one was in use
  CHECK(pool.slabs() == 1);
  pool.tick(at(2s));
  CHECK(pool.slabs() == 0);
}

TEST_CASE("rdma blocks: where a long slab is not allowed, a short one may be", "[rdma][blocks]") {
  TestPool pool({.first = 64 * kUnit, .largest = 64 * kUnit});
  pool.most = 70 * kUnit;
  std::vector<Block*> blocks;
  for (int i = 0; i < 70; ++i) {
    blocks.push_back(pool.acquire(1, {}));
    CHECK(blocks.back() != nullptr);
  }
  Failure why;
  CHECK(pool.acquire(1, {}, &why) == nullptr);
  CHECK(is_memory_limit(why));
  CHECK(why.text == "memory-limit reached");
  pool.release(blocks.back());
  CHECK(pool.acquire(1, {}) != nullptr);
}

// Goal: blocks never overlap, zeroed blocks are zero, sizes are right, and all memory is returned.
// Method: random acquires and releases; each holder fills its block with its own byte and later
// finds it unchanged.
TEST_CASE("rdma blocks: whatever comes and goes, each block is its holder's alone",
          "[rdma][blocks][random]") {
  const auto seed = GENERATE(take(20, random(0u, 0x7fffffffu)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const bool cached = random() % 2 != 0;
  TestPool pool({.first = 16 * kUnit, .largest = 128 * kUnit, .keep = 3s, .cache = cached});
  std::map<Block*, std::byte> held;
  ae::TimePoint now = at(0s);
  for (int i = 0; i < 3000; ++i) {
    if (random() % 100 < 55 && held.size() < 100) {
      const std::size_t size = 1 + random() % (random() % 10 == 0 ? 200 * kUnit : 8 * kUnit);
      const bool zeros = !cached && random() % 2 != 0;
      Block* block = zeros ? pool.acquire_zeros(size, {}) : pool.acquire(size, {});
      REQUIRE(block != nullptr);
      REQUIRE(block->size >= size);
      REQUIRE(held.count(block) == 0);
      if (zeros) REQUIRE(is_zero(*block));
      const auto mine = static_cast<std::byte>(1 + i % 255);
      std::memset(block->data, static_cast<int>(mine), block->size);
      held[block] = mine;
    } else if (!held.empty()) {
      auto one = held.begin();
      std::advance(one, random() % held.size());
      REQUIRE(std::all_of(one->first->data, one->first->data + one->first->size,
                          [&](std::byte byte) { return byte == one->second; }));
      pool.release(one->first);
      held.erase(one);
    }
    if (random() % 20 == 0) pool.tick(now += std::chrono::milliseconds(random() % 2000));
    if (random() % 500 == 0) pool.give_back();
  }
  for (const auto& [block, mine] : held) pool.release(block);
  pool.give_back();
  CHECK(pool.slabs() == 0);
  CHECK(pool.bytes() == 0);
  CHECK(pool.at_rest());
}

TEST_CASE("rdma blocks: pages trap beyond their ends, and long ones begin at 2 MiB",
          "[rdma][blocks]") {
  const std::size_t size = GENERATE(1u, 4096u, 65536u, 2u << 20, (2u << 20) + 5000u);
  const PageMemory memory(size);
  CHECK(memory.size() >= size);
  CHECK(memory.size() % page_size() == 0);
  std::memset(memory.data(), 1, memory.size());
  const std::uintptr_t border = size >= 2u << 20 ? 2u << 20 : page_size();
  CHECK(reinterpret_cast<std::uintptr_t>(memory.data()) % border == 0);
}

TEST_CASE("rdma blocks: what is pinned is counted while it lives", "[rdma][blocks]") {
  const std::uint64_t before = registered_bytes();
  {
    Pinned one(1000);
    Pinned other(24);
    CHECK(registered_bytes() == before + 1024);
    one = std::move(other);
    CHECK(registered_bytes() == before + 1024);
  }
  CHECK(registered_bytes() == before);
}

// Goal: when the process runs out of mappings, the error names that limit, not the limit of locked
// memory. Method: a child maps pages, every other one writable so that none are merged, until the
// kernel refuses.
TEST_CASE("rdma blocks: an error names the limit that was reached", "[rdma][blocks][large]") {
#ifdef __SANITIZE_ADDRESS__
  WARN("skipped: AddressSanitizer itself needs mappings where none are left");
  return;
#endif
  constexpr std::size_t kMost = 4 << 20;
  std::array<int, 2> pipe_ends{};
  REQUIRE(pipe(pipe_ends.data()) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::size_t mapped = 0;
    while (mapped < kMost && mmap(nullptr, page_size(), mapped % 2 == 0 ? PROT_READ : PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
      ++mapped;
    std::string words = mapped < kMost ? "no error" : "skipped: no such limit here";
    try {
      if (mapped < kMost) const PageMemory more(1 << 20);
    } catch (const VerbsError& error) {
      words = error.what();
    }
    (void)!write(pipe_ends[1], words.data(), words.size());
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string words;
  std::array<char, 512> piece{};
  for (ssize_t n = 0; (n = read(pipe_ends[0], piece.data(), piece.size())) > 0;)
    words.append(piece.data(), static_cast<std::size_t>(n));
  close(pipe_ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  if (words.starts_with("skipped")) {
    WARN(words);
    return;
  }
  CHECK_THAT(words, testing::Contains("vm.max_map_count"));
  CHECK_THAT(words, !testing::Contains("ulimit"));
}

}  // namespace
}}}  // namespace conn::rdma

#endif  // AECONN_RDMA
