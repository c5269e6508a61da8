// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Determines how many connections of a listener the limits of this machine allow.

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/config/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LoopState;

/// Checks limits before they are reached. Stores in the statistics how many connections the limits
/// allow, and how many limits are too low for `wanted` connections; aeconn-doctor explains the
/// limits.
void record_capacity(LoopState& state, const Settings& settings, std::uint64_t wanted);

/// Returns a text if a listener on this loop can serve no connection, because the limit on locked
/// memory is too low for one connection on every opened device. Otherwise returns an empty string.
std::string why_none_can_be_served(LoopState& state, const Settings& settings);

}}}  // namespace conn::rdma
