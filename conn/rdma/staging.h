#pragma once
// Where written bytes wait for the device: blocks of registered memory that connections borrow
// while they have something to send, and the queue of such blocks that one connection fills.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "conn/rdma/verbs.h"

namespace conn::rdma {

/// A piece of registered memory, filled from the front. posted <= filled, completed <= posted.
struct StagingBlock {
  std::byte* data = nullptr;
  std::uint32_t lkey = 0;
  std::uint32_t size = 0;
  std::uint32_t filled = 0, posted = 0, completed = 0;
  std::uint8_t size_class = 0;
  StagingBlock* next = nullptr;
};

/// Blocks of four sizes, carved from slabs that are registered once for local reading only.
class StagingPool {
 public:
  static constexpr std::array<std::uint32_t, 4> kSizes{4096, 16384, 65536, 262144};

  /// Slabs of `slab` bytes (at least the largest block that is asked for) in `pd`'s domain.
  StagingPool(ibv_pd* pd, std::size_t slab) : pd_(pd), slab_(slab) {}
  /// The smallest block that holds `hint` bytes, or the largest there is. Null: no memory.
  StagingBlock* acquire(std::size_t hint) noexcept;
  void release(StagingBlock* block) noexcept;
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  StagingBlock* carve(std::size_t kind, std::uint32_t size);
  ibv_pd* pd_;
  std::size_t slab_;
  std::size_t bytes_ = 0, used_in_last_ = 0;
  std::vector<RegisteredMemory> slabs_;
  std::vector<std::unique_ptr<StagingBlock>> blocks_;
  std::array<StagingBlock*, kSizes.size()> free_{};
};

/// What one connection accepted and the device has not confirmed, in order.
class TxQueue {
 public:
  struct Segment {
    const std::byte* data;
    std::uint32_t length, lkey;
  };

  TxQueue() = default;
  TxQueue(const TxQueue&) = delete;
  TxQueue& operator=(const TxQueue&) = delete;
  ~TxQueue() { clear(); }
  void use(StagingPool* pool) noexcept { pool_ = pool; }

  /// Copies bytes in. Fewer than `size` only if the pool has no memory.
  std::size_t append(const std::byte* from, std::size_t size) noexcept;
  std::size_t staged() const noexcept { return staged_; }        ///< not yet posted
  std::size_t in_flight() const noexcept { return in_flight_; }  ///< posted, not yet completed
  std::size_t held() const noexcept { return staged_ + in_flight_; }

  /// Cuts up to `limit` staged bytes into contiguous segments; returns how many it wrote to `out`.
  std::size_t segments(std::size_t limit, Segment* out, std::size_t max) const noexcept;
  void on_posted(std::size_t bytes) noexcept;
  /// The oldest `bytes` in flight are the device's no more; empty blocks go back to the pool.
  void on_completed(std::size_t bytes) noexcept;
  void clear() noexcept;

 private:
  void trim() noexcept;
  StagingPool* pool_ = nullptr;
  StagingBlock* head_ = nullptr;
  StagingBlock* tail_ = nullptr;
  std::size_t staged_ = 0, in_flight_ = 0;
};

}  // namespace conn::rdma
