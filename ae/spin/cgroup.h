// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the cgroup of this process.

#include <span>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

/// Finds the path of the process's cgroup of version 2 in the file `list`, which has the form of
/// /proc/self/cgroup, and writes the path into `group`, terminated by a null character. Returns
/// false if the file has no such path, or if `group` is too small.
bool find_cgroup(const char* list, std::span<char> group) noexcept;

}}  // namespace ae
