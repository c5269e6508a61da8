// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs all checks in order: those of this machine, then those of the URLs to connect to.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conn/registry.h"
#include "programs/doctor/facts.h"
#include "programs/doctor/verdict.h"

namespace doctor {

struct Plan {
  std::vector<std::string> urls;     ///< URLs to connect to
  std::uint64_t connections = 1000;  ///< number of connections that the limits must allow
  bool all_connections = false;      ///< whether limits that allow fewer are a failure
  ae::Duration time_limit = std::chrono::seconds(5);
};

/// Calls `tell` with each verdict as soon as it is known. Throws conn::Error for an invalid URL.
void check_up(const conn::Registry& registry, const Facts& facts, const Plan& plan,
              const std::function<void(Verdict)>& tell);

}  // namespace doctor
