// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The units of time of everything here.

#include <chrono>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

using Duration = std::chrono::nanoseconds;                ///< a length of time
using TimePoint = std::chrono::steady_clock::time_point;  ///< of the monotonic clock

}}  // namespace ae
