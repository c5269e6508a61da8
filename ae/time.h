// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time types used throughout the library.

#include <chrono>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

using Duration = std::chrono::nanoseconds;                ///< a length of time
using TimePoint = std::chrono::steady_clock::time_point;  ///< a point on the monotonic clock

}}  // namespace ae
