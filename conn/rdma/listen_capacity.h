// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Determines how many connections of a listener the limits of this machine allow.

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/config/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LoopState;

/// Computes how many connections the limits of this machine and of its opened devices allow, and
/// how many of these limits are too low for `wanted` connections. Stores both numbers in the
/// statistics of the loop; aeconn-doctor explains the limits.
void record_capacity(LoopState& state, const Settings& settings, std::uint64_t wanted);

/// Returns the reason if a listener on this loop can serve no connection, because no opened device
/// has room for one within the limit on locked memory. Otherwise returns an empty string.
std::string why_none_can_be_served(LoopState& state, const Settings& settings);

}}}  // namespace conn::rdma
