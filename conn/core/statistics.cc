// SPDX-License-Identifier: BSD-3-Clause
// Makes the list of a ConnectionType's counters on one loop.

#include "conn/core/connection_set.h"
#include "conn/core/transport.h"

namespace conn { inline namespace AECONN_ABI {
namespace {

void append(Statistics& to, const std::string& name, const Histogram& times) {
  if (times.count() == 0) return;
  for (std::size_t i = 0; i < Histogram::kBounds.size(); ++i)
    to.emplace_back(name + "le_" + std::to_string(Histogram::kBounds[i]), times.up_to(i));
  to.emplace_back(name + "sum_ns", times.sum_ns());
  to.emplace_back(name + "count", times.count());
}

}  // namespace

LoopCounters& ConnectionType::counters(ae::EventLoop& loop) const {
  return ConnectionSet::of(loop).counters(*this);
}

Statistics Transport::statistics(ae::EventLoop& loop) const {
  const LoopCounters& c = counters(loop);
  Statistics all = {{"open", c.open},
                    {"accepted", c.accepted},
                    {"connected", c.connected},
                    {"failed", c.failed},
                    {"closed", c.closed},
                    {"accept_errors", c.accept_errors},
                    {"refused", c.refused},
                    {"bytes_read", c.bytes_read},
                    {"bytes_written", c.bytes_written},
                    {"short_writes", c.short_writes}};
  for (std::size_t i = 0; i < kSkipReasons; ++i) {
    constexpr std::string_view kFallback = "fallback_";
    if (c.not_connected[i] == 0) continue;
    const std::string_view reason = counter_of(static_cast<SkipReason>(i)).substr(kFallback.size());
    all.emplace_back("connect_failed_" + std::string(reason), c.not_connected[i]);
  }
  append(all, "connect_time_", c.connect_time);
  append(all, "accept_time_", c.accept_time);
  return all;
}

}}  // namespace conn
