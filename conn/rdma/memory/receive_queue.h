// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Receives (posted buffers for incoming messages) of 32 bytes each, for a shared receive queue or
// for one queue pair. After use they are posted again, many with one call.
//
// When a queue pair is destroyed, receives of a shared queue may be lost: some devices free them
// without a completion (mlx5 and hns if the completion is still in the queue, bnxt_re if the
// hardware flushed them). Shared receives are consumed in the order in which they were posted. So a
// receive that has not completed a while after a later one did is lost, and is posted again.

#include <cstdint>
#include <span>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"
#include "conn/rdma/memory/blocks.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Bit of a work request's wr_id that is set for receives and clear for sends.
inline constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;
/// Bit of a wr_id that is also set for receives in a queue pair's own receive queue; their
/// completions may arrive after the queue pair was destroyed.
inline constexpr std::uint64_t kOwnReceiveId = std::uint64_t{1} << 62;

class ReceiveQueue {
 public:
  /// Acquires the memory for `depth` receives from `pool`, which must outlive this object. Throws
  /// VerbsError.
  ReceiveQueue(RegisteredPool& pool, std::uint32_t depth, const MemoryLimit& limit);
  ~ReceiveQueue() { pool_.release(memory_); }
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;
  void attach(ibv_srq* srq) noexcept { srq_ = srq; }
  void attach(ibv_qp* qp) noexcept { qp_ = qp; }

  std::span<const std::byte> buffer(std::uint32_t slot, std::uint32_t length) const noexcept;
  /// Records that the receive in `slot` has completed, so that the next replenish() posts it again.
  /// Returns false if it was not posted.
  bool consumed(std::uint32_t slot) noexcept {
    if (slot >= posted_.size() || posted_[slot] == 0) return false;
    if (posted_[slot] > newest_consumed_) newest_consumed_ = posted_[slot];
    put_back(slot);
    return true;
  }
  std::size_t missing() const noexcept { return free_count_; }
  /// Posts every receive of this queue that is not posted at present. Returns 0, or the errno of
  /// the call that failed.
  int replenish() noexcept;
  std::uint32_t depth() const noexcept { return static_cast<std::uint32_t>(posted_.size()); }

  /// For a shared queue: declares those receives lost that a later one had overtaken (completed
  /// before them) at the last call and that still have not completed; replenish() posts them again.
  /// Returns how many. All completion queues must have been polled empty since the last call.
  std::size_t take_lost() noexcept;
  /// True if a receive was overtaken by a later one, which completed first, so that take_lost() may
  /// find it lost.
  bool has_overtaken() const noexcept { return came_back_ != newest_consumed_; }

 private:
  void put_back(std::uint32_t slot) noexcept {
    posted_[slot] = 0;
    free_[free_count_++] = slot;
    ++came_back_;
  }

  RegisteredPool& pool_;
  Block* memory_;
  // For each receive, its position in the order of posting, from 1; 0: it is not posted.
  std::vector<std::uint64_t> posted_;
  // The receives that are not posted are the first free_count_ elements.
  std::vector<std::uint32_t> free_;
  std::size_t free_count_;
  std::uint64_t posts_ = 0;
  std::uint64_t newest_consumed_ = 0;  // highest position of a receive that completed
  // Number of receives that completed or were declared lost. If none was overtaken, these are the
  // positions up to newest_consumed_.
  std::uint64_t came_back_ = 0;
  // Value of newest_consumed_ at the last take_lost(); 0: not called yet.
  std::uint64_t overtaken_ = 0;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

}}}  // namespace conn::rdma
