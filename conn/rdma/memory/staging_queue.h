// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data that a connection sends, in order. It consists of written bytes in registered blocks,
// which are taken from the domain's pool while there are bytes to send, and of user memory that is
// sent without a copy. A few bytes that are written while the queue is empty need no block: they
// are stored in the "cell", a small array in the queue itself. The cell is not registered, so its
// bytes can only be sent inline, as a separate request.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "ae/abi.h"
#include "ae/hot_assert.h"
#include "conn/rdma/memory/blocks.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// A piece of the user's registered memory that is sent without a copy. It is an element of a
/// StagingQueue, like a block.
struct Reference : Block {
  std::uint32_t lkey = 0;
};

/// Keeps unused objects of class Reference, so that acquire() seldom allocates memory.
class ReferencePool {
 public:
  ReferencePool() = default;
  ReferencePool(const ReferencePool&) = delete;
  ReferencePool& operator=(const ReferencePool&) = delete;
  ~ReferencePool();
  /// Returns an unused Reference, or null if there is no memory for one.
  Reference* acquire() noexcept;
  void release(Reference* reference) noexcept;

 private:
  Block* free_ = nullptr;
  std::size_t count_ = 0;
};

/// The data that one connection has accepted for sending and the device has not confirmed yet, in
/// order.
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

  /// Sets how many bytes the cell (a small array for bytes that are sent inline) can hold: the
  /// smaller of `bytes` and kCell. `bytes`: largest size of inline data; 0: the cell is not used.
  /// Call it only while the queue is empty.
  void use_cell(std::uint32_t bytes) noexcept {
    assert(head_ == nullptr);
    cell_.data = cell_bytes_.data();
    cell_.size = std::min(bytes, kCell);
  }
  static constexpr std::uint32_t kCell = 128;
  /// Returns true if `size` bytes fit into the cell (a small array for bytes that are sent inline),
  /// and the queue has no other bytes than those in the cell.
  bool has_cell_for(std::size_t size) const noexcept {
    if (head_ == nullptr) return size <= cell_.size;
    return tail_ == &cell_ && cell_.posted == cell_.completed && size <= cell_.size - cell_.filled;
  }
  /// Appends `size` bytes to the queue by a copy into its cell, a small array; has_cell_for() must
  /// be true.
  void append_to_cell(const void* from, std::size_t size) noexcept {
    AECONN_HOT_ASSERT(has_cell_for(size));
    if (head_ == nullptr) return begin_cell(from, size);
    std::memcpy(cell_bytes_.data() + cell_.filled, from, size);
    cell_.filled += static_cast<std::uint32_t>(size);
    staged_ += size;
  }
  /// Copies `size` bytes into the cell, a small array of the queue. The queue must be empty.
  void begin_cell(const void* from, std::size_t size) noexcept {
    AECONN_HOT_ASSERT(empty() && held() == 0 && size <= cell_.size);
    std::memcpy(cell_bytes_.data(), from, size);
    cell_.next = nullptr;
    cell_.filled = static_cast<std::uint32_t>(size);
    cell_.posted = cell_.completed = 0;
    head_ = tail_ = &cell_;
    staged_ = size;
  }
  /// Returns true if the queue holds no memory: no bytes wait to be posted, and none are in flight.
  bool empty() const noexcept { return head_ == nullptr; }
  std::uint32_t cell_size() const noexcept { return cell_.size; }

  /// Copies bytes to the end of the queue and returns how many. This is less than `size` only if
  /// the pool has no free block and `limit` allows no more memory. The last quarter of the limit is
  /// reserved for empty queues, which get one small block each.
  std::size_t append(const std::byte* from, std::size_t size, const MemoryLimit& limit) noexcept;
  /// Returns space for at least `size` bytes at the end of the queue, which the caller may fill
  /// before it calls commit(); empty if there is no memory. Until commit(), the space stays valid,
  /// even if clear() is called, and nothing else may be appended or reserved.
  std::span<std::byte> reserve(std::size_t size, const MemoryLimit& limit) noexcept;
  void commit(std::size_t size) noexcept;
  bool reserving() const noexcept { return reserved_ != nullptr; }
  /// Acquires memory, if necessary, so that the next reserve() or append() finds contiguous space
  /// for `size` bytes. Returns false if there is no memory.
  bool secure(std::size_t size, const MemoryLimit& limit) noexcept;
  /// Releases those blocks at the front of the queue of which the device has confirmed all bytes.
  void trim() noexcept;
  /// Adds `size` bytes of registered user memory to the queue, which are sent without a copy.
  /// Returns false if there is no memory for the Reference.
  bool refer(const std::byte* data, std::uint32_t size, std::uint32_t lkey) noexcept;
  /// Returns the number of References (pieces of user memory) that the device has finished with
  /// since the last call.
  std::size_t take_done() noexcept { return std::exchange(references_done_, 0); }

  /// Returns the number of bytes in the queue that are not posted to the device yet.
  std::size_t staged() const noexcept { return staged_; }
  /// Returns the number of bytes that are posted to the device but not completed.
  std::size_t in_flight() const noexcept { return in_flight_; }
  std::size_t held() const noexcept { return staged_ + in_flight_; }
  /// Returns the number of bytes in the queue that are in user memory.
  std::size_t referred() const noexcept { return referred_; }
  /// Returns the number of bytes in the queue that were copied into memory of this library.
  std::size_t buffered() const noexcept { return held() - referred_; }

  /// Stores in `out` the contiguous segments of the oldest bytes that are not posted yet: up to
  /// `limit` bytes in at most `max` segments. Returns the number of segments.
  std::size_t segments(std::size_t limit, Segment* out, std::size_t max) const noexcept;
  /// Returns all bytes that are not posted yet, if they are contiguous; otherwise the `data` of the
  /// result is null.
  Segment only_segment() const noexcept {
    if (tail_ == nullptr || tail_->filled - tail_->posted != staged_) return {nullptr, 0, 0};
    return {tail_->data + tail_->posted, static_cast<std::uint32_t>(staged_), lkey_of(*tail_)};
  }
  /// Returns true if all bytes of the queue are in the cell (its own small array) and none is
  /// posted yet. Then nothing is in flight, and in_cell() returns these bytes.
  bool is_cell() const noexcept { return head_ == &cell_ && tail_ == &cell_ && cell_.posted == 0; }
  Segment in_cell() const noexcept { return {cell_bytes_.data(), cell_.filled, 0}; }
  /// Records that all bytes of the queue, which are in the cell (is_cell()), were posted inline.
  void on_cell_copied() noexcept {
    AECONN_HOT_ASSERT(is_cell() && staged_ == cell_.filled && in_flight_ == 0);
    head_ = tail_ = nullptr;
    staged_ = 0;
  }
  /// Returns true if `segment` is in the cell, an array that is not registered, so that it must be
  /// sent as an inline request of its own.
  bool is_in_cell(const Segment& segment) const noexcept {
    return reinterpret_cast<std::uintptr_t>(segment.data) -
               reinterpret_cast<std::uintptr_t>(cell_bytes_.data()) <
           kCell;
  }
  void on_posted(std::size_t bytes) noexcept;
  /// Records that all bytes that were not posted yet have been posted inline: the device has copied
  /// them, so they count as completed at once. No other bytes may be in flight.
  void on_all_copied() noexcept {
    assert(in_flight_ == 0);
    if (is_cell()) return on_cell_copied();
    const std::size_t bytes = staged_;
    on_posted(bytes);
    on_completed(bytes);
  }
  /// Records that the oldest `bytes` bytes in flight are completed. Releases blocks that have
  /// become empty.
  void on_completed(std::size_t bytes) noexcept;
  /// Removes everything from the queue. Space that reserve() returned stays valid until commit().
  void clear() noexcept;
  /// Copies all bytes that are not confirmed by the device to `into`, which must have space for
  /// held() bytes.
  void copy_held(std::byte* into) const noexcept;

 private:
  std::uint32_t lkey_of(const Block& block) const noexcept {
    if (block.slab != nullptr) return RegisteredPool::lkey(block);
    return &block == &cell_ ? 0 : static_cast<const Reference&>(block).lkey;
  }
  bool leave_cell(std::size_t more, const MemoryLimit& limit) noexcept;
  void add(Block* block) noexcept;
  void drop(Block* block) noexcept;
  Block* take(std::size_t size, std::size_t least, const MemoryLimit& limit) noexcept;
  RegisteredPool* pool_ = nullptr;
  ReferencePool* references_ = nullptr;
  Block* head_ = nullptr;
  Block* tail_ = nullptr;
  // The block in which reserve() returned space, or null. It is the last one of the queue, or in no
  // queue if clear() was called since.
  Block* reserved_ = nullptr;
  std::size_t staged_ = 0, in_flight_ = 0, referred_ = 0;
  std::size_t references_done_ = 0;
  // Describes the small array cell_bytes_ as a block. This block is the first one of the queue, or
  // not in the queue.
  Block cell_;
  std::array<std::byte, kCell> cell_bytes_;
};

}}}  // namespace conn::rdma
