// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many connections the limits of this machine allow a listener.

#include <cstdint>
#include <string>

#include "ae/abi.h"
#include "conn/rdma/config/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LoopState;

/// Checks limits before they are reached: counters show how many connections fit, and how many
/// limits are too low for `wanted` of them; aeconn-doctor explains them.
void record_capacity(LoopState& state, const Settings& settings, std::uint64_t wanted);

/// Returns why a listener on this loop could serve no connection: the limit on locked memory is too
/// low on each device that has been opened. Empty: it is not.
std::string why_none_can_be_served(LoopState& state, const Settings& settings);

}}}  // namespace conn::rdma
