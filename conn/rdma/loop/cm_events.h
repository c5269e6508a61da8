// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Takes the events of a loop's rdma_cm channel and passes each to the owner of its id. An event of
// an id without an owner goes to the listeners and to the ids that cannot be destroyed yet.

#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/device/cm.h"
#include "conn/rdma/loop/devices.h"
#include "conn/rdma/loop/iteration_budget.h"
#include "conn/rdma/loop/listeners.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class CmEvents {
 public:
  /// Borrows all of them. Counts events in `taken`.
  CmEvents(CmChannel& channel, Devices& devices, LoopListeners& listeners,
           IterationBudget& iteration, std::uint64_t& taken) noexcept
      : channel_(channel),
        devices_(devices),
        listeners_(listeners),
        iteration_(iteration),
        taken_(taken) {}
  /// Takes a limited number of events, or those for which the iteration has time.
  void take(IterationBudget::Most most);
  /// Takes all events.
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
