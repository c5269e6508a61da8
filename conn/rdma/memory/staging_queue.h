// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Data that waits for the device, in order: written bytes in registered blocks, which a connection
// borrows from its domain while there is something to send, and user memory that is sent without a
// copy.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "conn/rdma/memory/blocks.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Registered memory of the user, in the queue as if it were a block.
struct Reference : Block {
  std::uint32_t lkey = 0;
};

/// References that are not in use. Nothing is allocated where one was released before.
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

/// Data that one connection accepted and the device has not confirmed, in order.
class StagingQueue {
 public:
  struct Segment {
    const std::byte* data;
    std::uint32_t length, lkey;
  };

  StagingQueue() = default;
  StagingQueue(const StagingQueue&) = delete;
  StagingQueue& operator=(const StagingQueue&) = delete;
  ~StagingQueue() {
    clear();
    commit(0);
  }
  void use(RegisteredPool* pool, ReferencePool* references) noexcept {
    pool_ = pool;
    references_ = references;
  }

  /// Copies bytes in. Returns fewer than `size` only if the pool has no block and `limit` allows no
  /// slab; the last quarter of the limit is for queues that are empty, one small block for each.
  std::size_t append(const std::byte* from, std::size_t size, const MemoryLimit& limit) noexcept;
  /// Space for at least `size` bytes, which come next in the queue; empty where append() would
  /// return fewer. Nothing may be appended or reserved before commit() ends the reservation; until
  /// then the space stays valid, whatever happens to the queue.
  std::span<std::byte> reserve(std::size_t size, const MemoryLimit& limit) noexcept;
  void commit(std::size_t size) noexcept;
  bool reserving() const noexcept { return reserved_ != nullptr; }
  /// Makes sure that the next reserve() or append() finds contiguous space for `size` bytes. False:
  /// there is no memory.
  bool secure(std::size_t size, const MemoryLimit& limit) noexcept;
  /// Releases empty blocks.
  void trim() noexcept;
  /// Queues bytes that are sent without a copy. False: there is no memory for the reference.
  bool refer(const std::byte* data, std::uint32_t size, std::uint32_t lkey) noexcept;
  /// Number of references that are no longer needed, since the last call.
  std::size_t take_done() noexcept { return std::exchange(references_done_, 0); }

  std::size_t staged() const noexcept { return staged_; }        ///< not yet posted
  std::size_t in_flight() const noexcept { return in_flight_; }  ///< posted, not yet completed
  std::size_t held() const noexcept { return staged_ + in_flight_; }
  std::size_t referred() const noexcept { return referred_; }           ///< of held(): not copied
  std::size_t buffered() const noexcept { return held() - referred_; }  ///< of held(): the rest

  /// Cuts up to `limit` staged bytes into contiguous segments; returns how many it wrote to `out`.
  std::size_t segments(std::size_t limit, Segment* out, std::size_t max) const noexcept;
  void on_posted(std::size_t bytes) noexcept;
  /// The device is done with the oldest `bytes` in flight; empty blocks go back to the pool.
  void on_completed(std::size_t bytes) noexcept;
  /// Removes everything except what is reserved.
  void clear() noexcept;

 private:
  void add(Block* block) noexcept;
  void drop(Block* block) noexcept;
  Block* take(std::size_t size, std::size_t least, const MemoryLimit& limit) noexcept;
  RegisteredPool* pool_ = nullptr;
  ReferencePool* references_ = nullptr;
  Block* head_ = nullptr;
  Block* tail_ = nullptr;
  Block* reserved_ = nullptr;  // the tail; after clear() no longer in a queue
  std::size_t staged_ = 0, in_flight_ = 0, referred_ = 0;
  std::size_t references_done_ = 0;
};

}}}  // namespace conn::rdma
