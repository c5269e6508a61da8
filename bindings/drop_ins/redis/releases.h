// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The releases of Redis and Valkey that are served, with the layout of each.

#include <string>

#include "drop_ins/redis/server_abi.h"

namespace aeconn_redis {

/// What a server says of itself.
struct Version {
  bool valkey = false;
  std::string text;  // "8.0.2"; empty: it says nothing

  /// "Redis 8.0.2"
  std::string name() const { return (valkey ? "Valkey " : "Redis ") + text; }
};

/// The layout of that release, or null if it is not served.
const Layout* layout_for(const Version& version);
/// "Redis 7.2, 7.4 and Valkey 8.1": all that are served.
std::string served_releases();

}  // namespace aeconn_redis
