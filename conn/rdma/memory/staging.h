// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What waits for the device, in order: written bytes in the registered blocks that one connection
// fills, borrowed from its domain while there is something to send, and bytes that are sent from
// where they lie.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/memory/blocks.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Registered bytes of the user's, in the queue as if they were a block.
struct Reference : Block {
  std::uint32_t lkey = 0;
};

/// Those that nobody uses. Nothing is allocated where one was given back before.
class ReferencePool {
 public:
  ReferencePool() = default;
  ReferencePool(const ReferencePool&) = delete;
  ReferencePool& operator=(const ReferencePool&) = delete;
  ~ReferencePool();
  /// Null: there is no memory.
  Reference* acquire() noexcept;
  void release(Reference* reference) noexcept;

 private:
  Block* free_ = nullptr;
  std::size_t count_ = 0;
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
  ~TxQueue() {
    clear();
    commit(0);
  }
  void use(RegisteredPool* pool, ReferencePool* references) noexcept {
    pool_ = pool;
    references_ = references;
  }

  /// Copies bytes in. Fewer than `size` only if the pool has no block and `limit` allows no slab;
  /// the last quarter of it is for those that have nothing under way, a small block for each.
  std::size_t append(const std::byte* from, std::size_t size, const MemoryLimit& limit) noexcept;
  /// Room for `size` bytes at least, the queue's next; empty as append(). Nothing is appended or
  /// reserved before commit(), which ends it; until then it stays, whatever becomes of the queue.
  std::span<std::byte> reserve(std::size_t size, const MemoryLimit& limit) noexcept;
  void commit(std::size_t size) noexcept;
  bool reserving() const noexcept { return reserved_ != nullptr; }
  /// Makes sure that the next reserve() or append() finds room for `size` bytes in one piece.
  /// False: there is no memory.
  bool secure(std::size_t size, const MemoryLimit& limit) noexcept;
  /// Gives empty blocks back.
  void trim() noexcept;
  /// The next bytes are sent from where they lie. False: there is no memory to note that.
  bool refer(const std::byte* data, std::uint32_t size, std::uint32_t lkey) noexcept;
  /// How many that were referred to are needed no more, since the last time.
  std::size_t take_done() noexcept { return std::exchange(references_done_, 0); }

  std::size_t staged() const noexcept { return staged_; }        ///< not yet posted
  std::size_t in_flight() const noexcept { return in_flight_; }  ///< posted, not yet completed
  std::size_t held() const noexcept { return staged_ + in_flight_; }
  std::size_t referred() const noexcept { return referred_; }           ///< of held()
  std::size_t buffered() const noexcept { return held() - referred_; }  ///< the rest

  /// Cuts up to `limit` staged bytes into contiguous segments; returns how many it wrote to `out`.
  std::size_t segments(std::size_t limit, Segment* out, std::size_t max) const noexcept;
  void on_posted(std::size_t bytes) noexcept;
  /// The oldest `bytes` in flight are the device's no more; empty blocks go back to the pool.
  void on_completed(std::size_t bytes) noexcept;
  /// Everything goes but what is reserved.
  void clear() noexcept;

 private:
  void add(Block* block) noexcept;
  void drop(Block* block) noexcept;
  Block* take(std::size_t size, std::size_t least, const MemoryLimit& limit) noexcept;
  RegisteredPool* pool_ = nullptr;
  ReferencePool* references_ = nullptr;
  Block* head_ = nullptr;
  Block* tail_ = nullptr;
  Block* reserved_ = nullptr;  // the tail, or after clear() in no queue any more
  std::size_t staged_ = 0, in_flight_ = 0, referred_ = 0;
  std::size_t references_done_ = 0;
};

}}}  // namespace conn::rdma
