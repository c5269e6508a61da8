// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/completion_polling.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <span>

#include "conn/rdma/protocol/flow_control.h"
#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

std::size_t CompletionPolling::poll(std::size_t budget, bool* more) {
  const auto& queues = queues_.unarmed();
  // Each queue gets an equal share of the budget, so that a busy queue does not starve the others.
  const std::size_t share =
      std::max<std::size_t>(budget / std::max<std::size_t>(queues.size(), 1), kPollBatch);
  std::size_t total = 0;
  // NOLINTNEXTLINE(modernize-loop-convert): the list may change in the loop
  for (std::size_t i = 0; i < queues.size(); ++i) {
    const std::size_t taken = poll_queue(*queues[i], share);
    if (more != nullptr && taken >= share) *more = true;
    total += taken;
  }
  return total;
}

// Takes completions from the queue and passes them to their owners, until about `budget` are taken
// or the queue is empty; returns their number. Reentrant, because the owner of a queue pair may
// drain this queue while it handles a completion: completions that were polled before are then
// passed on first.
std::size_t CompletionPolling::take(CompletionQueue& queue, std::size_t budget) {
  std::size_t total = 0;
  for (bool more = true; more && total < budget && has_polled(queue);) {
    more = queue.end == kPollBatch;
    while (queue.next != queue.end) {
      const ibv_wc& completion = queue.polled[queue.next++];
      const std::uint32_t qp_number = completion.qp_num;
      ++total;
      try {
        if (!dispatch_data(completion)) dispatch(ibv_wc(completion));
      } catch (const std::exception&) {  // no memory: ends only this queue pair's connection
        if (QueuePairUser* user = users_.find(qp_number)) user->on_no_memory();
      }
    }
    // Used receives are posted again before handlers of the user run, because the peers' next
    // messages need them.
    if (ReceiveQueue* receives = domains_.shared_receives()) {
      const std::size_t batch =
          std::min<std::size_t>(flow::kSharedBatch, receives->depth() / flow::kReceiveBatches);
      if (receives->missing() != 0 && receives->missing() >= batch) (void)receives->replenish();
    }
  }
  counters_.completions += total;
  return total;
}

void CompletionPolling::drain(CompletionQueue& queue) {
  // Takes about as many completions as the queue has entries: these include all that were in it at
  // the call. Without this limit, new completions could keep this function busy for ever.
  const std::size_t most = queue.cq.entries();
  for (std::size_t taken = 0; taken <= most;) {
    const std::size_t now = poll_queue(queue, 1024);
    if (now == 0) return;
    taken += now;
  }
}

void CompletionPolling::drain() {
  for (const auto& queue : queues_.all()) drain(*queue);
}

void CompletionPolling::dispatch(const ibv_wc& completion) {
  // `user`, the owner of the queue pair, is null if the queue pair was destroyed. Then only
  // completions of receives matter: shared receives must be posted again.
  QueuePairUser* user = users_.find(completion.qp_num);
  if ((completion.wr_id & kReceiveId) != 0) return on_receive(completion, user);
  if (user == nullptr) return;
  const auto sequence = static_cast<std::uint32_t>(completion.wr_id);
  if (completion.status == IBV_WC_SUCCESS)
    user->on_sends_done(sequence);
  else
    user->on_work_failed(completion.status, true, sequence);
}

void CompletionPolling::on_receive(const ibv_wc& completion, QueuePairUser* user) {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  const bool own = (completion.wr_id & kOwnReceiveId) != 0;
  ReceiveQueue* receives = user != nullptr ? user->receives() : nullptr;
  if (!own && user == nullptr) receives = domains_.shared_receives();
  if (receives == nullptr) return;
  if (completion.status != IBV_WC_SUCCESS) {
    (void)receives->consumed(slot);
    if (user != nullptr) user->on_work_failed(completion.status, false, 0);
    return;
  }
  const bool immediate =
      completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM ||
      (device_.immediates_by_flag() && (completion.wc_flags & IBV_WC_WITH_IMM) != 0);
  ControlBytes copy{};
  std::size_t length = 0;
  if (!immediate) {
    const std::span<const std::byte> bytes = receives->buffer(slot, completion.byte_len);
    length = completion.byte_len <= kControlSize ? bytes.size() : 0;
    std::memcpy(copy.data(), bytes.data(), bytes.size());
  }
  if (!receives->consumed(slot) || user == nullptr) return;
  const bool common = receives == domains_.shared_receives();
  if (!common && receives->missing() * flow::kReceiveBatches >= receives->depth())
    (void)receives->replenish();
  if (immediate)
    user->on_immediate(ntohl(completion.imm_data));
  else
    user->on_message({copy.data(), length});
}

bool CompletionPolling::arm_all() {
  bool lost = false;
  const auto& armed = queues_.arm(lost);
  counters_.arms += armed.size();
  if (lost) return true;  // a lost device is not polled; its own events report the loss
  // A completion that arrived between the last poll and the arming (request of an event) caused no
  // event, so each armed queue is polled once more.
  const std::size_t share =
      std::max<std::size_t>(kArmBudget / std::max<std::size_t>(armed.size(), 1), kPollBatch);
  std::size_t total = 0;
  for (CompletionQueue* queue : armed) {
    const std::size_t taken = poll_queue(*queue, share);
    // The queue may hold more completions: it counts as unarmed, so that it is polled again.
    if (taken >= share) queues_.look_again(*queue);
    total += taken;
  }
  return total == 0;
}

}}}  // namespace conn::rdma
