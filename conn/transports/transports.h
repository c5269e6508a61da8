// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Every transport of this build, for a program's Registry.

#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI {

/// Adds tcp, unix and, where they were built in, rdma, and tls over each. A transport that this
/// machine cannot run (no RDMA device) is added all the same: using it throws an Error that says
/// what to do.
AECONN_API void add_all_transports(Registry& registry);
/// A registry with all of them.
AECONN_API Registry all_transports();

/// What this build has, a line for transports and one for rdma, as `--version` of a program says
/// it:
///   transports: tcp unix tls tls+unix rdma tls+rdma
///   rdma: libibverbs and librdmacm are loaded when it is first used
AECONN_API std::string build_text();

/// The libraries of others that rdma needs.
struct RdmaLibraries {
  std::string missing;             ///< which is not here and what to install; "" if none
  std::vector<std::string> files;  ///< those that are loaded, with their folder
};
/// Loads them if nobody has, for good. Of a build without rdma: nothing of either. Any thread.
AECONN_API RdmaLibraries rdma_libraries();

}}  // namespace conn
