// SPDX-License-Identifier: BSD-3-Clause
#include "conn/redial/route.h"

#include <chrono>
#include <utility>

namespace conn { inline namespace AECONN_ABI {

using namespace std::chrono_literals;

Route route_to(const Registry& registry, const Endpoint& to, ae::Duration attempt) {
  Route route;
  ConnectionType& type = registry.require(to.scheme);
  type.check(to);
  route.list = registry.list(to.scheme);
  if (route.list != nullptr) {
    route.candidates = route.list->candidates_for(to);
    route.times = route.list->times(to);
  } else {
    Candidate candidate;
    candidate.scheme = to.scheme;
    candidate.type = &type;
    candidate.to = to;
    route.candidates.push_back(std::move(candidate));
    // Any value is allowed here, because check() has verified the range.
    route.times.timeout = to.options.duration("connect-timeout", attempt, 0ms, ae::Duration::max());
  }
  if (!to.options.has("connect-timeout")) route.times.timeout = attempt;
  for (Candidate& candidate : route.candidates) {
    // Sets options that detect a dead TCP path within seconds. Without them TCP retransmits lost
    // data at ever longer intervals, up to two minutes, and continues to do so after the path has
    // recovered.
    if (candidate.type == nullptr || candidate.type->find_option("user-timeout") == nullptr)
      continue;
    for (const auto& [key, value] : {std::pair{"keepalive", "1s"}, {"user-timeout", "3s"}})
      if (!to.options.has(key)) candidate.to.options.set(key, value);
  }
  return route;
}

}}  // namespace conn
