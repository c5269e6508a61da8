// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Adds all transports that this build contains to a program's Registry.

#include <string>
#include <vector>

#include "ae/abi.h"
#include "conn/registry.h"

namespace conn { inline namespace AECONN_ABI {

/// Adds tcp, unix, shm, vsock and rdma, and tls over each of these, to `registry`; rdma and tls
/// only if this build contains them. A transport that this machine cannot run (no RDMA device) is
/// added as well: using it throws an Error that says what to do.
AECONN_API void add_all_transports(Registry& registry);
/// Returns a new registry with all transports that add_all_transports() adds.
AECONN_API Registry all_transports();

/// Describes this build, with a line for transports and one for rdma, as `--version` of a program
/// prints it:
///   transports: tcp unix shm vsock tls tls+unix tls+shm tls+vsock rdma tls+rdma
///   rdma: libibverbs and librdmacm are loaded when it is first used
AECONN_API std::string build_text();

/// Describes the third-party libraries that the transport rdma needs.
struct RdmaLibraries {
  std::string missing;  ///< names the missing library and what to install; empty if none is missing
  std::vector<std::string> files;  ///< file names of the loaded libraries, with their directories
};
/// Loads the libraries that rdma needs, permanently, unless they are loaded already, and describes
/// them. Returns an empty result in a build without rdma. May be called from any thread.
AECONN_API RdmaLibraries rdma_libraries();

}}  // namespace conn
