// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Loads libibverbs and librdmacm when rdma:// is first used, so that the same binary also runs on
// machines without them. A build with RDMA=link is linked with them instead.

#include <string>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Loads the libraries, unless they are loaded already; they stay loaded until the process ends.
/// Returns "" if both are available; otherwise a text that says which one is missing and what to
/// install. Thread-safe.
std::string missing_libraries();
/// Returns the paths of the loaded libraries, such as
/// /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0. Thread-safe.
std::vector<std::string> library_files();

}}}  // namespace conn::rdma
