// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Takes the completions of one loop from the queues of one device and passes each to the owner of
// its queue pair. Completions of a queue reach their owners in order, also when an owner polls the
// same queue from inside a call. Shared receives are posted again before any handler runs.

#include <cstddef>
#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/device/device.h"
#include "conn/rdma/loop/domains.h"
#include "conn/rdma/loop/queue_pair_users.h"
#include "conn/rdma/loop/statistics.h"
#include "conn/rdma/memory/completion_queues.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Completions taken in one iteration, so that a flood leaves time for timers and sockets.
inline constexpr std::size_t kPollBudget = 256;
/// The same after the queues were armed, before the loop sleeps.
inline constexpr std::size_t kArmBudget = 256;

class CompletionPolling {
 public:
  /// Borrows all of them. Throws VerbsError.
  CompletionPolling(const Device& device, int vector, QueuePairUsers& users, Domains& domains,
                    ContextCounters& counters)
      : device_(device),
        users_(users),
        domains_(domains),
        counters_(counters),
        queues_(device, vector) {}

  int fd() const noexcept { return queues_.fd(); }
  /// Throws VerbsError if no completion queue of that depth is available.
  CqLease lease(std::uint32_t entries) { return queues_.lease(entries, domains_.shared_depth()); }
  std::size_t queues() const noexcept { return queues_.all().size(); }

  /// Takes up to `budget` completions and passes them to their owners. Returns how many it took.
  /// Sets `more` if a queue used up its share.
  std::size_t poll(std::size_t budget, bool* more = nullptr);
  /// Polls one queue until everything that was in it at the call is taken.
  void drain(CompletionQueue& queue);
  /// drain() for all queues.
  void drain();
  /// True if a completion queue is not armed, so that only polling would see its completions.
  bool needs_poll() const noexcept { return !queues_.unarmed().empty(); }
  /// Takes events from the completion channel; those queues must be polled and armed again.
  void on_event() { counters_.completion_events += queues_.take_events(); }
  /// Arms every queue, then polls once more. False: completions arrived in between.
  bool arm();

  /// Periodic: frees unused queues.
  void tick(ae::TimePoint now) noexcept { queues_.tick(now); }
  bool at_rest() const noexcept { return queues_.at_rest(); }

 private:
  std::size_t poll_queue(CompletionQueue& queue, std::size_t budget);
  void dispatch(const ibv_wc& completion);
  void on_receive(const ibv_wc& completion, QueuePairUser* user);

  const Device& device_;
  QueuePairUsers& users_;
  Domains& domains_;
  ContextCounters& counters_;
  CompletionQueues queues_;
};

}}}  // namespace conn::rdma
