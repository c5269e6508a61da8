// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A hook of tests into ibv_post_send().

#include <functional>

#include "tests/simulation/objects.h"

namespace simulation {

/// Called with each chain of requests that is posted, before the driver looks at it. A test that
/// sets it must reset it.
extern std::function<void(QueuePair&, const ibv_send_wr&)> before_post;

}  // namespace simulation
