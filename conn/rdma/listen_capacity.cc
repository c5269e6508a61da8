// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/listen_capacity.h"

#include <algorithm>

#include "conn/rdma/config/limits.h"
#include "conn/rdma/loop/loop_state.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

void record_capacity(LoopState& state, const Settings& settings, std::uint64_t wanted) {
  std::uint64_t room = UINT64_MAX, low = 0;
  for (const auto& context : state.devices().contexts()) {
    for (const Capacity& each : capacities(context->device(), wanted, settings)) {
      room = std::min(room, each.connections);
      low += each.enough() ? 0 : 1;
    }
  }
  state.statistics().room_for_connections = room == UINT64_MAX ? 0 : room;
  state.statistics().limits_too_low = low;
}

std::string why_none_can_be_served(LoopState& state, const Settings& settings) {
  std::string why;
  const auto& contexts = state.devices().contexts();
  if (contexts.empty()) return too_little_memory(nullptr, settings);
  for (const auto& context : contexts) {
    why = too_little_memory(&context->device(), settings);
    if (why.empty()) break;
  }
  return why;
}

}}}  // namespace conn::rdma
