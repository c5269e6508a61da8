// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The rows in their order: of this machine, and of URLs to dial.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "conn/registry.h"
#include "programs/doctor/facts.h"
#include "programs/doctor/verdict.h"

namespace doctor {

struct Plan {
  std::vector<std::string> urls;     ///< to dial
  std::uint64_t connections = 1000;  ///< that limits are to have room for
  bool all_connections = false;      ///< fewer are a failure
  ae::Duration patience = std::chrono::seconds(5);
};

/// Calls `tell` for each row as it is known. Throws conn::Error for a URL that is none.
void check_up(const conn::Registry& registry, const Facts& facts, const Plan& plan,
              const std::function<void(Verdict)>& tell);

}  // namespace doctor
