// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// 32-byte receives: posted to a shared receive queue or to one queue pair, and reposted after use
// in chains.
//
// A queue pair that is destroyed may take receives of a shared queue with it: some devices free
// them without a completion (mlx5 and hns if the completion is still in the queue, bnxt_re if the
// hardware flushed them). Shared receives are consumed in the order they were posted, so one that
// was overtaken a while ago will not complete any more, and is posted again.

#include <cstdint>
#include <span>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/verbs.h"
#include "conn/rdma/memory/blocks.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Set in the wr_id of a receive, clear in that of a send.
inline constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;
/// Also set for receives of one queue pair's own, whose completions may outlive the queue pair.
inline constexpr std::uint64_t kOwnReceiveId = std::uint64_t{1} << 62;

class ReceiveQueue {
 public:
  /// Throws VerbsError.
  ReceiveQueue(RegisteredPool& pool, std::uint32_t depth, const MemoryLimit& limit);
  ~ReceiveQueue() { pool_.release(memory_); }
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;
  void attach(ibv_srq* srq) noexcept { srq_ = srq; }
  void attach(ibv_qp* qp) noexcept { qp_ = qp; }

  std::span<const std::byte> buffer(std::uint32_t slot, std::uint32_t length) const noexcept;
  /// The receive completed; the next replenish() posts it again. False if it was not posted.
  bool consumed(std::uint32_t slot) noexcept;
  std::size_t missing() const noexcept { return free_.size(); }
  /// Posts the missing receives. Returns 0, or the errno of the post.
  int replenish() noexcept;
  std::uint32_t depth() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }

  /// For a shared queue: takes back receives that were overtaken before the last call and have not
  /// completed since. Returns how many. All completion queues must have been polled empty since the
  /// last call.
  std::size_t take_lost() noexcept;
  /// Whether take_lost() may find any.
  bool has_overtaken() const noexcept;

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Slot {
    std::uint64_t posted = 0;  // position in the order of posting; 0: not posted
    std::uint32_t next = kNone, previous = kNone;
  };
  void append(std::uint32_t slot) noexcept;
  void unlink(std::uint32_t slot) noexcept;

  RegisteredPool& pool_;
  Block* memory_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::uint32_t oldest_ = kNone, newest_ = kNone;  // of the posted ones
  std::uint64_t posts_ = 0;
  std::uint64_t newest_consumed_ = 0;  // `posted` of the last-posted one that completed
  std::uint64_t overtaken_ = 0;        // newest_consumed_ at the last take_lost()
  ibv_srq* srq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

}}}  // namespace conn::rdma
