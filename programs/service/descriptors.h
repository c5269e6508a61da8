// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// How many descriptors this process may have.

#include <sys/resource.h>

#include <cstdint>

namespace service {

/// Raises the limit to the hard one; returns it.
inline std::uint64_t allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

}  // namespace service
