// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// For tests of TLS: reads a figure of a type's statistics.

#include <cstdint>
#include <string_view>

#include "tests/support/catch.h"
#include "tests/support/tls_kit.h"

namespace testing {

/// The figure `name` of the type's statistics on the loop of `site`.
inline std::uint64_t statistic(TlsSite& site, const conn::ConnectionType& type,
                               std::string_view name) {
  for (const auto& [key, value] : type.statistics(site.loop)) {
    if (key == name) return value;
  }
  FAIL("no statistic " << name);
  return 0;
}

}  // namespace testing
