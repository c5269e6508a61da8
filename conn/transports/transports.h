// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Every transport of this build, for a program's Registry.

#include "conn/registry.h"

namespace conn {

/// Adds tcp, unix and, where they were built in, rdma, and tls over each. A transport that this
/// machine cannot run (no RDMA device) is added all the same: using it throws an Error that says
/// what to do.
void add_all_transports(Registry& registry);
/// A registry with all of them.
Registry all_transports();

}  // namespace conn
