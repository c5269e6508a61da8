#include "conn/rdma/domain.h"

#include <algorithm>
#include <array>

namespace conn::rdma {

ReceiveQueue::ReceiveQueue(ibv_pd* pd, std::uint32_t depth)
    : depth_(depth), memory_(pd, std::size_t{depth} * kControlSize, IBV_ACCESS_LOCAL_WRITE) {
  free_.reserve(depth);
  for (std::uint32_t slot = 0; slot < depth; ++slot) free_.push_back(slot);
}

std::span<const std::byte> ReceiveQueue::buffer(std::uint32_t slot,
                                                std::uint32_t length) const noexcept {
  return {memory_.memory.data() + std::size_t{slot} * kControlSize,
          std::min<std::size_t>(length, kControlSize)};
}

int ReceiveQueue::replenish() noexcept {
  constexpr std::size_t kChain = 64;
  std::array<ibv_recv_wr, kChain> requests;
  std::array<ibv_sge, kChain> buffers;
  while (!free_.empty()) {
    const std::size_t count = std::min(kChain, free_.size());
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint32_t slot = free_[free_.size() - 1 - i];
      const auto* at = memory_.memory.data() + std::size_t{slot} * kControlSize;
      buffers[i] = {reinterpret_cast<std::uintptr_t>(at), kControlSize, memory_.mr->lkey};
      requests[i] = {};
      requests[i].wr_id = kReceiveId | (qp_ != nullptr ? kOwnReceiveId : 0) | slot;
      requests[i].sg_list = &buffers[i];
      requests[i].num_sge = 1;
      requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
    }
    ibv_recv_wr* bad = nullptr;
    const int err = srq_ != nullptr ? ibv_post_srq_recv(srq_, requests.data(), &bad)
                                    : ibv_post_recv(qp_, requests.data(), &bad);
    const auto posted = err == 0         ? count
                        : bad == nullptr ? 0  // a driver that does not say
                                         : static_cast<std::size_t>(bad - requests.data());
    free_.resize(free_.size() - posted);
    if (err != 0) return err;
  }
  return 0;
}

WindowBuffer ReceiveWindow::buffer() noexcept {
  WindowBuffer buffer;
  buffer.data = memory.memory.data();
  buffer.length = length;
  buffer.address = reinterpret_cast<std::uintptr_t>(memory.memory.data());
  buffer.key = window ? ibv_inc_rkey(window->rkey) : memory.mr->rkey;
  buffer.owner = this;
  return buffer;
}

void ReceiveWindow::unregister() noexcept {
  window.reset();
  memory.unregister();
}

Domain::Domain(ibv_context* device, const Config& config)
    : config_(config), pd_(alloc_pd(device)), staging_(pd_.get(), config.slab) {
  if (config.shared_receives == 0) return;
  receives_ = std::make_unique<ReceiveQueue>(pd_.get(), config.shared_receives);
  srq_ = create_srq(pd_.get(), config.shared_receives);
  receives_->attach(srq_.get());
  if (const int err = receives_->replenish(); err != 0) throw VerbsError("ibv_post_srq_recv", err);
}

std::unique_ptr<ReceiveWindow> Domain::make_window(std::uint32_t length) const {
  auto made = std::make_unique<ReceiveWindow>();
  made->length = length;
  const unsigned access = config_.bind_keys ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND
                                            : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  made->memory = RegisteredMemory(pd_.get(), length, access);
  if (config_.bind_keys) {
    made->window = alloc_mw(pd_.get());
    if (!made->window) throw VerbsError("ibv_alloc_mw", errno);
  }
  return made;
}

}  // namespace conn::rdma
