// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Includes the installed version of Catch2: 2 (Debian 12) or 3.
#ifdef AECONN_CATCH2_V3
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <string>

namespace testing {

/// Matches a text that contains `part`. The versions have different names for that.
inline auto Contains(const std::string& part) {
#ifdef AECONN_CATCH2_V3
  return Catch::Matchers::ContainsSubstring(part);
#else
  return Catch::Matchers::Contains(part);
#endif
}

}  // namespace testing
