// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What GET /metrics tells: the transports' statistics and the server's own figures.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server_state.h"

namespace kv {

class Together;

/// Of a server on one loop, on its thread.
std::string metrics_of(Server& server);
/// Of all loops, each asked on its thread; `then` gets the text on the thread of `here`, later.
/// Where a loop ends meanwhile it may never run.
void gather_metrics(Together& together, ae::Poster here, std::function<void(std::string)> then);

}  // namespace kv
