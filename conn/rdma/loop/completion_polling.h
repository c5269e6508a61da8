// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Polls the completion queues of one event loop on one device, and passes each completion to the
// owner of its queue pair. The completions of one queue reach the owners in order, even if an owner
// polls that queue while it handles a completion. Shared receives are posted again before any
// handler of the user runs.

#include <arpa/inet.h>

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/loop/domains.h"
#include "conn/rdma/loop/queue_pair_users.h"
#include "conn/rdma/loop/statistics.h"
#include "conn/rdma/memory/completion_queues.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

// The largest number of completions taken from one device in one iteration, so that a flood of them
// leaves time for timers and sockets.
inline constexpr std::size_t kPollBudget = 256;
/// The largest number of completions taken from one device in the poll that follows the arming of
/// its queues, before the loop sleeps.
inline constexpr std::size_t kArmBudget = 256;

class CompletionPolling {
 public:
  /// All references must outlive this object. Throws VerbsError.
  CompletionPolling(const Device& device, int vector, QueuePairUsers& users, Domains& domains,
                    ContextCounters& counters)
      : device_(device),
        users_(users),
        domains_(domains),
        counters_(counters),
        queues_(device, vector) {}

  int fd() const noexcept { return queues_.fd(); }
  /// Reserves `entries` entries of a completion queue. Throws VerbsError if no queue has so many
  /// free entries and none can be created.
  CqLease lease(std::uint32_t entries) { return queues_.lease(entries, domains_.shared_depth()); }
  std::size_t queues() const noexcept { return queues_.all().size(); }

  /// Takes up to about kPollBudget completions from the queues that are not armed (have requested
  /// no event), and passes them to their owners. Returns true if the queues may contain more.
  bool poll() {
    if (CompletionQueue* const queue = queues_.only_unarmed(); queue != nullptr)
      return poll_queue(*queue, kPollBudget) >= kPollBudget;
    bool more = false;
    if (needs_poll()) (void)poll(kPollBudget, &more);
    return more;
  }
  /// Takes about `budget` completions from the queues that are not armed and passes them to their
  /// owners. Returns their number. Sets `*more` to true if a queue used up its share of the budget,
  /// so that it may contain more.
  std::size_t poll(std::size_t budget, bool* more = nullptr);
  /// Polls one queue until all completions that were in it at the call are taken.
  void drain(CompletionQueue& queue);
  /// Polls each queue until all completions that were in it at the call are taken.
  void drain();
  /// Returns true if a completion queue is not armed, so that its completions cause no event and it
  /// must be polled.
  bool needs_poll() const noexcept { return !queues_.unarmed().empty(); }
  /// Takes the events from the completion channel. The queues that raised them are no longer armed,
  /// and must be polled and armed again.
  void on_event() { counters_.completion_events += queues_.take_events(); }
  /// Arms every unarmed queue (requests an event for its next completion), then polls these queues
  /// once more. Returns false if that found completions.
  bool arm() {
    CompletionQueue* const queue = queues_.only_unarmed();
    if (queue == nullptr) return !needs_poll() || arm_all();
    if (!queues_.arm(*queue)) return true;  // the device is lost, which its own events report
    ++counters_.arms;
    const std::size_t taken = poll_queue(*queue, kArmBudget);
    if (taken >= kArmBudget) queues_.look_again(*queue);
    return taken == 0;
  }

  /// Frees queues that have been unused for some time; call it about once a second.
  void tick(ae::TimePoint now) noexcept { queues_.tick(now); }
  bool at_rest() const noexcept { return queues_.at_rest(); }

 private:
  bool arm_all();
  // Polls the queue, unless completions of the last poll still have to be passed to their owners.
  // Returns true if there are completions to pass on.
  static bool has_polled(CompletionQueue& queue) noexcept {
    if (queue.next != queue.end) return true;
    const int count = ibv_poll_cq(queue.cq.get(), kPollBatch, queue.polled.data());
    if (count <= 0) return false;
    queue.next = 0;
    queue.end = static_cast<std::uint32_t>(count);
    return true;
  }
  // Takes about `budget` completions from the queue and passes them to their owners. Returns their
  // number.
  std::size_t poll_queue(CompletionQueue& queue, std::size_t budget) {
    return has_polled(queue) ? take(queue, budget) : 0;
  }
  std::size_t take(CompletionQueue& queue, std::size_t budget);
  // Fast path of dispatch() (passes a completion to its owner), for the most frequent completion: a
  // write with immediate that consumed a shared receive. Returns false and does nothing for other
  // completions. The owner of the queue pair may poll the queue, which overwrites `completion`.
  bool dispatch_data(const ibv_wc& completion) {
    constexpr int kKind = 62;  // position of the lower of the two bits of wr_id that mark receives
    if (completion.status != IBV_WC_SUCCESS || completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM ||
        completion.wr_id >> kKind != kReceiveId >> kKind)
      return false;
    const QueuePairUsers::Owner& owner = users_.find_owner(completion.qp_num);
    QueuePairUser* const user = owner.user;
    ReceiveQueue* const receives = owner.receives;
    if (user == nullptr || receives == nullptr || receives != domains_.shared_receives())
      return false;
    if (receives->consumed(static_cast<std::uint32_t>(completion.wr_id)))
      user->on_immediate(ntohl(completion.imm_data));
    return true;
  }
  void dispatch(const ibv_wc& completion);
  void on_receive(const ibv_wc& completion, QueuePairUser* user);

  const Device& device_;
  QueuePairUsers& users_;
  Domains& domains_;
  ContextCounters& counters_;
  CompletionQueues queues_;
};

}}}  // namespace conn::rdma
