// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The completion queues of one event loop on one device. Each has enough entries for all requests
// that can complete on it. Queues are never resized: some drivers cannot do that, and one loses the
// ring that is in use. When all queues are full, another one is created with as many entries as all
// others together, so there are few queues for any number of connections. Only queues that are not
// armed (that have not requested an event) are polled.

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

/// A completion queue, and the number of its entries that are reserved ("leased") for queue pairs.
struct CompletionQueue {
  CompletionQueue(const Device& device, std::uint32_t entries, ibv_comp_channel* channel,
                  int vector);
  Cq cq;
  Pinned ring;
  std::uint32_t leased = 0;
  /// Completions of the last poll, in order, some of which might not have been passed to their
  /// owners yet. If a handler polls the queue again, that nested poll passes these on first, so
  /// that the order is kept.
  std::array<ibv_wc, kPollBatch> polled;
  // The polled completions that have not been passed to their owners yet: polled[next] to
  // polled[end - 1].
  std::uint32_t next = 0, end = 0;
  bool event_due = false;  // true if an event was requested and not taken from the channel yet
  // Time at which tick() first found the queue unused; zero: it is in use, or was not checked yet.
  ae::TimePoint unused_since{};
};

/// Reserves entries of a completion queue for all requests that one queue pair can have posted at a
/// time, until the object is destroyed.
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
  /// Reserves `more` further entries. That many entries of the completion queue must be free.
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
  /// Creates the completion channel, on which the events of all queues arrive. `device` must
  /// outlive this object. `vector`: completion vector (interrupt) of all queues. Throws VerbsError.
  CompletionQueues(const Device& device, int vector);

  int fd() const noexcept { return channel_->fd; }
  /// Reserves `entries` entries of one queue, and creates a queue if no existing one has enough
  /// free entries. `common`: number of shared receives; their completions may arrive on any queue,
  /// so each queue must have entries for all of them, too. Throws VerbsError if a queue cannot be
  /// created.
  CqLease lease(std::uint32_t entries, std::uint32_t common);
  /// Returns the queues that are not armed: no event announces their completions, so they must be
  /// polled. The vector changes in arm(), look_again(), lease(), take_events() and tick().
  const std::vector<CompletionQueue*>& unarmed() const noexcept { return unarmed_; }
  /// Takes the pending events from the channel and returns their number. The queues of these events
  /// are no longer armed.
  std::size_t take_events() noexcept;
  /// Returns the queue that is not armed, if there is exactly one such queue; otherwise null.
  CompletionQueue* only_unarmed() const noexcept {
    return unarmed_.size() == 1 ? unarmed_.front() : nullptr;
  }
  /// Arms (requests an event for the next completion of) the only queue that is not armed. The
  /// caller must poll it once more before the loop sleeps. Returns false if the device fails to arm
  /// it.
  bool arm(CompletionQueue& queue) noexcept {
    if (!queue.cq.arm()) return false;
    unarmed_.clear();
    if (!std::exchange(queue.event_due, true)) ++events_due_;
    return true;
  }
  /// Arms all queues that are not armed (requests an event for their next completions) and returns
  /// them. The caller must poll them once more before the loop sleeps. Sets `lost` to true if the
  /// device fails to arm a queue.
  const std::vector<CompletionQueue*>& arm(bool& lost) noexcept;
  /// Counts an armed queue (one that has requested an event) as unarmed again, so that it is
  /// polled: the poll after arm() may have left completions in it.
  void look_again(CompletionQueue& queue) noexcept;
  /// Frees queues that no queue pair has used for some time. The first queue is never freed.
  void tick(ae::TimePoint now) noexcept;
  bool at_rest() const noexcept;
  const std::vector<std::unique_ptr<CompletionQueue>>& all() const noexcept { return queues_; }

 private:
  const Device& device_;
  int vector_;
  CompChannel channel_;  // the completion channel; declared before queues_, which it must outlive
  std::vector<std::unique_ptr<CompletionQueue>> queues_;
  // unarmed_ and arming_ have capacity for all queues, so that adding one cannot throw.
  std::vector<CompletionQueue*> unarmed_, arming_;
  std::size_t events_due_ = 0;
};

}}}  // namespace conn::rdma
