// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// clock_now(): returns the current time, for code in which the time of the loop's iteration
// (LoopState::now()) may be too old.

#include <chrono>

#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

inline ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

}}}  // namespace conn::rdma
