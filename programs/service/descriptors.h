// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The limit of open descriptors of this process.

#include <sys/resource.h>

#include <cstdint>

namespace service {

/// Raises the soft limit of open descriptors to the hard limit; returns the new limit, 0 on
/// failure.
inline std::uint64_t allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace service
