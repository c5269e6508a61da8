// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the cgroup of this process.

#include <span>

#include "ae/abi.h"

namespace ae { inline namespace AECONN_ABI {

/// Writes into `group` the path of the process's cgroup of version 2, as the file `list` says,
/// whose form is that of /proc/self/cgroup; terminated by a null character. Returns false if there
/// is none, or if it does not fit.
bool find_cgroup(const char* list, std::span<char> group) noexcept;

}}  // namespace ae
