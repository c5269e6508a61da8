// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/device/completion_queue.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {

Cq::Cq(ibv_context* device, std::uint32_t entries, ibv_comp_channel* channel, int vector,
       void* user)
    : cq_(ibv_create_cq(device, static_cast<int>(entries), user, channel, vector)),
      entries_(entries) {
  if (!cq_) throw VerbsError(fmt::format("ibv_create_cq of {} entries", entries), errno);
}

void Cq::on_event() noexcept {
  armed_ = false;
  if (++unacknowledged_ == 128) acknowledge();
}

bool Cq::arm() noexcept {
  armed_ = ibv_req_notify_cq(cq_.get(), 0) == 0;
  return armed_;
}

void Cq::acknowledge() noexcept {
  if (unacknowledged_ != 0) ibv_ack_cq_events(cq_.get(), std::exchange(unacknowledged_, 0u));
}

}}}  // namespace conn::rdma
