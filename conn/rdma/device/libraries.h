// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// libibverbs and librdmacm, loaded when rdma is first used, so that one binary runs where they are
// missing, too. A build with RDMA=link is linked with them.

#include <string>
#include <vector>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

/// Loads them, once and for good, if nobody has. "": they are here; else which is missing and what
/// to install. Any thread.
std::string missing_libraries();
/// The files that were loaded, as /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0. Any thread.
std::vector<std::string> library_files();

}}}  // namespace conn::rdma
