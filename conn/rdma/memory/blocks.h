// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory in blocks that are carved out of few, large slabs by halving them (a buddy system): a
// registration is a slow call of the device and costs it a translation entry for each page, so
// there are few of them. Blocks that are free join again, and a slab that was empty for a while
// goes.
//
//   PagePool          slabs are mappings; one for each loop
//   RegisteredPool    slabs are blocks of a PagePool, registered; two for each protection domain
//
// Loop thread only. Nothing is allocated where a free block is found.

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

/// Its memory belongs to whoever acquired it until release().
struct Block {
  std::byte* data = nullptr;
  Slab* slab = nullptr;
  Block* next = nullptr;  ///< the holder's to use; of free ones a list's
  Block* previous = nullptr;
  std::uint32_t size = 0;
  /// For a queue that fills it from the front (TxQueue): completed <= posted <= filled.
  std::uint32_t filled = 0, posted = 0, completed = 0;
  std::uint8_t order = 0;  ///< 4 KiB << order
  bool free = false;
  bool dirty = false;  ///< the first 4 KiB were somebody's
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
    std::size_t largest = kLargest;  ///< they double up to this; less than a block: as the block
    ae::Duration keep{};             ///< how long an empty slab is kept
    bool cache = false;  ///< keep released blocks at hand: they come and go all the time
  };
  explicit BlockPool(const Config& config) : config_(config) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  virtual ~BlockPool() = default;

  /// At least `size` bytes. Null if there is no memory, `limit` allows no slab for it, or it would
  /// be of the limit's reserve; then `why` says why, if given. `slab`: how large one may be that is
  /// made for it, 0: as usual.
  Block* acquire(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr,
                 std::size_t slab = 0) noexcept;
  /// The same, all zeros.
  Block* acquire_zeros(std::size_t size, const MemoryLimit& limit, Failure* why = nullptr) noexcept;
  void release(Block* block) noexcept;

  /// Once a second or so: gives back what was not needed since the last time, and slabs that have
  /// been empty for Config::keep.
  /// A slow call for each: no more than a few in one turn. True: there are more.
  bool tick(ae::TimePoint now) noexcept;
  /// Gives back all slabs that are empty.
  void give_back() noexcept;
  /// One of them. False: there was none.
  bool give_back_one() noexcept;
  /// Nothing is left to give back: tick() has nothing to do.
  bool at_rest() const noexcept;

  std::size_t bytes() const noexcept { return bytes_; }         ///< in all slabs
  std::size_t idle() const noexcept { return bytes_ - used_; }  ///< of them, in nobody's hands
  std::size_t slabs() const noexcept { return slabs_.size(); }

 protected:
  /// Throws VerbsError or std::bad_alloc.
  virtual std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) = 0;
  /// Frees all slabs; derived classes do so in their destructors, while make_slab's world stands.
  void clear() noexcept;
  const std::vector<std::unique_ptr<Slab>>& all_slabs() const noexcept { return slabs_; }

 private:
  struct Cache {
    Block* head = nullptr;
    std::size_t count = 0, least = 0;  // since the last tick
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
  bool touched_ = false;  // something may have to be given back
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::array<Block*, kOrders> free_{};
  std::array<Cache, kOrders> caches_{};
};

class RegisteredPool;

/// The memory that one loop registers pieces of, and all pools on top of it.
class PagePool final : public BlockPool {
 public:
  PagePool();
  ~PagePool() override;
  /// As BlockPool's, for this pool and all on top of it.
  bool tick_all(ae::TimePoint now) noexcept;
  void give_back_all() noexcept;
  bool all_at_rest() const noexcept;

 protected:
  std::unique_ptr<Slab> make_slab(std::size_t size, const MemoryLimit& limit) override;

 private:
  friend class RegisteredPool;
  RegisteredPool* pools_ = nullptr;
};

/// Blocks of one protection domain with one kind of access.
class RegisteredPool final : public BlockPool {
 public:
  /// Borrows `pages` and `pd`.
  RegisteredPool(PagePool& pages, ibv_pd* pd, unsigned access, const Config& config);
  ~RegisteredPool() override;
  static std::uint32_t lkey(const Block& block) noexcept { return block.slab->mr->lkey; }
  static std::uint32_t rkey(const Block& block) noexcept { return block.slab->mr->rkey; }
  /// Blocks that are still held are memory like other: the device is to be closed.
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
