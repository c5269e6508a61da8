// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The text of GET /metrics: the transports' statistics and the server's own figures.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server_state.h"

namespace kv {

class Together;

/// For a server on one loop. Call on its thread.
std::string metrics_of(Server& server);
/// Asks all loops on their threads; `then` gets the text later, on the thread of `here`. `then` may
/// never run if a loop ends meanwhile.
void gather_metrics(Together& together, ae::Poster here, std::function<void(std::string)> then);

}  // namespace kv
