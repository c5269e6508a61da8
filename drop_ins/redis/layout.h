// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Whether structures of the server are as server_abi.h declares them: a distribution may have
// patched a server without a change of its version. Looked at before anything is written to them.

#include <string>

namespace aeconn_redis {

/// At load, after find_server(): why this server cannot have our type of connection, without a full
/// stop; empty: it can. Functions are called only where the whole table that has them holds
/// functions. Two functions that changed places are seen only where tcp lacks one of them.
std::string unfit();
/// Later, when the server has its listeners: whether that of tcp, if there is one, is as declared.
bool listeners_fit();

}  // namespace aeconn_redis
