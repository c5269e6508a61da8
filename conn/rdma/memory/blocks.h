// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Allocates memory in blocks. A block is cut out of a large slab of memory by repeated halving (a
// buddy allocator). There are few slabs, because each must be registered with the device, which is
// a slow call and uses one translation entry of the device per page. Free blocks are merged again,
// and a slab that has been empty for some time is freed.
//
//   PagePool          slabs are mappings; one pool for each event loop
//   RegisteredPool    slabs are registered blocks of a PagePool; three pools for each Domain
//
// For use on the loop's thread only. Taking a block that is free already allocates no memory.

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

/// A block of memory from a BlockPool. The caller of acquire() may use the memory until release().
struct Block {
  std::byte* data = nullptr;
  Slab* slab = nullptr;
  /// In a free block: links of the pool's list of free blocks. In an acquired block: for the
  /// owner's use.
  Block* next = nullptr;
  Block* previous = nullptr;
  std::uint32_t size = 0;
  /// Used by StagingQueue: numbers of bytes, from the start of the block, that were filled, that
  /// were posted to the device, and that the device has completed. completed <= posted <= filled.
  std::uint32_t filled = 0, posted = 0, completed = 0;
  std::uint8_t order = 0;  ///< the size of the block is 4 KiB << order
  bool free = false;
  bool dirty = false;  ///< true if the block may contain nonzero bytes
};

struct Slab {
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  virtual ~Slab() = default;
  std::byte* base = nullptr;
  std::size_t size = 0;
  ibv_mr* mr = nullptr;  ///< registration with the device; null in a PagePool
  /// One element for each 4 KiB of the slab (this piece of memory); the element of a block's first
  /// 4 KiB represents the block. A slab that is not cut has one element only.
  std::unique_ptr<Block[]> units;
  std::uint32_t count = 0;  ///< number of elements of `units`
  bool whole = false;  ///< true if the slab is a single block, larger than BlockPool::kLargest
  /// Time at which tick() first found the slab (this piece of memory) unused; zero: it is in use or
  /// was not checked yet.
  ae::TimePoint empty_since{};
};

class BlockPool {
 public:
  static constexpr std::size_t kUnit = 4096;
  /// Number of block sizes: 4 KiB to 2 MiB, each twice as large as the one before. A larger block
  /// has a piece of memory (slab) of its own.
  static constexpr unsigned kOrders = 10;
  static constexpr std::size_t kLargest = kUnit << (kOrders - 1);

  struct Config {
    std::size_t first = 256 * 1024;  ///< size of the first slab in bytes
    /// Largest size in bytes of a slab, a piece of memory that is cut into blocks. A new slab is
    /// about as large as all existing ones together, but not smaller than `first` and not larger
    /// than this. Only a slab for a larger block is as large as that block.
    std::size_t largest = kLargest;
    ae::Duration keep{};  ///< time for which an unused slab (piece of memory) is kept
    /// True: released blocks are kept in a cache and not merged at once. For pools whose blocks are
    /// acquired and released all the time.
    bool cache = false;
  };
  explicit BlockPool(const Config& config) : config_(config) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  virtual ~BlockPool() = default;

  /// Returns a block of at least `size` bytes. Returns null, and stores the reason in `*why` if
  /// `why` is not null, in these cases: there is no memory; `limit` does not allow the slab (memory
  /// to be cut into blocks) that would be needed; the block would use memory that `limit` reserves.
  /// `slab`: maximum size in bytes of a slab that is created for the block; 0: the usual size.
  Block* acquire(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr,
                 std::size_t slab = 0) noexcept;
  /// Does what acquire() does, and returns a block in which all bytes are zero.
  Block* acquire_zeros(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr) noexcept;
  void release(Block* block) noexcept;

  /// Call it about once a second. Merges cached blocks that were not needed since the last call,
  /// and frees slabs (pieces of memory) that have been empty for Config::keep. One call frees only
  /// a few, because that is slow. Returns true if more slabs can be freed: call it again soon.
  bool tick(ae::TimePoint now) noexcept;
  /// Frees all slabs (pieces of memory that are cut into blocks) of which no block is in use.
  void give_back() noexcept;
  /// Frees one slab of memory of which no block is in use. Returns false if there was none.
  bool give_back_one() noexcept;
  /// Returns true if tick() has nothing to do: no released block is cached, and each slab of memory
  /// has a block in use.
  bool at_rest() const noexcept;

  std::size_t bytes() const noexcept { return bytes_; }  ///< total memory of the pool, in bytes
  /// Returns the number of bytes of the pool's memory that no acquired block uses.
  std::size_t idle() const noexcept { return bytes_ - used_; }
  std::size_t slabs() const noexcept { return slabs_.size(); }

 protected:
  /// Creates a slab (memory to be cut into blocks) of `size` bytes. Throws VerbsError or
  /// std::bad_alloc.
  virtual std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) = 0;
  /// Frees all memory of the pool. Derived classes call it in their destructors, while the objects
  /// that make_slab() uses still exist.
  void clear() noexcept;
  const std::vector<std::unique_ptr<Slab>>& all_slabs() const noexcept { return slabs_; }

 private:
  struct Cache {
    Block* head = nullptr;
    // Number of blocks in this cache now, and the smallest such number since the last tick().
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
  bool touched_ = false;  // true if tick() may have something to free
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::array<Block*, kOrders> free_{};
  std::array<Cache, kOrders> caches_{};
};

class RegisteredPool;

/// The memory mappings of one event loop. RegisteredPools take blocks from this pool, register them
/// with a device, and cut them into smaller blocks.
class PagePool final : public BlockPool {
 public:
  PagePool();
  ~PagePool() override;
  /// tick_all(), give_back_all() and all_at_rest() do what tick(), give_back() and at_rest() do,
  /// for this pool and for all RegisteredPools that take memory from it.
  bool tick_all(ae::TimePoint now) noexcept;
  void give_back_all() noexcept;
  bool all_at_rest() const noexcept;
  /// Returns the numbers of registrations of memory in all protection domains that take memory from
  /// this pool.
  RegistrationCounts& registrations() noexcept { return registrations_; }
  const RegistrationCounts& registrations() const noexcept { return registrations_; }

 protected:
  std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) override;

 private:
  friend class RegisteredPool;
  RegisteredPool* pools_ = nullptr;
  RegistrationCounts registrations_;
};

/// A pool of blocks that are registered with the device, in one protection domain and with one set
/// of access rights.
class RegisteredPool final : public BlockPool {
 public:
  /// Creates a pool that takes memory from `pages` and registers it in the protection domain `pd`,
  /// for the kinds of access in `access`. `pages` and `pd` must outlive the pool.
  RegisteredPool(PagePool& pages, ibv_pd* pd, unsigned access, const Config& config);
  ~RegisteredPool() override;
  static std::uint32_t lkey(const Block& block) noexcept { return block.slab->mr->lkey; }
  static std::uint32_t rkey(const Block& block) noexcept { return block.slab->mr->rkey; }
  /// Deregisters all memory of this pool, so that the device can be closed. Blocks that are still
  /// acquired stay valid as ordinary memory.
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
