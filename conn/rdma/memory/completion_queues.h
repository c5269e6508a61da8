// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The completion queues of one loop on one device. Each is as deep as all that can complete on it.
// Queues are never resized (some drivers cannot, one loses the ring in use): when all are full the
// next one is as deep as all before it together, so there are few of them however many connections
// there are. Only queues that are not armed are polled.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/completion_queue.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Most completions that are taken in one call.
inline constexpr int kPollBatch = 32;

/// One queue, and how many of its entries are leased.
struct CompletionQueue {
  CompletionQueue(const Device& device, std::uint32_t entries, ibv_comp_channel* channel,
                  int vector);
  Cq cq;
  Pinned ring;
  std::uint32_t leased = 0;
  /// Completions that were polled and are not dispatched yet, in order: a poll of the queue from
  /// inside a dispatch begins with these too.
  std::array<ibv_wc, kPollBatch> polled;
  std::uint32_t next = 0, end = 0;  // of `polled`
  bool event_due = false;           // it was armed, and its event has not been taken
  ae::TimePoint unused_since{};     // zero: it is in use, or was not checked yet
};

/// Entries of a completion queue for everything that one queue pair can have posted.
class CqLease {
 public:
  CqLease() = default;
  CqLease(CompletionQueue& queue, std::uint32_t entries) noexcept
      : queue_(&queue), entries_(entries) {
    queue.leased += entries;
    queue.unused_since = {};
  }
  CqLease(CqLease&& other) noexcept { *this = std::move(other); }
  CqLease& operator=(CqLease&& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(entries_, other.entries_);
    return *this;
  }
  ~CqLease() {
    if (queue_ != nullptr) queue_->leased -= entries_;
  }
  /// Adds `more` entries, which the queue must have free.
  void enlarge(std::uint32_t more) noexcept {
    queue_->leased += more;
    entries_ += more;
  }
  CompletionQueue* queue() const noexcept { return queue_; }
  ibv_cq* cq() const noexcept { return queue_->cq.get(); }

 private:
  CompletionQueue* queue_ = nullptr;
  std::uint32_t entries_ = 0;
};

class CompletionQueues {
 public:
  /// Borrows `device`. Throws VerbsError.
  CompletionQueues(const Device& device, int vector);

  int fd() const noexcept { return channel_->fd; }
  /// `common`: number of further entries that may complete on any queue (shared receives). Throws
  /// VerbsError if no queue of that depth is available.
  CqLease lease(std::uint32_t entries, std::uint32_t common);
  /// Queues whose completions only polling would see. Changes with arm() and take_events().
  const std::vector<CompletionQueue*>& unarmed() const noexcept { return unarmed_; }
  /// Takes events from the channel; returns how many. Their queues are no longer armed.
  std::size_t take_events() noexcept;
  /// Arms all unarmed queues and returns them, to be polled once more before the loop sleeps.
  /// `lost` is set if the device does not respond.
  const std::vector<CompletionQueue*>& arm(bool& lost) noexcept;
  /// After arm() the queue may hold more than was polled: it counts as unarmed again.
  void look_again(CompletionQueue& queue) noexcept;
  /// Frees queues that have not been used for a while.
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept;
  const std::vector<std::unique_ptr<CompletionQueue>>& all() const noexcept { return queues_; }

 private:
  const Device& device_;
  int vector_;
  CompChannel channel_;  // destroyed after its queues
  std::vector<std::unique_ptr<CompletionQueue>> queues_;
  std::vector<CompletionQueue*> unarmed_, arming_;  // with capacity for all
  std::size_t events_due_ = 0;
};

}}}  // namespace conn::rdma
