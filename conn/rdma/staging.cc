#include "conn/rdma/staging.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

namespace conn::rdma {
namespace {

// Blocks of few sizes find each other again.
constexpr std::array<std::size_t, 4> kSizes{4096, 16384, 65536, 262144};

// The smallest that holds `hint` bytes, or the largest there is; where there is no memory for that,
// one that is smaller.
Block* take_block(RegisteredPool& pool, std::size_t hint, const MemoryLimit& limit) noexcept {
  std::size_t kind = 0;
  while (kind + 1 < kSizes.size() && kSizes[kind] < hint) ++kind;
  for (;; --kind) {
    if (Block* block = pool.acquire(kSizes[kind], limit)) return block;
    if (kind == 0) return nullptr;
  }
}

Block* take_last_block(RegisteredPool& pool, const MemoryLimit& limit) noexcept {
  return pool.acquire(kSizes[0], limit, nullptr, kSizes[2]);
}

}  // namespace

std::size_t TxQueue::append(const std::byte* from, std::size_t size,
                            const MemoryLimit& limit) noexcept {
  std::size_t done = 0;
  while (done < size) {
    if (tail_ == nullptr || tail_->filled == tail_->size) {
      // Beyond the first block this is bulk: take large ones.
      const std::size_t hint = tail_ == nullptr ? size : std::max(size - done, 4 * held());
      if (pool_ == nullptr) break;
      Block* block = take_block(*pool_, hint, limit.but_a_quarter());
      if (block == nullptr && tail_ == nullptr) block = take_last_block(*pool_, limit);
      if (block == nullptr) break;
      (tail_ == nullptr ? head_ : tail_->next) = block;
      tail_ = block;
    }
    const std::size_t chunk = std::min<std::size_t>(size - done, tail_->size - tail_->filled);
    std::memcpy(tail_->data + tail_->filled, from + done, chunk);
    tail_->filled += static_cast<std::uint32_t>(chunk);
    done += chunk;
    staged_ += chunk;
  }
  return done;
}

std::size_t TxQueue::segments(std::size_t limit, Segment* out, std::size_t max) const noexcept {
  std::size_t count = 0;
  for (const Block* block = head_; block != nullptr && limit != 0 && count < max;
       block = block->next) {
    const std::size_t ready = std::min<std::size_t>(limit, block->filled - block->posted);
    if (ready == 0) continue;
    out[count++] = {block->data + block->posted, static_cast<std::uint32_t>(ready),
                    RegisteredPool::lkey(*block)};
    limit -= ready;
  }
  return count;
}

void TxQueue::on_posted(std::size_t bytes) noexcept {
  assert(bytes <= staged_);
  staged_ -= bytes;
  in_flight_ += bytes;
  for (Block* block = head_; bytes != 0; block = block->next) {
    const std::size_t part = std::min<std::size_t>(bytes, block->filled - block->posted);
    block->posted += static_cast<std::uint32_t>(part);
    bytes -= part;
  }
}

void TxQueue::on_completed(std::size_t bytes) noexcept {
  assert(bytes <= in_flight_);
  in_flight_ -= bytes;
  for (Block* block = head_; bytes != 0; block = block->next) {
    const std::size_t part = std::min<std::size_t>(bytes, block->posted - block->completed);
    block->completed += static_cast<std::uint32_t>(part);
    bytes -= part;
  }
  trim();
}

void TxQueue::trim() noexcept {
  while (head_ != nullptr && head_->completed == head_->filled) {
    Block* block = head_;
    head_ = block->next;
    if (head_ == nullptr) tail_ = nullptr;
    pool_->release(block);
  }
}

void TxQueue::clear() noexcept {
  while (head_ != nullptr) pool_->release(std::exchange(head_, head_->next));
  tail_ = nullptr;
  staged_ = in_flight_ = 0;
}

}  // namespace conn::rdma
