// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/receive_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

ReceiveQueue::ReceiveQueue(RegisteredPool& pool, std::uint32_t depth, const MemoryLimit& limit)
    : pool_(pool), slots_(depth) {
  free_.reserve(depth);
  for (std::uint32_t slot = depth; slot-- != 0;) free_.push_back(slot);
  Failure why;
  memory_ = pool_.acquire(std::size_t{depth} * kControlSize, limit, &why);
  if (memory_ == nullptr) throw VerbsError(std::move(why));
}

std::span<const std::byte> ReceiveQueue::buffer(std::uint32_t slot,
                                                std::uint32_t length) const noexcept {
  return {memory_->data + std::size_t{slot} * kControlSize,
          std::min<std::size_t>(length, kControlSize)};
}

void ReceiveQueue::append(std::uint32_t slot) noexcept {
  slots_[slot] = {++posts_, kNone, newest_};
  (newest_ == kNone ? oldest_ : slots_[newest_].next) = slot;
  newest_ = slot;
}

void ReceiveQueue::unlink(std::uint32_t slot) noexcept {
  const Slot& gone = slots_[slot];
  (gone.previous == kNone ? oldest_ : slots_[gone.previous].next) = gone.next;
  (gone.next == kNone ? newest_ : slots_[gone.next].previous) = gone.previous;
  slots_[slot] = {};
}

bool ReceiveQueue::consumed(std::uint32_t slot) noexcept {
  if (slot >= slots_.size() || slots_[slot].posted == 0) return false;
  newest_consumed_ = std::max(newest_consumed_, slots_[slot].posted);
  unlink(slot);
  free_.push_back(slot);
  return true;
}

bool ReceiveQueue::has_overtaken() const noexcept {
  return oldest_ != kNone && slots_[oldest_].posted < newest_consumed_;
}

std::size_t ReceiveQueue::take_lost() noexcept {
  std::size_t lost = 0;
  while (oldest_ != kNone && slots_[oldest_].posted < overtaken_) {
    const std::uint32_t slot = oldest_;
    unlink(slot);
    free_.push_back(slot);
    ++lost;
  }
  overtaken_ = newest_consumed_;
  return lost;
}

int ReceiveQueue::replenish() noexcept {
  constexpr std::size_t kChain = 64;
  std::array<ibv_recv_wr, kChain> requests;
  std::array<ibv_sge, kChain> buffers;
  while (!free_.empty()) {
    const std::size_t count = std::min(kChain, free_.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = free_[free_.size() - 1 - i];
      const auto* at = memory_->data + std::size_t{slot} * kControlSize;
      buffers[i] = {reinterpret_cast<std::uintptr_t>(at), kControlSize,
                    RegisteredPool::lkey(*memory_)};
      requests[i] = {};
      requests[i].wr_id = kReceiveId | (qp_ != nullptr ? kOwnReceiveId : 0) | slot;
      requests[i].sg_list = &buffers[i];
      requests[i].num_sge = 1;
      requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    const int err = post_error(srq_ != nullptr ? ibv_post_srq_recv(srq_, requests.data(), &bad)
                                               : ibv_post_recv(qp_, requests.data(), &bad));
    const auto posted = err == 0         ? count
                        : bad == nullptr ? 0  // none, if the driver does not say which one failed
                                         : static_cast<std::size_t>(bad - requests.data());
    for (std::size_t i = 0; i < posted; ++i) {
      append(free_.back());
      free_.pop_back();
    }
    if (err != 0) return err;
  }
  return 0;
}

}}}  // namespace conn::rdma
