// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Allocates memory in blocks that are carved out of few, large slabs by halving them (a buddy
// system): a registration is a slow call of the device and costs it one translation entry per page,
// so there are few registrations. Free blocks are merged again, and a slab that was empty for a
// while is freed.
//
//   PagePool          slabs are mappings; one for each loop
//   RegisteredPool    slabs are registered blocks of a PagePool; three for each protection domain
//
// Loop thread only. No memory is allocated where a free block is found.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/rdma/device/memory.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct Slab;

/// The memory belongs to the holder from acquire() until release().
struct Block {
  std::byte* data = nullptr;
  Slab* slab = nullptr;
  Block* next = nullptr;  ///< for the holder; in a free block, a list's
  Block* previous = nullptr;
  std::uint32_t size = 0;
  /// For a queue that fills it from the front (StagingQueue): completed <= posted <= filled.
  std::uint32_t filled = 0, posted = 0, completed = 0;
  std::uint8_t order = 0;  ///< 4 KiB << order
  bool free = false;
  bool dirty = false;  ///< the first 4 KiB have been in use
};

struct Slab {
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  virtual ~Slab() = default;
  std::byte* base = nullptr;
  std::size_t size = 0;
  ibv_mr* mr = nullptr;         ///< null in a PagePool
  std::vector<Block> units;     ///< one for each 4 KiB; a block is the first unit of its run
  bool whole = false;           ///< larger than the largest order: one block
  ae::TimePoint empty_since{};  ///< when a tick first found it empty; zero: it is in use
};

class BlockPool {
 public:
  static constexpr std::size_t kUnit = 4096;
  static constexpr unsigned kOrders = 10;  ///< 4 KiB to 2 MiB; longer blocks are slabs of their own
  static constexpr std::size_t kLargest = kUnit << (kOrders - 1);

  struct Config {
    std::size_t first = 256 * 1024;  ///< size of the first slab
    /// Slab sizes double up to this; a block that is larger gets a slab of its size.
    std::size_t largest = kLargest;
    ae::Duration keep{};  ///< how long an empty slab is kept
    /// Keep released blocks at hand, for blocks that are acquired and released all the time.
    bool cache = false;
  };
  explicit BlockPool(const Config& config) : config_(config) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  virtual ~BlockPool() = default;

  /// Returns at least `size` bytes. Null if there is no memory, `limit` allows no slab for it, or
  /// it would come out of the limit's reserve; `why`, if given, then says why. `slab`: maximum size
  /// of a slab that is made for it; 0: as usual.
  Block* acquire(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr,
                 std::size_t slab = 0) noexcept;
  /// Like acquire(), but all zeros.
  Block* acquire_zeros(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr) noexcept;
  void release(Block* block) noexcept;

  /// To be called about once a second. Gives back blocks that were not needed since the last call,
  /// and slabs that have been empty for Config::keep. Freeing a slab is a slow call, so each call
  /// frees a few at most. True: there are more.
  bool tick(ae::TimePoint now) noexcept;
  /// Frees all empty slabs.
  void give_back() noexcept;
  /// Frees one empty slab. False: there was none.
  bool give_back_one() noexcept;
  /// Nothing is left to give back: tick() has nothing to do.
  bool at_rest() const noexcept;

  std::size_t bytes() const noexcept { return bytes_; }         ///< in all slabs
  std::size_t idle() const noexcept { return bytes_ - used_; }  ///< of them, not acquired
  std::size_t slabs() const noexcept { return slabs_.size(); }

 protected:
  /// Throws VerbsError or std::bad_alloc.
  virtual std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) = 0;
  /// Frees all slabs; derived classes call it in their destructors, while what make_slab() needs
  /// exists.
  void clear() noexcept;
  const std::vector<std::unique_ptr<Slab>>& all_slabs() const noexcept { return slabs_; }

 private:
  struct Cache {
    Block* head = nullptr;
    std::size_t count = 0, least = 0;  // `least`: since the last tick
  };
  static unsigned order_of(std::size_t size) noexcept;
  Block* find(std::size_t size, const MemoryLimit& limit, Failure* why, std::size_t slab) noexcept;
  Block* take(unsigned order) noexcept;
  Block* take_whole(std::size_t size) noexcept;
  void put(Block& block) noexcept;
  void link(Block& block) noexcept;
  void unlink(Block& block) noexcept;
  void join(Block* block) noexcept;
  void empty_cache(Cache& cache, std::size_t left) noexcept;
  void grow(std::size_t size, unsigned order, const MemoryLimit& limit, std::size_t most);
  static bool empty(const Slab& slab) noexcept;
  void drop(std::size_t index) noexcept;

  Config config_;
  std::size_t bytes_ = 0, used_ = 0;
  bool touched_ = false;  // there may be something to give back
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::array<Block*, kOrders> free_{};
  std::array<Cache, kOrders> caches_{};
};

class RegisteredPool;

/// The memory of one loop, pieces of which are registered, and all pools on top of it.
class PagePool final : public BlockPool {
 public:
  PagePool();
  ~PagePool() override;
  /// Like BlockPool's, for this pool and all pools on top of it.
  bool tick_all(ae::TimePoint now) noexcept;
  void give_back_all() noexcept;
  bool all_at_rest() const noexcept;

 protected:
  std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) override;

 private:
  friend class RegisteredPool;
  RegisteredPool* pools_ = nullptr;
};

/// Blocks of one protection domain with one set of access rights.
class RegisteredPool final : public BlockPool {
 public:
  /// Borrows `pages` and `pd`.
  RegisteredPool(PagePool& pages, ibv_pd* pd, unsigned access, const Config& config);
  ~RegisteredPool() override;
  static std::uint32_t lkey(const Block& block) noexcept { return block.slab->mr->lkey; }
  static std::uint32_t rkey(const Block& block) noexcept { return block.slab->mr->rkey; }
  /// For when the device is to be closed: blocks that are still held become ordinary memory.
  void leave_device() noexcept;

 protected:
  std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) override;

 private:
  friend class PagePool;
  PagePool& pages_;
  ibv_pd* pd_;
  unsigned access_;
  RegisteredPool* next_ = nullptr;
  RegisteredPool** link_ = nullptr;
};

}}}  // namespace conn::rdma
