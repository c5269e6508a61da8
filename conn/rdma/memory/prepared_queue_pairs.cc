// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/memory/prepared_queue_pairs.h"

#include <algorithm>
#include <utility>

#include "conn/rdma/protocol/wire.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

ibv_qp_init_attr ask_for(const QueuePairShape& shape, const CqLease& lease) noexcept {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = lease.cq();
  attributes.srq = shape.domain->srq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = shape.sends;
  attributes.cap.max_send_sge = 1;
  attributes.cap.max_inline_data = shape.inline_data;
  return attributes;
}

Pinned pin_rings(const ibv_qp_cap& cap) noexcept {
  constexpr std::size_t kRequest = 128;  // approximate size in bytes of one slot of a send queue
  return Pinned(cap.max_send_wr * (kRequest + cap.max_inline_data) +
                cap.max_recv_wr * kControlSize);
}

void PreparedQueuePairs::Kept::release() noexcept {
  if (window != nullptr) pool->release(std::exchange(window, nullptr));
}

std::size_t PreparedQueuePairs::count(const QueuePairShape& shape) const noexcept {
  return static_cast<std::size_t>(std::count_if(
      ready_.begin(), ready_.end(), [&](const Kept& each) { return each.pair.shape == shape; }));
}

void PreparedQueuePairs::add(PreparedQueuePair made, Domain& domain, std::uint32_t window,
                             const MemoryLimit& limit) {
  ready_.reserve(ready_.size() + 1);
  Failure why;
  RegisteredPool& pool = domain.windows(window);
  Block* block = pool.acquire(window, limit, &why);
  if (block == nullptr) throw VerbsError(std::move(why));
  ready_.push_back({std::move(made), &pool, block});
}

std::optional<PreparedQueuePair> PreparedQueuePairs::take(const QueuePairShape& shape) noexcept {
  const auto found = std::find_if(ready_.rbegin(), ready_.rend(),
                                  [&](const Kept& each) { return each.pair.shape == shape; });
  if (found == ready_.rend()) return std::nullopt;
  found->release();
  std::optional<PreparedQueuePair> taken(std::move(found->pair));
  ready_.erase(std::next(found).base());
  return taken;
}

bool PreparedQueuePairs::drop_one() noexcept {
  if (ready_.empty()) return false;
  ready_.back().release();
  ready_.pop_back();
  return true;
}

void PreparedQueuePairs::drop_of(const Domain& domain) noexcept {
  for (Kept& each : ready_)
    if (each.pair.shape.domain == &domain) each.release();
  std::erase_if(ready_, [&](const Kept& each) { return each.pair.shape.domain == &domain; });
}

void PreparedQueuePairs::clear() noexcept {
  while (drop_one()) {
  }
}

}}}  // namespace conn::rdma
