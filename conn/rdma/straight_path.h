// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The "straight path" is a fast path for messages. Sending: the written bytes are posted as one
// request, without planning a chain. Receiving: a message that is neither the first nor the last of
// its receive window is only counted. The fast path is used only while nothing else is due, and has
// the same effect as the full path. Tests switch it off to compare both.

#include "ae/abi.h"

namespace conn { inline namespace AECONN_ABI { namespace rdma {

struct StraightPath {
  /// True: connections that are created from now on use the straight path (a fast path for
  /// messages).
  static inline bool on = true;
};

}}}  // namespace conn::rdma
