// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The sum of a type's counters on all loops that a Site's listeners serve.

#include "conn/connection_type.h"
#include "tests/support/testing.h"

namespace testing {

inline conn::LoopCounters counters(const Site& site, const conn::ConnectionType& type) {
  const auto of = [&](ae::EventLoop& loop) { return type.counters(loop); };
  conn::LoopCounters sum = of(const_cast<testing::AnyLoop&>(site.loop));
  for (std::size_t i = 1; site.loops && i < site.loops->size(); ++i) {
    const conn::LoopCounters next = of((*site.loops)[i]);
    sum.accepted += next.accepted;
    sum.connected += next.connected;
    sum.failed += next.failed;
    sum.closed += next.closed;
    sum.open += next.open;
    sum.bytes_read += next.bytes_read;
    sum.bytes_written += next.bytes_written;
    sum.short_writes += next.short_writes;
    sum.accept_errors += next.accept_errors;
    sum.refused += next.refused;
  }
  return sum;
}
inline conn::LoopCounters counters(const Site& site) { return counters(site, site.carrier); }

}  // namespace testing
