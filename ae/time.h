// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The time types used throughout the library.

#include <chrono>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

using Duration = std::chrono::nanoseconds;  ///< a length of time, in nanoseconds
/// A point in time, on the system's monotonic clock.
using TimePoint = std::chrono::steady_clock::time_point;

}}  // namespace ae
