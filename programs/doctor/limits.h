// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks only the limits, for a URL on which a server would listen.

#include <cstdint>
#include <string>

#include "conn/registry.h"

namespace doctor {

/// Prints one line per limit, or one line of JSON for all. Returns whether all limits are high
/// enough. Throws conn::Error if they cannot be determined.
bool print_limits(const conn::Registry& registry, const std::string& url, std::uint64_t connections,
                  bool json);

}  // namespace doctor
