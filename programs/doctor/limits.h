// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Limits alone, of a place where a server would listen.

#include <cstdint>
#include <string>

#include "conn/registry.h"

namespace doctor {

/// Prints a line for each limit, or one of JSON for all. Whether all are high enough. Throws
/// conn::Error where it cannot look.
bool print_limits(const conn::Registry& registry, const std::string& url, std::uint64_t connections,
                  bool json);

}  // namespace doctor
