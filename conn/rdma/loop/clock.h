// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time where the loop's own (LoopState::now()) could be too old.

#include <chrono>

#include "ae/time.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

inline ae::TimePoint clock_now() { return std::chrono::steady_clock::now(); }

}}}  // namespace conn::rdma
