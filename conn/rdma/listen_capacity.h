// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Records how many connections the limits of this machine allow a listener.

#include <cstdint>

#include "ae/abi.h"
#include "conn/rdma/config/settings.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

class LoopState;

/// Checks limits before they are reached: counters show how many connections fit, and how many
/// limits are too low for `wanted` of them; aeconn-doctor explains them.
void record_capacity(LoopState& state, const Settings& settings, std::uint64_t wanted);

}}}  // namespace conn::rdma
