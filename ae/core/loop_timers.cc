// SPDX-License-Identifier: BSD-3-Clause
#include "ae/core/loop_timers.h"

#include <chrono>
#include <utility>

namespace ae { inline namespace AECONN_ABI {

void LoopTimers::run_due(std::size_t limit) {
  change();
  // If no timer can have expired (expired_ is false), collects only timers without a delay, for
  // which the clock need not be read.
  expired_ = queue_.collect(expired_ ? std::chrono::steady_clock::now() : TimePoint::min(), limit);
  for (bool first = true; limit != 0 && queue_.has_collected(); --limit) {
    if (!std::exchange(first, false) && !core_.has_time()) break;
    core_.count_handler();
    queue_.run_one();
  }
}

}}  // namespace ae
