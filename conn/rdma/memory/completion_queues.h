// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The completion queues of one event loop on one device. Each has enough entries for all requests
// that can complete on it. Queues are never resized: some drivers cannot, and one loses the ring
// that is in use. When all queues are full, another one is created that is as deep as all others
// together, so there are few of them for any number of connections. Only queues that are not armed
// (have requested no event) are polled.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ae/abi.h"
#include "conn/rdma/device/completion_queue.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/device/memory.h"
#include "conn/rdma/device/verbs.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// The largest number of completions that one poll takes from a queue.
inline constexpr int kPollBatch = 32;

/// A completion queue, and the number of its entries that are leased to queue pairs.
struct CompletionQueue {
  CompletionQueue(const Device& device, std::uint32_t entries, ibv_comp_channel* channel,
                  int vector);
  Cq cq;
  Pinned ring;
  std::uint32_t leased = 0;
  /// Completions that were polled but not dispatched yet, in order. If the queue is polled from
  /// within a dispatch, that poll processes these first.
  std::array<ibv_wc, kPollBatch> polled;
  // Range of indices in `polled` of the completions not dispatched yet.
  std::uint32_t next = 0, end = 0;
  bool event_due = false;  // whether the queue was armed and the event of that was not taken yet
  // When tick() first found the queue unused; zero: it is in use, or was not checked yet.
  ae::TimePoint unused_since{};
};

/// Reserves entries of a completion queue for all requests that one queue pair can have posted.
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
  /// Reserves `more` further entries, which must be free in the completion queue.
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
  /// Creates the channel that the events of the queues arrive on. `device` must outlive this
  /// object; `vector` is the completion vector of all queues. Throws VerbsError.
  CompletionQueues(const Device& device, int vector);

  int fd() const noexcept { return channel_->fd; }
  /// Reserves `entries` entries of one queue, and creates a queue if no existing one has so many
  /// free. `common`: number of completions of shared receives, which may arrive on any queue, so
  /// that each must have room for them too. Throws VerbsError if no queue of that depth is
  /// available.
  CqLease lease(std::uint32_t entries, std::uint32_t common);
  /// Returns the queues that are not armed: no event will report their completions, so they must be
  /// polled. arm() and take_events() change the returned vector.
  const std::vector<CompletionQueue*>& unarmed() const noexcept { return unarmed_; }
  /// Takes the pending events from the channel and returns their number. The queues of these events
  /// are no longer armed.
  std::size_t take_events() noexcept;
  /// Returns the queue that is not armed, if there is exactly one such queue; otherwise null.
  CompletionQueue* only_unarmed() const noexcept {
    return unarmed_.size() == 1 ? unarmed_.front() : nullptr;
  }
  /// Arms that queue, which the caller must poll once more before the loop sleeps. Returns false if
  /// the device does not respond.
  bool arm(CompletionQueue& queue) noexcept {
    if (!queue.cq.arm()) return false;
    unarmed_.clear();
    if (!std::exchange(queue.event_due, true)) ++events_due_;
    return true;
  }
  /// Arms all unarmed queues and returns them; the caller must poll them once more before the loop
  /// sleeps. Sets `lost` if the device does not respond.
  const std::vector<CompletionQueue*>& arm(bool& lost) noexcept;
  /// Counts an armed queue as unarmed again, because it may hold completions that the poll after
  /// arm() did not take.
  void look_again(CompletionQueue& queue) noexcept;
  /// Frees queues that no queue pair has used for a while; the first queue is kept.
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept;
  const std::vector<std::unique_ptr<CompletionQueue>>& all() const noexcept { return queues_; }

 private:
  const Device& device_;
  int vector_;
  CompChannel channel_;  // channel on which the events of queues_ arrive; must outlive them
  std::vector<std::unique_ptr<CompletionQueue>> queues_;
  std::vector<CompletionQueue*> unarmed_, arming_;  // each has capacity for all queues
  std::size_t events_due_ = 0;
};

}}}  // namespace conn::rdma
