// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/send_chain.h"

#include <arpa/inet.h>

#include <cassert>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

ibv_send_wr& SendChain::add(ibv_wr_opcode opcode) {
  ibv_send_wr& request = requests_[size_];
  request = {};
  request.opcode = opcode;
  request.wr_id = next_sequence();
  if (size_ != 0) requests_[size_ - 1].next = &request;
  ++size_;
  return request;
}

void SendChain::attach(ibv_send_wr& request, std::span<const StagingQueue::Segment> from) {
  request.sg_list = &pieces_[pieces_used_];
  request.num_sge = static_cast<int>(from.size());
  for (const StagingQueue::Segment& each : from)
    pieces_[pieces_used_++] = {reinterpret_cast<std::uintptr_t>(each.data), each.length, each.lkey};
}

void SendChain::change_key(ReceiveWindow& window) { window.fill(add(IBV_WR_BIND_MW)); }

void SendChain::send_inline(const ControlBytes& message) {
  messages_[size_] = message;
  ibv_send_wr& request = add(IBV_WR_SEND);
  const StagingQueue::Segment piece{messages_[size_ - 1].data(), kControlSize, 0};
  attach(request, {&piece, 1});
  request.send_flags = IBV_SEND_INLINE;
}

void SendChain::send(const std::byte* message, std::uint32_t lkey) {
  const StagingQueue::Segment piece{message, kControlSize, lkey};
  attach(add(IBV_WR_SEND), {&piece, 1});
}

void SendChain::write(std::span<const StagingQueue::Segment> from, std::uint64_t to,
                      std::uint32_t rkey, bool copied) {
  assert(!copied || from.size() == 1);
  ibv_send_wr& request = add(IBV_WR_RDMA_WRITE);
  attach(request, from);
  request.wr.rdma.remote_addr = to;
  request.wr.rdma.rkey = rkey;
  if (copied) request.send_flags = IBV_SEND_INLINE;
}

void SendChain::with_immediate(std::uint32_t value) {
  requests_[size_ - 1].opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  requests_[size_ - 1].imm_data = htonl(value);
}

void SendChain::write_nothing(std::uint64_t to, std::uint32_t rkey) {
  ibv_send_wr& request = add(IBV_WR_RDMA_WRITE);
  const StagingQueue::Segment nothing{nullptr, 0, 0};
  // The driver cxgb4 reads the list of pieces even if num_sge is 0, so the list must have one
  // (empty) piece.
  attach(request, {&nothing, 1});
  request.num_sge = 0;
  request.wr.rdma.remote_addr = to;
  request.wr.rdma.rkey = rkey;
}

void SendChain::signal(std::size_t index) { requests_[index].send_flags |= IBV_SEND_SIGNALED; }

std::size_t SendChain::inlined(std::size_t count) const noexcept {
  std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i)
    found += (requests_[i].send_flags & IBV_SEND_INLINE) != 0 ? 1 : 0;
  return found;
}

SendChain::Result SendChain::post(ibv_qp* qp) {
  ibv_send_wr* bad = nullptr;
  const int error = post_error(ibv_post_send(qp, requests_.data(), &bad));
  if (error == 0) return {size_, 0, true};
  if (bad == nullptr) return {0, error, false};
  return {static_cast<std::size_t>(bad - requests_.data()), error, true};
}

}}}  // namespace conn::rdma
