// SPDX-License-Identifier: BSD-3-Clause
#include "conn/rdma/loop/port_watch.h"

#include <algorithm>
#include <utility>

namespace conn { inline namespace AECONN_ABI { namespace rdma {
namespace {

// The interval at which a port that is down is queried.
constexpr ae::Duration kPorts = std::chrono::milliseconds(250);

}  // namespace

bool PortWatch::has_port_down() const noexcept {
  return std::any_of(contexts_.begin(), contexts_.end(), [](const auto& context) {
    return !context->lost() && context->device().any_port_down();
  });
}

void PortWatch::start() {
  if (timer_ != 0 || !has_port_down()) return;
  // The first query of the ports, too, is made from a timer and not here, because it may end
  // connections and the caller may be in the middle of ending one.
  timer_ = loop_.add_time_event(ae::Duration::zero(), [this]() -> ae::Duration {
    // NOLINTNEXTLINE(modernize-loop-convert): tell_of_ports() may change the list
    for (std::size_t i = 0; i < contexts_.size(); ++i)
      contexts_[i]->tell_of_ports(std::chrono::steady_clock::now());
    if (has_port_down()) return kPorts;
    timer_ = 0;
    return ae::kNoMore;
  });
}

void PortWatch::stop() noexcept {
  if (timer_ != 0) loop_.remove_time_event(std::exchange(timer_, 0));
}

}}}  // namespace conn::rdma
