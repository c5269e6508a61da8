// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Allocates memory in blocks. A block is carved out of a large slab of memory by repeated halving
// (a buddy system). There are few slabs, because each needs a registration, which is a slow call of
// the device and costs it one translation entry per page. Free blocks are merged again, and a slab
// that was empty for a while is freed.
//
//   PagePool          slabs are mappings; one pool for each event loop
//   RegisteredPool    slabs are registered blocks of a PagePool; three pools for each Domain
//
// For use on the loop's thread only. Where a free block is found, no memory is allocated.

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

/// A block of memory from a BlockPool. The caller of acquire() owns the memory until release().
struct Block {
  std::byte* data = nullptr;
  Slab* slab = nullptr;
  /// The next block in the owner's list; in a free block, the next one in the pool's list.
  Block* next = nullptr;
  Block* previous = nullptr;
  std::uint32_t size = 0;
  /// Numbers of bytes, from the front of the block, that a StagingQueue has filled, that it has
  /// posted to the device, and that the device has completed: completed <= posted <= filled.
  std::uint32_t filled = 0, posted = 0, completed = 0;
  std::uint8_t order = 0;  ///< size as a power of two: 4 KiB << order
  bool free = false;
  bool dirty = false;  ///< whether the block may contain nonzero bytes
};

struct Slab {
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  virtual ~Slab() = default;
  std::byte* base = nullptr;
  std::size_t size = 0;
  ibv_mr* mr = nullptr;  ///< registration of the slab; null in a PagePool
  /// One entry for each 4 KiB of the slab; the entry of a block's first 4 KiB represents the block.
  std::vector<Block> units;
  bool whole = false;  ///< whether the slab is a single block, larger than kLargest
  /// When tick() first found the slab empty; zero: it is in use, or was not checked yet.
  ae::TimePoint empty_since{};
};

class BlockPool {
 public:
  static constexpr std::size_t kUnit = 4096;
  /// Number of block sizes: 4 KiB to 2 MiB, each twice the one before. A longer block is a slab of
  /// its own.
  static constexpr unsigned kOrders = 10;
  static constexpr std::size_t kLargest = kUnit << (kOrders - 1);

  struct Config {
    std::size_t first = 256 * 1024;  ///< size of the first slab
    /// Largest size of a slab. A new slab is about as large as all existing ones together, from
    /// `first` up to this size; a longer block gets a slab of its own size.
    std::size_t largest = kLargest;
    ae::Duration keep{};  ///< time for which an empty slab is kept
    /// Keep released blocks in a cache instead of merging them, because blocks are acquired and
    /// released all the time.
    bool cache = false;
  };
  explicit BlockPool(const Config& config) : config_(config) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  virtual ~BlockPool() = default;

  /// Returns a block of at least `size` bytes. Returns null if there is no memory, `limit` does not
  /// allow the slab that would be needed, or the block would use what `limit` reserves; if `why` is
  /// given, it then receives the reason. `slab`: maximum size of a slab that is created for the
  /// block; 0: the usual size.
  Block* acquire(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr,
                 std::size_t slab = 0) noexcept;
  /// Like acquire(), but all bytes of the block are zero.
  Block* acquire_zeros(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr) noexcept;
  void release(Block* block) noexcept;

  /// Call this about once a second. Empties the cache of blocks that were not needed since the last
  /// call, and frees slabs that have been empty for Config::keep. Freeing a slab is a slow call, so
  /// one call frees only a few. Returns true if more slabs are due.
  bool tick(ae::TimePoint now) noexcept;
  /// Frees all empty slabs.
  void give_back() noexcept;
  /// Frees one empty slab. Returns false if there was none.
  bool give_back_one() noexcept;
  /// True if no block is cached and no slab is empty, so that tick() has nothing to do.
  bool at_rest() const noexcept;

  std::size_t bytes() const noexcept { return bytes_; }  ///< number of bytes in all slabs
  /// Returns the number of bytes in slabs that no acquired block uses.
  std::size_t idle() const noexcept { return bytes_ - used_; }
  std::size_t slabs() const noexcept { return slabs_.size(); }

 protected:
  /// Creates a slab of `size` bytes. Throws VerbsError or std::bad_alloc.
  virtual std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) = 0;
  /// Frees all slabs. Derived classes call it in their destructors, while the objects that
  /// make_slab() uses still exist.
  void clear() noexcept;
  const std::vector<std::unique_ptr<Slab>>& all_slabs() const noexcept { return slabs_; }

 private:
  struct Cache {
    Block* head = nullptr;
    // Number of blocks in this cache now, and the lowest number since the last tick().
    std::size_t count = 0, least = 0;
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
  bool touched_ = false;  // whether tick() may find something to free
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::array<Block*, kOrders> free_{};
  std::array<Cache, kOrders> caches_{};
};

class RegisteredPool;

/// The memory of one event loop: RegisteredPools take blocks from it and register them.
class PagePool final : public BlockPool {
 public:
  PagePool();
  ~PagePool() override;
  /// tick_all(), give_back_all() and all_at_rest() do what tick(), give_back() and at_rest() do,
  /// for this pool and all RegisteredPools that use it.
  bool tick_all(ae::TimePoint now) noexcept;
  void give_back_all() noexcept;
  bool all_at_rest() const noexcept;
  /// Counts the registrations for all protection domains that use this pool.
  RegistrationCounts& registrations() noexcept { return registrations_; }
  const RegistrationCounts& registrations() const noexcept { return registrations_; }

 protected:
  std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) override;

 private:
  friend class RegisteredPool;
  RegisteredPool* pools_ = nullptr;
  RegistrationCounts registrations_;
};

/// A pool of registered blocks, for one protection domain and one set of access rights.
class RegisteredPool final : public BlockPool {
 public:
  /// Creates a pool that takes memory from `pages` and registers it in the protection domain `pd`,
  /// for the kinds of access in `access`. `pages` and `pd` must outlive the pool.
  RegisteredPool(PagePool& pages, ibv_pd* pd, unsigned access, const Config& config);
  ~RegisteredPool() override;
  static std::uint32_t lkey(const Block& block) noexcept { return block.slab->mr->lkey; }
  static std::uint32_t rkey(const Block& block) noexcept { return block.slab->mr->rkey; }
  /// Deregisters all slabs, so that the device can be closed. Blocks that are still acquired become
  /// ordinary memory.
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
