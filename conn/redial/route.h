// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Route: the schemes and endpoints that one connection attempt of a Redial tries, and its
// time-outs.

#include <vector>

#include "ae/abi.h"
#include "ae/time.h"
#include "conn/fallback_type.h"
#include "conn/lists/dial.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI {

/// The candidates (schemes and endpoints to try) of a connection attempt, and its time-outs.
struct Route {
  /// The endpoint's list of schemes; null: it has a single scheme.
  const FallbackType* list = nullptr;
  std::vector<Candidate> candidates;
  FallbackType::Times times{};
};

/// Determines the candidates and time-outs of an attempt to connect to `to`; `attempt` is the
/// time-out if the endpoint sets none. For transports that have option user-timeout, adds
/// keepalive=1s and user-timeout=3s unless `to` sets them, so that a dead path is detected within
/// seconds. Throws Error.
Route route_to(const Registry& registry, const Endpoint& to, ae::Duration attempt);

}}  // namespace conn
