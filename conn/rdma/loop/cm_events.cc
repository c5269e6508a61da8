// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/cm_events.h"

#include <optional>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// The largest number of rdma_cm events that one call of CmEvents::take() processes.
constexpr int kBudget = 64;

}  // namespace

void CmEvents::take(IterationBudget::Most most) {
  for (int left = kBudget; left != 0; --left) {
    if (!iteration_.allows(most, left == kBudget)) return;
    const IterationBudget::Spending spending(iteration_);
    const std::optional<CmEvent> event = channel_.next();
    if (!event) return;
    ++taken_;
    handle(*event);
  }
}

void CmEvents::handle(const CmEvent& event) {
  const bool removal = event.type == RDMA_CM_EVENT_DEVICE_REMOVAL && event.id != nullptr;
  if (removal) devices_.on_removed(event.id->verbs);
  rdma_cm_id* owner = event.type == RDMA_CM_EVENT_CONNECT_REQUEST ? event.listen_id : event.id;
  if (owner == nullptr) return;
  if (owner->context != nullptr) {
    static_cast<CmUser*>(owner->context)->on_cm_event(event);
  } else {
    // The rdma_cm id of this event has no owner object. Either it is a connection request that a
    // paused listener has queued, and its sender or its device is gone; or its connection has ended
    // while it was connecting.
    listeners_.drop_request(owner);
    devices_.on_event_of_nobody(event);
  }
  if (removal) devices_.drop_lost(iteration_);
}

void CmEvents::drain() {
  for (std::uint64_t before = ~taken_; before != taken_;) {
    before = taken_;
    take(IterationBudget::Most::kAll);
  }
}

}}}  // namespace conn::rdma
