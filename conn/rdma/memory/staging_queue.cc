// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/staging_queue.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// Largest number of unused Reference objects (descriptions of user memory to send) that a
// ReferencePool keeps.
constexpr std::size_t kKept = 256;

// The sizes, in bytes, of the memory blocks in which data to send is stored. There are only a few,
// so that free blocks can be merged easily.
constexpr std::array<std::size_t, 4> kSizes{4096, 16384, 65536, 262144};

// Acquires a block: of the smallest of kSizes that is at least `hint`, or of the largest one. If
// there is no memory for it, tries smaller sizes that are at least `least`. Returns null on
// failure.
Block* take_block(RegisteredPool& pool, std::size_t hint, std::size_t least,
                  const MemoryLimit& limit) noexcept {
  std::size_t kind = 0;
  while (kind + 1 < kSizes.size() && kSizes[kind] < hint) ++kind;
  for (;; --kind) {
    if (Block* block = pool.acquire(kSizes[kind], limit)) return block;
    if (kind == 0 || kSizes[kind - 1] < least) return nullptr;
  }
}

Block* take_last_block(RegisteredPool& pool, const MemoryLimit& limit) noexcept {
  return pool.acquire(kSizes[0], limit, nullptr, kSizes[2]);
}

}  // namespace

// --- pool of references to user memory -----------------------------------------------------------

ReferencePool::~ReferencePool() {
  while (free_ != nullptr) delete static_cast<Reference*>(std::exchange(free_, free_->next));
}

Reference* ReferencePool::acquire() noexcept {
  if (free_ == nullptr) return new (std::nothrow) Reference;
  --count_;
  return static_cast<Reference*>(std::exchange(free_, std::exchange(free_->next, nullptr)));
}

void ReferencePool::release(Reference* reference) noexcept {
  if (count_ == kKept) {
    delete reference;
    return;
  }
  *reference = {};
  reference->next = std::exchange(free_, reference);
  ++count_;
}

// --- adding data to the queue --------------------------------------------------------------------

void StagingQueue::add(Block* block) noexcept {
  (tail_ == nullptr ? head_ : tail_->next) = block;
  tail_ = block;
}

// Returns a block for `size` bytes; if memory is short, a smaller one for at least `least` bytes;
// null if there is none.
Block* StagingQueue::take(std::size_t size, std::size_t least, const MemoryLimit& limit) noexcept {
  if (pool_ == nullptr) return nullptr;
  // If the queue has a block already, this is a bulk transfer, so a larger block is taken.
  const std::size_t hint = tail_ == nullptr ? size : std::max(size, 4 * buffered());
  Block* block = take_block(*pool_, hint, least, limit.but_a_quarter());
  if (block == nullptr && tail_ == nullptr && least <= kSizes[0])
    block = take_last_block(*pool_, limit);
  return block;
}

// Moves those bytes in the cell (the queue's own small array) that are not posted yet to a new
// block with space for `more` bytes, so that one request can send all of them. Returns false and
// changes nothing if the cell is not the last block, bytes in it are in flight, or there is no
// memory.
bool StagingQueue::leave_cell(std::size_t more, const MemoryLimit& limit) noexcept {
  if (tail_ != &cell_ || cell_.posted != cell_.completed) return false;
  const std::uint32_t held = cell_.filled - cell_.posted;
  head_ = tail_ = nullptr;
  staged_ -= held;
  Block* block = take(held + more, held + 1, limit);
  if (block != nullptr) {
    std::memcpy(block->data, cell_.data + cell_.posted, held);
    block->filled = held;
  }
  add(block != nullptr ? block : &cell_);
  staged_ += held;
  return block != nullptr;
}

std::size_t StagingQueue::append(const std::byte* from, std::size_t size,
                                 const MemoryLimit& limit) noexcept {
  if (size == 0) return 0;  // with size 0, `from` may be null
  if (has_cell_for(size)) {
    append_to_cell(from, size);
    return size;
  }
  (void)leave_cell(size, limit);
  std::size_t done = 0;
  while (done < size) {
    if (tail_ == nullptr || tail_ == &cell_ || tail_->filled == tail_->size) {
      Block* block = take(size - done, 1, limit);
      if (block == nullptr) break;
      add(block);
    }
    const std::size_t chunk = std::min<std::size_t>(size - done, tail_->size - tail_->filled);
    std::memcpy(tail_->data + tail_->filled, from + done, chunk);
    tail_->filled += static_cast<std::uint32_t>(chunk);
    done += chunk;
    staged_ += chunk;
  }
  return done;
}

