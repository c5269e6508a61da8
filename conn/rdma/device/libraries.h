// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Loads libibverbs and librdmacm when rdma is first used, so that one binary also runs where they
// are missing. A build with RDMA=link is linked with them.

#include <string>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Loads the libraries once, for the life of the process, if they are not loaded yet. "": they are
/// available; otherwise which one is missing and what to install. Any thread.
std::string missing_libraries();
/// The files that were loaded, such as /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0. Any
/// thread.
std::vector<std::string> library_files();

}}}  // namespace conn::rdma
