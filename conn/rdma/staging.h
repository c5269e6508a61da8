#pragma once
// Where written bytes wait for the device: the queue of registered blocks that one connection
// fills, borrowed from its domain while there is something to send.

#include <cstddef>
#include <cstdint>

#include "conn/rdma/blocks.h"

namespace conn::rdma {

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
  void use(RegisteredPool* pool) noexcept { pool_ = pool; }

  /// Copies bytes in. Fewer than `size` only if the pool has no block and `limit` allows no slab;
  /// the last quarter of it is for those that have nothing under way, a small block for each.
  std::size_t append(const std::byte* from, std::size_t size, const MemoryLimit& limit) noexcept;
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
  RegisteredPool* pool_ = nullptr;
  Block* head_ = nullptr;
  Block* tail_ = nullptr;
  std::size_t staged_ = 0, in_flight_ = 0;
};

}  // namespace conn::rdma
