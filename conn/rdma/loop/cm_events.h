// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Takes the events from a loop's rdma_cm channel and passes each to the owner of its id. An event
// of an id without an owner is passed to the listeners, which may have queued the id as a
// connection request, and to class Devices, which keeps ids that cannot be destroyed yet.

#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/loop/devices.h"
#include "conn/rdma/loop/iteration_budget.h"
#include "conn/rdma/loop/listeners.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class CmEvents {
 public:
  /// All arguments must outlive this object. `taken`: counter of events, increased for each event.
  CmEvents(CmChannel& channel, Devices& devices, LoopListeners& listeners,
           IterationBudget& iteration, std::uint64_t& taken) noexcept
      : channel_(channel),
        devices_(devices),
        listeners_(listeners),
        iteration_(iteration),
        taken_(taken) {}
  /// Takes up to 64 rdma_cm events and handles them. With Most::kShare, stops earlier when the
  /// iteration's time for such work (IterationBudget) is used up.
  void take(IterationBudget::Most most);
  /// Takes all pending events of the loop's rdma_cm channel and handles them.
  void drain();

 private:
  void handle(const CmEvent& event);

  CmChannel& channel_;
  Devices& devices_;
  LoopListeners& listeners_;
  IterationBudget& iteration_;
  std::uint64_t& taken_;
};

}}}  // namespace conn::rdma
