// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// PeerCredentials: which process is at the other end of a connection over a Unix socket.

#include <sys/types.h>

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI {

/// The process at the other end of a connection, as the kernel noted it when that process called
/// connect(2), listen(2) or socketpair(2). It may have ended since, or have passed its socket on.
struct PeerCredentials {
  pid_t pid = 0;  ///< process ID; 0: the process is not visible in this process's PID namespace
  /// Effective user, in this process's user namespace; the overflow user (65534) if it has no
  /// number there.
  uid_t uid = 0;
  gid_t gid = 0;  ///< effective group, numbered in the same way as `uid`
};

}}  // namespace conn
