// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/receive_queue.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

ReceiveQueue::ReceiveQueue(RegisteredPool& pool, std::uint32_t depth, const MemoryLimit& limit)
    : pool_(pool), posted_(depth), free_(depth), free_count_(depth) {
  for (std::uint32_t i = 0; i != depth; ++i) free_[i] = depth - 1 - i;
  Failure why;
  memory_ = pool_.acquire(std::size_t{depth} * kControlSize, limit, &why);
  if (memory_ == nullptr) throw VerbsError(std::move(why));
}

std::span<const std::byte> ReceiveQueue::buffer(std::uint32_t slot,
                                                std::uint32_t length) const noexcept {
  return {memory_->data + std::size_t{slot} * kControlSize,
          std::min<std::size_t>(length, kControlSize)};
}

std::size_t ReceiveQueue::take_lost() noexcept {
  std::size_t lost = 0;
  for (std::uint32_t slot = 0; slot != depth(); ++slot) {
    if (posted_[slot] == 0 || posted_[slot] >= overtaken_) continue;
    put_back(slot);
    ++lost;
  }
  overtaken_ = newest_consumed_;
  return lost;
}

int ReceiveQueue::replenish() noexcept {
  constexpr std::size_t kChain = 64;
  std::array<ibv_recv_wr, kChain> requests;
  std::array<ibv_sge, kChain> buffers;
  const auto base = reinterpret_cast<std::uintptr_t>(memory_->data);
  const std::uint32_t key = RegisteredPool::lkey(*memory_);
  const std::uint64_t kind = kReceiveId | (qp_ != nullptr ? kOwnReceiveId : 0);
  while (free_count_ != 0) {
    const std::size_t count = std::min(kChain, free_count_);
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = free_[free_count_ - 1 - i];
      buffers[i] = {base + std::size_t{slot} * kControlSize, kControlSize, key};
      requests[i] = {kind | slot, &requests[i] + 1, &buffers[i], 1};
    }
    requests[count - 1].next = nullptr;
    ibv_recv_wr* bad = nullptr;
    const int err = post_error(srq_ != nullptr ? ibv_post_srq_recv(srq_, requests.data(), &bad)
                                               : ibv_post_recv(qp_, requests.data(), &bad));
    // If the driver does not say which request failed, none of them counts as posted.
    const auto posted = err == 0         ? count
                        : bad == nullptr ? 0
                                         : static_cast<std::size_t>(bad - requests.data());
    for (std::size_t i = 0; i < posted; ++i) posted_[free_[--free_count_]] = ++posts_;
    if (err != 0) return err;
  }
  return 0;
}

}}}  // namespace conn::rdma
