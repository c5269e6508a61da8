// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// What one connection attempt of a Redial tries, and for how long.

#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/fallback_type.h"
#include "conn/lists/dial.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI {

/// The candidates (schemes and endpoints to try) of a connection attempt, and its time-outs.
struct Route {
  const FallbackType* list = nullptr;  ///< the list of schemes of the endpoint; null: it has one
  std::vector<Candidate> candidates;
  FallbackType::Times times{};
};

/// Determines the candidates and time-outs of an attempt to connect to `to`; `attempt` is the
/// time-out if the endpoint sets none. Over transports that have these options, and where `to` does
/// not set them, a dead path is detected within seconds: keepalive=1s, user-timeout=3s. Throws
/// Error.
Route route_to(const Registry& registry, const Endpoint& to, ae::Duration attempt);

}}  // namespace conn
