// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Receives (buffers that are posted for incoming messages) of 32 bytes each, for a shared receive
// queue or for one queue pair. After use they are posted again, many with one call.
//
// When a queue pair is destroyed, receives of a shared queue may be lost: some devices free them
// without a completion (mlx5 and hns if the completion is still in the queue, bnxt_re if the
// hardware flushed them). Shared receives are consumed in the order in which they were posted. So
// if a receive has not completed some time after a later one has, it is lost, and its buffer is
// posted again.

#include <cstdint>
#include <span>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"
#include "conn/rdma/memory/blocks.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Bit of a work request's wr_id that is set for receives and clear for sends.
inline constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;
/// Additional bit of a work request's wr_id for receives in a queue pair's own receive queue. Their
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
  /// Records that the receive with index `slot` has completed, so that the next replenish() posts
  /// it again. Returns false if this receive was not posted.
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

  /// For a shared queue: finds the receives that had not completed at the last call, although later
  /// ones had, and that still have not. They count as lost, and replenish() posts them again.
  /// Returns their number. All completion queues must have been polled until empty since the last
  /// call.
  std::size_t take_lost() noexcept;
  /// Returns true if a receive has not completed although a later one has, so that take_lost() may
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
  // For each receive, its number in the order of posting, counted from 1; 0: it is not posted now.
  std::vector<std::uint64_t> posted_;
  // The first free_count_ elements are the indices of the receives that are not posted now.
  std::vector<std::uint32_t> free_;
  std::size_t free_count_;
  std::uint64_t posts_ = 0;
  // Highest number, in the order of posting, of a receive that completed.
  std::uint64_t newest_consumed_ = 0;
  // Number of receives that completed or were declared lost. It equals newest_consumed_ if no
  // receive was overtaken.
  std::uint64_t came_back_ = 0;
  // Highest number of a completed receive (newest_consumed_) at the last call of take_lost(); 0: it
  // was not called yet.
  std::uint64_t overtaken_ = 0;
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

}}}  // namespace conn::rdma
