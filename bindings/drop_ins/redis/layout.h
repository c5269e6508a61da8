// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Verifies that the server's structures match the layout of its release (releases.h): a
// distribution may have patched a server without changing its version. Checked before anything is
// written to them.

#include <string>

namespace aeconn_redis {

/// Call this at load, after find_server(), with `layout` set. Returns why the server, whose release
/// is called `name`, cannot have our connection type, without a full stop; empty if it can.
/// Functions are called only if all entries of their table are functions. Two swapped functions are
/// detected only if tcp lacks one of them.
std::string unfit(const std::string& name);
/// Call this once the server has its listeners. Like unfit(), for the listener of tcp, if any.
std::string listeners_unfit();

}  // namespace aeconn_redis