bool StagingQueue::secure(std::size_t size, const MemoryLimit& limit) noexcept {
  assert(reserved_ == nullptr && size <= kSizes.back());
  if (tail_ != nullptr && tail_ != &cell_ && tail_->size - tail_->filled >= size) return true;
  if (size + kCell <= kSizes.back() && leave_cell(size, limit) &&
      tail_->size - tail_->filled >= size)
    return true;
  Block* block = take(size, size, limit);
  if (block != nullptr) add(block);
  return block != nullptr;
}

std::span<std::byte> StagingQueue::reserve(std::size_t size, const MemoryLimit& limit) noexcept {
  if (!secure(size, limit)) return {};
  reserved_ = tail_;
  return {tail_->data + tail_->filled, tail_->size - tail_->filled};
}

void StagingQueue::commit(std::size_t size) noexcept {
  Block* block = std::exchange(reserved_, nullptr);
  if (block == nullptr) return;
  // clear() was called since reserve(), so the block is not in the queue any more.
  if (head_ == nullptr) return pool_->release(block);
  assert(size <= block->size - block->filled);
  block->filled += static_cast<std::uint32_t>(size);
  staged_ += size;
  trim();
}

bool StagingQueue::refer(const std::byte* data, std::uint32_t size, std::uint32_t lkey) noexcept {
  Reference* reference = references_ != nullptr ? references_->acquire() : nullptr;
  if (reference == nullptr) return false;
  reference->data = const_cast<std::byte*>(data);  // the device only reads this memory
  reference->size = reference->filled = size;
  reference->lkey = lkey;
  add(reference);
  staged_ += size;
  referred_ += size;
  return true;
}

// --- posting and completion of data --------------------------------------------------------------

std::size_t StagingQueue::segments(std::size_t limit, Segment* out,
                                   std::size_t max) const noexcept {
  std::size_t count = 0;
  for (const Block* block = head_; block != nullptr && limit != 0 && count < max;
       block = block->next) {
    const std::size_t ready = std::min<std::size_t>(limit, block->filled - block->posted);
    if (ready == 0) continue;
    out[count++] = {block->data + block->posted, static_cast<std::uint32_t>(ready),
                    lkey_of(*block)};
    limit -= ready;
  }
  return count;
}

void StagingQueue::on_posted(std::size_t bytes) noexcept {
  assert(bytes <= staged_);
  staged_ -= bytes;
  in_flight_ += bytes;
  for (Block* block = head_; bytes != 0; block = block->next) {
    const std::size_t part = std::min<std::size_t>(bytes, block->filled - block->posted);
    block->posted += static_cast<std::uint32_t>(part);
    bytes -= part;
  }
}

void StagingQueue::on_completed(std::size_t bytes) noexcept {
  assert(bytes <= in_flight_);
  in_flight_ -= bytes;
  for (Block* block = head_; bytes != 0; block = block->next) {
    const std::size_t part = std::min<std::size_t>(bytes, block->posted - block->completed);
    block->completed += static_cast<std::uint32_t>(part);
    if (block->slab == nullptr && block != &cell_) referred_ -= part;
    bytes -= part;
  }
  trim();
}

void StagingQueue::drop(Block* block) noexcept {
  if (block == &cell_) return;
  if (block->slab != nullptr) return pool_->release(block);
  references_->release(static_cast<Reference*>(block));
  ++references_done_;
}

void StagingQueue::trim() noexcept {
  while (head_ != nullptr && head_ != reserved_ && head_->completed == head_->filled) {
    Block* block = head_;
    head_ = block->next;
    if (head_ == nullptr) tail_ = nullptr;
    drop(block);
  }
}

void StagingQueue::copy_held(std::byte* into) const noexcept {
  for (const Block* block = head_; block != nullptr; block = block->next) {
    const std::size_t size = block->filled - block->completed;
    if (size != 0) std::memcpy(into, block->data + block->completed, size);
    into += size;
  }
}

void StagingQueue::clear() noexcept {
  while (head_ != nullptr) {
    Block* block = std::exchange(head_, head_->next);
    if (block != reserved_) drop(block);
  }
  tail_ = nullptr;
  staged_ = in_flight_ = referred_ = 0;
}

}}}  // namespace conn::rdma
