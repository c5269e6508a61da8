#include "conn/rdma/staging.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace conn::rdma {

StagingBlock* StagingPool::acquire(std::size_t hint) noexcept {
  std::size_t kind = 0;
  while (kind + 1 < kSizes.size() && kSizes[kind] < hint && kSizes[kind + 1] <= slab_) ++kind;
  if (StagingBlock* block = free_[kind]; block != nullptr) {
    free_[kind] = block->next;
    block->next = nullptr;
    return block;
  }
  const std::uint32_t size = kSizes[kind];
  try {
    return carve(kind, size);
  } catch (const std::exception&) {
    // No memory for another slab: any free block will do.
    for (StagingBlock*& list : free_)
      if (list != nullptr) return std::exchange(list, std::exchange(list->next, nullptr));
    return nullptr;
  }
}

StagingBlock* StagingPool::carve(std::size_t kind, std::uint32_t size) {
  blocks_.reserve(blocks_.size() + 1);
  if (slabs_.empty() || slabs_.back().memory.size() - used_in_last_ < size) {
    slabs_.reserve(slabs_.size() + 1);
    slabs_.emplace_back(pd_, std::max<std::size_t>(slab_, size), 0u);
    bytes_ += slabs_.back().memory.size();
    used_in_last_ = 0;
  }
  auto block = std::make_unique<StagingBlock>();
  block->data = slabs_.back().memory.data() + used_in_last_;
  block->lkey = slabs_.back().mr->lkey;
  block->size = size;
  block->size_class = static_cast<std::uint8_t>(kind);
  used_in_last_ += size;
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

void StagingPool::release(StagingBlock* block) noexcept {
  block->filled = block->posted = block->completed = 0;
  block->next = free_[block->size_class];
  free_[block->size_class] = block;
}

std::size_t TxQueue::append(const std::byte* from, std::size_t size) noexcept {
  std::size_t done = 0;
  while (done < size) {
    if (tail_ == nullptr || tail_->filled == tail_->size) {
      // Beyond the first block this is bulk: take large ones.
      const std::size_t hint = tail_ == nullptr ? size : std::max(size - done, 4 * held());
      StagingBlock* block = pool_ != nullptr ? pool_->acquire(hint) : nullptr;
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
  for (const StagingBlock* block = head_; block != nullptr && limit != 0 && count < max;
       block = block->next) {
    const std::size_t ready = std::min<std::size_t>(limit, block->filled - block->posted);
    if (ready == 0) continue;
    out[count++] = {block->data + block->posted, static_cast<std::uint32_t>(ready), block->lkey};
    limit -= ready;
  }
  return count;
}

void TxQueue::on_posted(std::size_t bytes) noexcept {
  assert(bytes <= staged_);
  staged_ -= bytes;
  in_flight_ += bytes;
  for (StagingBlock* block = head_; bytes != 0; block = block->next) {
    const std::size_t part = std::min<std::size_t>(bytes, block->filled - block->posted);
    block->posted += static_cast<std::uint32_t>(part);
    bytes -= part;
  }
}

void TxQueue::on_completed(std::size_t bytes) noexcept {
  assert(bytes <= in_flight_);
  in_flight_ -= bytes;
  for (StagingBlock* block = head_; bytes != 0; block = block->next) {
    const std::size_t part = std::min<std::size_t>(bytes, block->posted - block->completed);
    block->completed += static_cast<std::uint32_t>(part);
    bytes -= part;
  }
  trim();
}

void TxQueue::trim() noexcept {
  while (head_ != nullptr && head_->completed == head_->filled) {
    StagingBlock* block = head_;
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
