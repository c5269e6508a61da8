// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Verifies that the server's structures match server_abi.h: a distribution may have patched a
// server without changing its version. Checked before anything is written to them.

#include <string>

namespace aeconn_redis {

/// Call this at load, after find_server(). Returns why this server cannot have our connection type,
/// without a full stop; empty if it can. Functions are called only if all entries of their table
/// are functions. Two swapped functions are detected only if tcp lacks one of them.
std::string unfit();
/// Call this once the server has its listeners: whether that of tcp, if any, matches.
bool listeners_fit();

}  // namespace aeconn_redis
